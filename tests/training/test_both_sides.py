"""The opponent `self`: the learner plays both sides of every arena and learns from both."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CONFIG, MAX_STEPS, FakeEnv, fake_params
from helpers.trees import unequal

from echelon_jax.agents.base import AgentParams
from echelon_jax.cli.main import main
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.policies.features import features_of, read
from echelon_jax.policies.normalize import batch_moments
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.runs.memory import needs
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.rollout import begin, collect
from echelon_jax.training.sides import (
    all_rows,
    learner_rows,
    of_other_side,
    of_own_side,
    opponent_rows,
    seat_rows,
    to_seats,
)
from echelon_jax.training.trainer import make_train

ARENAS, STEPS, TEAM = 4, 2 * MAX_STEPS + 3, CONFIG.team_size
FEATURES = features_of(CONFIG)
NETWORK = OriginalNetwork(FEATURES, action_layout(CONFIG).size, 8, 8)
ENV, PARAMS = FakeEnv(), fake_params(death_rate=0.05, decided_rate=0.03)
FIRE = AgentParams(fire_probability=jnp.float32(1.0))


def test_seats_are_both_teams_of_an_arena_the_learners_own_side_first() -> None:
    x = jnp.arange(ARENAS * 2 * TEAM).reshape(ARENAS, 2 * TEAM)
    seats = seat_rows(x, both=True)
    np.testing.assert_array_equal(of_own_side(seats, both=True), learner_rows(x))
    np.testing.assert_array_equal(of_other_side(seats), opponent_rows(x))
    np.testing.assert_array_equal(all_rows(of_own_side(seats, both=True), of_other_side(seats)), x)
    np.testing.assert_array_equal(to_seats(jnp.arange(ARENAS), both=True), np.arange(ARENAS).repeat(2))


def test_without_both_seats_are_the_learners_own_sides() -> None:
    x = jnp.arange(ARENAS * 2 * TEAM).reshape(ARENAS, 2 * TEAM)
    np.testing.assert_array_equal(seat_rows(x, both=False), learner_rows(x))
    np.testing.assert_array_equal(of_own_side(learner_rows(x), both=False), learner_rows(x))


def test_a_walk_of_the_environment_with_the_stored_actions_gives_what_is_stored_of_both_teams() -> None:
    params = NETWORK.init(jax.random.key(0))
    moments = batch_moments(jax.random.normal(jax.random.key(5), (50, FEATURES.own_size)), jnp.ones(50, bool))
    runner = begin(ENV, None, NETWORK, PARAMS, ARENAS, jax.random.key(1))
    state, observation = runner.env_state, runner.observation
    after, rollout, _, _, sums, _ = jax.jit(
        lambda runner, key: collect(
            ENV, None, NETWORK, FEATURES, None, PARAMS, FIRE, params, moments, runner, key, STEPS
        )
    )(runner, jax.random.key(3))
    assert rollout.reward.shape == (STEPS, 2 * ARENAS, TEAM)
    step_batch, apply, carry = jax.jit(ENV.step_batch), jax.jit(NETWORK.apply), runner.carry
    living, paid = np.ones((2 * ARENAS, TEAM), bool), 0.0
    for t, key in enumerate(jax.random.split(jax.random.key(3), STEPS)):
        teams = [observation[arena, side] for arena in range(ARENAS) for side in _sides(arena)]
        seen = read(FEATURES, moments, None, jnp.stack(teams))
        np.testing.assert_allclose(seen.own, rollout.observation.own[t], atol=1e-5)
        np.testing.assert_array_equal(living, rollout.alive[t])
        carry, _, value = apply(params, carry, seen, rollout.reset[t])
        np.testing.assert_allclose(value, rollout.value[t], atol=1e-5)
        actions = np.zeros((ARENAS, 2 * TEAM, action_layout(CONFIG).size), np.float32)
        for arena in range(ARENAS):
            for seat, side in enumerate(_sides(arena)):
                actions[arena, side] = np.tanh(rollout.raw_action[t, 2 * arena + seat])
        env_keys = jax.random.split(jax.random.split(key, 3)[2], ARENAS)
        state, step = step_batch(env_keys, state, jnp.asarray(actions), PARAMS)
        observation = step.observation
        for arena in range(ARENAS):
            for seat, side in enumerate(_sides(arena)):
                np.testing.assert_allclose(step.reward[arena, side], rollout.reward[t, 2 * arena + seat], atol=1e-6)
                living[2 * arena + seat] = step.episode_over[arena] | step.info.alive[arena, side]
                np.testing.assert_array_equal(rollout.over[t, 2 * arena + seat], step.episode_over[arena])
            own = slice(2 * arena, 2 * arena + 1)
            paid += float(jnp.where(rollout.alive[t, own], rollout.reward[t, own], 0.0).sum())
    np.testing.assert_allclose(carry.h, after.carry.h, atol=1e-5)
    # Only the learner's own side counts in the metrics.
    ended = float(sums.episode_return) + float(after.episode_return.sum())
    assert ended == pytest.approx(paid, abs=1e-3)


def _sides(arena: int) -> list[slice]:
    """The rows of the learner's own side in an arena, and those of the other."""
    blue, red = slice(0, TEAM), slice(TEAM, 2 * TEAM)
    return [blue, red] if arena % 2 == 0 else [red, blue]


CONFIG_OF_A_RUN = TrainConfig.smoke(
    network="original", arenas=4, rollout_steps=8, hidden=8, lstm=8, opponent="self", updates=6, devices=1
)


def test_it_learns_from_twice_as_many_decisions() -> None:
    game = EnvConfig.original()
    one = needs(dataclasses.replace(CONFIG_OF_A_RUN, opponent="random"), game)
    both = needs(CONFIG_OF_A_RUN, game)
    assert both.rollout == 2 * one.rollout and both.minibatch == 2 * one.minibatch
    assert both.held["arenas"] == one.held["arenas"]


@pytest.mark.parametrize("devices", [1, 2])
def test_an_update_changes_the_policy_and_its_repetition_is_the_same(devices: int) -> None:
    train = make_train(ENV, dataclasses.replace(CONFIG_OF_A_RUN, devices=devices))
    ends = []
    for _ in range(2):
        state = train.init(jax.random.key(0), PARAMS)
        first = jax.device_get(state.params)
        params = train.place(state, PARAMS)[1]
        for _ in range(2):
            state, metrics = train.run_updates(state, params)
        ends.append(jax.device_get(state.params))
        assert state.runner_state.reset.shape == (2 * CONFIG_OF_A_RUN.arenas, TEAM)
        assert np.isfinite(metrics.update.loss).all()
    assert unequal(*ends) == [] and unequal(first, ends[0]) != []


@pytest.mark.extended
def test_it_learns_to_remember_a_sign_on_both_sides() -> None:
    config = dataclasses.replace(
        CONFIG_OF_A_RUN, arenas=16, rollout_steps=12, updates=60, epochs=4, learning_rate=1e-2, entropy_coefficient=0.0
    )
    train = make_train(ENV, config)
    params = fake_params()
    state = train.init(jax.random.key(1), params)
    for _ in range(config.updates):
        state, metrics = train.run_updates(state, params)
    # Every mech earns its first action times its sign: nearly 1 if it remembers, 0 if it does not.
    last = float(metrics.rollout.episode_return.sum() / metrics.rollout.episodes.sum()) / (TEAM * MAX_STEPS)
    assert last > 0.6


@pytest.mark.extended
def test_a_run_against_itself_trains_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    flags = ["--preset", "smoke", "--opponent", "self", "--validation-every", "0", "--eval-games", "0"]
    sizes = ["--updates", "2", "--rollout-steps", "16", "--size", "28"]
    assert main(["train", *flags, *sizes, "--dry-run"]) == 0
    assert "16 decisions x 8 arenas x 10 mechs = 1,280 decisions of mechs" in " ".join(
        capsys.readouterr().out.replace("│", " ").split()
    )
    assert main(["train", *flags, *sizes, "--run-dir", str(run)]) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert "win_rate/against_self" in lines[-1] and lines[-1]["update"] == 2
