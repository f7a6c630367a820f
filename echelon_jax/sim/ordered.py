"""Short float sums in a fixed order, so that an arena gives the same bits in a batch of any width."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float32


def ordered_sum(values: Float32[Array, "*batch items"]) -> Float32[Array, "*batch"]:
    """Sum over the last axis, written out in index order (a `.sum` may be regrouped when the batch changes)."""
    total = values[..., 0]
    for i in range(1, values.shape[-1]):
        total = total + values[..., i]
    return total


def team_sums(values: Float32[Array, "*batch mechs"]) -> Float32[Array, "*batch 2"]:
    """Sums over the mechs of blue and of red, in roster order."""
    half = values.shape[-1] // 2
    return jnp.stack([ordered_sum(values[..., :half]), ordered_sum(values[..., half:])], -1)
