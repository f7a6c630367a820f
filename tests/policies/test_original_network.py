"""The `original` network (docs/spec/learner.md 2, B.2)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.policies.distributions import SquashedGaussian, from_action, log_det
from echelon_jax.policies.features import Features, Observation, features_of
from echelon_jax.policies.network import Carry
from echelon_jax.policies.network_size import network_size
from echelon_jax.policies.original_network import OriginalNetwork

SMALL = Features(7, 2, 3, (True,) * 7)
TINY = OriginalNetwork(SMALL, 4, 8, 8)


@functools.partial(jax.jit, static_argnums=0)
def init(network, key):
    return network.init(key)


@functools.partial(jax.jit, static_argnums=0)
def apply(network, params, carry, observation, reset):
    return network.apply(params, carry, observation, reset)


def vector_network():
    """The parameters of B.2: tensor q of the state dictionary holds 0.1 sin(0.7 n + q), row-major."""
    shapes = [(26,), (128, 589), (128,), (128, 128), (128,), (512, 128), (512, 128), (512,), (512,), (26, 128), (26,)]
    shapes += [(1, 128), (1,)]
    t = [(0.1 * np.sin(0.7 * np.arange(np.prod(s)) + q)).astype(np.float32).reshape(s) for q, s in enumerate(shapes)]
    params = {
        "log_std": t[0],
        "encoder_0_kernel": t[1].T,
        "encoder_0_bias": t[2],
        "encoder_1_kernel": t[3].T,
        "encoder_1_bias": t[4],
        "lstm_kernel": np.concatenate([t[5].T, t[6].T]),
        "lstm_bias": t[7] + t[8],
        "mean_kernel": t[9].T,
        "mean_bias": t[10],
        "value_kernel": t[11].T,
        "value_bias": t[12],
    }
    return jax.tree.map(jnp.asarray, params)


def test_vectors_of_the_original():
    # Rows of the vectors have different telemetry, so each is an arena of one mech. Telemetry there is no flag, hence the
    # plain layer: nothing is shared.
    features = Features(589, 0, 0, (False,) * 589)
    network, params = OriginalNetwork(features, 26), vector_network()
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, jax.eval_shape(network.init, jax.random.key(0)))
    assert sum(x.size for x in jax.tree.leaves(params)) == 227_637 - 512  # the two bias vectors are one
    k = np.arange(589)
    action = jnp.asarray(np.tanh(0.1 * (np.arange(26) - 12)[None] + 0.2 * np.arange(2)[:, None]), jnp.float32)
    u = from_action(action)
    expected = [
        (
            [-18.5393, -18.3186],
            [0.182695, 0.183036],
            [-0.018774, 0.061637, -0.050967],
            [-0.031521, 0.141765, -0.114085],
        ),
        ([-18.7422, -18.5097], [0.242268, 0.242984], [0.043196, 0.089512, -0.117015], [0.070463, 0.240209, -0.274135]),
        ([-18.7737, -18.3186], [0.251334, 0.183035], [0.082159, 0.104420, -0.166363], [0.133801, 0.294289, -0.402203]),
    ]
    means = [
        [-0.086843, 0.151002, -0.091343, -0.291706],
        [-0.090584, 0.214913, -0.095855, -0.355035],
        [-0.092511, 0.224106, -0.095115, -0.364324],
    ]
    carry = network.initial_carry(2, 1)
    for t in range(3):
        rows = (np.sin(0.05 * k[None] + np.arange(2)[:, None]) * (1 + 0.1 * t)).astype(np.float32)
        observation = Observation(jnp.asarray(rows)[:, None], jnp.zeros((2, 0), jnp.uint8))
        reset = jnp.asarray([[False], [t == 2]])
        carry, distribution, value = apply(network, params, carry, observation, reset)
        log_prob, values, h, c = expected[t]
        assert np.allclose(distribution.action_log_prob(u[:, None])[:, 0], log_prob, atol=2e-4)
        assert np.allclose(value[:, 0], values, atol=2e-6)
        assert np.allclose(carry.h[0, 0, :3], h, atol=2e-6) and np.allclose(carry.c[0, 0, :3], c, atol=2e-6)
        assert np.allclose(distribution.mean[0, 0, :4], means[t], atol=2e-6)
    assert np.allclose(carry.h[1, 0, :3], [-0.019076, 0.061378, -0.050807], atol=2e-6)
    assert np.allclose(carry.c[1, 0, :3], [-0.032054, 0.141002, -0.113613], atol=2e-6)
    # The reported entropy is the Gaussian's plus the log-det at the given action.
    gaussian = (0.5 + 0.5 * np.log(2 * np.pi) + params["log_std"]).sum()
    assert np.allclose(gaussian + log_det(u).sum(-1), [24.1749, 23.1435], atol=2e-3)


def test_the_shared_block_gives_the_same_as_one_whole_product():
    rng = np.random.default_rng(0)
    shared_size, size = SMALL.shared_size, SMALL.size
    raw = rng.normal(size=(3, 2, size)).astype(np.float32)
    raw[..., 2:5] = rng.integers(0, 2, (3, 1, shared_size))
    split, plain = TINY, OriginalNetwork(Features(size, 0, 0, (True,) * size), 4, 8, 8)
    params, carry = init(split, jax.random.key(1)), split.initial_carry(3, 2)
    reset = jnp.zeros((3, 2), bool)
    whole = Observation(jnp.asarray(raw), jnp.zeros((3, 0), jnp.uint8))
    a = apply(split, params, carry, SMALL.split(jnp.asarray(raw)), reset)
    b = apply(plain, params, carry, whole, reset)
    assert all(np.allclose(x, y, atol=1e-6) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


def test_shared_flags_are_read_from_a_living_mech():
    raw = np.zeros((1, 2, 7), np.float32)
    raw[0, 1, 2:5] = [1, 0, 1]
    assert SMALL.split(jnp.asarray(raw)).shared.tolist() == [[1, 0, 1]]


def random_sequence(steps=6, arenas=3, mechs=2, seed=0):
    rng = np.random.default_rng(seed)
    own = jnp.asarray(rng.normal(size=(steps, arenas, mechs, 4)), jnp.float32)
    shared = jnp.asarray(rng.integers(0, 2, (steps, arenas, 3)), jnp.uint8)
    reset = jnp.asarray(rng.random((steps, arenas, mechs)) < 0.3)
    return Observation(own, shared), reset


def test_unrolling_a_sequence_equals_applying_step_by_step():
    params = init(TINY, jax.random.key(2))
    observation, reset = random_sequence()
    rng = np.random.default_rng(1)
    carry = Carry(*(jnp.asarray(rng.normal(size=(3, 2, 8)), jnp.float32) for _ in range(2)))
    distribution, value = TINY.unroll(params, carry, observation, reset)
    for t in range(6):
        now = jax.tree.map(lambda x, t=t: x[t], observation)
        carry, one, v = apply(TINY, params, carry, now, reset[t])
        assert np.allclose(one.mean, distribution.mean[t], atol=1e-6) and np.allclose(v, value[t], atol=1e-6)


def test_reset_makes_a_mech_forget_and_touches_no_other():
    params = init(TINY, jax.random.key(2))
    observation, _ = random_sequence(1)
    now = jax.tree.map(lambda x: x[0], observation)
    carry = Carry(jnp.ones((3, 2, 8)), jnp.ones((3, 2, 8)))
    reset = jnp.zeros((3, 2), bool).at[1, 0].set(True)
    some, none = (
        apply(TINY, params, carry, now, reset)[0],
        apply(TINY, params, carry, now, ~jnp.ones_like(reset))[0],
    )
    fresh = apply(TINY, params, TINY.initial_carry(3, 2), now, jnp.zeros_like(reset))[0]
    assert np.array_equal(some.h[1, 0], fresh.h[1, 0])
    kept = ~np.asarray(reset)
    assert np.array_equal(np.asarray(some.h)[kept], np.asarray(none.h)[kept])


def test_a_memory_of_nan_is_forgotten_too():
    now = jax.tree.map(lambda x: x[0], random_sequence(1)[0])
    carry = Carry(jnp.full((3, 2, 8), jnp.nan), jnp.full((3, 2, 8), jnp.nan))
    out = apply(TINY, init(TINY, jax.random.key(0)), carry, now, jnp.ones((3, 2), bool))
    assert np.isfinite(out[2]).all()


def test_forget_bias_is_one_once_and_can_be_left_to_chance():
    bias = init(TINY, jax.random.key(0))["lstm_bias"]
    assert (bias[8:16] == 1.0).all() and (abs(jnp.concatenate([bias[:8], bias[16:]])) <= 2 / np.sqrt(8)).all()
    plain = init(OriginalNetwork(SMALL, 4, 8, 8, forget_bias=None), jax.random.key(0))["lstm_bias"]
    assert (abs(plain) <= 2 / np.sqrt(8)).all() and not (plain[8:16] == 1.0).any()


def test_initialisation_follows_the_table():
    features = features_of(EnvConfig.original())
    params = init(OriginalNetwork(features, 26), jax.random.key(0))
    bounds = {"encoder_0_kernel": 589, "encoder_0_bias": 589, "encoder_1_kernel": 128, "lstm_kernel": 128}
    for name, fan_in in bounds.items():
        largest = float(jnp.abs(params[name]).max())
        assert 0.9 / np.sqrt(fan_in) < largest <= 1 / np.sqrt(fan_in), name
    mean = params["mean_kernel"]
    assert np.allclose(mean.T @ mean, 1e-4 * np.eye(26), atol=1e-6)
    assert float(jnp.linalg.norm(params["value_kernel"])) == pytest.approx(1.0, abs=1e-5)
    assert not params["log_std"].any() and not params["mean_bias"].any() and not params["value_bias"].any()


def test_log_std_is_clamped_where_used_and_projected_back():
    params = {**init(TINY, jax.random.key(0)), "log_std": jnp.asarray([-9.0, 0.5, 3.0, 1.0])}
    now = jax.tree.map(lambda x: x[0], random_sequence(1)[0])
    distribution = apply(TINY, params, TINY.initial_carry(3, 2), now, jnp.zeros((3, 2), bool))[1]
    assert isinstance(distribution, SquashedGaussian)
    assert distribution.log_std.tolist() == [-5.0, 0.5, 1.0, 1.0] == TINY.clip_params(params)["log_std"].tolist()


def test_telemetry_is_the_shared_block_of_the_environment():
    features = features_of(EnvConfig.original(comm_dim=3))
    assert (features.shared_start, features.shared_size, features.size) == (246 + 15, 256, 549 + 15)
    assert features.own_continuous.shape == (308,) and features.own_continuous.sum() == 5 * 14 + 15 + 4 + 26


@pytest.mark.parametrize(("start", "size"), [(-1, 2), (5, 3)])
def test_a_shared_block_outside_the_observation_is_refused(start, size):
    with pytest.raises(ValueError, match="shared block"):
        Features(7, start, size, (True,) * 7)


def test_the_size_of_the_original_network_is_that_of_its_products():
    size = network_size(OriginalNetwork(SMALL, 4, 8, 8), team_size=2)
    shared, own = 2 * 3 * 8 / 2, 2 * 4 * 8  # the shared block once for both mechs
    rest = 2 * (8 * 8 + 16 * 32 + 8 * 4 + 8)
    assert size.flops == shared + own + rest
    assert size.parameters == 7 * 8 + 8 + 8 * 8 + 8 + 16 * 32 + 32 + 8 * 4 + 4 + 8 + 1 + 4
