"""The formation a team starts in, and the corner of the map that is kept clear for it.

Source: docs/spec/worlds.md 5.2 and 5.6.

A pack is a row of five along x, heavy first, counted from its corner; further packs are further rows along y.
"""

from __future__ import annotations

import math

from echelon_jax.rules.constants import ZONE_MEAN_RADIUS, ZONE_RADIUS_FACTORS
from echelon_jax.rules.mechs import HEAVY, MECH_CLASSES, PACK_CLASSES

MARGIN = 2.0  # voxels from the map's edge to the first box
POSITION_JITTER = 0.25  # voxels, either way along x and y
HEAVY_WIDTH = MECH_CLASSES[HEAVY].size[0]
MIN_CLEAR = 25  # the original's smallest spawn square
ALLEY = math.ceil(HEAVY_WIDTH)  # free cells in front of a fitted formation: what a heavy needs to drive along it


def formation_pitch(without_overlap: bool) -> float:
    """Voxels from mech to mech: the width of a heavy, plus the jitter of both neighbours where boxes may not overlap."""
    return HEAVY_WIDTH + (2 * POSITION_JITTER if without_overlap else 0.0)


def square_clear(size_x: int, size_y: int, columns: int, rows: int, pitch: float) -> int:
    """Edge in voxels of the square that the original clears at each spawn corner (docs/spec/worlds.md 5.2)."""
    required = math.ceil(MARGIN + pitch * max(columns, rows) + 1)
    return min(max(MIN_CLEAR, math.trunc(0.25 * min(size_x, size_y)), required), size_x, size_y)


def formation_reach(num_packs: int, pitch: float) -> tuple[float, float]:
    """How far from the map's edges a team's boxes reach at most, jitter included: voxels along x and y."""
    widths = [MECH_CLASSES[mech_class].size[0] for mech_class in PACK_CLASSES]
    x = max(pitch * column + width for column, width in enumerate(widths))
    y = pitch * (num_packs - 1) + max(widths)
    return MARGIN + x + POSITION_JITTER, MARGIN + y + POSITION_JITTER


def fitted_clear(size_x: int, size_y: int, num_packs: int, pitch: float) -> tuple[int, int]:
    """Edges (x, y) of the rectangle to clear where terrain is kept: the formation and an alley in front of it.

    As in the original it is never narrower than a quarter of the map, so large maps do not change.
    """
    quarter = math.trunc(0.25 * min(size_x, size_y))
    reach_x, reach_y = formation_reach(num_packs, pitch)
    return min(max(quarter, math.ceil(reach_x)), size_x), min(max(quarter, math.ceil(reach_y) + ALLEY), size_y)


def smallest_map(num_packs: int, pitch: float) -> tuple[int, int]:
    """Smallest sizes along x and along y that keep two fitted formations and the smallest zone apart; one is enough."""
    reach_x, reach_y = formation_reach(num_packs, pitch)
    zone = math.ceil(2 * ZONE_MEAN_RADIUS * ZONE_RADIUS_FACTORS[0])
    return 2 * math.ceil(reach_x) + zone, 2 * (math.ceil(reach_y) + ALLEY) + zone


def smallest_rows(num_packs: int, pitch: float) -> int:
    """Smallest size along y that holds the rows of both teams."""
    return math.ceil(2 * (MARGIN + pitch * num_packs))
