"""The capture zone: its position, its size, and how it is cleared (docs/spec/worlds.md 5.3 and 5.4).

There are two ways to place it. The original's zone lies anywhere outside the spawn areas; the fair zone is about as far from
one team as from the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from echelon_jax.rules.constants import ZONE_MEAN_RADIUS, ZONE_RADIUS_FACTORS
from echelon_jax.rules.materials import AIR, COLLIDES
from echelon_jax.rules.mechs import BLUE, RED

EDGE_MARGIN = 2.0  # from the circle to the map's edge
ATTEMPTS = 256
ATTEMPTS_OFF_SPAWNS = 200  # the first so many candidates must not touch a spawn area
PLAY = 1.0  # voxels that a bounded zone can move between two spawn areas without touching one
MAX_PATH_RATIO = 1.2  # longer over shorter way to a fair zone
DIAGONAL_STEP = 1.414  # what the navigation graph takes for the square root of two (docs/spec/worlds.md 7)


Rectangle = tuple[int, int, int, int]


class Zone(NamedTuple):
    """The capture zone: centre x, y and radius in voxels, and the quarter of the map it was asked to lie in."""

    x: float
    y: float
    radius: float
    corner: str


def _interval(radius: float, size: int, low_half: bool) -> tuple[float, float]:
    low, high, middle = radius + EDGE_MARGIN, size - radius - EDGE_MARGIN, size / 2
    cut = (low, min(high, middle)) if low_half else (max(low, middle), high)
    return cut if cut[0] <= cut[1] else (low, high)


def _uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return rng.uniform(low, high) if high > low else low  # an empty range draws nothing


def _near_collider(floor: np.ndarray) -> np.ndarray:
    """bool [Y, X]: the 3 x 3 cells around a cell hold a collider or leave the map; `floor` is the layer z = 0."""
    blocked = COLLIDES[floor]
    near = np.ones(floor.shape, bool)
    rows = blocked[:-2] | blocked[1:-1] | blocked[2:]
    near[1:-1, 1:-1] = rows[:, :-2] | rows[:, 1:-1] | rows[:, 2:]
    return near


class Ways(NamedTuple):
    """The starts of the teams' ways to the zone, blue before red: anchor cells (x, y), and mechs' centres [K, 2]."""

    anchors: tuple[tuple[int, int], tuple[int, int]]
    mechs: tuple[np.ndarray, np.ndarray]


def largest_radius_between(area: tuple[int, int], size_x: int, size_y: int) -> float:
    """Bound on the radius, in voxels, that lets a zone lie between two spawn areas of edges `area`, with some play."""
    gap = max(size_x - 2 * area[0], size_y - 2 * area[1])
    return max(gap / 2 - PLAY, ZONE_MEAN_RADIUS * ZONE_RADIUS_FACTORS[0])


def _draw_radius(rng: np.random.Generator, size_x: int, size_y: int, largest: float) -> float:
    radius = ZONE_MEAN_RADIUS * rng.uniform(*ZONE_RADIUS_FACTORS)
    return float(min(radius, max(1.0, 0.5 * min(size_x, size_y) - EDGE_MARGIN), largest))


def sample_zone(
    rng: np.random.Generator, material: np.ndarray, areas: list[Rectangle], largest: float = math.inf
) -> Zone:
    """Draw a zone in a random quarter of the map by rejection. If no candidate is good, the last one is the zone.

    Args:
        rng: the episode's `variants` generator, after corner and transform.
        material: uint8 [Z, Y, X] with the spawn areas already clear.
        areas: the spawn areas (x0, x1, y0, y1).
        largest: a bound on the radius.
    """
    _, size_y, size_x = material.shape
    radius = _draw_radius(rng, size_x, size_y, largest)
    left, bottom = int(rng.integers(0, 2)) == 0, int(rng.integers(0, 2)) == 0
    x_range, y_range = _interval(radius, size_x, left), _interval(radius, size_y, bottom)
    # A bytes object answers 256 single look-ups much faster than an array does.
    near = _near_collider(material[0]).tobytes()
    x = y = 0.0
    for attempt in range(ATTEMPTS):
        x, y = _uniform(rng, *x_range), _uniform(rng, *y_range)
        if near[round(y) * size_x + round(x)]:
            continue
        if attempt >= ATTEMPTS_OFF_SPAWNS or not any(_touches(x, y, radius, area) for area in areas):
            break
    return Zone(float(x), float(y), float(radius), ("B" if bottom else "T") + ("L" if left else "R"))


def _touches(x: float, y: float, radius: float, area: Rectangle) -> bool:
    x0, x1, y0, y1 = area
    dx, dy = x - min(max(x, x0), x1), y - min(max(y, y0), y1)
    return dx * dx + dy * dy <= radius * radius


def path_lengths(ways: Ways, team: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[3, K]: a team's way to each zone centre (x, y), measured in three ways, in voxels.

    From its anchor in a straight line; from its anchor cell on the navigation grid (docs/spec/worlds.md 7); and the
    mean of its mechs' straight lines. No terrain enters: the main lane is a straight strip of free ground from anchor
    to centre, so that the straight line can be walked, and the shortest grid path is that of the bare eight-neighbour
    metric, the longer of the two cell offsets and 0.414 of the shorter.
    """
    cell_x, cell_y = ways.anchors[team]
    straight = np.hypot(x - (cell_x + 0.5), y - (cell_y + 0.5))
    along_x, along_y = np.abs(np.round(x) - cell_x), np.abs(np.round(y) - cell_y)
    grid = np.maximum(along_x, along_y) + (DIAGONAL_STEP - 1) * np.minimum(along_x, along_y)
    mechs = ways.mechs[team]
    return np.stack([straight, grid, np.hypot(x - mechs[:, :1], y - mechs[:, 1:]).mean(axis=0)])


def sample_fair_zone(
    rng: np.random.Generator, material: np.ndarray, areas: list[Rectangle], ways: Ways, largest: float = math.inf
) -> Zone:
    """Draw a zone in a quarter without a spawn, to which neither team's way is more than 1.2 times the other's.

    The zone is the first of 256 uniform candidates that is fair, outside the spawn areas and not on a collider. If there is
    none, it is the first fair one outside the spawn areas, then the first fair one on free ground, then the first fair one.
    The last candidate is the middle of the map, which is equally far from both teams.

    Args:
        rng: the episode's `variants` generator, after corner and transform.
        material: uint8 [Z, Y, X] with the spawn areas already clear.
        areas: the spawn areas (x0, x1, y0, y1).
        ways: where the ways of the two teams, in opposite corners, begin.
        largest: a bound on the radius.
    """
    _, size_y, size_x = material.shape
    radius = _draw_radius(rng, size_x, size_y, largest)
    (blue_x, blue_y), (red_x, red_y) = ways.anchors
    left = int(rng.integers(0, 2)) == 0
    bottom = left != ((blue_x < red_x) == (blue_y < red_y))
    x, y = (
        np.append(rng.uniform(*_interval(radius, size, low_half), ATTEMPTS), size / 2)
        for size, low_half in ((size_x, left), (size_y, bottom))
    )

    blue, red = (path_lengths(ways, team, x, y) for team in (BLUE, RED))
    fair = (np.maximum(blue, red) <= MAX_PATH_RATIO * np.minimum(blue, red)).all(axis=0)
    fair[-1] = True  # but for the rounding to a cell
    apart = np.all([_distance_to(x, y, area) >= radius for area in areas], axis=0)
    free = ~_near_collider(material[0])[np.round(y).astype(int), np.round(x).astype(int)]
    chosen = int(np.argmax(fair * (1 + 2 * apart + free)))  # the first of the highest rank
    return Zone(float(x[chosen]), float(y[chosen]), radius, ("B" if bottom else "T") + ("L" if left else "R"))


def _distance_to(x: np.ndarray, y: np.ndarray, area: Rectangle) -> np.ndarray:
    x0, x1, y0, y1 = area
    return np.hypot(x - np.clip(x, x0, x1), y - np.clip(y, y0, y1))


def clear_zone(material: np.ndarray, zone: Zone) -> None:
    """Empty every column whose middle is within the radius plus half a cell's diagonal; [Z, Y, X], in place.

    Hit points stay as they were (G16).
    """
    _, size_y, size_x = material.shape
    # The original compares float32 squares, so cells on the rim depend on that precision.
    dx = np.arange(size_x, dtype=np.float32) + np.float32(0.5) - np.float32(zone.x)
    dy = np.arange(size_y, dtype=np.float32) + np.float32(0.5) - np.float32(zone.y)
    reach = zone.radius + math.sqrt(2) / 2
    inside = dx[None, :] ** 2 + dy[:, None] ** 2 <= np.float32(reach * reach)
    material[:, inside] = AIR
