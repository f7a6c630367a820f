"""Reward terms of a user's own: named in the configuration, added to the reward, told apart in info and metrics."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.stroll import strolling

from echelon_jax.config import EnvConfig, parse_reward_terms
from echelon_jax.env.environment import Echelon
from echelon_jax.env.reward_terms import reward_part_names, reward_parts, terms_of
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import add_step, no_sums
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.training.sides import learner_rows
from echelon_jax.worldgen.bank import generate_worlds

TEXT = "helpers.own_terms:steps=0.5; helpers.own_terms:lived=-2"
CONFIG = EnvConfig.original(size_x=20, size_y=20, size_z=8, max_episode_seconds=0.5)  # two decisions


def played(config, **params):
    """What two decisions of two arenas give, mech 0 of arena 0 dead from the start, and a third one after the end."""
    env = Echelon(config)
    env_params = env.params(env.make_bank(generate_worlds(config, range(2))), **params)
    keys = jax.random.split(jax.random.key(0), 2)
    state, first = env.reset_batch(keys, env_params)
    mechs = state.sim.mechs
    state = state.replace(sim=state.sim.replace(mechs=mechs.replace(alive=mechs.alive.at[0, 0].set(False))))
    actions = jnp.zeros((2, config.num_mechs, env.action_layout().size))
    step_batch, steps = jax.jit(env.step_batch), [first]
    with strolling():
        for _ in range(3):
            state, step = step_batch(keys, state, actions, env_params)
            steps.append(step)
    return steps


@pytest.fixture(scope="module")
def without():
    return played(CONFIG)


@pytest.fixture(scope="module")
def with_terms():
    return played(dataclasses.replace(CONFIG, reward_terms=TEXT))


def test_a_term_is_added_with_its_weight_and_reported(without, with_terms):
    for number in (1, 2):
        plain, paid = without[number], with_terms[number]
        assert plain.info.term_rewards is None
        expected = np.zeros((2, 10, 2), np.float32)
        expected[..., 0] = 0.5 * number  # a term may pay the dead
        expected[..., 1] = -2.0
        expected[0, 0, 1] = 0.0  # and need not
        np.testing.assert_array_equal(paid.info.term_rewards, expected)
        np.testing.assert_array_equal(paid.info.reward_components, plain.info.reward_components)
        np.testing.assert_allclose(paid.reward, plain.reward + expected.sum(-1), atol=1e-5)
        np.testing.assert_allclose(reward_parts(paid.info).sum(-1), paid.reward, atol=1e-5)


def test_nothing_is_paid_at_a_reset_and_after_the_end_of_a_game(with_terms):
    assert not with_terms[0].info.term_rewards.any()
    assert with_terms[2].episode_over.all() and not with_terms[3].info.term_rewards.any()


def test_the_weights_are_traced_numbers():
    config = dataclasses.replace(CONFIG, reward_terms=TEXT)
    env = Echelon(config)
    bank = env.make_bank(generate_worlds(config, range(1)))
    np.testing.assert_array_equal(env.params(bank).term_weights, np.float32([0.5, -2.0]))
    state, _ = env.reset_batch(jax.random.split(jax.random.key(0), 1), env.params(bank))
    from echelon_jax.env.reward_terms import term_rewards

    pay = jax.jit(lambda weights: term_rewards(config, weights, state, state, state.sim.tally))
    np.testing.assert_array_equal(pay(jnp.float32([1, 3]))[0, 0], [0.0, 3.0])
    np.testing.assert_array_equal(pay(jnp.float32([1, 4]))[0, 0], [0.0, 4.0])
    with pytest.raises(ValueError, match=r"term_weights must be \[2\], one for each reward term, got \(3,\)"):
        env.params(bank, term_weights=jnp.zeros(3))


def test_metrics_tell_the_terms_apart(with_terms):
    config = dataclasses.replace(CONFIG, reward_terms=TEXT)
    assert reward_part_names(config)[-2:] == ("steps", "lived")
    step = with_terms[1]
    alive = learner_rows(jnp.ones((2, 10), bool).at[0, 0].set(False))
    sums = add_step(no_sums(2), step, alive, jnp.zeros(2))
    np.testing.assert_allclose(sums.components[-2:], [9 * 0.5, 9 * -2.0])
    np.testing.assert_allclose(sums.components.sum(), sums.reward, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("spread=1", "reward_terms must be package.module:function=weight"),
        ("helpers.own_terms:steps", "reward_terms must be package.module:function=weight"),
        ("helpers.own_terms:steps=much", "reward_terms must give steps a weight from -1000 to 1000, got 'much'"),
        ("helpers.own_terms:steps=nan", "reward_terms must give steps a weight"),
        ("helpers.own_terms:steps=1e9", "reward_terms must give steps a weight"),
        ("a:steps=1; b:steps=1", "reward_terms must have names of their own, and steps is there twice"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_when_the_configuration_is_made(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        EnvConfig(reward_terms=text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("helpers.own_terms:nothing=1", "reward_terms must name an object of helpers.own_terms"),
        ("helpers.nowhere:steps=1", "reward_terms must name a module that can be imported"),
        ("helpers.own_terms:NUMBER=1", "reward_terms must name functions, and helpers.own_terms:NUMBER is a int"),
        ("helpers.own_terms:zone=1", "every reward has a part zone"),
        ("helpers.own_terms:narrow=1", r"reward_terms must return \[arenas, mechs\] = \(2, 10\), and narrow"),
        ("helpers.own_terms:fails=1", "reward_terms must hold functions of .before, after, tally., and one fails"),
    ],
)
def test_a_term_that_cannot_be_used_is_refused_before_anything_is_compiled(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        reward_weights(TrainConfig(), EnvConfig(reward_terms=text))


def test_terms_keep_their_order():
    assert [term.name for term in terms_of(EnvConfig(reward_terms=TEXT))] == ["steps", "lived"]
    assert [term.weight for term in parse_reward_terms(TEXT)] == [0.5, -2.0]
