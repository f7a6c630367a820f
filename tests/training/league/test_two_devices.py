"""A league whose arenas two devices share: one league, everybody's games, and the same again from what the host has stored."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import FakeEnv
from helpers.league_runs import CONFIGURED, PARAMS
from helpers.trees import unequal

from echelon_jax.policies.normalize import empty_moments
from echelon_jax.training.league import state as league
from echelon_jax.training.trainer import Train, make_train

pytestmark = pytest.mark.extended

CALLS = 4


@pytest.fixture(scope="module")
def trainer() -> Train:
    return make_train(FakeEnv(), dataclasses.replace(CONFIGURED, devices=2))


def offered(trainer: Train, state: Any, number: int) -> Any:
    """The state with a fresh policy that waits for slot 1, as the host of a run offers one between two calls."""
    new = trainer.network.init(jax.random.key(number))
    moments = empty_moments(trainer.features.own_size)
    return state.replace(league=league.offer(state.league, 1, new, moments, 1600.0))


def stored(state: Any) -> Any:
    """What a checkpoint holds of a state."""
    return jax.device_get(state.replace(key=None)), np.array(jax.random.key_data(state.key))


def restored(found: Any) -> Any:
    """The state that a checkpoint gives back."""
    return jax.tree.map(jnp.asarray, found[0]).replace(key=jax.random.wrap_key_data(jnp.asarray(found[1])))


@pytest.fixture(scope="module")
def played(trainer: Train) -> list[tuple[Any, Any]]:
    """What is stored before each call, with its metrics; slot 1 is filled, and replaced while arenas play it."""
    state, params = trainer.place(trainer.init(jax.random.key(0), PARAMS), PARAMS)
    out = []
    for call in range(CALLS):
        if call in (0, 2):
            state = offered(trainer, state, 10 + call)
        before = stored(state)
        state, metrics = trainer.run_updates(state, params)
        out.append((before, jax.device_get(metrics)))
    return [*out, (stored(state), state)]


def test_both_devices_hold_the_same_league(played: list[Any]) -> None:
    for leaf in jax.tree.leaves(played[-1][1].league):
        first, second = (np.asarray(part.data) for part in leaf.addressable_shards)
        np.testing.assert_array_equal(first, second)


def test_the_games_of_both_devices_count(played: list[Any]) -> None:
    for _, metrics in played[:-1]:
        results = metrics.rollout.league.results
        np.testing.assert_array_equal(results[..., 0].sum(-1), metrics.rollout.episodes)
        np.testing.assert_array_equal(results[..., 1].sum(-1), metrics.rollout.wins)
        assert metrics.rollout.league.playing.sum(-1).max() <= CONFIGURED.arenas
        assert metrics.rollout.league.playing.sum(-1).max() > CONFIGURED.arenas // 2  # not one device's alone


def test_a_slot_drains_on_both_devices_before_it_is_replaced(played: list[Any]) -> None:
    (before, _), (after, _) = played[2][0], played[3][0]
    assert played[1][1].rollout.league.playing[-1, 2] > 0
    assert unequal(jax.tree.map(lambda x: x[1], after.league.slots), before.league.waiting) == []


def test_it_goes_on_bit_for_bit_while_a_policy_waits(trainer: Train, played: list[Any]) -> None:
    state, params = trainer.place(restored(played[2][0]), PARAMS)
    after, _ = trainer.run_updates(state, params)
    assert unequal(stored(after), played[3][0]) == []
