"""Rare work of a batch: which elements need something, packed to the front of a fixed array or picked out by a mask."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32


def compact(mask: Bool[Array, " items"], capacity: int) -> tuple[Int32[Array, " capacity"], Int32[Array, ""]]:
    """Indices of the true items in ascending order, and how many there are.

    The first min(count, capacity) entries are indices; the rest hold `items` (one past the end), which a gather in "clip" mode
    and a scatter in "drop" mode both tolerate.
    """
    items = mask.shape[0]
    count = jnp.cumsum(mask, dtype=jnp.int32)
    queue = jnp.full((capacity,), items, jnp.int32)
    queue = queue.at[jnp.where(mask, count - 1, capacity)].set(jnp.arange(items, dtype=jnp.int32), mode="drop")
    return queue, count[-1]


def first_true(mask: Bool[Array, "rows items"]) -> tuple[Bool[Array, " rows"], Int32[Array, " rows"]]:
    """Per row: is anything true, and the lowest index that is (0 if none)."""
    return mask.any(-1), jnp.argmax(mask, -1).astype(jnp.int32)


def at(values: Array, index: Int32[Array, " arenas *picked"]) -> Array:
    """values[a, index[a, ...]] for every arena a of an array [arenas, items, ...]; an index must be one.

    Through one flat index: two of them would be put side by side in memory first, in a kernel of its own on a GPU.
    """
    arenas, items = values.shape[:2]
    row = jnp.arange(arenas, dtype=jnp.int32).reshape(-1, *(1,) * (index.ndim - 1))
    flat = values.reshape(arenas * items, *values.shape[2:])
    return flat.at[row * items + index].get(mode="promise_in_bounds")


@dataclasses.dataclass(frozen=True)
class Rows:
    """Some arenas of a batch, all different: a queue of them, or every arena with a mask.

    Attributes:
        arena: of each row, always a valid index.
        real: rows that stand for an arena with something to do; the others are never written.
        whole: row r is arena r, so that reading and writing need no index.
    """

    arena: Int32[Array, " rows"]
    real: Bool[Array, " rows"]
    whole: bool

    def take(self, values: Array) -> Array:
        """The rows of an array with a leading axis of arenas."""
        return values if self.whole else values[self.arena]

    def put(self, values: Array, new: Array) -> Array:
        """A small array with its real rows replaced."""
        if self.whole:
            return jnp.where(self.real.reshape(-1, *(1,) * (new.ndim - 1)), new, values)
        return values.at[self._written(values)].set(new, mode="drop")

    def add(self, values: Array, column: Int32[Array, " rows"], amount: Array) -> Array:
        """An array [arenas, columns] with an amount added in one column of each real row."""
        if self.whole:
            here = self.real[:, None] & (jnp.arange(values.shape[1]) == column[:, None])
            return jnp.where(here, values + amount[:, None], values)
        return values.at[self._written(values), column].add(amount, mode="drop")

    def _written(self, values: Array) -> Int32[Array, " rows"]:
        return jnp.where(self.real, self.arena, values.shape[0])


def pick_rows(mask: Bool[Array, " arenas"], width: int) -> Rows:
    """The first `width` arenas of the mask, or all of them at once if the batch is not wider."""
    arenas = mask.shape[0]
    if width >= arenas:
        return Rows(jnp.arange(arenas, dtype=jnp.int32), mask, whole=True)
    queue, _ = compact(mask, width)
    return Rows(jnp.minimum(queue, arenas - 1), queue < arenas, whole=False)
