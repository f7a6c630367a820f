"""`echelon watch`: play one game and open it in the browser."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon_jax.cli.common import GameFlags, set_up_jax
from echelon_jax.cli.errors import UsageError

if TYPE_CHECKING:
    from echelon_jax.config import EnvConfig

WATCH_SIZE = 60
CHAMPION = "zoo:champion"


@dataclasses.dataclass(frozen=True)
class WatchCommand:
    """Play one game and open it as a page. A player is `scripted`, `scripted:RATE`, `random`, zoo:NAME, or a run."""

    blue: str | None = None
    """Who plays blue: `scripted`, `scripted:0.5` (its fire rate), `random`, zoo:NAME, or the path of a run or checkpoint.
    By default zoo:champion in its own game; `scripted` where a flag changes the game or red is a policy."""
    red: str = "scripted"
    """Who plays orange, likewise."""
    seed: int = 7
    """Of the map and of every draw."""
    out: Path | None = None
    """The page; by default replays/watch-SEED.html. The replay file is written beside it."""
    no_open: bool = False
    """Only write the page and print its path."""
    no_observe: bool = False
    """Leave out what the mechs see: a smaller file, and less to compile the first time."""
    deterministic: bool = False
    """Trained players act by their most likely action instead of a sample."""
    json: bool = False
    """Print JSON instead of the page's path: the result and what was written."""
    threads: int = 0
    """XLA's CPU threads; 0 leaves the choice to XLA."""
    game: GameFlags = dataclasses.field(default_factory=GameFlags)

    def run(self) -> int:
        """Play, write the page, open it; returns the exit status.

        Raises:
            UsageError: a flag out of range, or a player that cannot be used.
        """
        if not 0 <= self.seed < 2**30:
            raise UsageError(f"seed must be a whole number from 0 to {2**30 - 1}, got {self.seed}")
        out = self.out or Path("replays") / f"watch-{self.seed}.html"
        if out.suffix != ".html":
            raise UsageError(f"out must be the name of a page, ending in .html, got {out.name!r}")
        set_up_jax(self.threads)
        from echelon_jax.replay.file import SUFFIX, write_replay
        from echelon_jax.replay.page import write_page
        from echelon_jax.runs.checkpoint import CheckpointError

        try:
            replay = self._play()
            write_replay(out.with_suffix(SUFFIX), replay)
            write_page(out, replay)
        except (CheckpointError, ValueError) as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(f"cannot write to {out.parent}: {error.strerror or error}") from error
        result = {"blue": "blue wins", "red": "red (drawn in orange) wins"}.get(replay.header["winner"], "a draw")
        tell(f"{result} after {replay.seconds:.0f} s of play")
        if self.json:
            told = {"winner": replay.header["winner"], "seconds": replay.seconds}
            print(json.dumps(told | {"wrote": [str(out.with_suffix(SUFFIX)), str(out)]}))
        else:
            print(out)
        if not self.no_open:
            open_page(out)
        return 0

    def _play(self) -> Any:
        from echelon_jax.evaluation.matches import opponent_player
        from echelon_jax.replay.build import Origin, game_params, make_replay, warm_up
        from echelon_jax.replay.games import play_game

        players, config = self.players(), self._config()
        blue, red = (opponent_player(name, config, self.deterministic) for name in players)
        tell("making the map and compiling the game (the first time takes longer) …")
        params = game_params(config, self.seed)
        threads = warm_up(config, params, not self.no_observe)
        trace = play_game(config, params, blue, red, self.seed, not self.no_observe)
        tell(f"played {len(trace.actions)} decisions; looking at every shot …")
        for thread in threads:
            thread.join()
        names = [Path(name).name if Path(name).exists() else name for name in players]
        origin = Origin(names[0], names[1], title=f"{names[0]} against {names[1]}", source="echelon watch")
        return make_replay(config, trace, origin)

    def players(self) -> tuple[str, str]:
        """The names of who plays blue and red."""
        from echelon_jax.agents.registry import is_agent_name

        if self.blue is not None:
            return self.blue, self.red
        own_game = self.game == GameFlags() and is_agent_name(self.red)
        return CHAMPION if own_game else "scripted", self.red

    def _config(self) -> EnvConfig:
        """The game of the first trained player, changed by the flags; the flags' alone without one."""
        from echelon_jax.agents.registry import FORMS, is_agent_name, is_zoo_name
        from echelon_jax.runs.checkpoint import load_policy

        for name in self.players():
            if not is_agent_name(name):
                if not is_zoo_name(name) and not Path(name).exists():
                    raise UsageError(
                        f"opponents must be {FORMS}, the path of a run or checkpoint, or zoo:NAME, got {name!r}"
                    )
                return self.game.config(WATCH_SIZE, dataclasses.asdict(load_policy(name).env_config))
        return self.game.config(WATCH_SIZE)


def tell(text: str) -> None:
    """Say what is going on, on standard error."""
    print(text, file=sys.stderr, flush=True)


def open_page(path: Path) -> None:
    """Open a page in the browser where there is a display; otherwise say that there is none."""
    display = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not display or not webbrowser.open(path.resolve().as_uri()):
        tell("no display or browser found: open the page yourself")
