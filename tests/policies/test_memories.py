"""Every kind of memory over a sequence, and its gradient against JAX's derivative of one step after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_jax.policies.memories import MEMORIES
from echelon_jax.policies.mingru import back_in_pairs, back_in_turn, in_pairs, in_turn, linear_recurrence, mingru_step
from echelon_jax.policies.network import Carry

TIME, ARENAS, MECHS, HIDDEN, WIDTH = 7, 2, 3, 5, 4


def one_by_one(memory):
    def sequence(kernel, bias, carry, x, reset):
        hidden = []
        for read, new in zip(x, reset, strict=True):
            carry = memory.step(kernel, bias, carry, read, new)
            hidden.append(carry.h)
        return carry, jnp.stack(hidden)

    return sequence


@pytest.fixture(scope="module", params=MEMORIES)
def memory(request):
    return MEMORIES[request.param]


@pytest.fixture(scope="module")
def inputs(memory):
    keys = jax.random.split(jax.random.key(3), 6)

    def normal(key, *shape):
        return jax.random.normal(key, shape)

    carry = Carry(normal(keys[0], ARENAS, MECHS, WIDTH), normal(keys[1], ARENAS, MECHS, WIDTH))
    reset = jax.random.bernoulli(keys[2], 0.3, (TIME, ARENAS, MECHS))
    assert reset[0].any() and not reset[0].all() and reset[1:].any()
    kernel = normal(keys[3], *memory.kernel(keys[3], HIDDEN, WIDTH).shape)
    bias = normal(keys[4], *memory.bias(WIDTH, 1.0).shape)
    return kernel, bias, carry, normal(keys[5], TIME, ARENAS, MECHS, HIDDEN), reset


def scalar(sequence, reset):
    """A number that depends on everything a sequence returns, each part with weights of its own."""

    def of(kernel, bias, carry, x):
        last, h = sequence(kernel, bias, carry, x, reset)
        return sum(jnp.sin(part * (1 + jnp.arange(part.size).reshape(part.shape) % 5)).sum() for part in (*last, h))

    return of


def test_a_sequence_gives_the_memory_of_one_step_after_the_other(memory, inputs):
    ours, theirs = jax.jit(memory.sequence)(*inputs), one_by_one(memory)(*inputs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.parametrize("argument", [0, 1, 2, 3], ids=["kernel", "bias", "first memory", "inputs"])
def test_the_gradient_is_the_derivative_of_one_step_after_the_other(memory, inputs, argument):
    *differentiated, reset = inputs
    ours = jax.jit(jax.grad(scalar(memory.sequence, reset), argument))(*differentiated)
    theirs = jax.jit(jax.grad(scalar(one_by_one(memory), reset), argument))(*differentiated)
    assert max(np.abs(b).max() for b in jax.tree.leaves(theirs)) > 0.1
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def test_no_gradient_passes_a_reset(memory, inputs):
    kernel, bias, carry, x, reset = inputs
    everywhere = reset.at[3].set(True)
    slope = jax.grad(lambda x, carry: memory.sequence(kernel, bias, carry, x, everywhere)[1][3:].sum(), (0, 1))
    of_x, of_carry = slope(x, carry)
    assert not of_x[:3].any() and of_x[3:].all()
    assert not any(leaf.any() for leaf in of_carry)


def test_a_fresh_memory_has_orthogonal_gates_and_keeps_by_the_forget_bias(memory):
    kernel, bias = np.asarray(memory.kernel(jax.random.key(0), 6, 6)), np.asarray(memory.bias(6, 1.5))
    blocks = [block for rows in np.split(kernel, len(kernel) // 6) for block in np.split(rows, memory.gates, 1)]
    assert len(blocks) == memory.gates * (2 if memory.reads_itself else 1)
    for block in blocks:
        np.testing.assert_allclose(block @ block.T, np.eye(6), atol=1e-5)
    kept = slice(6 * memory.keeps, 6 * memory.keeps + 6)
    assert (bias[kept] == 1.5).all() and not np.delete(bias, np.arange(*kept.indices(len(bias)))).any()


# What is kept, and nothing else, decides how long a first memory is seen.
def test_the_gate_that_keeps_decides_how_much_of_a_memory_stays(memory):
    carry = Carry(jnp.full((1, 1, WIDTH), 0.5), jnp.zeros((1, 1, WIDTH)))
    kernel = jnp.zeros_like(memory.kernel(jax.random.key(0), HIDDEN, WIDTH))
    after = memory.step(kernel, memory.bias(WIDTH, 1.0), carry, jnp.ones((1, 1, HIDDEN)), jnp.zeros((1, 1), bool))
    np.testing.assert_allclose(after.c, 0.5 / (1.0 + np.exp(-1.0)), rtol=1e-6)


# -- The minGRU -------------------------------------------------------------------------------------------------------------


def test_a_mingru_is_the_weighted_mean_of_its_state_and_what_is_new():
    """Written out in numpy from the paper's two formulas; a mech whose episode begins has no state."""
    rng = np.random.default_rng(0)
    w_f, w_g, b_f, b_g = (rng.normal(size=s) for s in ((HIDDEN, WIDTH), (HIDDEN, WIDTH), WIDTH, WIDTH))
    x, c = rng.normal(size=(1, 2, HIDDEN)), rng.normal(size=(1, 2, WIDTH))
    begins = np.array([[False, True]])
    f, g = 1 / (1 + np.exp(-(x @ w_f + b_f))), x @ w_g + b_g
    expected = np.where(begins[..., None], 0.0, f * c) + (1 - f) * g
    kernel, bias = np.concatenate([w_f, w_g], 1), np.concatenate([b_f, b_g])
    floats = [jnp.asarray(a, jnp.float32) for a in (kernel, bias, c, x)]
    after = mingru_step(floats[0], floats[1], Carry(floats[2], floats[2]), floats[3], jnp.asarray(begins))
    np.testing.assert_allclose(after.c, expected, atol=1e-5)
    np.testing.assert_allclose(after.h, expected + g, atol=1e-5)


@settings(max_examples=8, deadline=None)
@given(time=st.integers(1, 20), seed=st.integers(0, 2**20))
def test_the_recurrence_of_a_cpu_and_that_of_a_gpu_agree_and_so_do_their_gradients(time, seed):
    rng = np.random.default_rng(seed)
    keep, add, given = (jnp.asarray(rng.uniform(-1, 1, (time, 2, 3)), jnp.float32) for _ in range(3))
    keep = jnp.where(rng.random(keep.shape) < 0.2, 0.0, keep)
    first = jnp.asarray(rng.normal(size=(2, 3)), jnp.float32)
    state, expected = np.asarray(first, np.float64), []
    for t in range(time):
        state = np.asarray(keep[t]) * state + np.asarray(add[t])
        expected.append(state)
    for recurrence in (in_turn, in_pairs, linear_recurrence):
        np.testing.assert_allclose(recurrence(keep, add, first), np.stack(expected), atol=1e-5)
    d_state = jax.vjp(lambda add: in_turn(keep, add, first), add)[1](given)[0]
    for back in (back_in_turn, back_in_pairs):
        np.testing.assert_allclose(back(keep, given), d_state, atol=1e-5)
