"""What both observations share: their result, smoke between mechs, messages, and how far cover damps a sound."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.state import EnvState, ObservationMemory
from echelon_jax.rules.mechs import PACK_SIZE
from echelon_jax.sim.rays import smoke_clear

SOUND_THROUGH_COVER = 0.20  # share of a sound's loudness that passes through cover


class Observed(NamedTuple):
    """Observations, the contact slots they show, whose observation held a non-finite number, and the memory."""

    observation: Float32[Array, "arenas mechs obs"]
    contact_slots: Int32[Array, "arenas mechs 5"]
    bad: Bool[Array, "arenas mechs"]
    memory: ObservationMemory | None = None  # what the next observation reads; None where it keeps nothing


@cache
def _pairs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and second mech of every unordered pair, and the [n, n] number of the pair (0 on the diagonal)."""
    first, second = np.triu_indices(n, 1)
    number = np.zeros((n, n), np.int32)
    number[first, second] = number[second, first] = np.arange(len(first))
    return first.astype(np.int32), second.astype(np.int32), number


def smoke_clear_between(state: EnvState) -> Bool[Array, "arenas mechs mechs"]:
    """Whether no smoke lies between two mechs; symmetric."""
    position, smoke = state.sim.mechs.position, state.sim.smoke
    arenas, n = position.shape[:2]
    first, second, number = _pairs(n)
    rays = arenas * len(first)
    clear = smoke_clear(
        jnp.broadcast_to(smoke.position[:, None], (arenas, len(first), *smoke.position.shape[1:])).reshape(rays, -1, 3),
        jnp.broadcast_to(smoke.life[:, None], (arenas, len(first), smoke.life.shape[1])).reshape(rays, -1),
        position[:, first].reshape(rays, 3),
        position[:, second].reshape(rays, 3),
    )
    return clear.reshape(arenas, len(first))[:, number.reshape(-1)].reshape(arenas, n, n)


def messages(config: EnvConfig, state: EnvState) -> Float32[Array, "arenas mechs rows"]:
    """The stored messages of the five places of the own pack (docs/spec/environment.md 2.7)."""
    arenas, n = state.sim.mechs.alive.shape
    packs = state.messages.reshape(arenas, n // PACK_SIZE, 1, PACK_SIZE * config.comm_dim)
    shared = jnp.broadcast_to(packs, (arenas, n // PACK_SIZE, PACK_SIZE, PACK_SIZE * config.comm_dim))
    return shared.reshape(arenas, n, -1)
