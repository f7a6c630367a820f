"""The bank: worlds on the device, with what a reset to each shows."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.env.beginning import Maps, fresh_state
from echelon_jax.env.interfaces import observe
from echelon_jax.env.layout import CONTACTS
from echelon_jax.env.state import (
    Bank,
)
from echelon_jax.sim.rules import SimRules
from echelon_jax.worldgen.bank import WorldArrays

BANK_CHUNK = 64  # worlds observed at once while a bank is made


@partial(jax.jit, static_argnums=0)
def _first_sight(
    config: EnvConfig,
    rules: SimRules,
    maps: Maps,
    zone: Float32[Array, "worlds 3"],
    position: Float32[Array, "worlds mechs 3"],
    yaw: Float32[Array, "worlds mechs"],
) -> tuple[Array, Array, Array | None]:
    """Observation, contact slots and who is known at the start of an episode in each of a chunk of worlds."""
    unseen = jnp.full((*yaw.shape, CONTACTS), -1, jnp.int32)
    state = fresh_state(config, rules, maps, zone, position, yaw, jnp.zeros(yaw.shape[0], jnp.int32), unseen)
    seen = observe(config, rules, state)
    known = None if seen.memory is None or seen.memory.age is None else seen.memory.age == 0
    return seen.observation, seen.contact_slots, known


@partial(jax.jit, donate_argnums=0)
def replace_rows(bank: Bank, new: Bank, start: Array) -> Bank:
    """Write `new` over the rows of `bank` from `start` on; the old bank's memory is reused (donated)."""
    return jax.tree.map(lambda old, rows: jax.lax.dynamic_update_slice_in_dim(old, rows, start, 0), bank, new)


def make_bank(config: EnvConfig, worlds: WorldArrays, rules: SimRules) -> Bank:
    """Upload worlds, with what a reset to each shows; observed in chunks, so that one compile serves any number."""
    count = len(worlds.seed)
    seen = []
    for start in range(0, count, BANK_CHUNK):
        rows = np.minimum(np.arange(start, start + BANK_CHUNK), count - 1)
        maps = Maps(*(jnp.asarray(getattr(worlds, name)[rows]) for name in Maps._fields))
        spawns = (jnp.asarray(field[rows]) for field in (worlds.zone, worlds.position, worlds.yaw))
        first = _first_sight(config, rules, maps, *spawns)
        seen.append(jax.tree.map(lambda part: np.asarray(part)[: count - start], first))  # noqa: B023
    observation, contact_slots, known = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)), *seen)
    fields = {name: jnp.asarray(field) for name, field in worlds._asdict().items()}
    return Bank(**fields, observation=observation, contact_slots=contact_slots, known=known)
