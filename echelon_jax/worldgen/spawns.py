"""Spawn corners, the areas kept clear there, and where the mechs stand (docs/spec/worlds.md 5.1, 5.2, 5.6)."""

from __future__ import annotations

import math

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.rules.formation import MARGIN, POSITION_JITTER, fitted_clear, formation_pitch, square_clear
from echelon_jax.rules.materials import AIR
from echelon_jax.rules.mechs import BLUE, MECH_CLASSES, PACK_SIZE, Roster

PITCH = formation_pitch(without_overlap=False)
YAW_JITTER = 0.15
ROUNDING = 1e-4  # voxels; float32 positions are good to 3e-5 at 1000
TRANSFORMS = ("identity", "flip_x", "flip_y", "flip_xy")
Rectangle = tuple[int, int, int, int]


def mirror_corner(corner: str, flip_x: bool, flip_y: bool) -> str:
    """The corner that `corner` becomes when the map is mirrored along x, y or both."""
    y, x = corner[0], corner[1]
    return (("T" if y == "B" else "B") if flip_y else y) + (("R" if x == "L" else "L") if flip_x else x)


def spawn_clear_size(size_x: int, size_y: int, team_size: int, pitch: float = PITCH) -> int:
    """Edge in voxels of the square that the original clears at each spawn corner (docs/spec/worlds.md 5.2)."""
    return square_clear(size_x, size_y, min(PACK_SIZE, team_size), math.ceil(team_size / PACK_SIZE), pitch)


def spawn_area(config: EnvConfig) -> tuple[int, int]:
    """Edges (x, y) in voxels of what is cleared at each spawn corner: a square, or fitted to keep terrain."""
    pitch = formation_pitch(config.spawn_without_overlap)
    if config.terrain_on_small_maps:
        return fitted_clear(config.size_x, config.size_y, config.num_packs, pitch)
    edge = spawn_clear_size(config.size_x, config.size_y, config.team_size, pitch)
    return edge, edge


def spawn_rectangle(corner: str, area: tuple[int, int], size_x: int, size_y: int) -> Rectangle:
    """The half-open rectangle (x0, x1, y0, y1) of edges `area` at a corner."""
    x0 = 0 if corner[1] == "L" else size_x - area[0]
    y0 = 0 if corner[0] == "B" else size_y - area[1]
    return x0, x0 + area[0], y0, y0 + area[1]


def clear_spawns(material: np.ndarray, hp: np.ndarray, rectangles: list[Rectangle]) -> None:
    """Empty the spawn areas over the full height, hit points included; both arrays [Z, Y, X], in place."""
    for x0, x1, y0, y1 in rectangles:
        material[:, y0:y1, x0:x1] = AIR
        hp[:, y0:y1, x0:x1] = 0


def spawn_anchor(corner: str, area: tuple[int, int], size_x: int, size_y: int) -> tuple[int, int]:
    """The middle cell (x, y) of the spawn area at a corner, where lanes start (docs/spec/worlds.md 5.5)."""
    half_x, half_y = (max(1, edge // 2) for edge in area)
    return (
        half_x if corner[1] == "L" else size_x - 1 - half_x,
        half_y if corner[0] == "B" else size_y - 1 - half_y,
    )


def formation(roster: Roster, corners: tuple[str, str], size_x: int, size_y: int, pitch: float = PITCH) -> np.ndarray:
    """float64 [N, 2]: box centres (x, y) of both teams in rows of five in their corners, before any jitter.

    Args:
        corners: blue's and red's.
        pitch: voxels from mech to mech along a row and from row to row.
    """
    centres = np.zeros((roster.size, 2))
    for mech in range(roster.size):
        corner = corners[0] if roster.team[mech] == BLUE else corners[1]
        hx, hy, _ = _half_extents(roster.mech_class[mech])
        row, column = divmod(int(roster.index[mech]), PACK_SIZE)
        dx, dy = MARGIN + pitch * column + hx, MARGIN + pitch * row + hy
        centres[mech] = dx if corner[1] == "L" else size_x - dx, dy if corner[0] == "B" else size_y - dy
    return centres


def place_mechs(
    rng: np.random.Generator,
    roster: Roster,
    centres: np.ndarray,
    zone_centre: tuple[float, float],
    size_x: int,
    size_y: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Place the mechs in formation, facing the zone, with a little jitter (docs/spec/rules.md 4.4).

    Args:
        rng: the episode's `variants` generator, after the corridors.
        centres: float64 [N, 2], see `formation`.

    Returns:
        Box centres float32 [N, 3] and yaws float64 [N] in radians, in roster order.
    """
    position, yaw = np.zeros((roster.size, 3), np.float32), np.zeros(roster.size)
    for mech, (x, y) in enumerate(centres.tolist()):
        hx, hy, hz = _half_extents(roster.mech_class[mech])
        x += rng.uniform(-POSITION_JITTER, POSITION_JITTER)
        y += rng.uniform(-POSITION_JITTER, POSITION_JITTER)
        x, y = min(max(x, hx), size_x - hx), min(max(y, hy), size_y - hy)
        position[mech] = x, y, hz
        yaw[mech] = math.atan2(zone_centre[1] - y, zone_centre[0] - x) + rng.uniform(-YAW_JITTER, YAW_JITTER)
    return position, yaw


def _half_extents(mech_class: int) -> tuple[float, float, float]:
    # Half extents are float32 in the game and widen here.
    hx, hy, hz = (float(np.float32(edge / 2)) for edge in MECH_CLASSES[mech_class].size)
    return hx, hy, hz


def require_no_overlap(roster: Roster, position: np.ndarray) -> None:
    """Check that no two boxes share more than the rounding of a float32 position; `position` is [N, 3].

    Raises:
        ValueError: naming the first two mechs that overlap.
    """
    half = np.array([MECH_CLASSES[mech_class].size for mech_class in roster.mech_class]) / 2
    shared = half[:, None] + half[None] - np.abs(position[:, None].astype(float) - position[None])
    pairs = np.argwhere(np.triu((shared > ROUNDING).all(axis=-1), k=1))
    if len(pairs):
        first, second = (roster.ids[mech] for mech in pairs[0])
        raise ValueError(f"spawn_without_overlap must keep all boxes apart, but {first} and {second} overlap")
