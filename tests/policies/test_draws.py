"""Draws in long rows are the draws that JAX makes of the same shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.draws import SHORTEST, in_a_row

SHAPES = [(), (1,), (7,), (64, 5, 6), (3, SHORTEST), (2, SHORTEST + 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("draw", [jax.random.normal, jax.random.uniform, jax.random.gumbel])
def test_a_row_holds_the_same_numbers(draw, shape) -> None:  # type: ignore[no-untyped-def]
    key = jax.random.key(3)
    ours = in_a_row(draw, key, shape)
    assert ours.dtype == jnp.float32
    np.testing.assert_array_equal(ours, draw(key, shape, jnp.float32))


def test_bounds_are_passed_on() -> None:
    key = jax.random.key(4)
    theirs = jax.random.uniform(key, (5, 2), jnp.float32, -1.0, 1.0)
    np.testing.assert_array_equal(in_a_row(jax.random.uniform, key, (5, 2), -1.0, 1.0), theirs)


def test_the_largest_logit_with_a_gumbel_draw_is_a_categorical_draw() -> None:
    key, logits = jax.random.key(5), jax.random.normal(jax.random.key(6), (200, 7))
    ours = jnp.argmax(logits + in_a_row(jax.random.gumbel, key, logits.shape), -1)
    np.testing.assert_array_equal(ours, jax.random.categorical(key, logits))
