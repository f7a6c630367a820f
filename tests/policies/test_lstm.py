"""The LSTM over a sequence, and its own backward pass against JAX's derivative of one step after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.policies.lstm import lstm_sequence, lstm_step
from echelon_jax.policies.network import Carry

TIME, ARENAS, MECHS, HIDDEN, LSTM = 7, 2, 3, 5, 4


def one_by_one(kernel, bias, carry, x, reset):
    hidden = []
    for read, new in zip(x, reset, strict=True):
        carry = lstm_step(kernel, bias, carry, read, new)
        hidden.append(carry.h)
    return carry, jnp.stack(hidden)


@pytest.fixture(scope="module")
def inputs():
    keys = jax.random.split(jax.random.key(3), 6)

    def normal(key, *shape):
        return jax.random.normal(key, shape)

    carry = Carry(normal(keys[0], ARENAS, MECHS, LSTM), normal(keys[1], ARENAS, MECHS, LSTM))
    reset = jax.random.bernoulli(keys[2], 0.3, (TIME, ARENAS, MECHS))
    assert reset[0].any() and not reset[0].all() and reset[1:].any()
    kernel, bias = normal(keys[3], HIDDEN + LSTM, 4 * LSTM), normal(keys[4], 4 * LSTM)
    return kernel, bias, carry, normal(keys[5], TIME, ARENAS, MECHS, HIDDEN), reset


def scalar(sequence, reset):
    """A number that depends on everything a sequence returns, each part with weights of its own."""

    def of(kernel, bias, carry, x):
        last, h = sequence(kernel, bias, carry, x, reset)
        return sum(jnp.sin(part * (1 + jnp.arange(part.size).reshape(part.shape) % 5)).sum() for part in (*last, h))

    return of


def test_a_sequence_gives_the_memory_of_one_step_after_the_other(inputs):
    for ours, theirs in zip(
        jax.tree.leaves(jax.jit(lstm_sequence)(*inputs)), jax.tree.leaves(one_by_one(*inputs)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


@pytest.mark.parametrize("argument", [0, 1, 2, 3], ids=["kernel", "bias", "first memory", "inputs"])
def test_the_backward_pass_is_the_derivative_of_one_step_after_the_other(inputs, argument):
    *differentiated, reset = inputs
    ours = jax.jit(jax.grad(scalar(lstm_sequence, reset), argument))(*differentiated)
    theirs = jax.jit(jax.grad(scalar(one_by_one, reset), argument))(*differentiated)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.abs(b).max() > 0.1
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def test_no_gradient_passes_a_reset(inputs):
    kernel, bias, carry, x, reset = inputs
    everywhere = reset.at[3].set(True)
    slope = jax.grad(lambda x, carry: lstm_sequence(kernel, bias, carry, x, everywhere)[1][3:].sum(), (0, 1))(x, carry)
    assert not slope[0][:3].any() and slope[0][3:].all()
    assert not any(leaf.any() for leaf in slope[1])
