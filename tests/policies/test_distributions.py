"""The squashed Gaussian (docs/spec/learner.md 2.4, T7, T8)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.policies.distributions import SQUASH_EPSILON, SquashedGaussian, from_action, log_det, softplus


def test_softplus_and_its_slope_are_right_to_float32():
    x = np.linspace(-40.0, 40.0, 1001)
    near = {"rtol": 3e-7, "atol": 1.5e-7}
    np.testing.assert_allclose(softplus(jnp.asarray(x, jnp.float32)), np.logaddexp(0.0, x), **near)
    slope = jax.vmap(jax.grad(softplus))(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(slope, 1.0 / (1.0 + np.exp(-x)), **near)


def test_log_det_is_log_of_the_slope_of_tanh():
    u = np.linspace(-5, 5, 101)
    assert np.allclose(log_det(jnp.asarray(u, jnp.float32)), np.log1p(-(np.tanh(u) ** 2)), atol=1e-5)


def test_log_det_and_its_gradient_are_finite_where_tanh_saturates():
    u = jnp.asarray([-60.0, -20.0, 20.0, 60.0])
    assert np.isfinite(log_det(u)).all()
    assert np.allclose(jax.grad(lambda u: log_det(u).sum())(u), [2, 2, -2, -2], atol=1e-6)


def test_log_prob_is_the_density_of_the_action():
    # Probability of a small interval of actions, from the error function, over its width.
    from math import erf, sqrt

    mean, std, action, width = 0.3, 0.7, 0.6, 1e-4

    def cdf(a):
        return 0.5 * (1 + erf((np.arctanh(a) - mean) / std / sqrt(2)))

    density = (cdf(action + width / 2) - cdf(action - width / 2)) / width
    d = SquashedGaussian(jnp.asarray([mean]), jnp.log(jnp.asarray([std])))
    assert float(d.action_log_prob(jnp.asarray([np.arctanh(action)], jnp.float32))) == pytest.approx(
        np.log(density), abs=1e-4
    )


def test_log_density_differs_from_log_prob_by_a_term_of_the_sample_alone():
    u = jnp.asarray([0.5, -1.0, 3.0])
    a = SquashedGaussian(jnp.asarray([0.1, 0.2, 0.3]), jnp.zeros(3))
    b = SquashedGaussian(jnp.asarray([1.0, -1.0, 2.0]), jnp.full(3, -0.5))
    assert float(a.action_log_prob(u) - b.action_log_prob(u)) == pytest.approx(
        float(a.log_prob(u) - b.log_prob(u)), abs=1e-5
    )


def test_from_action_inverts_tanh_inside_the_clamp_only():
    u = jnp.linspace(-4, 4, 41)
    assert np.allclose(from_action(jnp.tanh(u)), u, atol=2e-3)
    largest = float(from_action(jnp.asarray([1.0]))[0])
    assert largest == pytest.approx(np.arctanh(1 - SQUASH_EPSILON), abs=0.02)
    assert largest == pytest.approx(7.2477, abs=1e-3)  # docs/spec/learner.md 2.4


def test_entropy_estimate_averages_to_the_entropy_by_quadrature():
    mean, log_std = 0.8, -0.3
    x, w = np.polynomial.hermite_e.hermegauss(80)
    u = mean + np.exp(log_std) * x
    exact = 0.5 + 0.5 * np.log(2 * np.pi) + log_std + (w / w.sum() * np.log1p(-(np.tanh(u) ** 2))).sum()
    d = SquashedGaussian(jnp.full((20000, 1), mean), jnp.asarray([log_std]))
    noise = jax.random.normal(jax.random.key(0), (20000, 1))
    assert float(d.entropy(noise).mean()) == pytest.approx(exact, abs=0.02)


def test_entropy_gradient_reaches_mean_and_spread_and_stops_rewarding_saturation():
    noise = jax.random.normal(jax.random.key(1), (4000, 1))

    def entropy(mean, log_std):
        return SquashedGaussian(jnp.full((4000, 1), mean), jnp.reshape(log_std, (1,))).entropy(noise).mean()

    by_mean, by_std = jax.grad(entropy, (0, 1))(1.0, 1.0)
    assert by_mean < -0.1  # back towards the middle
    assert by_std < 0.0  # a squashed Gaussian this wide gains by narrowing; a blind bonus would give +1
