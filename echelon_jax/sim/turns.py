"""Who fires what and in which order: the static table of turns, its drawn order, and the triggers.

Source: docs/spec/rules.md 5.2, 9.3.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import HITSCAN, PRIMARY, SECONDARY, SPECIAL, TERTIARY, TRIGGERS, barrel_of, carried_by
from echelon_jax.sim.state import Commands

NO_WEAPON = -1


class Turns(NamedTuple):
    """Static table of the firing phase: one row per hitscan shot, in firing order; `ends_turn` rows go on to the other weapons."""

    mech: np.ndarray
    hitscan: np.ndarray  # weapon, or NO_WEAPON
    begins_turn: np.ndarray
    ends_turn: np.ndarray
    kinetic: np.ndarray  # ballistic weapon, or NO_WEAPON


def turns(num_packs: int) -> Turns:
    """Firing order: roster order; each hitscan weapon of a mech is a row, a light's laser before its flamer.

    Source: docs/spec/rules.md 5.7.
    """
    rows = []
    for mech, mech_class in enumerate(roster(num_packs).mech_class):
        barrel = barrel_of(int(mech_class))
        kinetic = NO_WEAPON if barrel is None else barrel
        hitscan = carried_by(int(mech_class), HITSCAN) or (NO_WEAPON,)
        rows += [(mech, weapon, rank == 0, rank == len(hitscan) - 1, kinetic) for rank, weapon in enumerate(hitscan)]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Turns(*(column if column.dtype == bool else column.astype(np.int32) for column in columns))


def drawn_rows(
    table: Turns, order: Int32[Array, "arenas mechs"]
) -> tuple[Int32[Array, "arenas rows"], Int32[Array, "arenas mechs"], Int32[Array, "arenas mechs"]]:
    """The rows of `table` in a drawn order of mechs: which row is the r-th, each mech's rank, and the index of its last row."""
    n = order.shape[1]
    rank = jnp.where(order[:, None, :] == jnp.arange(n)[:, None], jnp.arange(n, dtype=jnp.int32), 0).sum(-1)
    count = np.bincount(table.mech, minlength=n).astype(np.int32)
    before = rank[:, None, :] < rank[:, :, None]
    first = jnp.where(before, jnp.asarray(count), 0).sum(-1)
    rows = np.arange(len(table.mech))
    within = (rows - np.searchsorted(table.mech, table.mech)).astype(np.int32)
    to = first[:, table.mech] + within  # where each row of the table goes
    row = jnp.where(to[:, None, :] == rows[:, None], jnp.asarray(rows.astype(np.int32)), 0).sum(-1)
    return row.astype(jnp.int32), rank.astype(jnp.int32), (first + count - 1).astype(jnp.int32)


def triggers_pressed(config: EnvConfig, commands: Commands) -> dict[int, Bool[Array, "arenas mechs"]]:
    """For each weapon: which mechs carry it and press its trigger (docs/spec/rules.md 5.2)."""
    components = {
        PRIMARY: commands.primary,
        SECONDARY: commands.secondary,
        TERTIARY: commands.tertiary,
        SPECIAL: commands.special,
    }
    mech_class = roster(config.num_packs).mech_class
    out = {}
    for weapon, carriers in TRIGGERS.items():
        fires = jnp.zeros(commands.primary.shape, bool)
        for carrier, trigger in carriers.items():
            fires = fires | (components[trigger] & jnp.asarray(mech_class == carrier))
        out[weapon] = fires
    return out
