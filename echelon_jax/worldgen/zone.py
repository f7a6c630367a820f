"""The capture zone: where it lies, how large it is, and clearing it (worldgen spec 5.3 and 5.4)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from echelon_jax.rules.materials import AIR, COLLIDES

MEAN_RADIUS = 7.5
EDGE_MARGIN = 2.0  # from the circle to the map's edge
ATTEMPTS = 256
ATTEMPTS_OFF_SPAWNS = 200  # the first so many candidates must not touch a spawn square


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


def sample_zone(rng: np.random.Generator, material: np.ndarray, squares: list[tuple[int, int, int, int]]) -> Zone:
    """Draw a zone in a random quarter of the map by rejection; the last candidate stands if none is good.

    Args:
        rng: the episode's `variants` generator, after corner and transform.
        material: uint8 [Z, Y, X] with the spawn squares already clear.
        squares: the spawn squares (x0, x1, y0, y1).
    """
    _, size_y, size_x = material.shape
    radius = MEAN_RADIUS * rng.uniform(0.5, 1.5)
    radius = min(radius, max(1.0, 0.5 * min(size_x, size_y) - EDGE_MARGIN))
    left, bottom = int(rng.integers(0, 2)) == 0, int(rng.integers(0, 2)) == 0
    x_range, y_range = _interval(radius, size_x, left), _interval(radius, size_y, bottom)
    # A bytes object answers 256 single look-ups much faster than an array does.
    near = _near_collider(material[0]).tobytes()
    x = y = 0.0
    for attempt in range(ATTEMPTS):
        x, y = _uniform(rng, *x_range), _uniform(rng, *y_range)
        if near[round(y) * size_x + round(x)]:
            continue
        if attempt >= ATTEMPTS_OFF_SPAWNS or not any(_touches(x, y, radius, square) for square in squares):
            break
    return Zone(float(x), float(y), float(radius), ("B" if bottom else "T") + ("L" if left else "R"))


def _touches(x: float, y: float, radius: float, square: tuple[int, int, int, int]) -> bool:
    x0, x1, y0, y1 = square
    dx, dy = x - min(max(x, x0), x1), y - min(max(y, y0), y1)
    return dx * dx + dy * dy <= radius * radius


def clear_zone(material: np.ndarray, zone: Zone) -> None:
    """Empty every column whose middle is within the radius plus half a cell's diagonal; [Z, Y, X], in place.

    Hit points stay as they were (quirk 16).
    """
    _, size_y, size_x = material.shape
    # The original compares float32 squares, so cells on the rim depend on that precision.
    dx = np.arange(size_x, dtype=np.float32) + np.float32(0.5) - np.float32(zone.x)
    dy = np.arange(size_y, dtype=np.float32) + np.float32(0.5) - np.float32(zone.y)
    reach = zone.radius + math.sqrt(2) / 2
    inside = dx[None, :] ** 2 + dy[:, None] ** 2 <= np.float32(reach * reach)
    material[:, inside] = AIR
