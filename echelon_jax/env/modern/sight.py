"""The rays of the modern observation: one for each pair of mechs that somebody asks for, all walked together."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.sim.rays import sight
from echelon_jax.sim.widths import LoopWidths, loop_widths


def _above(square: Array) -> Array:
    """[arenas, pairs] entries (first, second), first < second, of a square of mechs."""
    n = square.shape[1]
    return square.reshape(-1, n * n)[:, np.flatnonzero(np.triu(np.ones((n, n)), 1))]


def clear_between(
    config: EnvConfig,
    opaque: UInt32[Array, "arenas columns"],
    position: Float32[Array, "arenas mechs 3"],
    asks: Bool[Array, "arenas mechs mechs"],
    widths: LoopWidths | None = None,
) -> Bool[Array, "arenas mechs mechs"]:
    """Whether terrain leaves the view clear, one ray for both viewers of a pair; false for pairs that nobody asks for.

    The ray runs from the earlier mech of the roster if that one asks, else from the later.
    """
    arenas, n = position.shape[:2]
    widths = widths or loop_widths(arenas)
    first, second = (np.asarray(side, np.int32) for side in np.triu_indices(n, 1))
    forth, back = _above(asks), _above(asks.swapaxes(1, 2))
    arena = jnp.arange(arenas, dtype=jnp.int32)[:, None]
    start, end = (arena * n + jnp.where(forth, one, other) for one, other in ((first, second), (second, first)))
    where, shape = position.reshape(-1, 3), start.shape
    clear = sight(
        config,
        opaque,
        jnp.broadcast_to(arena, shape).reshape(-1),
        where[start.reshape(-1)],
        where[end.reshape(-1)],
        (forth | back).reshape(-1),
        widths,
        widths.compaction_rounds,  # most rays are short or soon blocked; few are left for the longest ways
    )
    clear = clear.reshape(shape) & (forth | back)
    number = np.zeros((n, n), np.int32)
    number[first, second] = number[second, first] = np.arange(len(first))
    return clear[:, number.reshape(-1)].reshape(arenas, n, n) & ~jnp.eye(n, dtype=bool)
