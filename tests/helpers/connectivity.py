"""Can both teams walk to the zone? A flood fill over the ground, for tests only (docs/spec/worlds.md 5.5 and 7).

The original answers this with a navigation graph at every reset and digs where the answer is no. Carved lanes make it
yes on every map, so nothing here is on the path of a training run.
"""

from __future__ import annotations

import numpy as np

from echelon_jax.rules.formation import ALLEY
from echelon_jax.rules.materials import COLLIDES
from echelon_jax.rules.mechs import BLUE, HEAVY, MECH_CLASSES, PACK_SIZE, RED, TEAM_NAMES, roster
from echelon_jax.worldgen.generate import World

HEAVY_CLEARANCE = int(MECH_CLASSES[HEAVY].size[2])


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
    (bx, by), (rx, ry) = (_anchor(world, team) for team in (BLUE, RED))
    return bool(reached[by, bx]), bool(reached[ry, rx])


def _anchor(world: World, team: int) -> tuple[int, int]:
    kind = f"{TEAM_NAMES[team]}_lane_main"
    x, y = next(corridor["points"][0] for corridor in world.meta["corridors"] if corridor["kind"] == kind)
    return int(x), int(y)


def window_mask(material: np.ndarray, clearance: int = HEAVY_CLEARANCE, window: int = ALLEY) -> np.ndarray:
    """bool [Y - window + 1, X - window + 1]: the `window` square whose low corner is (x, y) is free in z < `clearance`.

    A mech no wider than `window` can drive along x or y from one free window to the next.
    """
    free = ~COLLIDES[material[:clearance]].any(axis=0)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(free, (window, window)).all(axis=(2, 3)))


def heavies_reach_zone(world: World, window: int = ALLEY) -> tuple[bool, bool]:
    """For blue and red: every heavy can drive from where it stands to the zone's centre, four cells wide and high."""
    mask = window_mask(world.material, window=window)

    def window_around(x: float, y: float) -> tuple[int, int]:
        rows, columns = mask.shape
        low_x, low_y = round(float(x) - window / 2), round(float(y) - window / 2)
        return min(max(low_x, 0), columns - 1), min(max(low_y, 0), rows - 1)

    reached = flood(mask, window_around(world.zone[0], world.zone[1]))
    mechs = roster(len(world.position) // (2 * PACK_SIZE))
    result = []
    for team in (BLUE, RED):
        heavies = world.position[(mechs.team == team) & (mechs.mech_class == HEAVY)]
        starts = [window_around(x, y) for x, y, _ in heavies]
        result.append(all(bool(reached[y, x]) for x, y in starts))
    return result[0], result[1]
