"""Dense queues of rare work: the indices of the elements that need it, packed to the front of a fixed array."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32


def compact(mask: Bool[Array, " items"], capacity: int) -> tuple[Int32[Array, " capacity"], Int32[Array, ""]]:
    """Indices of the true items in ascending order, and how many there are.

    The first min(count, capacity) entries are indices; the rest hold `items` (one past the end), which a gather in "clip" mode
    and a scatter in "drop" mode both tolerate.
    """
    items = mask.shape[0]
    place = jnp.cumsum(mask, dtype=jnp.int32)
    queue = jnp.full((capacity,), items, jnp.int32)
    queue = queue.at[jnp.where(mask, place - 1, capacity)].set(jnp.arange(items, dtype=jnp.int32), mode="drop")
    return queue, place[-1]


def first_true(mask: Bool[Array, "rows items"]) -> tuple[Bool[Array, " rows"], Int32[Array, " rows"]]:
    """Per row: is anything true, and the lowest index that is (0 if none)."""
    return mask.any(-1), jnp.argmax(mask, -1).astype(jnp.int32)
