"""Running moments (docs/spec/learner.md 4.3, B.3, T16, T17)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.policies.normalize import (
    Moments,
    batch_moments,
    empty_moments,
    fold,
    merge,
    normalize,
    return_deviation,
    shift_and_scale,
    to_reward_units,
    to_value_units,
)

RNG = np.random.default_rng(0)
batch_moments, merge = jax.jit(batch_moments), jax.jit(merge)


def test_merging_batches_gives_the_moments_of_all_rows():
    rows = RNG.normal(3.0, 2.0, (60, 4)).astype(np.float32)
    mask = RNG.random(60) > 0.4
    moments = empty_moments(4)
    for part in np.split(np.arange(60), [7, 7, 30]):  # one of them empty
        moments = merge(moments, batch_moments(jnp.asarray(rows[part]), jnp.asarray(mask[part])))
    assert np.allclose(moments.mean, rows[mask].mean(0), atol=1e-5)
    assert np.allclose(moments.var, rows[mask].var(0), rtol=1e-5)
    assert float(moments.count) == mask.sum()


def test_merge_matches_the_original_when_fed_its_unbiased_variances():
    def scalar(mean, var, count):
        return Moments(jnp.float32(mean), jnp.float32(var), jnp.float32(count))

    merged = merge(merge(empty_moments(), scalar(2, 1, 3)), scalar(5, 1, 3))  # (1, 2, 3), then (4, 5, 6)
    assert (float(merged.mean), float(merged.var), float(merged.count)) == (3.5, 3.25, 6.0)
    assert float(to_value_units(merged, jnp.float32(7.0))) == pytest.approx(1.9415, abs=1e-4)


def test_rows_outside_the_mask_never_matter():
    rows, mask = RNG.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 3 > 0
    spoilt = np.where(mask[:, None], rows, np.nan)
    a, b = batch_moments(jnp.asarray(rows), jnp.asarray(mask)), batch_moments(jnp.asarray(spoilt), jnp.asarray(mask))
    assert all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


def test_an_empty_batch_changes_nothing():
    old = Moments(jnp.ones(2), jnp.full(2, 4.0), jnp.float32(9))
    new = merge(old, batch_moments(jnp.ones((3, 2)), jnp.zeros(3, bool)), keep=0.5)
    assert all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(old), jax.tree.leaves(new)))


def test_forgetting_follows_a_scale_that_changes():
    moments = empty_moments()
    for scale in [1.0] * 20 + [100.0] * 20:
        batch = Moments(jnp.float32(0), jnp.float32(scale**2), jnp.float32(50))
        moments = merge(moments, batch, keep=0.5)
    assert float(return_deviation(moments)) == pytest.approx(100.0, rel=1e-3)


def test_flags_are_left_alone_and_numbers_are_standardised():
    rows = jnp.asarray(RNG.normal(5.0, 3.0, (500, 2)), jnp.float32)
    moments = batch_moments(rows, jnp.ones(500, bool))
    out = np.asarray(normalize(moments, rows, jnp.asarray([True, False])))
    assert abs(out[:, 0].mean()) < 1e-5 and abs(out[:, 0].std() - 1) < 1e-4
    assert np.array_equal(out[:, 1], rows[:, 1])


def test_clipping_is_off_by_default_and_spares_flags():
    moments, rows = empty_moments(2), jnp.asarray([[50.0, 50.0]])
    which = jnp.asarray([True, False])
    assert normalize(moments, rows, which).tolist() == [[50.0, 50.0]]
    assert normalize(moments, rows, which, clip=10.0).tolist() == [[10.0, 50.0]]


def test_a_constant_feature_is_not_blown_up():
    moments = batch_moments(jnp.full((9, 1), 0.5), jnp.ones(9, bool))
    assert abs(float(normalize(moments, jnp.asarray([[1.0]]), jnp.asarray([True]))[0, 0])) <= 5.0 + 1e-5


def test_the_normaliser_folds_into_the_first_layer():
    rows = jnp.asarray(RNG.normal(2.0, 0.7, (40, 6)), jnp.float32)
    which = jnp.asarray([True, True, False, True, False, True])
    moments = batch_moments(rows, jnp.ones(40, bool))
    kernel, bias = jnp.asarray(RNG.normal(size=(6, 5)), jnp.float32), jnp.arange(5.0)
    folded = fold(kernel, bias, *shift_and_scale(moments, which))
    assert np.allclose(rows @ folded[0] + folded[1], normalize(moments, rows, which) @ kernel + bias, atol=2e-5)


def test_value_units_are_inverted_by_reward_units():
    moments = Moments(jnp.float32(-3), jnp.float32(400), jnp.float32(5))
    returns = jnp.asarray([1.0, -50.0, 7.0])
    assert np.allclose(to_reward_units(moments, to_value_units(moments, returns)), returns, atol=1e-5)
