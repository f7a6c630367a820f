"""Gymnasium's own checker and wrappers accept the environments, and ends of episodes have Gymnasium's form."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from echelon_jax.compat import gymnasium as adaptor
from echelon_jax.compat.gymnasium import EchelonTeam, EchelonTeams
from echelon_jax.evaluation.players import AgentPlayer
from tests.helpers.adaptors import RULES, fake_game
from tests.helpers.fake_env import MAX_STEPS, CountingAgent

OPPONENT = AgentPlayer(CountingAgent())
ENVS, TEAM = 3, 5


def one(**fields):
    return EchelonTeam(*fake_game(opponent=OPPONENT, auto_reset=False, **fields))


def many(**fields):
    return EchelonTeams(*fake_game(opponent=OPPONENT, **fields), num_envs=ENVS)


def played(envs, steps, seed=0):
    """The last of so many steps under drawn actions."""
    envs.reset(seed=seed)
    envs.action_space.seed(seed)
    for _ in range(steps):
        result = envs.step(envs.action_space.sample())
    return result


def test_the_real_game_passes_gymnasiums_checker():
    sizes = {name: value for name, value in RULES.items() if name != "rules"}
    env = gymnasium.make("EchelonOriginal-v1", opponent="random", worlds=2, render_mode="rgb_array", **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(infinity|-inf).*")  # the original does not clip all it shows
        check_env(env.unwrapped)
    env.reset(seed=0)
    assert env.render().dtype == np.uint8


@pytest.mark.parametrize("discrete", [False, True])
def test_every_kind_of_action_passes_gymnasiums_checker(discrete):
    check_env(one(discrete=discrete), skip_render_check=True)


@pytest.mark.parametrize("rates", [{}, {"decided_rate": 1.0}])
def test_a_decided_game_is_terminated_and_time_up_is_truncated(rates):
    env = one(**rates)
    env.reset(seed=0)
    steps = [env.step(env.action_space.sample()) for _ in range(1 if rates else MAX_STEPS)]
    assert not any(terminated or truncated for _, _, terminated, truncated, _ in steps[:-1])
    _, _, terminated, truncated, info = steps[-1]
    assert (terminated, truncated) == (bool(rates), not rates)
    assert info["reason"] == ("zone_control" if rates else "time_up") and info["winner"] in ("blue", "red")


def test_the_reward_is_the_mean_over_the_team():
    envs = many()
    _, rewards, _, _, infos = played(envs, 1)
    np.testing.assert_allclose(rewards, infos["mech_reward"].mean(-1), rtol=1e-6)
    assert infos["mech_reward"].shape == (ENVS, TEAM) and rewards.dtype == np.float64


def test_the_spaces_of_the_vector_environment_are_those_of_one_in_a_row():
    envs, env = many(), one()
    assert envs.single_observation_space == env.observation_space
    assert envs.single_action_space == env.action_space
    observations, *_ = played(envs, MAX_STEPS)
    assert envs.observation_space.contains(observations)


def test_an_end_has_the_form_of_gymnasiums_own_vector_environment():
    mode = AutoresetMode.SAME_STEP
    theirs = SyncVectorEnv([one] * ENVS, autoreset_mode=mode)
    assert many().metadata["autoreset_mode"] == mode == theirs.metadata["autoreset_mode"]

    def form(value):
        if isinstance(value, dict):
            return {name: form(part) for name, part in value.items()}
        return value.dtype, value.shape

    for steps in (1, MAX_STEPS):
        ours, wanted = played(many(), steps), played(theirs, steps)
        assert form(ours[4]) == form(wanted[4])
        assert [form(part) for part in ours[:4]] == [form(part) for part in wanted[:4]]
        np.testing.assert_array_equal(ours[3], wanted[3])


def test_the_last_observation_of_an_episode_is_kept_and_the_next_one_begins():
    observations, _, terminations, truncations, infos = played(many(), MAX_STEPS)
    assert truncations.all() and not terminations.any() and infos["_final_obs"].all()
    last = np.stack(infos["final_obs"])
    assert last.shape == observations.shape and not np.array_equal(last, observations)
    assert infos["alive"].all() and set(infos["final_info"]["reason"]) == {"time_up"}


def test_gymnasiums_wrapper_counts_episodes():
    envs = RecordEpisodeStatistics(many())
    infos = played(envs, MAX_STEPS)[4]
    np.testing.assert_array_equal(infos["episode"]["l"], [MAX_STEPS] * ENVS)


def test_the_same_seed_is_the_same_rollout_and_another_one_is_not():
    envs = many()
    first, again, other = (played(envs, 3, seed)[1] for seed in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("discrete", "action", "sentence"),
    [
        (False, np.zeros(3, np.float32), "action must have shape"),
        (True, np.full(TEAM, 99), "action must hold whole numbers from 0 to 18"),
        (True, np.zeros(TEAM), "action must hold whole numbers"),
    ],
)
def test_wrong_actions_are_refused_in_one_sentence(discrete, action, sentence):
    env = one(discrete=discrete)
    with pytest.raises(RuntimeError, match="reset must be called before step"):
        env.step(action)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=sentence):
        env.step(action)


def test_a_batch_of_choices_reaches_the_game_as_whole_numbers():
    envs = many(discrete=True)
    envs.reset(seed=0)
    assert adaptor._checked(envs.action_space, envs.action_space.sample()).dtype == np.int32
    envs.step(np.zeros((ENVS, TEAM), np.int64))
    for wrong in (np.full((ENVS, TEAM), 99), np.full((ENVS, TEAM), -1), np.zeros((ENVS, TEAM))):
        with pytest.raises(ValueError, match="action must hold whole numbers from 0 to 18"):
            envs.step(wrong)


def test_wrong_options_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="num_envs must be a whole number from 1, got 0"):
        EchelonTeams(*fake_game(opponent=OPPONENT), num_envs=0)
    with pytest.raises(ValueError, match="render_mode must be one of ansi, rgb_array or None"):
        one().__class__(*fake_game(opponent=OPPONENT), render_mode="film")
    with pytest.raises(ValueError, match="name must be one of Echelon-v1"):
        adaptor.make("Echelon-v9")
