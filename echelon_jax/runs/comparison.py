"""Runs side by side: their metrics as one table of numbers, as CSV, and as curves over env-steps."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from echelon_jax.runs.description import read_lines

END_SHARE = 0.25  # of a run, over which its last figures are means


def curve(lines: Sequence[dict[str, Any]], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (env-steps, values) of a metric, where it has a value; the axis is the update if there are no env-steps."""
    points = [(line.get("env_steps", line["update"]), line[metric]) for line in lines if line.get(metric) is not None]
    made = np.asarray(points, np.float64).reshape(-1, 2)
    return made[:, 0], made[:, 1]


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of each value with up to `window` - 1 values before it."""
    if not len(values):
        return values
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)


def compare(runs: Sequence[Path], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per run: env-steps, updates, and of each metric the mean over the last quarter of its values.

    Raises:
        ValueError: a directory holds no metrics, or no run has one of the metrics.
    """
    rows: list[dict[str, Any]] = []
    missing = set(metrics)
    for run in runs:
        lines = read_lines(run)
        if not lines:
            raise ValueError(f"compare must name runs, and there are no metrics in {run}")
        row: dict[str, Any] = {"run": str(run), "update": lines[-1]["update"], "env_steps": lines[-1].get("env_steps")}
        for metric in metrics:
            _, values = curve(lines, metric)
            missing -= {metric} if len(values) else set()
            row[metric] = float(values[-max(1, round(END_SHARE * len(values))) :].mean()) if len(values) else None
        rows.append(row)
    if missing:
        raise ValueError(
            f"metrics must be names of docs/metrics.md that the runs have, got {', '.join(sorted(missing))}"
        )
    return rows


def write_csv(file: TextIO, runs: Sequence[tuple[str, Path]]) -> int:
    """Write every line of every run as CSV, with the run's name in the first column, and return the number of lines.

    Columns are in the order in which they first appear. A number without a value is an empty cell.

    Args:
        file: an open text file; open it with newline="".
        runs: names and directories.
    """
    lines = [{"run": name, **line} for name, run in runs for line in read_lines(run)]
    columns = dict.fromkeys(column for line in lines for column in line)
    writer = csv.DictWriter(file, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return len(lines)
