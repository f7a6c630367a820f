"""Arenas grouped by opponent: blocks of equal size, each of one group, so that one batched call serves all opponents.

A batch of B arenas in G groups fits in floor((B + G (size - 1)) / size) blocks of `size` arenas, however the groups are filled.
So shapes are fixed, no arena is ever refused, and a block needs the parameters of its group once for all its arenas.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, Shaped


class Blocks(NamedTuple):
    """Where each arena stands in the blocks, and what each block holds.

    Attributes:
        place: of each arena, counted through all blocks; beyond the last place for an arena of no group.
        arena: at each place, 0 where there is none.
        group: of each block; any group where it is empty.
    """

    place: Int32[Array, " arenas"]
    arena: Int32[Array, "blocks size"]
    group: Int32[Array, " blocks"]

    def gather(self, rows: Shaped[Array, arenas * rest]) -> Shaped[Array, "blocks size *rest"]:
        """Return rows of arenas as rows of places; an empty place repeats arena 0."""
        return rows[self.arena]

    def scatter(
        self, rows: Shaped[Array, "blocks size *rest"], otherwise: Shaped[Array, arenas * rest]
    ) -> Shaped[Array, arenas * rest]:
        """Return rows of places as rows of arenas; an arena of no group keeps its row of `otherwise`."""
        places = self.arena.size
        flat = rows.reshape(places, *rows.shape[2:])
        there = (self.place < places).reshape(-1, *(1,) * (flat.ndim - 1))
        return jnp.where(there, flat[jnp.minimum(self.place, places - 1)], otherwise)


def block_count(arenas: int, groups: int, size: int) -> int:
    """Return the number of blocks that hold any split of the arenas into so many groups."""
    return (arenas + groups * (size - 1)) // size


def block_size(arenas: int, groups: int) -> int:
    """Return the size at which at most about half as many places as arenas stay empty."""
    return max(1, arenas // (2 * groups))


def into_blocks(group: Int32[Array, " arenas"], groups: int, size: int) -> Blocks:
    """Put arenas into blocks by their group, in the order of the arenas.

    Args:
        group: of each arena, 0 to `groups` - 1; any other number means no group.
        groups: number of groups.
        size: arenas of a block.
    """
    arenas = group.shape[0]
    count = block_count(arenas, groups, size)
    own = group[:, None] == jnp.arange(groups, dtype=jnp.int32)  # [arenas, groups]
    rank = jnp.cumsum(own, 0, dtype=jnp.int32) - 1  # within the group
    blocks = -(-own.sum(0, dtype=jnp.int32) // size)
    ends = jnp.cumsum(blocks, dtype=jnp.int32)
    first = (ends - blocks) * size
    place = jnp.where(own.any(1), jnp.where(own, first + rank, 0).sum(1, dtype=jnp.int32), count * size)
    arena = jnp.zeros(count * size, jnp.int32).at[place].set(jnp.arange(arenas, dtype=jnp.int32), mode="drop")
    of_block = (jnp.arange(count, dtype=jnp.int32)[:, None] >= ends).sum(1, dtype=jnp.int32)
    return Blocks(place, arena.reshape(count, size), jnp.minimum(of_block, groups - 1))


def take(tree: Any, group: Int32[Array, " blocks"]) -> Any:
    """Return the parameters of each block's group, from a tree whose leaves lead with groups."""
    return jax.tree.map(lambda leaf: leaf[group], tree)
