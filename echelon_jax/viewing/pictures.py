"""An evaluation as one picture: results, weapon use by range, heat, and the positions of both sides (matplotlib)."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from echelon_jax.evaluation.behaviour import MAP_CELLS, RANGE_EDGES, window
from echelon_jax.evaluation.matches import Evaluation
from echelon_jax.rules.weapons import WEAPON_NAMES

OWN, OTHER = "#4084f4", "#ec4c3e"
DPI = 110


class Picture(Figure):
    """A figure that no window and no pyplot knows, so that the user's backend stays; a notebook shows it by itself."""

    def _repr_png_(self) -> bytes:
        """The figure as PNG, for a notebook."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()


def literal(name: str) -> str:
    """A name as it is: matplotlib would read a formula between dollar signs."""
    return name.replace("$", r"\$")


def range_labels() -> list[str]:
    """Names of the bins of distances, in voxels."""
    edges = [f"{edge:g}" for edge in RANGE_EDGES]
    return [f"0-{edges[0]}", *(f"{a}-{b}" for a, b in itertools.pairwise(edges)), f"{edges[-1]}+"]


def evaluation_figure(evaluation: Evaluation, opponent: str | None = None) -> Picture:
    """A figure of all results, with the behaviour against one opponent (the first unless named).

    Raises:
        ValueError: the opponent was not played.
    """
    name = next(iter(evaluation.against)) if opponent is None else opponent
    if name not in evaluation.against:
        raise ValueError(f"opponent must be one of {', '.join(evaluation.against)}, got {name!r}")
    figure = Picture(figsize=(15, 8.5))
    axes = figure.subplots(2, 3)
    behaviour = evaluation.against[name]["behaviour"]
    draw_results(axes[0, 0], evaluation)
    for axis, whose in ((axes[0, 1], "own"), (axes[0, 2], "other")):
        draw_weapons(axis, behaviour[whose])
        axis.set_title(f"shots per game by distance, {'policy' if whose == 'own' else literal(name)}")
    draw_habits(axes[1, 0], behaviour, name)
    for axis, side in ((axes[1, 1], 0), (axes[1, 2], 1)):
        draw_positions(axis, evaluation, name, side)
    figure.suptitle(literal(f"{evaluation.policy} at update {evaluation.update}"))
    figure.tight_layout()
    return figure


def draw_results(axis: Any, evaluation: Evaluation) -> None:
    """Win rate against each opponent with its 95 % interval."""
    names = list(evaluation.against)
    for row, name in enumerate(names):
        s = evaluation.against[name]
        axis.plot([s["win_rate_low"], s["win_rate_high"]], [row, row], color=OWN, lw=3, solid_capstyle="round")
        axis.plot([s["win_rate"]], [row], "o", color=OWN)
        left = s["win_rate"] < 0.5  # towards the middle, so that the words stay inside the axis
        side = "left" if left else "right"
        axis.text(s["win_rate"], row - 0.12, f"{s['win_rate']:.0%} of {s['games']}", ha=side, va="bottom")
    axis.axvline(0.5, color="grey", lw=1, ls=":")
    axis.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5), yticks=range(len(names)), yticklabels=map(literal, names))
    axis.set_xticks(np.linspace(0, 1, 5))
    axis.set_title("win rate, 95 % interval")


def draw_weapons(axis: Any, behaviour: dict[str, Any]) -> None:
    """Shots per game by weapon, stacked over the distance of the nearest enemy in the arc."""
    labels, left = range_labels(), np.zeros(len(WEAPON_NAMES))
    table = np.array([behaviour["weapons"][w]["by_range"] for w in WEAPON_NAMES])
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.95, len(labels)))
    for column, label in enumerate(labels):
        axis.barh(WEAPON_NAMES, table[:, column], left=left, color=colours[column], label=label)
        left += table[:, column]
    axis.margins(x=0.05)
    axis.invert_yaxis()
    axis.legend(title="voxels", fontsize=7, title_fontsize=7)


def draw_habits(axis: Any, behaviour: dict[str, Any], opponent: str) -> None:
    """Shares that tell how a side plays, for both sides."""
    rows = {
        "gun shots in reach": lambda b: b["gun_shots_in_reach"],
        "chances taken": lambda b: b["chances_taken"],
        "time in zone": lambda b: b["zone"]["in_zone"],
        "mean heat": lambda b: b["heat"]["mean"],
        "time over cap": lambda b: b["heat"]["over_cap"],
        "vents when hot": lambda b: b["heat"]["vents_when_hot"],
        "vents when cool": lambda b: b["heat"]["vents_when_cool"],
    }
    positions = np.arange(len(rows))
    for shift, whose, colour, label in ((-0.2, "own", OWN, "policy"), (0.2, "other", OTHER, opponent)):
        axis.barh(
            positions + shift,
            [read(behaviour[whose]) or 0.0 for read in rows.values()],
            0.38,
            color=colour,
            label=literal(label),
        )
    axis.set(yticks=positions, yticklabels=list(rows), xlim=(0, 1))
    axis.invert_yaxis()
    axis.legend(fontsize=8)
    axis.set_title("habits, as shares")


def draw_positions(axis: Any, evaluation: Evaluation, opponent: str, side: int) -> None:
    """Where a side's living mechs were, around the zone, its own spawn to the left; both sides on the same scale."""
    positions = evaluation.games[opponent].behaviour.positions.sum(0)
    shares = positions / np.maximum(positions.sum((1, 2), keepdims=True), 1.0)
    half = window(evaluation.env_config)
    axis.imshow(shares[side], origin="lower", extent=(-half, half, -half, half), cmap="magma", vmax=shares.max() or 1.0)
    axis.plot([0], [0], "+", color="white", ms=10)
    axis.set(xlabel="voxels from the zone, own spawn to the left", aspect="equal")
    axis.set_title(f"where {'the policy' if side == 0 else literal(opponent)} was ({MAP_CELLS}x{MAP_CELLS} cells)")


def write_figure(path: Path, figure: Figure) -> Path:
    """Write a figure as PNG and return its path."""
    figure.savefig(path, dpi=DPI)
    return path


def matrix_figure(names: list[str], scores: np.ndarray, title: str) -> Picture:
    """A figure of scores, the row's against the column's from 0 to 1; NaN stays empty."""
    size = 2.5 + 0.5 * len(names)
    figure = Picture(figsize=(size + 1.5, size))
    axis = figure.subplots()
    axis.imshow(np.ma.masked_invalid(scores), cmap="RdBu", vmin=0, vmax=1)
    for row, column in np.argwhere(~np.isnan(scores)):
        score = scores[row, column]
        colour = "white" if abs(score - 0.5) > 0.35 else "black"
        axis.text(column, row, f"{100 * score:.0f}", ha="center", va="center", color=colour, fontsize=8)
    ticks = range(len(names))
    axis.set(yticks=ticks, yticklabels=map(literal, names), xticks=ticks)
    axis.set_xticklabels(map(literal, names), rotation=60, ha="right")
    axis.set_title(literal(title), fontsize=9)
    figure.tight_layout()
    return figure
