"""The PPO loss and its minibatches (docs/spec/learner.md 4.3, B.3, T10, T11)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.policies.features import Features, Observation
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.training import loss, ppo

FEATURES = Features(7, 2, 3, (True,) * 7)
NETWORK = OriginalNetwork(FEATURES, 3, 8, 8)
CONFIG = ppo.PPOConfig(epochs=2, minibatches=2, clip=0.2, value_coefficient=0.5)
WEIGHTS = loss.Weights(entropy=jnp.float32(0.01), teacher=jnp.float32(0.0))
T, ARENAS, TEAM = 5, 4, 2
PARAMS = jax.jit(NETWORK.init)(jax.random.key(0))
CARRY = NETWORK.initial_carry(ARENAS, TEAM)
OPTIMIZER = ppo.make_optimizer(0.5)
gradient = jax.jit(
    jax.grad(lambda p, b, k: loss.loss_and_metrics(p, NETWORK, CONFIG, WEIGHTS, CARRY, b, k), has_aux=True)
)


@jax.jit
def unroll(carry, observation, reset):
    return NETWORK.unroll(PARAMS, carry, observation, reset)


def first_policy(observation, reset):
    return unroll(CARRY, observation, reset)[0]


def random_batch(seed=0):
    rng = np.random.default_rng(seed)
    shape = (T, ARENAS, TEAM)
    f = lambda *s: jnp.asarray(rng.normal(size=s), jnp.float32)  # noqa: E731
    observation = Observation(f(*shape, 4), jnp.asarray(rng.integers(0, 2, (T, ARENAS, 3)), jnp.uint8))
    reset = jnp.asarray(rng.random(shape) < 0.2)
    raw_action = f(*shape, 3)
    alive = jnp.asarray(rng.random(shape) < 0.7)
    return ppo.Batch(
        observation=observation,
        reset=reset,
        policy_mask=alive,
        value_mask=alive,
        raw_action=raw_action,
        log_prob=first_policy(observation, reset).head_log_prob(raw_action),
        value=f(*shape),
        advantage=f(*shape),
        target=f(*shape),
    )


def test_loss_vectors_of_the_original():
    log_ratio = jnp.asarray([-0.7, -1.5, -1.1]) + 1.0
    advantage = jnp.asarray([1.0, -2.0, 0.5])
    assert float(loss.surrogate_terms(log_ratio, advantage, 0.2).mean()) == pytest.approx(-0.017473, abs=1e-6)
    ratio = np.exp(log_ratio)
    assert float((ratio - 1 - log_ratio).mean()) == pytest.approx(0.053742, abs=1e-6)
    assert float((abs(ratio - 1) > 0.2).mean()) == pytest.approx(0.666667, abs=1e-6)


def test_the_loss_is_put_together_from_its_parts():
    key = jax.random.key(3)
    batch = random_batch()
    m = gradient(PARAMS, batch, key)[1]
    assert float(m.loss) == pytest.approx(float(m.policy_loss + 0.5 * m.value_loss - 0.01 * m.entropy), abs=1e-6)
    value = np.asarray(unroll(CARRY, batch.observation, batch.reset)[1])
    alive = np.asarray(batch.policy_mask)
    assert float(m.value_loss) == pytest.approx(0.5 * ((np.asarray(batch.target) - value)[alive] ** 2).mean(), rel=1e-5)


def test_the_ratio_is_one_before_the_first_gradient_step():
    _, metrics = gradient(PARAMS, random_batch(), jax.random.key(0))
    assert float(metrics.ratio_error) < 1e-5
    assert float(metrics.clip_fraction) == 0.0 and abs(float(metrics.kl)) < 1e-6


def test_the_dead_have_no_influence_on_loss_or_gradient():
    batch = random_batch()
    dead = ~batch.policy_mask

    def spoil(x, by):
        return jnp.where(dead.reshape(dead.shape + (1,) * (x.ndim - 3)), by, x)

    # A dead mech's memory dies with it, so its later observations reach nobody: reset wherever it was dead before.
    reset = batch.reset | jnp.concatenate([jnp.zeros_like(dead[:1]), dead[:-1]])
    batch = batch.replace(reset=reset)
    batch = batch.replace(log_prob=first_policy(batch.observation, reset).head_log_prob(batch.raw_action))
    other = batch.replace(
        observation=batch.observation.replace(own=spoil(batch.observation.own, 7.0)),
        raw_action=spoil(batch.raw_action, 40.0),
        log_prob=spoil(batch.log_prob, jnp.nan),
        advantage=spoil(batch.advantage, jnp.inf),
        target=spoil(batch.target, jnp.nan),
    )
    key = jax.random.key(1)
    a, b = gradient(PARAMS, batch, key), gradient(PARAMS, other, key)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)):
        assert np.array_equal(x, y)


def test_a_batch_of_dead_mechs_gives_no_gradient():
    batch = random_batch()
    grads, metrics = gradient(
        PARAMS,
        batch.replace(policy_mask=jnp.zeros_like(batch.policy_mask), value_mask=jnp.zeros_like(batch.policy_mask)),
        jax.random.key(0),
    )
    assert all(not x.any() for x in jax.tree.leaves(grads))
    assert all(np.isfinite(x) for x in jax.tree.leaves(metrics))


def test_advantages_are_normalised_over_the_living():
    advantage, alive = jnp.asarray([1.0, 2.0, 1e6, 3.0]), jnp.asarray([True, True, False, True])
    out = np.asarray(loss.normalize_advantage(advantage, alive))
    assert out[2] == 0.0
    assert np.allclose(out[[0, 1, 3]], np.array([-1, 0, 1]) / np.std([1, 2, 3]), atol=1e-6)


def test_constant_advantages_become_zero():
    assert not loss.normalize_advantage(jnp.full(4, 2.5), jnp.ones(4, bool)).any()


def test_minibatches_hold_whole_sequences_of_whole_arenas():
    marks = jnp.arange(T * ARENAS * TEAM).reshape(T, ARENAS, TEAM)
    batch = jax.tree.map(lambda x: jnp.broadcast_to(marks.reshape(marks.shape + (1,) * (x.ndim - 3)), x.shape),
                         random_batch().replace(observation=Observation(jnp.zeros((T, ARENAS, TEAM, 4)), None)))  # fmt: skip
    part = loss.take_sequences(batch, jnp.asarray([3, 1]))
    for leaf in jax.tree.leaves(part):
        assert np.array_equal(leaf.reshape(T, 2, TEAM, -1)[..., 0], marks[:, [3, 1]])


@jax.jit
def compiled_update(batch, key, carry, rate):
    carries = jax.tree.map(lambda x: x[None], carry)
    schedule = ppo.UpdateSchedule(rate, WEIGHTS.entropy)
    return ppo.update(NETWORK, CONFIG, OPTIMIZER, schedule, PARAMS, OPTIMIZER.init(PARAMS), carries, batch, key)


def run_update(batch, key, carry=CARRY, rate=1e-2):
    return compiled_update(batch, key, carry, jnp.float32(rate))


def test_only_the_first_minibatch_sees_the_old_policy():
    metrics = run_update(random_batch(), jax.random.key(0))[2]
    assert metrics.ratio_error.shape == (2, 2)
    assert float(metrics.ratio_error[0, 0]) < 1e-5 < 1e-4 < float(metrics.ratio_error[0, 1])


def test_an_epoch_visits_every_arena_once_with_its_own_first_memory():
    # With a rate of zero every gradient step evaluates the same policy, so an epoch's mean loss is that of the rollout,
    # whatever the order; a carry that is not permuted along would show in the ratio.
    rng = np.random.default_rng(5)
    carry = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), CARRY)
    batch = random_batch()
    batch = batch.replace(policy_mask=jnp.ones_like(batch.policy_mask), value_mask=jnp.ones_like(batch.policy_mask))
    distribution, value = unroll(carry, batch.observation, batch.reset)
    batch = batch.replace(log_prob=distribution.head_log_prob(batch.raw_action))
    params, _, metrics = run_update(batch, jax.random.key(2), carry, rate=0.0)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(PARAMS)))
    assert float(metrics.ratio_error.max()) < 1e-5
    whole = 0.5 * float(((batch.target - value) ** 2).mean())
    assert np.allclose(metrics.value_loss.mean(1), whole, rtol=1e-5)


def test_a_step_that_is_not_finite_changes_nothing_and_is_counted():
    batch = random_batch()
    spoilt = batch.replace(target=jnp.full_like(batch.target, jnp.nan), value_mask=jnp.ones_like(batch.policy_mask))
    params, state, metrics = run_update(spoilt, jax.random.key(0))
    for a, b in zip(jax.tree.leaves((params, state)), jax.tree.leaves((PARAMS, OPTIMIZER.init(PARAMS)))):
        assert np.array_equal(a, b)
    assert float(metrics.skipped.mean()) == 1.0


def test_the_reported_gradient_norm_is_before_clipping():
    batch = random_batch()
    large = batch.replace(target=batch.target + 100.0)
    metrics = run_update(large, jax.random.key(0))[2]
    assert float(metrics.grad_norm[0, 0]) > 10 * 0.5


# -- Chunks, burn-in, the KL stop, value clipping ------------------------------------------------------------------------------


def test_chunks_are_laid_out_chunk_by_chunk():
    time, arenas = 6, 2
    marks = (10 * jnp.arange(time)[:, None] + jnp.arange(arenas)).astype(jnp.float32)
    cut = ppo.in_chunks(jax.tree.map(lambda _: marks[..., None], random_batch()), 3)
    found = np.asarray(cut.reset)[..., 0]
    assert found.shape == (2, 6)
    for chunk in range(3):
        for arena in range(arenas):
            assert found[:, chunk * arenas + arena].tolist() == [10 * (2 * chunk) + arena, 10 * (2 * chunk + 1) + arena]


def long_batch(steps):
    """A batch of `steps` decisions of living mechs by the first policy, and the memory before each of its single steps."""
    rng = np.random.default_rng(9)
    shape = (steps, ARENAS, TEAM)
    f = lambda *s: jnp.asarray(rng.normal(size=s), jnp.float32)  # noqa: E731
    observation = Observation(f(*shape, 4), jnp.asarray(rng.integers(0, 2, (steps, ARENAS, 3)), jnp.uint8))
    reset = jnp.asarray(rng.random(shape) < 0.2)
    carry = jax.tree.map(lambda x: f(*x.shape), CARRY)
    memories, now = [], carry
    for t in range(steps):
        memories.append(now)
        now = NETWORK.apply(PARAMS, now, jax.tree.map(lambda x, t=t: x[t], observation), reset[t])[0]
    distribution, value = NETWORK.unroll(PARAMS, carry, observation, reset)
    raw_action, alive = f(*shape, 3), jnp.ones(shape, bool)
    density = distribution.head_log_prob(raw_action)
    batch = ppo.Batch(observation, reset, alive, alive, raw_action, density, value, f(*shape), f(*shape))
    return batch, memories


@pytest.mark.parametrize("burn_in", [False, True])
def test_a_chunk_starts_from_the_memory_that_the_rollout_had_there(burn_in):
    batch, memories = long_batch(4)
    first = [memories[0], memories[2]]
    if burn_in:  # the second chunk's stored memory is not used, so it may be anything
        first[1] = jax.tree.map(lambda x: x + 3.0, first[1])
    carries = jax.tree.map(lambda *x: jnp.stack(x), *first)
    config = dataclasses.replace(CONFIG, epochs=1, minibatches=1, burn_in=burn_in)
    schedule = ppo.UpdateSchedule(jnp.float32(0.0), WEIGHTS.entropy)
    state = OPTIMIZER.init(PARAMS)
    run = jax.jit(lambda c, b: ppo.update(NETWORK, config, OPTIMIZER, schedule, PARAMS, state, c, b, jax.random.key(0)))
    metrics = run(carries, batch)[2]
    assert float(metrics.ratio_error.max()) < 1e-5
    assert float(run(jax.tree.map(lambda x: x + 1.0, carries), batch)[2].ratio_error.max()) > 1e-3


def test_after_too_large_a_kl_the_rest_of_the_update_is_left_out():
    batch = random_batch()
    config = dataclasses.replace(CONFIG, target_kl=1e-9)
    carries = jax.tree.map(lambda x: x[None], CARRY)

    def run(config, rate):
        schedule = ppo.UpdateSchedule(jnp.float32(rate), WEIGHTS.entropy)
        state = OPTIMIZER.init(PARAMS)
        return ppo.update(NETWORK, config, OPTIMIZER, schedule, PARAMS, state, carries, batch, jax.random.key(0))

    _, _, stopped = jax.jit(lambda: run(config, 1e-2))()
    # The first minibatch has a KL of 0, the second shows what the first step did.
    assert stopped.stopped.ravel().tolist() == [0.0, 0.0, 1.0, 1.0]
    params, _, never = jax.jit(lambda: run(dataclasses.replace(CONFIG, target_kl=10.0), 1e-2))()
    assert not never.stopped.any()
    plain = run_update(batch, jax.random.key(0))[0]
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(plain)))


def test_a_gradient_step_is_traced_once(monkeypatch):
    """Leaving it out takes its shapes, and asking for them must not trace it once more."""
    traced, plain = [], OriginalNetwork.unroll
    monkeypatch.setattr(OriginalNetwork, "unroll", lambda *given: traced.append(1) or plain(*given))
    config = dataclasses.replace(CONFIG, target_kl=0.02)
    schedule = ppo.UpdateSchedule(jnp.float32(1e-2), WEIGHTS.entropy)
    carries = jax.tree.map(lambda x: x[None], CARRY)

    def run(params, batch):
        given = NETWORK, config, OPTIMIZER, schedule, params, OPTIMIZER.init(params), carries, batch
        return ppo.update(*given, jax.random.key(0))

    jax.make_jaxpr(run)(PARAMS, random_batch())
    assert len(traced) == 1


def test_a_clipped_value_pays_the_larger_of_two_errors():
    value, old, target = (jnp.asarray(x, jnp.float32) for x in ([2.0, 0.1, -1.0], [0.0, 0.0, 0.0], [3.0, 1.0, -1.0]))
    assert loss.value_terms(value, old, target, 0.0).tolist() == pytest.approx([0.5, 0.405, 0.0])
    assert loss.value_terms(value, old, target, 0.2).tolist() == pytest.approx([0.5 * 2.8**2, 0.405, 0.5 * 0.8**2])
