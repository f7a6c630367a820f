"""Rays in float32 for the plain reference, walked as the JAX simulator walks them: the effect of rounding on an observation.

A ray along the edges of cells can be blocked one way and clear the other way. A nudge moves mechs off such edges, and so would
excuse a ray that is cast in the wrong direction. Here the reference observes the very state in which the JAX simulator ended, in
the direction of the rules and with rays that are rounded alike. A difference that remains is not due to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout, observation_of
from echelon_jax.env.state import EnvState
from echelon_jax.parity.exchange import to_reference
from echelon_jax.reference.vec import Vec
from echelon_jax.reference.world import VoxelWorld, smoke_clear
from echelon_jax.rules.materials import OPAQUE

_FAR = np.float32(1e30)
LOUDNESS_TOLERANCE = 1e-3


def sight_in_float32(world: VoxelWorld, start: Vec, end: Vec) -> bool:
    """Whether terrain leaves the view from `start` to `end` clear, by the walk of docs/spec/rules.md 3.1 in float32."""
    limits = world.size
    cell, goal, sign, border, apart = [], [], [], [], []
    for s, e in zip(np.array(start, np.float32), np.array(end, np.float32), strict=True):
        d, low = e - s, np.floor(s)
        each = _FAR if d == 0 else np.float32(1.0) / np.abs(d)
        first = (low + np.float32(1.0) - s) * each if d > 0 else (s - low) * each if d < 0 else _FAR
        cell.append(int(low))
        goal.append(math.floor(e))
        sign.append(int(np.sign(d)))
        border.append(first)
        apart.append(each)
    if not any(sign):
        return True
    while cell != goal:
        x, y, z = border
        axis = 2 if z <= min(x, y) else 1 if y <= x else 0
        cell[axis] += sign[axis]
        border[axis] = border[axis] + apart[axis]
        if cell == goal:
            return True
        inside = all(0 <= c < limit for c, limit in zip(cell, limits, strict=True))
        if not inside or OPAQUE[world.voxel((cell[0], cell[1], cell[2]))]:
            return False
    return True


def look_in_float32(config: EnvConfig, row: EnvState) -> tuple[np.ndarray, np.ndarray]:
    """The reference's observation [mechs, obs] and contact slots [mechs, 5] in a state of the JAX simulator, with float32 rays.

    Args:
        row: the state after a step, numpy leaves without the arena axis.
    """
    arena = to_reference(config, row).arena
    battle = arena.battle

    def has_los(start: Vec, end: Vec) -> bool:
        return smoke_clear(battle.clouds, start, end) and sight_in_float32(battle.world, start, end)

    battle.has_los = has_los  # type: ignore[method-assign]
    seen = arena.look()
    return seen, np.array(arena.contact_slots)


def sight_entries_follow(config: EnvConfig, shown: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two observations [mechs, obs] agree in the entries that only rays decide.

    In the original observation these are `targeted` and the loudness of all four quadrants together. In the modern observation
    these are the line of sight to each other mech and the loudness of friends and of hostiles.
    """
    shown_by, layout = observation_of(config), observation_layout(config)
    bits = [e.offset for e in layout if e.name.split("/")[-1] in ("targeted", "line_of_sight")]
    if (expected[:, bits] != shown[:, bits]).any():
        return False
    heard = layout.block("sound")

    def loudness(seen: np.ndarray) -> np.ndarray:
        entries = seen[:, heard].astype(np.float64)
        total = shown_by.loudness(entries)
        return np.asarray(total.reshape(len(seen), -1, 4).sum(-1))

    return bool(np.allclose(loudness(shown), loudness(expected), rtol=LOUDNESS_TOLERANCE, atol=LOUDNESS_TOLERANCE))
