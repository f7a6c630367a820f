"""`echelon runs`: all runs under a directory with their configurations, updates and best figures."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.runs.description import RunSummary, list_runs


@dataclasses.dataclass(frozen=True)
class RunsCommand:
    """List the runs under a directory: configuration, git revision, updates, best win rate, last evaluation."""

    folder: tyro.conf.Positional[Path] = Path("runs")
    """Directory that holds the runs."""
    compare: tuple[Path, ...] = ()
    """Compare these runs instead: the last quarter of each metric as a table, and all curves as a picture."""
    metrics: tuple[str, ...] = ("win_rate", "zone_share", "return_per_mech")
    """What to compare, by the names of docs/metrics.md."""
    out: Path | None = None
    """The picture of a comparison; by default FOLDER/compare.png."""
    csv: Path | None = None
    """Write all metrics of the runs (those of --compare, or all of the directory) as this CSV file."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Print the list or the comparison; returns the exit status.

        Raises:
            UsageError: the directory does not exist, a run has no metrics, or a file cannot be written.
        """
        if self.out is not None and not self.compare:
            raise UsageError("out is the picture of a comparison and needs --compare")
        if self.compare:
            return self._compare()
        if not self.folder.is_dir():
            raise UsageError(f"folder must be a directory with runs, and there is none at {self.folder}")
        found = list_runs(self.folder)
        self._write_csv([run.path for run in found])
        if self.json:
            print(json.dumps([dataclasses.asdict(run) | {"path": str(run.path)} for run in found], indent=1))
        else:
            _print_table(self.folder, found)
        return 0

    def _compare(self) -> int:
        from echelon_jax.runs.comparison import compare
        from echelon_jax.viewing.curves import curves_figure
        from echelon_jax.viewing.pictures import write_figure

        rows = checked(compare, self.compare, self.metrics)
        self._write_csv(self.compare)
        out = self.out or self.folder / "compare.png"
        try:
            write_figure(out, curves_figure(self.compare, self.metrics))
        except OSError as error:
            raise UsageError(f"cannot write to {out}: {error.strerror or error}") from error
        except ValueError as error:
            raise UsageError(f"out must be the name of a picture, such as compare.png, got {out.name!r}") from error
        if self.json:
            print(json.dumps({"picture": str(out), "runs": rows}, indent=1))
        else:
            _print_comparison(rows, self.metrics)
            print(out)
        return 0

    def _write_csv(self, runs: Sequence[Path]) -> None:
        if self.csv is None:
            return
        from echelon_jax.runs.comparison import write_csv

        try:
            with self.csv.open("w", newline="", encoding="utf-8") as file:
                write_csv(file, [(str(run), run) for run in runs])
        except OSError as error:
            raise UsageError(f"cannot write to {self.csv}: {error.strerror or error}") from error


def _print_comparison(rows: list[dict[str, Any]], metrics: Sequence[str]) -> None:
    from rich.table import Table

    from echelon_jax.terminal import PlainConsole

    table = Table(title="means over the last quarter")
    for name in ("run", "updates", "env-steps", *metrics):
        table.add_column(name, justify="left" if name == "run" else "right")
    for row in rows:
        values = ("-" if row[metric] is None else f"{row[metric]:.4g}" for metric in metrics)
        table.add_row(row["run"], f"{row['update']}", f"{row['env_steps'] or '-'}", *values)
    PlainConsole().print(table)


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
