"""The commands of `echelon` by name: where each is defined, and its line of `echelon --help`.

The module of a command is imported when that command is asked for, so that `echelon --help` imports no JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """One command: its name, its module in `echelon_jax.cli`, its class there, and what it does in one line."""

    name: str
    module: str
    kind: str
    text: str

    def load(self) -> Any:
        """Import the class; its `run()` returns the exit status."""
        return getattr(import_module(f"echelon_jax.cli.{self.module}"), self.kind)


COMMANDS = (
    Command(
        "train",
        "train",
        "TrainCommand",
        "Train a recurrent policy against an opponent, save it, and play evaluation games at the end.",
    ),
    Command(
        "evaluate",
        "evaluate",
        "EvaluateCommand",
        "Play evaluation games and print a table. Both sides of every map are played; games end where the environment ends them.",
    ),
    Command(
        "watch",
        "watch",
        "WatchCommand",
        "Play one game and open it as a page. A player is `scripted`, `scripted:RATE`, `random`, zoo:NAME, or a run.",
    ),
    Command(
        "replay",
        "replay",
        "ReplayCommand",
        "Open a replay as a page, or the newest of a folder; also check it against its seed and actions, or film it from above.",
    ),
    Command(
        "runs",
        "runs",
        "RunsCommand",
        "List the runs under a directory: configuration, git revision, updates, best win rate, last evaluation.",
    ),
    Command(
        "arena",
        "arena",
        "ArenaCommand",
        "Matches between any players, and a league of rated ones: play, rate, ladder, match, add, list, retire.",
    ),
    Command(
        "bench",
        "bench",
        "BenchCommand",
        "Measure env-steps, mech-steps and ticks per second, compile time and peak memory.",
    ),
    Command(
        "parity",
        "parity",
        "ParityCommand",
        "Compare with recordings of the original, with the plain reference, or both; exit status 1 if anything is unexplained.",
    ),
    Command(
        "export",
        "export",
        "ExportCommand",
        "Write a trained policy as a file for other programs, read it back and compare it with the JAX policy.",
    ),
    Command(
        "import",
        "export",
        "ImportCommand",
        "Make a run from a .pt file that the original wrote or that was exported here; `train --resume` continues it.",
    ),
)
BY_NAME = {command.name: command for command in COMMANDS}
