"""The sides: the learner is blue in even arenas and red in odd ones (D9, T19). The slices are static; nothing is selected.

The rows of a side are its mechs in roster order. The order of the arenas never changes.

A seat is a team that the learner plays: one an arena, or with `both` two, its own side first, arena after arena.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Shaped


def _paired(x: Array, axis: int) -> Array:
    """Return x with arenas as [pairs, 2] and `axis` (counted with arenas as axis 0) as [2 sides, half]."""
    shape = x.shape
    half = shape[axis] // 2
    return x.reshape(shape[0] // 2, 2, *shape[1:axis], 2, half, *shape[axis + 1 :])


def _pick(x: Array, axis: int, blue_in_even: bool) -> Array:
    paired = _paired(x, axis)
    side_axis = axis + 1
    even, odd = (0, 1) if blue_in_even else (1, 0)
    first = jnp.take(paired[:, 0], even, axis=side_axis - 1)
    second = jnp.take(paired[:, 1], odd, axis=side_axis - 1)
    picked = jnp.stack([first, second], axis=1)
    return picked.reshape(x.shape[0], *picked.shape[2:])


def learner_rows(x: Shaped[Array, "arenas mechs *rest"]) -> Shaped[Array, "arenas team *rest"]:
    """Return the learner's rows of an array over all mechs."""
    return _pick(x, 1, True)


def opponent_rows(x: Shaped[Array, "arenas mechs *rest"]) -> Shaped[Array, "arenas team *rest"]:
    """Return the other side's rows."""
    return _pick(x, 1, False)


def all_rows(
    learner: Shaped[Array, "arenas team *rest"], opponent: Shaped[Array, "arenas team *rest"]
) -> Shaped[Array, "arenas mechs *rest"]:
    """Return an array over all mechs from the rows of both sides; the inverse of the two functions above."""
    pairs = (learner.shape[0] // 2, 2, *learner.shape[1:])
    ours, theirs = learner.reshape(pairs), opponent.reshape(pairs)
    even = jnp.concatenate([ours[:, 0], theirs[:, 0]], axis=1)
    odd = jnp.concatenate([theirs[:, 1], ours[:, 1]], axis=1)
    mechs = 2 * learner.shape[1]
    return jnp.stack([even, odd], axis=1).reshape(learner.shape[0], mechs, *learner.shape[2:])


def learner_first(x: Shaped[Array, "arenas *rest sides"]) -> Shaped[Array, "arenas *rest sides"]:
    """Return an array whose last axis is (blue, red) with that axis as (learner, opponent)."""
    pairs = x.reshape(x.shape[0] // 2, 2, *x.shape[1:])
    return jnp.stack([pairs[:, 0], pairs[:, 1, ..., ::-1]], axis=1).reshape(x.shape)


def seat_rows(x: Shaped[Array, "arenas mechs *rest"], both: bool) -> Shaped[Array, "seats team *rest"]:
    """Return the rows of the learner's seats of an array over all mechs."""
    if not both:
        return learner_rows(x)
    pairs = jnp.stack([learner_rows(x), opponent_rows(x)], axis=1)
    return pairs.reshape(2 * x.shape[0], *pairs.shape[2:])


def of_own_side(x: Shaped[Array, " seats *rest"], both: bool) -> Shaped[Array, " arenas *rest"]:
    """Return the seats of the learner's own side, one an arena."""
    return x[::2] if both else x


def of_other_side(x: Shaped[Array, " seats *rest"]) -> Shaped[Array, " arenas *rest"]:
    """Return the seats of the other side, where the learner plays both."""
    return x[1::2]


def to_seats(x: Shaped[Array, " arenas *rest"], both: bool) -> Shaped[Array, " seats *rest"]:
    """Return what holds for an arena for each of its seats."""
    return jnp.repeat(x, 2, axis=0) if both else x
