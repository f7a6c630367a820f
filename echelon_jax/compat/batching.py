"""One arena at a time for libraries that map over arenas, at the speed of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_batching import custom_vmap

from echelon_jax.env.environment import alone, batch_of_one


def one_of_many(batched: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of one arena that `jax.vmap` turns back into the function of many.

    Libraries such as JaxMARL and gymnax call `jax.vmap(env.step)`. Mapped over a step of one arena, XLA would run a batch of
    batches of one; this rule hands the mapped arenas to the batch's own program instead.

    Args:
        batched: a function of (trees whose leaves lead with arenas, parameters) that returns such trees.

    Returns:
        The same function without the axis of arenas.

    Raises:
        ValueError: when it is mapped over the parameters.
    """

    @custom_vmap
    def single(arenas: Any, params: Any) -> Any:
        return alone(batched(batch_of_one(arenas), params))

    @single.def_vmap
    def many(axis_size: int, in_batched: Any, arenas: Any, params: Any) -> Any:
        mapped, params_mapped = in_batched
        if any(jax.tree.leaves(params_mapped)):
            raise ValueError("params must be the same in all arenas: pass in_axes=None for them to jax.vmap")
        # What is the same in all arenas, such as one action for everybody, is repeated.
        arenas = jax.tree.map(
            lambda leaf, is_mapped: leaf if is_mapped else jax.numpy.broadcast_to(leaf, (axis_size, *leaf.shape)),
            arenas,
            mapped,
        )
        result = batched(arenas, params)
        return result, jax.tree.map(lambda _: True, result)

    def call(arenas: Any, params: Any) -> Any:
        return single(arenas, params)

    return call
