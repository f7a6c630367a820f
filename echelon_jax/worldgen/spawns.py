"""Spawn corners, the squares kept clear there, and where the mechs stand (worldgen spec 5.1, 5.2, 5.6)."""

from __future__ import annotations

import math

import numpy as np

from echelon_jax.rules.materials import AIR
from echelon_jax.rules.mechs import BLUE, HEAVY, MECH_CLASSES, PACK_SIZE, Roster

MARGIN = 2.0  # from the map's edge to the first box
PITCH = MECH_CLASSES[HEAVY].size[0]  # from mech to mech: the widest class
MIN_CLEAR = 25
POSITION_JITTER = 0.25
YAW_JITTER = 0.15
TRANSFORMS = ("identity", "flip_x", "flip_y", "flip_xy")


def mirror_corner(corner: str, flip_x: bool, flip_y: bool) -> str:
    """The corner that `corner` becomes when the map is mirrored along x, y or both."""
    y, x = corner[0], corner[1]
    return (("T" if y == "B" else "B") if flip_y else y) + (("R" if x == "L" else "L") if flip_x else x)


def spawn_clear_size(size_x: int, size_y: int, team_size: int) -> int:
    """Edge in voxels of the square cleared at each spawn corner (spec 5.2)."""
    columns, rows = min(PACK_SIZE, team_size), math.ceil(team_size / PACK_SIZE)
    required = math.ceil(max(MARGIN + PITCH * (n - 1) + PITCH for n in (columns, rows)) + 1)
    smaller = min(size_x, size_y)
    return min(max(MIN_CLEAR, math.trunc(0.25 * smaller), required), size_x, size_y)


def spawn_square(corner: str, clear: int, size_x: int, size_y: int) -> tuple[int, int, int, int]:
    """The half-open square (x0, x1, y0, y1) of edge `clear` at a corner."""
    x0 = 0 if corner[1] == "L" else size_x - clear
    y0 = 0 if corner[0] == "B" else size_y - clear
    return x0, x0 + clear, y0, y0 + clear


def clear_spawns(material: np.ndarray, hp: np.ndarray, squares: list[tuple[int, int, int, int]]) -> None:
    """Empty the spawn squares over the full height, hit points included; both arrays [Z, Y, X], in place."""
    for x0, x1, y0, y1 in squares:
        material[:, y0:y1, x0:x1] = AIR
        hp[:, y0:y1, x0:x1] = 0


def spawn_anchor(corner: str, clear: int, size_x: int, size_y: int) -> tuple[int, int]:
    """The middle cell (x, y) of the spawn square at a corner, where lanes start (spec 5.5)."""
    half = max(1, clear // 2)
    return (
        half if corner[1] == "L" else size_x - 1 - half,
        half if corner[0] == "B" else size_y - 1 - half,
    )


def place_mechs(
    rng: np.random.Generator,
    roster: Roster,
    corners: tuple[str, str],
    zone_centre: tuple[float, float],
    size_x: int,
    size_y: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Stand both teams in their corners in rows of five, facing the zone, with a little jitter (simulation spec 4.4).

    Args:
        rng: the episode's `variants` generator, after the corridors.
        corners: blue's and red's.

    Returns:
        Box centres float32 [N, 3] and yaws float64 [N] in radians, in roster order.
    """
    position, yaw = np.zeros((roster.size, 3), np.float32), np.zeros(roster.size)
    for mech in range(roster.size):
        corner = corners[0] if roster.team[mech] == BLUE else corners[1]
        # Half extents are float32 in the game and widen here.
        hx, hy, hz = (float(np.float32(edge / 2)) for edge in MECH_CLASSES[roster.mech_class[mech]].size)
        row, column = divmod(int(roster.index[mech]), PACK_SIZE)
        dx, dy = MARGIN + PITCH * column + hx, MARGIN + PITCH * row + hy
        x = dx if corner[1] == "L" else size_x - dx
        y = dy if corner[0] == "B" else size_y - dy
        x += rng.uniform(-POSITION_JITTER, POSITION_JITTER)
        y += rng.uniform(-POSITION_JITTER, POSITION_JITTER)
        x, y = min(max(x, hx), size_x - hx), min(max(y, hy), size_y - hy)
        position[mech] = x, y, hz
        yaw[mech] = math.atan2(zone_centre[1] - y, zone_centre[0] - x) + rng.uniform(-YAW_JITTER, YAW_JITTER)
    return position, yaw
