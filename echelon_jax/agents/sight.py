"""Sight of opponents: whether terrain lies between each mech and one other, computed only where it is needed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.sim.queues import compact
from echelon_jax.sim.rays import sight


def target_sight(
    config: EnvConfig,
    opaque: UInt32[Array, "arenas columns"],
    position: Float32[Array, "arenas mechs 3"],
    target: Int32[Array, "arenas mechs"],
    needed: Bool[Array, "arenas mechs"],
) -> Bool[Array, "arenas mechs"]:
    """Terrain sight (no smoke) from each mech to its `target` mech where it is `needed`; false for the others.

    The needed rays of the whole batch are packed into one queue and walked some hundred at a time.
    """
    arenas, n = target.shape
    items = arenas * n
    chunk = min(items, max(64, arenas))
    size = -(-items // chunk) * chunk  # a whole number of chunks, so that no slice is cut short
    queue, count = compact(needed.reshape(-1), size)
    point, aim = position.reshape(-1, 3), target.reshape(-1)

    def more(carry: tuple[Array, Array]) -> Array:
        return carry[0] < count

    def walk_chunk(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        done, clear = carry
        item = jax.lax.dynamic_slice(queue, (done,), (chunk,))
        wanted = done + jnp.arange(chunk) < count
        mech = jnp.minimum(item, items - 1)
        arena = mech // n
        seen = sight(config, opaque, arena, point[mech], point[arena * n + aim[mech]], wanted)
        return done + chunk, clear.at[item].set(seen, mode="drop")

    _, clear = jax.lax.while_loop(more, walk_chunk, (jnp.int32(0), jnp.zeros(items, bool)))
    return clear.reshape(arenas, n) & needed
