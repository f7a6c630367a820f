"""Games of a run's validation as replays: written beside the run, and handed to the live page, on a thread of their own."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from echelon_jax.config import EnvConfig
from echelon_jax.env.trace import Trace
from echelon_jax.live.feed import Feed
from echelon_jax.replay.build import Origin, make_replay
from echelon_jax.replay.checks import ReplayError
from echelon_jax.replay.file import SUFFIX, to_bytes, write_replay
from echelon_jax.replay.page import page_of_bytes

KEPT = 10  # files; older ones of this folder are removed


class GameRecorder:
    """Makes the replay of a validation game while training goes on, and shows it; a context manager.

    A game that comes while another is in work waits; of several that wait the newest is made.

    Args:
        folder: where the files go, `RUN/replays`.
        env_config: the game.
        feed: the page's feed.
        name: of the run, for the titles.
    """

    def __init__(self, folder: Path, env_config: EnvConfig, feed: Feed, name: str) -> None:
        self.folder, self.env_config, self.feed, self.name = folder, env_config, feed, name
        self.problem: str | None = None  # why a game could not be kept
        self._news = threading.Condition()
        self._waiting: tuple[int, str, Trace] | None = None
        self._closing = self._working = False
        self._thread = threading.Thread(target=self._work, name="replays", daemon=True)

    def __enter__(self) -> GameRecorder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last game, unless the run ends by an error."""
        with self._news:
            self._closing = True
            self._waiting = None if error is not None else self._waiting
            self._news.notify_all()
        if error is None:
            self._thread.join()

    @property
    def busy(self) -> bool:
        """Whether a game is in work or waits."""
        with self._news:
            return self._working or self._waiting is not None

    def take(self, update: int, opponent: str, trace: Trace) -> None:
        """Take a game; returns at once."""
        with self._news:
            self._waiting = update, opponent, trace
            self._news.notify_all()

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting is not None or self._closing)
                game, self._waiting = self._waiting, None
                self._working = game is not None
            if game is None:
                return
            try:
                self._make(*game)
            except (OSError, ReplayError, ValueError) as error:
                # The run does not end because its film could not be kept.
                self.problem = f"the game of update {game[0]} could not be kept: {error}"
            with self._news:
                self._working = False

    def _make(self, update: int, opponent: str, trace: Trace) -> None:
        title = f"{self.name} at update {update} against {opponent}"
        replay = make_replay(
            self.env_config, trace, Origin(self.name, opponent, title, f"validation at update {update}")
        )
        write_replay(self.folder / f"update-{update:08d}{SUFFIX}", replay)
        self.feed.show_game(update, page_of_bytes(to_bytes(replay)).encode())
        for old in sorted(self.folder.glob(f"update-*{SUFFIX}"))[:-KEPT]:
            old.unlink(missing_ok=True)
