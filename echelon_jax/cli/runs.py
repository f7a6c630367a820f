"""`echelon runs`: all runs under a directory with their configurations, updates and best figures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import tyro

from echelon_jax.cli.errors import UsageError
from echelon_jax.runs.description import RunSummary, list_runs


@dataclasses.dataclass(frozen=True)
class RunsCommand:
    """List the runs under a directory: configuration, git revision, updates, best win rate, last evaluation."""

    folder: tyro.conf.Positional[Path] = Path("runs")
    """Directory that holds the runs."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Print the list; returns the exit status.

        Raises:
            UsageError: the directory does not exist.
        """
        if not self.folder.is_dir():
            raise UsageError(f"folder must be a directory with runs, and there is none at {self.folder}")
        found = list_runs(self.folder)
        if self.json:
            print(json.dumps([dataclasses.asdict(run) | {"path": str(run.path)} for run in found], indent=1))
        else:
            _print_table(self.folder, found)
        return 0


def _print_table(folder: Path, found: list[RunSummary]) -> None:
    from rich import box
    from rich.table import Table

    from echelon_jax.terminal import PlainConsole

    table = Table(box=box.SIMPLE_HEAD, show_lines=True)
    table.add_column("run", overflow="fold", ratio=1)
    for name in ("updates", "saved", "best wins"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("evaluation", overflow="fold", max_width=24)
    for run in found:
        git = "" if run.git is None else f"\ngit {run.git[:10]}{'+' if run.git.endswith('+') else ''}"
        table.add_row(
            f"{run.path.relative_to(folder)}\n{run.what}{git}",
            f"{run.updates}" if run.planned is None else f"{run.updates} of {run.planned}",
            f"{run.checkpoints}",
            "-" if run.win_rate is None else f"{run.win_rate:.0%}",
            "\n".join(f"{rate:.0%} {name}" for name, rate in (run.evaluation or {}).items()) or "-",
        )
    console = PlainConsole()
    console.print(f"{len(found)} runs under {folder}", soft_wrap=True)
    console.print(table)
