"""Mech classes and the roster (docs/spec/rules.md 4.1 and 4.2)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

SCOUT, LIGHT, MEDIUM, HEAVY = range(4)
CLASS_NAMES = ("scout", "light", "medium", "heavy")
BLUE, RED = 0, 1
TEAM_NAMES = ("blue", "red")
PACK_SIZE = 5
PACK_CLASSES = (HEAVY, MEDIUM, MEDIUM, LIGHT, SCOUT)  # class of a mech by its index mod 5


class MechClass(NamedTuple):
    """Numbers of one mech class; lengths in voxels, seconds, radians, tonnes."""

    name: str
    size: tuple[float, float, float]
    max_speed: float
    max_yaw_rate: float
    max_jet_accel: float
    hp: float
    leg_hp: float
    heat_cap: float
    heat_dissipation: float
    tonnage: float
    solid_wreck_probability: float
    loudness_factor: float


MECH_CLASSES = (
    MechClass("scout", (1.2, 1.2, 1.8), 7.0, 1.8, 18.0, 60.0, 30.0, 75.0, 13.0, 20.0, 0.1, 1.0),
    MechClass("light", (1.5, 1.5, 2.0), 6.8, 1.5, 16.0, 80.0, 40.0, 80.0, 12.0, 35.0, 0.3, 1.5),
    MechClass("medium", (2.5, 2.5, 3.0), 5.5, 1.0, 0.0, 150.0, 75.0, 100.0, 11.0, 55.0, 0.6, 2.5),
    MechClass("heavy", (3.5, 3.5, 4.0), 2.5, 0.6, 0.0, 200.0, 100.0, 130.0, 10.0, 85.0, 0.9, 4.0),
)


@dataclasses.dataclass(frozen=True)
class Roster:
    """Team, pack and class by mech index: blue 0..n-1, then red 0..n-1. Every field is a static numpy array of length N."""

    team: np.ndarray  # 0 blue, 1 red
    index: np.ndarray  # index within the team
    mech_class: np.ndarray
    pack: np.ndarray  # number of the pack within the team
    pack_row: np.ndarray  # place within the pack, 0..4
    ids: tuple[str, ...]

    @property
    def size(self) -> int:
        """Mechs on both sides together."""
        return len(self.ids)


def roster(num_packs: int) -> Roster:
    """The fixed roster of an arena with `num_packs` packs a team, in roster order."""
    n = PACK_SIZE * num_packs
    index = np.concatenate([np.arange(n), np.arange(n)]).astype(np.int32)
    team = np.repeat(np.array([BLUE, RED], np.int32), n)
    return Roster(
        team=team,
        index=index,
        mech_class=np.array(PACK_CLASSES, np.int32)[index % PACK_SIZE],
        pack=(index // PACK_SIZE).astype(np.int32),
        pack_row=(index % PACK_SIZE).astype(np.int32),
        ids=tuple(f"{TEAM_NAMES[t]}_{i}" for t, i in zip(team, index, strict=True)),
    )
