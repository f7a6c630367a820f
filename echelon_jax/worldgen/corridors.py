"""Corridors: a square ring around the zone and two lanes per team from its spawn to the zone (docs/spec/worlds.md 5.5).

The main lanes guarantee that both teams reach the zone: every map is connected as soon as they are carved.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from echelon_jax.rules.materials import AIR
from echelon_jax.worldgen.zone import Zone

LANE_HEIGHT = 5  # levels that a lane clears; higher obstacles become roofs (G9)
Point = tuple[float, float]


class Corridor(NamedTuple):
    """One corridor: its kind, nominal width in voxels, and corner points (x, y)."""

    kind: str
    width: float
    points: tuple[Point, ...]


def lane_width(size_x: int, size_y: int) -> int:
    """Nominal width of every corridor: 4 at 40 and 60, 6 at 100; one cell more is cleared (G10)."""
    smaller = min(size_x, size_y)
    width = math.trunc(max(4, min(8, round(0.06 * smaller))))
    return min(width, max(2, smaller // 4))


def _mark_line(mask: np.ndarray, start: Point, end: Point, width: float, complete: bool) -> None:
    """Mark the cells of a straight corridor in `mask` [Y, X], in place; `complete` keeps steps at the low edges."""
    steps = max(1, math.trunc(1.5 * math.hypot(end[0] - start[0], end[1] - start[1])))
    t = np.arange(steps + 1) / steps
    x = start[0] + (end[0] - start[0]) * t
    y = start[1] + (end[1] - start[1]) * t
    half = width / 2
    edges = np.floor([x - half, x + half + 1, y - half, y + half + 1]).astype(int)
    for x0, x1, y0, y1 in set(zip(*edges.tolist())):
        # In the original a step that leaves the map on a low side clears nothing (G8); high sides are clipped.
        if complete or (x0 >= 0 and y0 >= 0):
            mask[max(y0, 0) : y1, max(x0, 0) : x1] = True


def plan_corridors(
    rng: np.random.Generator, zone: Zone, anchors: tuple[tuple[int, int], tuple[int, int]], size_x: int, size_y: int
) -> list[Corridor]:
    """Lay out the ring and, for blue then red, the main lane and a flank on a random side.

    Args:
        rng: the episode's `variants` generator, after the zone; two draws per team.
        anchors: blue's and red's anchor cells (x, y).
    """
    width = lane_width(size_x, size_y)

    def clip_x(x: float) -> float:
        return min(max(x, 1.0), size_x - 2.0)

    def clip_y(y: float) -> float:
        return min(max(y, 1.0), size_y - 2.0)

    reach = min(max(round(zone.radius + 1.25 * width), 3), max(3, math.trunc(0.35 * min(size_x, size_y))))
    x0, x1, y0, y1 = clip_x(zone.x - reach), clip_x(zone.x + reach), clip_y(zone.y - reach), clip_y(zone.y + reach)
    corridors = [Corridor("objective_ring", float(width), ((x0, y0), (x1, y0), (x1, y1), (x0, y1)))]
    for team, anchor, side in (("blue", anchors[0], -1.0), ("red", anchors[1], 1.0)):
        start, end = (float(anchor[0]), float(anchor[1])), (zone.x, zone.y)
        corridors.append(Corridor(f"{team}_lane_main", float(width), (start, end)))
        vx, vy = end[0] - start[0], end[1] - start[1]
        length = math.hypot(vx, vy)
        nx, ny = (-vy / length, vx / length) if length > 1e-6 else (1.0, 0.0)
        sign = -side if int(rng.integers(0, 2)) == 0 else side
        offset = rng.uniform(1.5, 2.5) * width * sign
        flank = tuple((clip_x(x + offset * nx), clip_y(y + offset * ny)) for x, y in (start, end))
        corridors.append(Corridor(f"{team}_lane_flank", float(width), flank))
    return corridors


def carve_corridors(material: np.ndarray, corridors: list[Corridor], complete: bool = False) -> None:
    """Clear the lowest five levels of every corridor, in place; hit points stay as they were (G16).

    Args:
        material: uint8 [Z, Y, X].
        complete: clip steps at the low edges of the map as at the high ones (switch corridors_complete).
    """
    mask = np.zeros(material.shape[1:], bool)
    for corridor in corridors:
        points = corridor.points
        if len(points) > 2:  # the ring is closed
            points = (*points, points[0])
        for start, end in itertools.pairwise(points):
            _mark_line(mask, start, end, corridor.width, complete)
    material[:LANE_HEIGHT, mask] = AIR
