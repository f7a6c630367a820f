"""Fixed projectile and smoke slots, sized from the bounds of docs/spec/rules.md 12.1 and 12.2.

Every slot belongs to one mech and one launcher for ever: the *tube* (missile and smoke, which share a cooldown) or
the *barrel* (a ballistic weapon). A shot takes the first free slot of its launcher, so a projectile keeps its slot
for life; the processing order of the original's list is kept in a separate `order` number. If a launcher has no free
slot the shot is lost and counted.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cache

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import HEAVY, Roster, roster
from echelon_jax.rules.timers import decrements, moves
from echelon_jax.rules.weapons import BALLISTIC, MISSILE, SMOKE, WEAPONS, carried_by

TUBE, BARREL = 0, 1


@dataclasses.dataclass(frozen=True)
class Slots:
    """Static slot table of an arena; all arrays are numpy.

    Attributes:
        mech: [slots] mech that owns each projectile slot.
        launcher: [slots] TUBE or BARREL.
        ring: [slots] number of the slot within its launcher, 0 first.
        clouds: smoke cloud slots per mech; cloud slot c belongs to mech c // clouds.
        heavy: [heavies] mech index of each heavy, roster order (AMS carriers and missile launchers).
        heavy_of: [mechs] position in `heavy`, -1 for other classes.
        max_ring: largest number of slots of one launcher.
    """

    mech: np.ndarray
    launcher: np.ndarray
    ring: np.ndarray
    clouds: int
    heavy: np.ndarray
    heavy_of: np.ndarray
    max_ring: int

    @property
    def count(self) -> int:
        """Projectile slots of an arena."""
        return len(self.mech)


def lifetime(weapon: int) -> float:
    """Seconds a projectile of `weapon` lives: range over speed (docs/spec/rules.md 6.1)."""
    return WEAPONS[weapon].range / WEAPONS[weapon].speed


def _alive_at_once(weapon: int, dt: float) -> int:
    return math.ceil((moves(lifetime(weapon), dt) + 1) / decrements(WEAPONS[weapon].cooldown, dt))


@cache
def slots(config: EnvConfig) -> Slots:
    """The slot table of `config`, from the default weapon numbers: ceil(updates in flight / cooldown) per weapon."""
    r: Roster = roster(config.num_packs)
    dt = config.dt
    owner, launcher, ring = [], [], []
    for i in range(r.size):
        for which, weapons in ((TUBE, (MISSILE, SMOKE)), (BARREL, BALLISTIC)):
            carried = carried_by(int(r.mech_class[i]), weapons)
            number = max((_alive_at_once(weapon, dt) for weapon in carried), default=0)
            owner += [i] * number
            launcher += [which] * number
            ring += list(range(number))
    cloud_life = decrements(k.SMOKE_CLOUD_LIFE, dt)
    smoke_flight = moves(lifetime(SMOKE), dt)
    clouds = (cloud_life + smoke_flight - 1) // decrements(WEAPONS[SMOKE].cooldown, dt) + 1
    heavy = np.flatnonzero(r.mech_class == HEAVY).astype(np.int32)
    heavy_of = np.full(r.size, -1, np.int32)
    heavy_of[heavy] = np.arange(len(heavy))
    return Slots(
        mech=np.array(owner, np.int32),
        launcher=np.array(launcher, np.int32),
        ring=np.array(ring, np.int32),
        clouds=int(clouds),
        heavy=heavy,
        heavy_of=heavy_of,
        max_ring=max(ring) + 1,
    )
