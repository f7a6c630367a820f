"""A network of a user's own: what `RecurrentNetwork` derives, and the ways by which a run finds it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CONFIG, CountingAgent, FakeEnv
from helpers.own_network import Mutable, Small, small
from helpers.small_runs import PARAMS, TRAIN

from echelon_jax.policies.features import Observation
from echelon_jax.policies.network import Network
from echelon_jax.runs import checkpoint
from echelon_jax.runs.checkpoint import CheckpointError, load_policy
from echelon_jax.training.metrics import summarize
from echelon_jax.training.trainer import given_opponent, make_train

PATH = "helpers.own_network:small"
ONE = dataclasses.replace(TRAIN, arenas=2, rollout_steps=2, minibatches=1, epochs=1, updates=2, updates_per_call=1)
NETWORK = small(ONE, CONFIG)


def test_a_subclass_is_a_network():
    assert isinstance(NETWORK, Network)


def test_a_sequence_gives_what_its_decisions_give_one_by_one():
    params, arenas, mechs, time = NETWORK.init(jax.random.key(0)), 3, 5, 6
    rng = np.random.default_rng(0)
    features = NETWORK.features
    own = jnp.asarray(rng.normal(size=(time, arenas, mechs, features.own_size)), jnp.float32)
    observation = Observation(own, jnp.zeros((time, arenas, features.shared_size), jnp.uint8))
    reset = jnp.asarray(rng.random((time, arenas, mechs)) < 0.3)
    carry = first = jnp.asarray(rng.normal(size=(arenas, mechs, 16)), jnp.float32)
    means, values = [], []
    for t in range(time):
        now = Observation(own[t], observation.shared[t])
        carry, distribution, value = NETWORK.apply(params, carry, now, reset[t])
        means.append(distribution.mean)
        values.append(value)
    whole, value = NETWORK.unroll(params, first, observation, reset)
    np.testing.assert_allclose(whole.mean, jnp.stack(means), atol=1e-5)
    np.testing.assert_allclose(value, jnp.stack(values), atol=1e-5)
    np.testing.assert_allclose(NETWORK.final_carry(params, first, observation, reset), carry, atol=1e-5)
    assert whole.head_log_prob(whole.mode()).shape == (time, arenas, mechs, 1)


@pytest.mark.extended
def test_it_learns_to_remember_a_sign_that_was_shown_once():
    train = make_train(FakeEnv(), TRAIN, CountingAgent(), network=small)
    state = train.init(jax.random.key(0), PARAMS)
    for _ in range(TRAIN.updates // TRAIN.updates_per_call):
        state, metrics = train.run_updates(state, PARAMS)
        if summarize([metrics], 5)["reward_per_decision"] > 0.6:  # 1 is perfect; without memory 1/6 is
            return
    raise AssertionError(f"it has learnt too little: {summarize([metrics], 5)['reward_per_decision']:.2f}")


@pytest.mark.parametrize("given", [small, NETWORK])
def test_the_trainer_takes_a_network_or_what_makes_one(given):
    train = make_train(FakeEnv(), ONE, CountingAgent(), network=given)
    assert train.network == NETWORK


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (7, "network must be a Network or a callable that makes one, got int"),
        (lambda config, env_config: 7, "network must be a Network, and what <lambda> makes lacks apply, "),
        (Mutable(NETWORK.features, 2), "network must be hashable, such as a frozen dataclass"),
    ],
)
def test_what_is_no_network_is_refused(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_train(FakeEnv(), ONE, CountingAgent(), network=given)


@pytest.mark.parametrize("given", [CountingAgent(), CountingAgent, lambda env_config: CountingAgent(env_config)])
def test_the_trainer_takes_an_opponent_or_what_makes_one(given):
    assert given_opponent(given, CONFIG) == CountingAgent(CONFIG)


def test_what_is_no_opponent_is_refused():
    for given in (7, lambda env_config: 7):
        with pytest.raises(ValueError, match=r"opponent must have init, act and reset_where .* got int"):
            make_train(FakeEnv(), ONE, given, NETWORK)


def test_an_import_path_is_found_again_by_a_resumed_run_and_by_load_policy(tmp_path):
    config = dataclasses.replace(ONE, network=PATH)
    train = make_train(FakeEnv(), config, CountingAgent())
    assert train.network == NETWORK
    state = train.init(jax.random.key(0), PARAMS)
    checkpoint.save(tmp_path, state, config, CONFIG)
    policy = load_policy(tmp_path)
    assert policy.network == NETWORK
    np.testing.assert_array_equal(policy.params["gru"]["hn"]["kernel"], state.params["gru"]["hn"]["kernel"])
    restored = checkpoint.restore(tmp_path, jax.eval_shape(train.init, jax.random.key(0), PARAMS), config, CONFIG)
    np.testing.assert_array_equal(restored.params["out"]["kernel"], state.params["out"]["kernel"])
    action, _, _ = policy.act(jnp.zeros((5, NETWORK.features.size)), deterministic=True)
    assert action.shape == (5, NETWORK.action_size)


def test_a_network_that_was_handed_over_is_handed_to_load_policy_too(tmp_path):
    train = make_train(FakeEnv(), ONE, CountingAgent(), network=NETWORK)
    checkpoint.save(tmp_path, train.init(jax.random.key(0), PARAMS), ONE, CONFIG)
    with pytest.raises(CheckpointError, match="which this version"):
        load_policy(tmp_path)  # its configuration names the original network
    assert isinstance(load_policy(tmp_path, network=NETWORK).network, Small)


def test_a_network_that_cannot_be_found_any_more_is_said_in_one_sentence(tmp_path):
    config = dataclasses.replace(ONE, network=PATH)
    state = make_train(FakeEnv(), config, CountingAgent()).init(jax.random.key(0), PARAMS)
    for path in ("helpers.own_network:gone", "helpers.gone:small", "helpers.own_network:no_network"):
        folder = tmp_path / path.replace(":", "_")
        checkpoint.save(folder, state, dataclasses.replace(config, network=path), CONFIG)
        with pytest.raises(CheckpointError, match="cannot be built: network must"):
            load_policy(folder)
