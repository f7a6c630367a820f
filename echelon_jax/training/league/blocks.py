"""Arenas grouped by opponent: blocks of equal size, each of one group, so that no policy decides for all arenas.

A batch of B arenas in G groups fits in floor((B + G (size - 1)) / size) blocks of `size` arenas, however the groups are filled.
So shapes are fixed, no arena is ever refused, and a block needs the parameters of its group once for all its arenas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, Shaped


class Blocks(NamedTuple):
    """Where each arena stands in the blocks, and what each block holds.

    Attributes:
        place: of each arena, counted through all blocks; beyond the last place for an arena of no group.
        arena: at each place, 0 where there is none.
        group: of each block; any group where it is empty.
        used: whether a block holds any arena; those that do come first.
    """

    place: Int32[Array, " arenas"]
    arena: Int32[Array, "blocks size"]
    group: Int32[Array, " blocks"]
    used: Bool[Array, " blocks"]

    def gather(self, rows: Shaped[Array, " arenas *rest"]) -> Shaped[Array, "blocks size *rest"]:
        """Return rows of arenas as rows of places; an empty place repeats arena 0."""
        return rows[self.arena]

    def scatter(
        self, rows: Shaped[Array, "blocks size *rest"], otherwise: Shaped[Array, " arenas *rest"]
    ) -> Shaped[Array, " arenas *rest"]:
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
    used = jnp.arange(count, dtype=jnp.int32) < ends[-1]
    return Blocks(place, arena.reshape(count, size), jnp.minimum(of_block, groups - 1), used)


def run_blocks(act: Callable[..., Any], of_groups: Any, blocks: Blocks, inputs: Any, in_turn: bool) -> Any:
    """Return what `act` makes of every block, leaves [blocks, size, ...]; zeros or anything else in a block that is not used.

    In turn a block reads the parameters of its group where they lie, in small products that a CPU does well, and a block that is
    not used costs nothing. Side by side each block gets a copy of them, which a GPU does in a few kernels.

    Args:
        act: from the parameters of one group and the inputs of one block to what the block makes, leaves [size, ...].
        of_groups: parameters, leaves lead with groups.
        blocks: the blocks.
        inputs: leaves [blocks, size, ...] (`Blocks.gather`).
        in_turn: one block after the other, or all side by side.
    """
    if not in_turn:
        return jax.vmap(act)(jax.tree.map(lambda leaf: leaf[blocks.group], of_groups), inputs)

    def one(block: tuple[Any, Any, Any]) -> Any:
        group, used, block_inputs = block
        own = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, group, keepdims=False), of_groups)
        made = jax.eval_shape(act, own, block_inputs)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), made)
        return jax.lax.cond(used, lambda: act(own, block_inputs), lambda: nothing)

    return jax.lax.map(one, (blocks.group, blocks.used, inputs))
