"""JaxMARL, gymnax and dm_env: their base classes, wrappers and test suites accept the adaptors."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.compat.gymnax import EchelonGymnax
from echelon_jax.evaluation.players import AgentPlayer
from tests.helpers.adaptors import fake_game
from tests.helpers.fake_env import MAX_STEPS, CountingAgent

ARENAS, TEAM = 3, 5
KEYS = jax.random.split(jax.random.key(1), ARENAS)
OPPONENT = AgentPlayer(CountingAgent())


@pytest.fixture(scope="module")
def jaxmarl():
    return pytest.importorskip("jaxmarl")


def marl(final_observation=False, **fields):
    from echelon_jax.compat.jaxmarl import EchelonMARL

    return EchelonMARL(*fake_game(**fields), final_observation)


def test_jaxmarls_log_wrapper_counts_episodes_of_mapped_arenas(jaxmarl):
    from jaxmarl.environments import MultiAgentEnv
    from jaxmarl.wrappers.baselines import LogWrapper

    plain = marl(opponent=OPPONENT, discrete=True)
    assert isinstance(plain, MultiAgentEnv)
    env = LogWrapper(plain)
    _, state = jax.vmap(env.reset)(KEYS)
    actions = {agent: jnp.zeros(ARENAS, jnp.int32) for agent in env.agents}
    for _ in range(MAX_STEPS):
        _, state, _, dones, infos = jax.vmap(env.step)(KEYS, state, actions)
    assert dones["__all__"].all() and infos["returned_episode"].all()
    np.testing.assert_array_equal(infos["returned_episode_lengths"], np.full((ARENAS, TEAM), MAX_STEPS))


def test_agents_of_jaxmarl_have_stable_names_spaces_and_classes(jaxmarl):
    both, team = marl(), marl(opponent=OPPONENT, side=1)
    assert both.agents == [f"{side}_{i}" for side in ("blue", "red") for i in range(TEAM)]
    assert team.agents == both.agents[TEAM:] and team.num_agents == TEAM
    observations, _ = team.reset(KEYS[0])
    for agent in team.agents:
        assert observations[agent].shape == team.observation_space(agent).shape
        assert bool(team.observation_space(agent).contains(observations[agent]))
    assert sorted(agent for agents in team.agent_classes.values() for agent in agents) == team.agents
    assert [len(agents) for agents in team.agent_classes.values()] == [1, 1, 2, 1]


def test_a_dead_agent_of_jaxmarl_is_done_and_may_only_wait(jaxmarl):
    env = marl(discrete=True, death_rate=0.4, final_observation=True)
    _, state = env.reset(KEYS[0])
    actions = dict.fromkeys(env.agents, jnp.int32(0))
    _, state, _, dones, infos = env.step(KEYS[1], state, actions)
    available = env.get_avail_actions(state)
    dead = [agent for agent in env.agents if dones[agent]]
    assert 0 < len(dead) < len(env.agents) and not dones["__all__"]
    for agent in env.agents:
        assert int(available[agent].sum()) == (1 if agent in dead else 19)
    assert {name for name, info in infos.items() if info.shape == (2 * TEAM,)} == {"truncated", "won"}
    assert infos["final_observation"].shape == (2 * TEAM, env.observation_space("blue_0").shape[0])


def test_jaxmarls_raw_keys_and_typed_keys_are_the_same(jaxmarl):
    env = marl(opponent=OPPONENT)
    typed, raw = jax.random.key(3), jax.random.PRNGKey(3)
    np.testing.assert_array_equal(env.reset(typed)[0]["blue_1"], env.reset(raw)[0]["blue_1"])


def test_what_jaxmarl_must_not_ask_for_is_refused(jaxmarl):
    env = marl(opponent=OPPONENT)
    _, state = env.reset(KEYS[0])
    with pytest.raises(ValueError, match="discrete must be true"):
        env.get_avail_actions(state)
    actions = {agent: jnp.zeros(env.action_space(agent).shape) for agent in env.agents}
    with pytest.raises(ValueError, match="reset_state must be None"):
        env.step(KEYS[0], state, actions, state)


def test_gymnax_has_the_same_arguments_and_results(jaxmarl):
    gymnax = pytest.importorskip("gymnax.environments.environment")
    for name in ("step", "reset"):
        theirs = list(inspect.signature(getattr(gymnax.Environment, name)).parameters)
        assert list(inspect.signature(getattr(EchelonGymnax, name)).parameters) == theirs


def test_gymnax_truncates_when_time_is_up_and_keeps_the_last_observation():
    game, params = fake_game(opponent=OPPONENT, discrete=True)
    env = EchelonGymnax(game)
    observation, state = jax.vmap(env.reset, (0, None))(KEYS, params)
    assert env.observation_space(params).contains(observation)
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    actions = jax.vmap(env.action_space(params).sample)(KEYS)
    for i in range(MAX_STEPS):
        observation, state, reward, terminated, truncated, info = step(KEYS, state, actions, params)
        assert bool(truncated.all()) == (i == MAX_STEPS - 1) and not terminated.any()
    assert not np.array_equal(info["final_observation"], observation)
    np.testing.assert_allclose(reward, info["mech_reward"].mean(-1), rtol=1e-6)


dm_env = pytest.importorskip("dm_env")
from absl.testing import absltest
from dm_env import test_utils

from echelon_jax.compat.dm_env import EchelonDM
from echelon_jax.compat.gymnasium import EchelonTeam


class TestDmEnv(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """The suite of dm_env; the actions reach the end of an episode."""

    def make_object_under_test(self):
        return EchelonDM(EchelonTeam(*fake_game(opponent=OPPONENT, auto_reset=False)), seed=0)

    def make_action_sequence(self):
        spec = self.environment.action_spec()
        return [spec.generate_value() for _ in range(MAX_STEPS + 3)]


@pytest.mark.parametrize(("rates", "discount"), [({}, 1.0), ({"decided_rate": 1.0}, 0.0)])
def test_a_decided_game_of_dm_env_ends_with_discount_0_and_time_up_with_1(rates, discount):
    env = EchelonDM(EchelonTeam(*fake_game(opponent=OPPONENT, auto_reset=False, **rates)), seed=0)
    timestep = env.reset()
    while not timestep.last():
        timestep = env.step(env.action_spec().generate_value())
    assert timestep.discount == discount and env.step(env.action_spec().generate_value()).first()
