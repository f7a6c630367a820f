"""Modern actions and whole modern steps: choices, refusals, the scripted agent's translation, memory across resets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax.agents.base import AgentParams
from echelon_jax.agents.scripted import Scripted
from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout, observation_layout, observe
from echelon_jax.env.modern import actions as modern
from echelon_jax.env.modern.layout import slot_mechs
from echelon_jax.env.original import actions as original
from echelon_jax.policies.features import features_of
from echelon_jax.worldgen.bank import generate_worlds

FULL = EnvConfig.original(size_x=60, size_y=60, observation="modern", actions="modern")
PARTIAL = EnvConfig.original(
    size_x=40, size_y=40, observation_mode="partial", observation="modern", actions="modern", max_episode_seconds=2.0
)
LAYOUT = action_layout(FULL)


def preferring(actions: np.ndarray, mech: int, choice: int, value: float = 0.5) -> None:
    actions[0, mech, LAYOUT["target_preference"].offset + choice] = value


def decided(made: Scenes, actions: np.ndarray):
    return modern.decide(made.config, made.ready(), jnp.asarray(actions))


def test_the_target_choice_points_at_the_hostile_slots():
    made = Scenes(FULL, 1)
    actions = made.actions()
    for choice in range(1, 6):
        preferring(actions, choice - 1, choice)  # blue
        preferring(actions, 4 + choice, choice)  # red
    focus = np.asarray(decided(made, actions).mechs.focus[0])
    hostiles = slot_mechs(FULL)[:, 4:]
    assert focus.tolist() == [hostiles[m, m % 5] for m in range(10)] == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


def test_in_ten_against_ten_every_hostile_can_be_chosen():
    config = EnvConfig.original(size_x=60, size_y=60, num_packs=2, observation="modern", actions="modern")
    made = Scenes(config, 1)
    actions = made.actions()
    for mech in range(20):
        preferring(actions, mech, 1 + mech % 10)
    assert decided(made, actions).mechs.focus[0].tolist() == [*range(10, 20), *range(10)]


def test_none_wins_ties_and_the_dead_are_refused():
    made = Scenes(FULL, 1)
    made.change(0, "red_1", alive=False)
    made.change(0, "blue_3", alive=False)
    actions = made.actions()
    preferring(actions, 0, 0, 0.7)
    preferring(actions, 0, 3, 0.7)
    preferring(actions, 1, 2)  # red_1
    preferring(actions, 3, 1)  # of a dead mech
    preferring(actions, 4, 1, -0.1)
    assert decided(made, actions).mechs.focus[0, :5].tolist() == [-1] * 5


def test_a_mech_never_seen_cannot_be_focused_in_partial_mode():
    made = Scenes(
        EnvConfig.original(size_x=60, size_y=60, observation_mode="partial", observation="modern", actions="modern"), 1
    )
    made.state.memory.age[0, 0, 7] = 12
    actions = made.actions()
    preferring(actions, 0, 3)
    preferring(actions, 1, 3)
    assert decided(made, actions).mechs.focus[0, :2].tolist() == [7, -1]


@pytest.mark.parametrize(("component", "ecm", "eccm"), [(0, False, False), (1, True, False), (2, False, True)])
def test_ewar_is_a_choice_of_three_for_scouts_alone(component, ecm, eccm):
    made = Scenes(FULL, 1)
    actions = made.actions()
    actions[0, :, LAYOUT["ewar"].offset + component] = 0.1
    actions[0, :, LAYOUT["secondary"].offset] = 1.0
    mechs = decided(made, actions).mechs
    scouts = np.arange(10) % 5 == 4
    assert np.array_equal(mechs.ecm_on[0], scouts & ecm) and np.array_equal(mechs.eccm_on[0], scouts & eccm)


def test_triggers_and_throttle_read_as_the_originals():
    config = EnvConfig.original(size_x=60, size_y=60)
    made, rng = Scenes(FULL, 2), np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (2, 10, action_layout(FULL).size)).astype(np.float32)
    old = np.concatenate([actions[..., :9], np.zeros((2, 10, action_layout(config).size - 9), np.float32)], -1)
    new, expected = decided(made, actions), original.decide(config, made.ready(), jnp.asarray(old))
    jax.tree.map(np.testing.assert_array_equal, new.commands, expected.commands)


def test_a_translated_original_action_decides_the_same():
    config = EnvConfig.original(size_x=60, size_y=60)
    made, rng = Scenes(FULL, 16), np.random.default_rng(1)
    made.state.contact_slots[:] = rng.integers(-1, 10, (16, 10, 5))
    made.state.sim.mechs.alive[:] = rng.random((16, 10)) < 0.8
    actions = jnp.asarray(rng.uniform(-1, 1, (16, 10, action_layout(config).size)).astype(np.float32))
    actions = actions.at[:, 4::5, 6].set(jnp.asarray(rng.choice([-0.5, 0.0, 0.25, 0.5, 0.75], (16, 2)), jnp.float32))
    expected = original.decide(config, made.ready(), actions)
    got = modern.decide(FULL, made.ready(), modern.from_original(FULL, actions, expected.mechs.focus))
    for name in ("focus", "ecm_on", "eccm_on"):
        assert np.array_equal(getattr(got.mechs, name), getattr(expected.mechs, name)), name
    assert bool((got.mechs.focus >= 0).any()) and bool(got.mechs.ecm_on.any()) and bool(got.mechs.eccm_on.any())
    jax.tree.map(np.testing.assert_array_equal, got.commands, expected.commands)
    message = action_layout(FULL)["message"].slice
    translated = modern.from_original(FULL, actions, expected.mechs.focus)
    assert np.array_equal(translated[..., message], actions[..., action_layout(config)["message"].slice])


# ---- Whole steps: one compile of a reset-by-itself environment, played by the scripted agent ----


@pytest.fixture(scope="module")
def played():
    env, arenas = Echelon(PARTIAL), 4
    params = env.params(env.make_bank(generate_worlds(PARTIAL, range(3))))
    agent = Scripted(PARTIAL)

    def decision(carry, key):
        state, memory = carry
        keys = jax.random.split(key, arenas)
        memory, actions = agent.act(params, AgentParams(jnp.float32(1.0)), memory, state, keys)
        state, step = AutoReset(env).step_batch(keys, state, actions, params)
        return (state, agent.reset_where(memory, state, step.episode_over)), (state, step, actions)

    state, first = env.reset_batch(jax.random.split(jax.random.key(0), arenas), params)
    run = jax.jit(lambda state: jax.lax.scan(decision, (state, agent.init(params, state)), jax.random.split(KEY, 12)))
    _, (states, steps, actions) = run(state)
    return env, params, state, first, states, steps, actions


KEY = jax.random.key(3)


def test_steps_are_finite_bounded_and_of_the_tables_size(played):
    env, _, _, first, _, steps, actions = played
    low, high = env.observation_bounds()
    assert (
        actions.shape[-1] == action_layout(PARTIAL).size
        and steps.observation.shape[-1] == observation_layout(PARTIAL).size
    )
    for observation in (first.observation, steps.observation, steps.final_observation):
        assert (observation >= low).all() and (observation <= high).all()
    assert np.isfinite(steps.reward).all()


def test_the_scripted_agent_focuses_its_nearest_enemy_where_it_is_known(played):
    _, _, _, _, states, steps, actions = played
    after, before = jax.tree.map(lambda x: x[1:8], states), jax.tree.map(lambda x: x[0:7], states)
    mechs = before.sim.mechs
    gap = np.linalg.norm(
        np.asarray(mechs.position)[..., None, :, :] - np.asarray(mechs.position)[..., None, :], axis=-1
    )
    enemy = (np.arange(10)[:, None] < 5) != (np.arange(10) < 5)
    gap = np.where(enemy & np.asarray(mechs.alive)[..., None, :], gap, np.inf)
    nearest = gap.argmin(-1)
    known = np.take_along_axis(np.asarray(before.memory.age), nearest[..., None], -1)[..., 0] >= 0
    focus = np.asarray(after.sim.mechs.focus)
    ongoing = ~np.asarray(steps.episode_over[1:8])[..., None] & np.asarray(mechs.alive)
    chosen = (np.asarray(actions[1:8])[..., LAYOUT["target_preference"].slice].argmax(-1) > 0) & ongoing
    assert np.array_equal(focus[chosen], np.where(known, nearest, -1)[chosen])
    assert chosen.any()


def test_memory_ages_and_turns_are_those_of_the_last_decision(played):
    _, _, _, _, states, steps, _ = played
    age, over = np.asarray(states.memory.age), np.asarray(steps.episode_over)
    yaw, turn = np.asarray(states.sim.mechs.yaw), np.asarray(states.memory.turn)
    for t in range(1, 12):
        for arena in np.flatnonzero(~over[t]):
            grown = (age[t, arena] == age[t - 1, arena] + 1) & (age[t - 1, arena] >= 0)
            never = (age[t, arena] == -1) & (age[t - 1, arena] == -1)
            assert (grown | never | (age[t, arena] == 0)).all()
            change = np.mod(yaw[t, arena] - yaw[t - 1, arena] + np.pi, 2 * np.pi) - np.pi
            assert np.allclose(turn[t, arena], change, atol=1e-5)
    assert (np.abs(turn) > 0.01).any()


def test_a_reset_remembers_only_who_is_seen_at_the_start(played):
    _, params, _, _, states, steps, _ = played
    over = np.asarray(steps.episode_over)
    assert over.any()
    t, arena = np.argwhere(over)[0]
    fresh = jax.tree.map(lambda leaf: leaf[t, arena][None], states)
    world = int(np.flatnonzero(np.asarray(params.bank.seed) == int(fresh.arena_map.seed[0]))[0])
    known = np.asarray(params.bank.known[world])
    assert np.array_equal(fresh.memory.age[0], np.where(known, 0, -1)) and known[0, 1]
    assert not np.asarray(fresh.memory.turn).any()
    assert np.array_equal(steps.observation[t, arena], params.bank.observation[world])
    assert not np.array_equal(steps.observation[t, arena], steps.final_observation[t, arena])


def test_the_observation_is_a_function_of_the_state(played):
    _, params, _, _, states, steps, _ = played
    t = int(np.flatnonzero(~np.asarray(steps.episode_over).any(-1))[-1])
    state = jax.tree.map(lambda leaf: leaf[t], states)
    seen = jax.jit(observe, static_argnums=0)(PARTIAL, params.rules, state)
    assert np.allclose(seen.observation, steps.observation[t], atol=1e-6)


def test_a_learner_reads_the_shared_planes_once_per_arena(played):
    _, _, _, first, _, _, _ = played
    features = features_of(PARTIAL)
    for team in (slice(0, 5), slice(5, 10)):
        cut = features.split(first.observation[:, team])
        assert cut.own.shape[-1] + cut.shared.shape[-1] == observation_layout(PARTIAL).size
        assert np.array_equal(
            np.broadcast_to(cut.shared[:, None], (4, 5, 256)), features.shared_of(first.observation[:, team])
        )


@pytest.mark.parametrize("parts", [{"observation": "modern"}, {"actions": "modern"}])
def test_observation_and_actions_can_be_chosen_apart(parts):
    config = EnvConfig.original(size_x=60, size_y=60, **parts)
    made = Scenes(config, 1)
    state = made.ready()
    seen = jax.eval_shape(lambda state: observe(config, made.rules, state), state)
    memory = seen.memory
    assert seen.observation.shape == (1, 10, observation_layout(config).size)
    assert (memory is None) == (config.observation == "original")
