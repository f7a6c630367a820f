"""Can both teams walk to the zone? A flood fill over the ground, for tests only (worldgen spec 5.5 and 7).

The original answers this with a navigation graph at every reset and digs where the answer is no. Carved lanes make it
yes on every map, so nothing here is on the path of a training run.
"""

from __future__ import annotations

import numpy as np

from echelon_jax.rules.materials import COLLIDES
from echelon_jax.worldgen.generate import World
from echelon_jax.worldgen.spawns import spawn_anchor


def ground_mask(material: np.ndarray, clearance: int = 4, radius: int = 1) -> np.ndarray:
    """bool [Y, X]: the square of half-width `radius` around a cell is inside the map and free in z < `clearance`."""
    free = ~COLLIDES[material[:clearance]].any(axis=0)
    size_y, size_x = free.shape
    padded = np.pad(free, radius)
    mask = np.ones_like(free)
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            mask &= padded[dy : dy + size_y, dx : dx + size_x]
    return mask


def flood(mask: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    """bool [Y, X]: cells of `mask` joined to the cell `start` (x, y) by steps along x or y, `start` included."""
    reached = np.zeros_like(mask)
    reached[start[1], start[0]] = mask[start[1], start[0]]
    while True:
        grown = reached.copy()
        grown[1:] |= reached[:-1]
        grown[:-1] |= reached[1:]
        grown[:, 1:] |= reached[:, :-1]
        grown[:, :-1] |= reached[:, 1:]
        grown &= mask
        if np.array_equal(grown, reached):
            return reached
        reached = grown


def teams_reach_zone(world: World, clearance: int = 4, radius: int = 1) -> tuple[bool, bool]:
    """For blue and red: the cell in the middle of its spawn square is joined to the cell of the zone's centre."""
    _, size_y, size_x = world.material.shape
    centre = (min(round(float(world.zone[0])), size_x - 1), min(round(float(world.zone[1])), size_y - 1))
    reached = flood(ground_mask(world.material, clearance, radius), centre)
    corners, clear = world.meta["spawn_corners"], world.meta["spawn_clear"]
    blue, red = (spawn_anchor(corners[team], clear, size_x, size_y) for team in ("blue", "red"))
    return bool(reached[blue[1], blue[0]]), bool(reached[red[1], red[0]])
