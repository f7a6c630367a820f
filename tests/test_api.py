"""`echelon_jax.make`: names, options, and one interface for one arena and for many."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.stroll import strolling

import echelon_jax
from echelon_jax.api import ENVIRONMENTS
from echelon_jax.config import EnvConfig
from echelon_jax.worldgen.bank import TRAINING_SEEDS

SMALL = {"rules": "original", "worlds": 2, "size_x": 20, "size_y": 20, "size_z": 8}


@pytest.fixture(scope="module")
def made():
    return echelon_jax.make("5v5-28", **SMALL)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_name_says_mechs_a_side_and_the_edge_of_the_map(name):
    packs, size = ENVIRONMENTS[name]
    assert name == f"{5 * packs}v{5 * packs}-{size}"
    EnvConfig(num_packs=packs, size_x=size, size_y=size)  # allowed under the default rules


def test_rules_worlds_seed_and_fields_are_options(made):
    env, params = made
    assert env.config == EnvConfig.original(size_x=20, size_y=20, size_z=8)
    assert params.bank.seed.shape == (2,)
    assert all(int(seed) in TRAINING_SEEDS for seed in params.bank.seed)
    other = echelon_jax.make("5v5-28", seed=1, **SMALL)[1]
    assert (other.bank.seed != params.bank.seed).any()


def test_the_default_rules_are_the_revised_ones():
    env, _ = echelon_jax.make("5v5-28", worlds=1, observation="original", actions="original", size_z=8)
    assert env.config.fair_zone and env.config.reward == "modern" and env.config.size_x == 28


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "6v6-40"}, "name must be one of Echelon-v1, Echelon-original, 5v5-28, 5v5-40, .*, got '6v6-40'"),
        ({"rules": "mended"}, "rules must be one of original, revised, got 'mended'"),
        ({"worlds": 0}, "worlds must be a whole number from 1, got 0"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"warp_speed": 9}, "overrides must be fields of EnvConfig, got warp_speed"),
        ({"dt": 9.0}, "dt must be"),
        ({"reward_terms": "no_such_module_here:spread=1"}, "reward_terms must name a module that can be imported"),
    ],
)
def test_what_is_not_allowed_is_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        echelon_jax.make(**{"name": "5v5-28", "worlds": 1, **SMALL, **arguments})


def test_one_arena_and_a_batch_of_one_are_the_same(made):
    env, params = made
    key = jax.random.key(3)
    one, batch = env.reset(key, params), env.reset_batch(key[None], params)
    for alone, row in zip(jax.tree.leaves(one), jax.tree.leaves(batch), strict=True):
        np.testing.assert_array_equal(alone, row[0])


def test_a_step_that_ends_an_episode_begins_the_next_one_unless_asked_not_to():
    short = {**SMALL, "max_episode_seconds": 0.25}
    for auto_reset, count in ((True, 0), (False, 1)):
        env, params = echelon_jax.make("5v5-28", auto_reset=auto_reset, **short)
        state, _ = env.reset(jax.random.key(0), params)
        actions = jnp.zeros((env.config.num_mechs, env.action_space(params).shape[0]))
        with strolling():
            state, step = jax.jit(env.step)(jax.random.key(1), state, actions, params)
        assert bool(step.episode_over)
        assert int(state.step_count) == count and int(step.info.step_count) == 1


def test_spaces_fit_what_the_environment_gives(made):
    env, params = made
    _, step = env.reset(jax.random.key(0), params)
    assert env.observation_space(params).contains(step.observation)
    assert env.observation_space(params).shape == step.observation.shape[1:]
    assert env.action_space(params).shape == (env.env.action_layout().size,)
