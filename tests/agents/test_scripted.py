"""The scripted opponent: the worked scenes of the rules, the unstick timeline, and every recorded action of the original."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.agents.base import AgentParams
from echelon_jax.agents.scripted import NORMAL, REVERSE, STRAFE, Scripted, ScriptedParams
from echelon_jax.config import EnvConfig
from echelon_jax.env.beginning import Maps, fresh_state
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.original.rewards import original_rewards
from echelon_jax.env.state import EnvParams
from echelon_jax.parity.recorded.golden import actions_at, env_states, load_episode
from echelon_jax.parity.recorded.maps import column_words
from echelon_jax.rules.materials import OPAQUE, SOLID
from echelon_jax.rules.mechs import MECH_CLASSES, roster
from echelon_jax.sim.rules import sim_rules

PLAIN = EnvConfig.original(size_x=60, size_y=60, size_z=20)
ZONE = (30.0, 30.0, 6.0)
ALWAYS = ScriptedParams(fire_probability=jnp.float32(1.0))
WALL_AT_23 = np.zeros((20, 60, 60), np.uint8)
WALL_AT_23[:, :, 23] = SOLID
NAMES = ("forward", "strafe", "vertical", "yaw", "primary", "vent", "secondary", "tertiary", "special")
PI = math.pi

# Mechs present as (x, y, yaw), by name; whose action; extra state; the components that are not zero.
SCENES = {
    "far_enemy": ({"blue_1": (10, 30, 0), "red_1": (50, 30, PI)}, {}, {"forward": 1}),
    "turning": (
        {"blue_1": (10, 30, PI / 4), "red_1": (50, 30, PI)},
        {},
        {"forward": 0.707107, "strafe": -0.176777, "yaw": -0.75},
    ),
    "medium_in_range": (
        {"blue_1": (20, 30, 0.1), "red_1": (27, 31, PI)},
        {},
        {"forward": 0.995004, "strafe": -0.024958, "yaw": 0.040009, "primary": 1, "tertiary": 1},
    ),
    "medium_too_close": (
        {"blue_1": (20, 30, 0.1), "red_1": (24, 32, PI)},
        {},
        {"forward": -0.3, "strafe": -0.099833, "yaw": 0.347258, "primary": 1, "tertiary": 1},
    ),
    "heavy_holds_zone": (
        {"blue_0": (29, 29, 0), "red_1": (33, 29, PI)},
        {},
        {"forward": 0.353553, "strafe": 0.088388, "primary": 1, "secondary": 1, "tertiary": 1},
    ),
    "hot_heavy_vents": (
        {"blue_0": (29, 29, 0), "red_1": (33, 29, PI)},
        {"heat": ("blue_0", 98)},
        {"forward": 0.353553, "strafe": 0.088388, "vent": 1},
    ),
    "heavy_backs_off": (
        {"blue_0": (15, 29, 0), "red_1": (19, 29, PI)},
        {},
        {"forward": -0.3, "strafe": 0.066519, "primary": 1, "secondary": 1, "tertiary": 1},
    ),
    "painted_lock": (
        {"blue_0": (10, 30, 0), "blue_4": (30, 20, 0), "red_1": (50, 30, PI)},
        {"painted": ("red_1", "blue_4")},
        {"forward": 1, "secondary": 1},
    ),
    "light_close": (
        {"blue_3": (20, 30, 0), "red_1": (24, 30, PI)},
        {},
        {"forward": -0.3, "primary": 1, "secondary": 1, "tertiary": 1},
    ),
    "light_laser": ({"blue_3": (20, 30, 0), "red_1": (27, 30, PI)}, {}, {"forward": 1, "secondary": 1, "tertiary": 1}),
    "scout_paints": (
        {"blue_4": (20, 30, 0), "red_1": (28, 30, PI)},
        {},
        {"forward": 1, "primary": 1, "secondary": 0.25},
    ),
    "hot_scout": (
        {"blue_4": (20, 30, 0), "red_1": (28, 30, PI)},
        {"heat": ("blue_4", 60)},
        {"forward": 1, "vent": 1, "secondary": 0.75},
    ),
    "cohesion": (
        {"blue_1": (22, 28, 0), "blue_2": (22, 59, 0), "red_1": (55, 30, PI)},
        {},
        {"forward": 0.41576, "strafe": 0.227369, "yaw": 0.057804},
    ),
    "behind_wall": ({"blue_1": (20, 30, 0), "red_1": (27, 30, PI)}, {"wall": True}, {"forward": 1, "tertiary": 1}),
    "facing_away": ({"blue_2": (20, 30, PI), "red_1": (26, 30, PI)}, {}, {"forward": -1, "yaw": -1}),
    "at_zone_centre": ({"blue_2": (30, 30, 0), "red_1": (40, 30, PI)}, {}, {"tertiary": 1}),
    "no_enemy": ({"blue_2": (20, 30, 0)}, {}, None),
}


def env_params(config):
    return EnvParams(rules=sim_rules(config), rewards=original_rewards(), bank=None)


def scene_state(scenes, config=PLAIN):
    """One arena per scene, from the start of an episode with only the named mechs alive."""
    who = roster(config.num_packs)
    arenas, n = len(scenes), config.num_mechs
    position, yaw = np.zeros((arenas, n, 3), np.float32), np.zeros((arenas, n), np.float32)
    alive, heat = np.zeros((arenas, n), bool), np.zeros((arenas, n), np.float32)
    painted, painter = np.zeros((arenas, n), np.int32), np.full((arenas, n), -1, np.int32)
    material = np.zeros((arenas, 20, 60, 60), np.uint8)
    for b, (mechs, extra, _) in enumerate(scenes):
        for name, (x, y, angle) in mechs.items():
            i = who.ids.index(name)
            position[b, i] = (x, y, MECH_CLASSES[who.mech_class[i]].size[2] / 2)
            yaw[b, i], alive[b, i] = angle, True
        if "heat" in extra:
            heat[b, who.ids.index(extra["heat"][0])] = extra["heat"][1]
        if "painted" in extra:
            target, by = (who.ids.index(name) for name in extra["painted"])
            painted[b, target], painter[b, target] = 60, by
        if "wall" in extra:
            material[b] = WALL_AT_23
    flat = material.reshape(arenas, -1)
    opaque = jnp.asarray(column_words(flat, OPAQUE, config))
    maps = Maps(
        jnp.asarray(flat),
        jnp.zeros(flat.shape, jnp.int16),
        opaque,
        opaque,
        jnp.zeros((arenas, 3600), jnp.uint8),
        jnp.zeros((arenas, 256), jnp.uint8),
    )
    state = fresh_state(
        config,
        sim_rules(config),
        maps,
        jnp.asarray([ZONE] * arenas),
        jnp.asarray(position),
        jnp.asarray(yaw),
        jnp.zeros(arenas, jnp.int32),
        jnp.full((arenas, n, 5), -1, jnp.int32),
    )
    mechs = state.sim.mechs.replace(
        alive=jnp.asarray(alive),
        heat=jnp.asarray(heat),
        painted=jnp.asarray(painted),
        last_painter=jnp.asarray(painter),
    )
    return state.replace(sim=state.sim.replace(mechs=mechs))


@pytest.fixture(scope="module")
def agent():
    return Scripted(PLAIN)


@pytest.fixture(scope="module")
def act(agent):
    """The jitted decision with explicit draws."""
    params = env_params(PLAIN)
    return jax.jit(
        lambda numbers, memory, state, sign, fire: agent.act_with_noise(params, numbers, memory, state, sign, fire)
    )


@pytest.fixture(scope="module")
def scenes(agent):
    state = scene_state(SCENES.values())
    return state, agent.init(env_params(PLAIN), state)


def draws(state, value=0.0):
    return jnp.full(state.sim.mechs.alive.shape, value, jnp.float32)


def actor_of(name):
    return roster(1).ids.index(next(iter(SCENES[name][0])))


@pytest.mark.parametrize("name", SCENES)
def test_worked_scenes(name, act, scenes):
    state, memory = scenes
    _, actions = act(ALWAYS, memory, state, draws(state), draws(state))
    got = np.asarray(actions)[list(SCENES).index(name), actor_of(name)]
    components = SCENES[name][2]
    expected = np.zeros(action_layout(PLAIN).size)
    if components is not None:
        for component, value in components.items():
            expected[NAMES.index(component)] = value
        expected[[14, 17]] = 1.0  # closest first, hostile only
    np.testing.assert_allclose(got, expected, atol=2e-6)


def test_the_dead_do_nothing_and_their_memory_stands_still(act, scenes):
    state, memory = scenes
    dead = ~np.asarray(state.sim.mechs.alive)
    marked = memory.replace(stuck=memory.stuck + 7, phase=memory.phase + STRAFE, timer=memory.timer + 3)
    after, actions = act(ALWAYS, marked, state, draws(state), draws(state))
    assert dead.any()
    assert not np.asarray(actions)[dead].any()
    for name in ("stuck", "phase", "timer", "last_position"):
        np.testing.assert_array_equal(np.asarray(getattr(after, name))[dead], np.asarray(getattr(marked, name))[dead])


def test_target_slot_is_the_first_contact_slot_that_shows_the_target(act, scenes):
    state, memory = scenes
    b, i = list(SCENES).index("far_enemy"), actor_of("far_enemy")
    enemy = roster(1).ids.index("red_1")
    slots = state.contact_slots.at[b, i].set(jnp.asarray([2, enemy, 7, enemy, -1]))
    _, actions = act(ALWAYS, memory, state.replace(contact_slots=slots), draws(state), draws(state))
    np.testing.assert_array_equal(np.asarray(actions)[b, i, 9:14], [0, 1, 0, 0, 0])


def test_a_fire_draw_above_the_probability_silences_weapons_but_not_the_scouts_switch(act, scenes):
    state, memory = scenes
    half = AgentParams(fire_probability=jnp.float32(0.5))
    _, fired = act(half, memory, state, draws(state), draws(state, 0.5))
    _, held = act(half, memory, state, draws(state), draws(state, 0.51))
    _, free = act(ALWAYS, memory, state, draws(state), draws(state))
    np.testing.assert_array_equal(fired, free)
    weapons, scout = [4, 6, 7, 8], roster(1).mech_class == 0
    held = np.asarray(held)
    assert not held[:, ~scout][..., weapons].any()
    assert not held[:, scout][..., [4, 7, 8]].any()
    np.testing.assert_array_equal(held[:, scout, 6], np.asarray(free)[:, scout, 6])
    np.testing.assert_array_equal(np.delete(held, weapons, -1), np.delete(np.asarray(free), weapons, -1))


def test_only_paint_of_the_own_pack_guides_a_missile():
    config = EnvConfig.original(size_x=60, size_y=60, size_z=20, num_packs=2)
    who = roster(2)
    mechs = {"blue_5": (10, 30, 0), "blue_4": (30, 20, 0), "blue_9": (30, 22, 0), "red_1": (50, 30, PI)}
    state = scene_state([(mechs, {"painted": ("red_1", by)}, None) for by in ("blue_4", "blue_9")], config)
    agent, params = Scripted(config), env_params(config)
    _, actions = agent.act_with_noise(params, ALWAYS, agent.init(params, state), state, draws(state), draws(state))
    assert np.asarray(actions)[:, who.ids.index("blue_5"), 6].tolist() == [0.0, 1.0]


def test_fire_probability_may_differ_between_arenas(act, scenes):
    state, memory = scenes
    b = list(SCENES).index("light_close")
    per_arena = jnp.ones(len(SCENES)).at[b].set(0.0)
    _, actions = act(AgentParams(fire_probability=per_arena), memory, state, draws(state), draws(state, 0.5))
    _, free = act(ALWAYS, memory, state, draws(state), draws(state))
    changed = (np.asarray(actions) != np.asarray(free)).any((1, 2))
    assert changed.tolist() == [i == b for i in range(len(SCENES))]


@pytest.mark.parametrize(("draw", "sign"), [(0.5, -1.0), (0.51, 1.0)])
def test_timeline_of_a_mech_that_never_moves(draw, sign, act, scenes):
    state, memory = scenes
    b, i = list(SCENES).index("far_enemy"), actor_of("far_enemy")
    for decision in range(20):
        memory, actions = act(ALWAYS, memory, state, draws(state, draw), draws(state))
        action = np.asarray(actions)[b, i]
        stuck, phase, timer = (int(np.asarray(x)[b, i]) for x in (memory.stuck, memory.phase, memory.timer))
        if decision < 10:
            assert (action[0], stuck, phase) == (1.0, decision + 1, NORMAL)
        elif decision == 10:
            assert (action.any(), stuck, phase, timer) == (False, 0, REVERSE, 4)
        elif decision < 14:
            assert (action[0], np.abs(action).sum(), phase, timer) == (-1.0, 1.0, REVERSE, 14 - decision)
        elif decision < 18:
            assert (action[1], np.abs(action).sum(), phase, timer) == (sign, 1.0, STRAFE, 18 - decision)
        elif decision == 18:
            assert (action.any(), stuck, phase) == (False, 0, NORMAL)
        else:
            assert (action[0], stuck, phase) == (1.0, 1, NORMAL)


def test_reset_where_clears_the_memory_of_the_chosen_arenas_only(agent, scenes):
    state, memory = scenes
    used = memory.replace(stuck=memory.stuck + 5, phase=memory.phase + 1, last_position=memory.last_position + 9.0)
    mask = jnp.arange(len(SCENES)) % 2 == 0
    mixed = agent.reset_where(used, state, mask)
    for got, fresh, old in zip(*(jax.tree.leaves(tree) for tree in (mixed, memory, used)), strict=True):
        np.testing.assert_array_equal(got[::2], fresh[::2])
        np.testing.assert_array_equal(got[1::2], old[1::2])


def test_an_arena_of_a_batch_acts_bit_for_bit_as_alone(agent, scenes):
    state, memory = scenes
    params, keys = env_params(PLAIN), jax.random.split(jax.random.key(1), len(SCENES))
    act = jax.jit(lambda memory, state, keys: agent.act(params, ALWAYS, memory, state, keys))
    together = act(memory, state, keys)
    for b in (0, 6, 12):
        one = jax.tree.map(lambda leaf, b=b: leaf[b : b + 1], (memory, state, keys))
        for got, expected in zip(jax.tree.leaves(act(*one)), jax.tree.leaves(together), strict=True):
            np.testing.assert_array_equal(got[0], expected[b])


def replayed(path: Path):
    """(our actions, the recorded ones) of a whole game at fire probability 1; the unrecorded strafe signs are taken over."""
    episode = load_episode(path)
    agent, params = Scripted(episode.config), env_params(episode.config)
    recorded = actions_at(episode, range(episode.steps))
    states = jax.tree.map(lambda leaf: leaf[:, None], env_states(episode, range(episode.steps)))

    def decide(memory, row):
        state, action = row
        sign = jnp.where(action[..., 1] > 0, 1.0, 0.0)
        memory, ours = agent.act_with_noise(params, ALWAYS, memory, state, sign, jnp.zeros_like(sign))
        return memory, ours[0]

    start = agent.init(params, jax.tree.map(lambda leaf: leaf[0], states))
    return jax.jit(lambda *rows: jax.lax.scan(decide, start, rows)[1])(states, recorded[:, None]), recorded


def test_every_action_of_a_recorded_game(data):
    ours, recorded = replayed(data / "episodes" / "match_40_1.npz")
    np.testing.assert_allclose(ours, recorded, atol=2e-6)


@pytest.mark.golden
def test_every_action_of_all_recorded_games(golden):
    for path in sorted((golden / "episodes").glob("match_40_*.npz")):
        ours, recorded = replayed(path)
        np.testing.assert_allclose(ours, recorded, atol=2e-6, err_msg=path.name)
