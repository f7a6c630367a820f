"""Voxel materials (docs/spec/rules.md 2.1): ids, hit points, and what each one stops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Material(NamedTuple):
    """One voxel material: its id, table hit points, whether it stops boxes and whether it stops sight."""

    id: int
    name: str
    hp: int
    collides: bool
    opaque: bool


MATERIALS = (
    Material(0, "AIR", 0, False, False),
    Material(1, "SOLID", 100, True, True),
    Material(2, "LAVA", 0, False, False),
    Material(3, "WATER", 0, False, False),
    Material(4, "DEBRIS_FIELD", 50, True, True),
    Material(5, "SOLID_DEBRIS", 200, True, True),
    Material(6, "DIRT", 0, False, False),
    Material(7, "GLASS", 10, True, False),
    Material(8, "REINFORCED", 1000, True, True),
    Material(9, "FOLIAGE", 1, False, True),
)

AIR, SOLID, LAVA, WATER, DEBRIS_FIELD, SOLID_DEBRIS, DIRT, GLASS, REINFORCED, FOLIAGE = range(10)

# Indexed by a uint8 id; ids above 9 neither collide nor block sight and have no hit points.
COLLIDES = np.zeros(256, bool)
OPAQUE = np.zeros(256, bool)
TABLE_HP = np.zeros(256, np.int16)
for _m in MATERIALS:
    COLLIDES[_m.id] = _m.collides
    OPAQUE[_m.id] = _m.opaque
    TABLE_HP[_m.id] = _m.hp
