"""The average of the parameters: what it is, who plays with it, and that training goes on as without it."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from helpers.checkpoint_states import same
from helpers.fake_env import CONFIG, CountingAgent, FakeEnv
from helpers.small_runs import PARAMS, TRAIN

from echelon_jax.runs.checkpoint import CheckpointError, load_policy, restore, save
from echelon_jax.runs.validation import Validation, Validations
from echelon_jax.runs.warm_start import warm
from echelon_jax.training.trainer import make_train

DECAY = 0.75
PLAIN = dataclasses.replace(TRAIN, arenas=4, rollout_steps=8, epochs=1, updates_per_call=1, updates=4)
AVERAGED = dataclasses.replace(PLAIN, average_decay=DECAY)
KEY = jax.random.key(PLAIN.seed)


def made(config):
    return make_train(FakeEnv(), config, CountingAgent())


def kept(state):
    """A copy that stays when the state is consumed."""
    return jax.tree.map(lambda x: x.copy(), state)


def almost_equal(one, other):
    if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = jax.random.key_data(one), jax.random.key_data(other)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def trainer():
    return made(AVERAGED)


@pytest.fixture(scope="module")
def states(trainer):
    """The states of three updates, the first one included."""
    state = trainer.init(KEY, PARAMS)
    seen = [kept(state)]
    for _ in range(3):
        state, _ = trainer.run_updates(state, PARAMS)
        seen.append(kept(state))
    return seen


def test_the_average_is_that_of_the_parameters_after_each_update(states):
    average = jax.tree.map(np.asarray, states[0].params)
    assert same(states[0].average, states[0].params)
    for state in states[1:]:
        average = jax.tree.map(lambda old, new: DECAY * old + (1 - DECAY) * np.asarray(new), average, state.params)
        for a, b in zip(jax.tree.leaves(state.average), jax.tree.leaves(average), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert not same(states[-1].average, states[-1].params)


def test_what_is_learnt_is_the_same_with_and_without(states):
    plain = made(PLAIN)
    state = plain.init(KEY, PARAMS)
    assert state.average is None and state.playing is state.params
    for _ in range(3):
        state, _ = plain.run_updates(state, PARAMS)
    # Two programs, which XLA may fuse differently: up to the last bits.
    jax.tree.map(almost_equal, state, states[-1].replace(average=None))


def test_a_checkpoint_plays_with_the_average_and_goes_on_bit_for_bit(trainer, states, tmp_path):
    save(tmp_path, states[2], AVERAGED, CONFIG)
    policy = load_policy(tmp_path)
    assert same(policy.params, states[2].average) and not same(policy.params, states[2].params)
    resumed = restore(tmp_path, jax.eval_shape(trainer.init, KEY, PARAMS), AVERAGED, CONFIG)
    assert same(resumed, states[2])
    assert same(trainer.run_updates(resumed, PARAMS)[0], states[3])


@pytest.mark.parametrize(("was", "now"), [(PLAIN, AVERAGED), (AVERAGED, PLAIN)])
def test_a_run_keeps_its_decay(states, tmp_path, was, now):
    state = states[2] if was.average_decay else states[2].replace(average=None)
    save(tmp_path, state, was, CONFIG)
    with pytest.raises(CheckpointError, match="average_decay"):
        restore(tmp_path, state, now, CONFIG)


def test_a_checkpoint_from_before_there_was_an_average_goes_on_without_one(states, tmp_path):
    state = states[2].replace(average=None)
    path = save(tmp_path, state, PLAIN, CONFIG) / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["train"].pop("average_decay") == 0.0
    path.write_text(json.dumps(manifest))
    assert same(restore(tmp_path, state, PLAIN, CONFIG), state)
    assert same(load_policy(tmp_path).params, state.params)


def test_validation_plays_the_average(states):
    played = []

    def validator(config, env_config):
        def play(params, moments, update):
            played.append(params)
            return Validation(0.5, {})

        play.metric_names = ()
        return play

    plan = Validations(validator, dataclasses.replace(AVERAGED, validation_every=1), CONFIG)
    plan.play(states[2], 2)
    assert same(played[0], states[2].average)


def test_a_run_that_starts_from_a_policy_averages_from_there(trainer, states, tmp_path):
    save(tmp_path, states[3], AVERAGED, CONFIG)
    policy = load_policy(tmp_path)
    begun = warm(trainer.init(KEY, PARAMS), policy)
    assert same(begun.params, states[3].average) and same(begun.average, begun.params)
    trainer.run_updates(begun, PARAMS)  # consumes both, so they must not be one array
