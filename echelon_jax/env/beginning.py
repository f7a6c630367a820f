"""The start of an episode: the large arrays of a world, and the state of mechs that have just been set down.

Source: docs/spec/environment.md 5.2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.buffers import unshared
from echelon_jax.env.interfaces import observation_of
from echelon_jax.env.state import (
    STATISTICS,
    ArenaMap,
    Bank,
    EnvState,
)
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Grid
from echelon_jax.sim.step import initial_state


class Maps(NamedTuple):
    """The large arrays of a world, in the order in which a state holds them; everything else of a state is small."""

    material: Array
    hp: Array
    collides: Array
    opaque: Array
    occupancy: Array
    telemetry: Array


def bank_maps(bank: Bank) -> Maps:
    """The large arrays of a bank, one row per world."""
    return Maps(*(getattr(bank, name) for name in Maps._fields))


def state_maps(state: EnvState) -> Maps:
    """The large arrays of a state, one row per arena."""
    grid, arena_map = state.sim.grid, state.arena_map
    return Maps(grid.material, grid.hp, grid.collides, grid.opaque, arena_map.occupancy, arena_map.telemetry)


def fresh_state(
    config: EnvConfig,
    rules: SimRules,
    maps: Maps,
    zone: Float32[Array, "arenas 3"],
    position: Float32[Array, "arenas mechs 3"],
    yaw: Float32[Array, "arenas mechs"],
    seed: Int32[Array, " arenas"],
    contact_slots: Int32[Array, "arenas mechs 5"],
    known: Bool[Array, "arenas mechs mechs"] | None = None,
) -> EnvState:
    """The start of an episode: unhurt mechs at rest on their spawn points (docs/spec/rules.md 4.3).

    `known` is who sees whom, which the modern observation remembers in partial mode; None for nobody.
    """
    arenas, n = yaw.shape
    none = jnp.zeros((arenas, n), jnp.int32)
    false = jnp.zeros((arenas, n), bool)
    zeros = jnp.zeros(arenas, jnp.int32)
    grid = Grid(material=maps.material, hp=maps.hp, collides=maps.collides, opaque=maps.opaque)
    state = EnvState(
        sim=initial_state(config, rules, grid, position, yaw),
        arena_map=ArenaMap(zone=zone, occupancy=maps.occupancy, telemetry=maps.telemetry, seed=seed),
        messages=jnp.zeros((arenas, n, config.comm_dim), jnp.float32),
        sort_mode=none,
        hostile_only=false,
        contact_slots=contact_slots,
        score=jnp.zeros((arenas, 2), jnp.float32),
        score_carry=jnp.zeros((arenas, 2), jnp.float32),
        step_count=zeros,
        was_fallen=false,
        was_legged=false,
        was_shutdown=false,
        statistics=jnp.zeros((arenas, len(STATISTICS), 2), jnp.float32),
        episode_over=jnp.zeros(arenas, bool),
        reason=zeros,
        winner=zeros,
        memory=observation_of(config).first_memory(config, position, known),
    )
    return unshared(state)
