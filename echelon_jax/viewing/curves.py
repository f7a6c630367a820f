"""Learning curves of several runs as one picture (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echelon_jax.runs.comparison import curve, smooth
from echelon_jax.runs.description import read_lines
from echelon_jax.viewing.pictures import Picture, literal

SMOOTHED = 20  # of a run's points, how many windows the thick line has


def curves_figure(runs: Sequence[Path], metrics: Sequence[str]) -> Picture:
    """A figure with one plot per metric and one line per run: the values, and their running mean."""
    columns = min(len(metrics), 3)
    rows = -(-len(metrics) // columns)
    figure = Picture(figsize=(5 * columns, 3.6 * rows))
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, metric in zip(axes.flat, metrics, strict=False):
        for i, run in enumerate(runs):
            steps, values = curve(read_lines(run), metric)
            axis.plot(steps, values, color=f"C{i}", alpha=0.25, lw=1)
            window = max(1, len(values) // SMOOTHED)
            axis.plot(steps, smooth(values, window), color=f"C{i}", label=literal(run.name))
        axis.set(title=literal(metric), xlabel="env-steps")
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(metrics) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize="small")
    figure.tight_layout()
    return figure
