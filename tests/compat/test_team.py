"""One team against an opponent, as functions: rows, memories, keys, choices, and one arena against many."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.compat.choices import WAIT, action_table, choice_names
from echelon_jax.compat.gymnasium import _compiled
from echelon_jax.compat.gymnax import EchelonGymnax
from echelon_jax.compat.team import make_team_game
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.evaluation.players import AgentPlayer
from tests.helpers.adaptors import fake_game
from tests.helpers.fake_env import MAX_STEPS, CountingAgent

ARENAS, TEAM = 3, 5
KEYS = jax.random.split(jax.random.key(0), ARENAS)
OURS = jnp.full((ARENAS, TEAM, action_layout(fake_game()[0].config).size), 0.5, jnp.float32)


@dataclasses.dataclass(frozen=True)
class DrawingPlayer:
    """A stand-in for a policy: it counts its decisions and draws its actions with the key that it is given."""

    size: int = OURS.shape[-1]

    def init(self, env_params, state, team):
        return jnp.zeros(state.step_count.shape, jnp.int32)

    def act(self, numbers, env_params, memory, state, observation, rows, key):
        shape = (*rows(observation).shape[:2], self.size)
        return memory + 1, jax.random.uniform(key, shape, jnp.float32, -1.0, 1.0)


def begun(game, params):
    """The start of an episode in every arena, and the compiled step; equal games share their programs."""
    reset_batch, step_batch = _compiled(game, True)
    return reset_batch(KEYS, params)[0], step_batch


def everyones_rewards(step):
    """Reward of all mechs; in the made-up game it is the first component of the action times a sign."""
    return np.abs(np.asarray(step.info.reward_components[..., 1]))


@pytest.mark.parametrize("side", [0, 1])
def test_the_other_team_is_the_opponents(side):
    game, params = fake_game(opponent=AgentPlayer(CountingAgent()), side=side)
    state, step_batch = begun(game, params)
    _, step = step_batch(KEYS, state, OURS, params)
    wanted = 0.01 * np.arange(2 * TEAM)  # what CountingAgent plays, by the place in the roster
    wanted[game.rows] = 0.5
    np.testing.assert_allclose(everyones_rewards(step), np.tile(wanted, (ARENAS, 1)), atol=1e-6)
    assert step.reward.shape == (ARENAS, TEAM)
    assert game.agents == tuple(f"{('blue', 'red')[side]}_{i}" for i in range(TEAM))


@pytest.mark.parametrize("player", [AgentPlayer(CountingAgent()), DrawingPlayer()])
def test_the_opponents_memory_starts_anew_with_each_episode(player):
    game, params = fake_game(opponent=player)
    state, step_batch = begun(game, params)
    counts = []
    for _ in range(MAX_STEPS + 1):
        state, _ = step_batch(KEYS, state, OURS, params)
        counts.append(int(state.memory[0]))
    assert counts == [*range(1, MAX_STEPS), 0, 1]


def test_an_arena_depends_on_its_own_key_alone_even_with_a_policy_as_opponent():
    game, params = fake_game(opponent=DrawingPlayer())
    state, step_batch = begun(game, params)
    step = step_batch(KEYS, state, OURS, params)[1]
    turned = step_batch(*jax.tree.map(lambda leaf: leaf[::-1], (KEYS, state, OURS)), params)[1]
    np.testing.assert_array_equal(everyones_rewards(turned)[::-1], everyones_rewards(step))
    assert len(np.unique(everyones_rewards(step)[:, TEAM:])) == ARENAS * TEAM


def test_vmap_of_one_arena_is_the_program_of_the_batch():
    game, params = fake_game(opponent=AgentPlayer(CountingAgent()))
    env = EchelonGymnax(game)
    observation, state = jax.jit(jax.vmap(env.reset, (0, None)))(KEYS, params)
    batch_state, step_batch = begun(game, params)
    np.testing.assert_array_equal(observation, batch_state.observation[:, game.rows])
    mapped = jax.vmap(env.step, (0, 0, 0, None))
    seen = jax.jit(mapped)(KEYS, state, OURS, params)[0]
    np.testing.assert_array_equal(seen, step_batch(KEYS, batch_state, OURS, params)[1].observation)
    shared = jax.jit(jax.vmap(env.step, (0, 0, None, None)))(KEYS, state, OURS[0], params)[
        0
    ]  # one action for all arenas
    np.testing.assert_array_equal(shared, seen)
    lines = {
        str(jax.make_jaxpr(program)(KEYS, states, OURS, params)).count("\n")
        for program, states in ((mapped, state), (lambda *a: game.step_batch(*a), batch_state))
    }
    assert max(lines) < 1.05 * min(lines)  # the mapped program is that of the batch and a wrapper
    with pytest.raises(ValueError, match="params must be the same in all arenas"):
        jax.vmap(env.step)(KEYS, state, OURS, jax.tree.map(lambda leaf: jnp.stack([leaf] * ARENAS), params))


def test_the_flags_of_the_arena_say_why_the_episode_ended():
    for rates, decided in (((0.0, 0.0), False), ((0.0, 1.0), True)):
        game, params = fake_game(*rates)
        state, step_batch = begun(game, params)
        actions = jnp.concatenate([OURS, OURS], axis=1)
        for _ in range(1 if decided else MAX_STEPS):
            state, step = step_batch(KEYS, state, actions, params)
        assert bool(step.episode_over.all()) and bool(step.decided.all()) == decided
        assert bool(step.time_up.all()) != decided and bool((step.terminated == decided).all())


def test_discrete_choices_are_rows_of_the_table_and_the_dead_only_wait():
    game, params = fake_game(discrete=True)
    table = action_table(game.config)
    np.testing.assert_array_equal(game.to_action(jnp.array([2, 7])), table[[2, 7]])
    state, _ = begun(game, params)
    assert game.available(state).all()
    dead = state.replace(observation=state.observation.at[1, 4].set(0.0))
    allowed = np.asarray(game.available(dead))
    assert allowed.sum() == allowed.size - (len(table) - 1) and allowed[1, 4].nonzero()[0].tolist() == [WAIT]


@pytest.mark.parametrize("config", [EnvConfig(), EnvConfig.original()])
def test_choices_do_what_their_names_say(config):
    table, layout, names = action_table(config), action_layout(config), choice_names()
    assert len(set(names)) == len(table) == 19 and not np.any(np.abs(table) > 1)
    assert len(np.unique(table, axis=0)) == len(table)

    def value(name, entry):
        return table[names.index(name), layout[entry].offset]

    assert value("forward left", "forward") == 1 and value("forward left", "yaw_rate") == 1
    assert value("back right fire", "forward") == -1 and value("back right fire", "yaw_rate") == -1
    assert value("back right fire", "primary") == 1 and value("back right", "primary") == -1
    assert value("vent", "vent") == 1 and value("halt straight", "vent") == -1
    assert names[WAIT] == "halt straight"


def test_an_unknown_side_or_opponent_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="side must be one of blue, red, got 'green'"):
        make_team_game("5v5-28", side="green")
