"""Random draws in long rows.

XLA for CPUs writes out a loop over a short last axis, and random bits are long expressions, so a draw of [..., 10] takes four
times as long to compile as a long row. With threefry's partitionable streams, JAX's default, the values are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float32, Key

SHORTEST = 64  # a row of 10 compiles in 2.0 CPU s, one of 16 to 128 in 0.5 to 0.8 (one thread, JAX 0.10.2)


def in_a_row(
    draw: Callable[..., Array], key: Key[Array, ""], shape: Sequence[int], *args: float
) -> Float32[Array, "*shape"]:
    """Return `draw(key, shape, float32, *args)`, such as `jax.random.normal`, cut from one row of at least SHORTEST numbers."""
    size = math.prod(shape)
    return draw(key, (max(size, SHORTEST),), jnp.float32, *args)[:size].reshape(tuple(shape))
