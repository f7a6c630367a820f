"""`echelon replay`: open, check or film replay files."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from echelon_jax.cli.common import set_up_jax
from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.watch import open_page

if TYPE_CHECKING:
    from echelon_jax.replay.model import Replay


@dataclasses.dataclass(frozen=True)
class ReplayCommand:
    """Open a replay as a page, or the newest of a folder; also check it against its seed and actions, or film it from above."""

    path: tyro.conf.Positional[Path]
    """A replay file (this project's, or the original's JSON), or a folder: its replays are listed and the newest is opened."""
    html: Path | None = None
    """Where to write the page; by default beside the file, with the ending .html."""
    no_open: bool = False
    """Only write the page."""
    verify: bool = False
    """Simulate the game again and compare every state bit for bit; exit status 1 if one differs. Opens nothing."""
    gif: Path | None = None
    """Film the game from above as a GIF here. Opens nothing."""
    mp4: Path | None = None
    """The same as MP4 (extra `video`)."""
    tensorboard: Path | None = None
    """The same as a moving picture in RUN/tensorboard of this run, at the update that played the game."""
    speed: float = 2.0
    """Of a film: times faster than the game's clock."""
    width: int = 480
    """Of a film, in pixels."""
    json: bool = False
    """Print JSON instead of text: what was found or written."""
    threads: int = 0
    """XLA's CPU threads; 0 leaves the choice to XLA."""

    def run(self) -> int:
        """Do what the flags say; returns the exit status.

        Raises:
            UsageError: a file that is not a replay, or a flag out of range.
        """
        if not 0.1 <= self.speed <= 50:
            raise UsageError(f"speed must be from 0.1 to 50, got {self.speed}")
        if not 160 <= self.width <= 1920:
            raise UsageError(f"width must be from 160 to 1920 pixels, got {self.width}")
        if not self.path.exists():
            raise UsageError(f"there is no replay at {self.path}")
        from echelon_jax.replay.checks import ReplayError
        from echelon_jax.replay.file import read_replay
        from echelon_jax.viewing.extras import MissingExtra

        file = self._newest() if self.path.is_dir() else self.path
        try:
            replay = read_replay(file)
            if self.verify:
                return self._verify(file, replay)
            if self.gif is not None or self.mp4 is not None or self.tensorboard is not None:
                return self._film(replay)
            return self._page(file, replay)
        except (ReplayError, MissingExtra) as error:
            raise UsageError(str(error)) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UsageError(f"cannot write: {error.strerror or error}") from error

    def _newest(self) -> Path:
        from echelon_jax.replay.file import SUFFIX

        found = sorted(self.path.rglob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise UsageError(f"there is no replay (*{SUFFIX}) in {self.path}")
        if not self.json:
            for path in found:
                print(path)
        print(f"opening the newest: {found[-1]}", file=sys.stderr)
        return found[-1]

    def _page(self, path: Path, replay: Replay) -> int:
        from echelon_jax.replay.page import write_page

        out = self.html or path.with_suffix(".html")
        write_page(out, replay)
        print(json.dumps({"replay": str(path), "wrote": [str(out)]}) if self.json else out)
        if not self.no_open:
            open_page(out)
        return 0

    def _verify(self, path: Path, replay: Replay) -> int:
        set_up_jax(self.threads)
        from echelon_jax.replay.verify import verify

        verification = verify(replay)
        corrected = replay.header.get("corrected_decisions", 0)
        if self.json:
            found = verification._asdict() | {"exact": verification.exact, "corrected": corrected}
            print(json.dumps({"replay": str(path), **found}, default=float))
            return 0 if verification.exact else 1
        if verification.exact:
            print(
                f"{path}: all {verification.decisions} decisions simulated again, every state is the recorded one to the bit"
            )
            return 0
        what = ", ".join(verification.what)
        print(
            f"{path}: differs from decision {verification.first} on, first in {what}, by {verification.largest:g} at most there"
        )
        if corrected:
            print(
                f"It was recorded from another compiled program, and {corrected} of its decisions could not be followed."
            )
        return 1

    def _film(self, replay: Replay) -> int:
        from echelon_jax.replay.film import film_in_tensorboard, write_gif, write_mp4

        wrote = []
        for path, write in ((self.gif, write_gif), (self.mp4, write_mp4)):
            if path is not None:
                wrote.append(str(write(path, replay, width=self.width, speed=self.speed)))
        if self.tensorboard is not None:
            if not self.tensorboard.is_dir():
                raise UsageError(f"tensorboard must be a run, and there is no directory {self.tensorboard}")
            wrote.append(str(film_in_tensorboard(self.tensorboard, replay, self.width, self.speed)))
        print(json.dumps({"wrote": wrote}) if self.json else "\n".join(wrote))
        return 0
