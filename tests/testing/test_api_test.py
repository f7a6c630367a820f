"""`api_test`: variants of the game pass, and every kind of fault is found in a wrapper that has it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import echelon_jax
from echelon_jax.env import environment
from echelon_jax.env.spaces import Box
from echelon_jax.env.state import STATISTICS
from echelon_jax.policies.heads import Heads
from echelon_jax.testing import api_faults, api_test
from echelon_jax.testing.checks import one_arena
from echelon_jax.testing.scenes import DEATH, ELIMINATED, LATE, VICTIM, batch_program, gather
from tests.helpers.adaptors import GAME

BAD_ACTIONS = STATISTICS.index("bad_actions")


def compiled(function: Callable) -> Callable:
    """Nothing to compile: the wrappers below call a program that is compiled already."""
    return function


@pytest.fixture(scope="module")
def made():
    """The small game without its simulation, which the wrappers do not need and which is most of what is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "simulate", lambda config, rules, before, commands, noise, widths=None: before)
        yield echelon_jax.make(**GAME)


@dataclasses.dataclass(frozen=True, eq=False)
class Wrapped:
    """An environment whose results pass through `change`, and whose batch program was compiled before."""

    env: Any
    change: Callable = lambda state, step, keys: (state, step)
    space: Box | None = None

    @property
    def config(self):
        return self.env.config

    def observation_space(self, params=None):
        return self.space or self.env.observation_space(params)

    def action_space(self, params=None):
        return self.env.action_space(params)

    def reset(self, key, params):
        return self.env.reset(key, params)

    def step(self, key, state, actions, params):
        return self.env.step(key, state, actions, params)

    def reset_batch(self, keys, params):
        return reset_program(self.env)(keys, params)

    def step_batch(self, keys, state, actions, params):
        state = state.replace(step_count=state.step_count.astype(jnp.int32))  # what `float_clock` did to it
        return self.change(*batch_program(self.env, jit)(keys, state, actions, params), keys)


@lru_cache
def reset_program(env: Any) -> Callable:
    return jax.jit(env.reset_batch)


def jit(function: Callable) -> Callable:
    """One compiled program for all wrappers of this file."""
    return jax.jit(function)


def changed(**fields: Callable) -> Callable:
    """A change of fields of the step; each is a function of the step."""

    def change(state, step, keys):
        return state, step.replace(**{name: value(step) for name, value in fields.items()})

    return change


def info(**fields: Callable) -> Callable:
    """A change of fields of the step's info."""

    def change(state, step, keys):
        return state, step.replace(info=step.info.replace(**{name: value(step) for name, value in fields.items()}))

    return change


def no_count_reset(state, step, keys):
    """The new episode's clock goes on where the old one's ended."""
    return state.replace(step_count=jnp.where(step.episode_over, step.info.step_count, state.step_count)), step


def float_clock(state, step, keys):
    return state.replace(step_count=state.step_count.astype(jnp.float32)), step


CALLS = []


def drawn_elsewhere(state, step, keys):
    """Another result at each call."""
    CALLS.append(None)
    return state, step.replace(reward=step.reward + 1e-3 * len(CALLS) * step.info.alive)


def by_place(state, step, keys):
    return state, step.replace(reward=step.reward + jnp.arange(len(keys), dtype=jnp.float32)[:, None] * step.info.alive)


def first_entry(value: float) -> Callable:
    return lambda step: step.observation.at[:, :, 0].set(jnp.where(step.observation.any(-1), value, 0.0))


BROKEN = {
    "reward must be float32": changed(reward=lambda s: s.reward.astype(jnp.float16)),
    "terminated must be bool": changed(terminated=lambda s: s.terminated[:, :5]),
    "observation must lie in observation_space": changed(
        observation=first_entry(1e6), final_observation=first_entry(1e6)
    ),
    "step_count is int32": float_clock,
    "must be finite, and is not at decision 3, whose actions were not finite": changed(
        reward=lambda s: jnp.where(s.info.statistics[:, BAD_ACTIONS, :1] > 0, jnp.nan, s.reward)
    ),
    "must add 1 to the statistic bad_actions": info(statistics=lambda s: s.info.statistics.at[:, BAD_ACTIONS].set(0)),
    "must never both be true": changed(truncated=lambda s: s.truncated | s.terminated),
    "every mech must be terminated or truncated where the episode is over": changed(
        truncated=lambda s: jnp.zeros_like(s.truncated)
    ),
    "terminated must be true for exactly the dead": changed(
        terminated=lambda s: s.terminated & s.episode_over[:, None],
    ),
    "truncated must be false while the episode runs": changed(truncated=lambda s: ~s.terminated),
    "a dead mech must see zeros": changed(
        observation=lambda s: s.observation.at[DEATH, VICTIM, -1].set(0.5),
        final_observation=lambda s: s.final_observation.at[DEATH, VICTIM, -1].set(0.5),
    ),
    "a dead mech must earn nothing": changed(reward=lambda s: s.reward - ~s.info.alive),
    "a dead mech must stay dead": info(alive=lambda s: jnp.ones_like(s.info.alive)),
    "the episode must be over where a team is dead": changed(
        episode_over=lambda s: s.episode_over.at[ELIMINATED].set(False)
    ),
    "the episode must be over where time is up": changed(episode_over=lambda s: s.episode_over.at[LATE].set(False)),
    "info.reason must be 2": info(reason=lambda s: jnp.minimum(s.info.reason, 1)),
    "info.winner must be 0": info(winner=lambda s: jnp.ones_like(s.info.winner)),
    "a game that is decided must be terminated": changed(
        terminated=lambda s: s.terminated & s.info.alive & False, truncated=lambda s: s.terminated | s.truncated
    ),
    "final_observation must show the end of the old episode": changed(final_observation=lambda s: s.observation),
    "final_observation must be the observation while the episode runs": changed(
        final_observation=lambda s: jnp.zeros_like(s.final_observation)
    ),
    "observation must show the new episode": changed(observation=lambda s: s.final_observation),
    "the state must be the start of a new episode": no_count_reset,
    "info.step_count must count the decisions": info(step_count=lambda s: jnp.minimum(s.info.step_count, 1)),
    "a step must be a function of its arguments": drawn_elsewhere,
    "must not depend on its place in the batch": by_place,
}


def faults(made, change, **options):
    env, params = made
    return api_faults(Wrapped(env, change), params, vmapped=False, compile=compiled, **options)


def test_a_wrapper_that_changes_nothing_passes(made):
    assert faults(made, Wrapped.change) == []


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_fault_is_found_and_named(made, sentence):
    found = faults(made, BROKEN[sentence])
    assert any(sentence in fault for fault in found), found
    assert all("\n" not in fault and len(fault) < 300 for fault in found)


def test_a_game_that_resets_itself_is_told_from_one_that_does_not(made):
    found = faults(made, Wrapped.change, auto_reset=False)
    assert any("a finished arena must stay over" in fault for fault in found)


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ((np.float32([1, 0]), np.float32([0, 1])), "must have low at most high, which entry 0 has not"),
        ((np.float64([0, 0]), np.float64([1, 1])), "observation_space must be of float32, got float64"),
        ((np.float32([0, 0]), np.float32([1, 1])), r"must have the shape of an observation, \(589,\), got \(2,\)"),
    ],
)
def test_a_wrong_space_is_found(made, bounds, sentence):
    env, params = made
    found = api_faults(Wrapped(env, space=Box(*bounds)), params, vmapped=False, compile=compiled)
    assert any(re.search(sentence, fault) for fault in found), found


def test_what_lacks_a_member_is_told_which(made):
    assert api_faults(object(), None) == [
        "an environment must have config, observation_space, action_space, reset, step, reset_batch, step_batch; this one "
        "lacks config, observation_space, action_space, reset, step, reset_batch, step_batch"
    ]


def test_api_test_raises_one_line_for_each_fault(made):
    env, params = made
    with pytest.raises(AssertionError, match=r"does not keep its interface:\n- .*place in the batch"):
        api_test(Wrapped(env, by_place), params, vmapped=False, compile=compiled)


def test_a_mask_that_leaves_no_choice_is_found(made, monkeypatch):
    shown = Heads.action_mask

    def nothing(self, observation):
        return shown(self, observation).at[0, 0].set(False)

    monkeypatch.setattr(Heads, "action_mask", nothing)
    found = faults(made, Wrapped.change)
    assert "the action mask must allow the first choice of the head target to every mech" in found


def test_a_step_of_one_arena_that_differs_is_found(made):
    env, params = made
    seen = gather(Wrapped(env), params, jax.random.key(0), False, compiled)
    last = seen.steps[-1]
    assert list(one_arena(env, params, seen)) == []
    assert list(one_arena(env, params, seen._replace(single=last))) == []
    other = seen._replace(single=last.replace(reward=last.reward + 1))
    assert list(one_arena(env, params, other)) == [
        "jax.vmap(env.step) must give what env.step_batch gives: step.reward differs"
    ]


def test_the_step_of_one_arena_is_compared_where_that_is_asked_for(made):
    api_test(*made, compile=jit)
