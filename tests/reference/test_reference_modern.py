"""The default game in the plain reference: its observation by the table of entries, its memory, its actions."""

import math

import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.modern.layout import LOCAL_SIDE, action_layout, observation_layout, vector_size
from echelon_jax.reference.environment import Arena, ReferenceEnv
from echelon_jax.reference.modern.interface import ModernActions
from echelon_jax.reference.modern.memory import ObservationMemory
from echelon_jax.reference.modern.observation import vector_bounds
from echelon_jax.reference.modern.view import share
from echelon_jax.reference.noise import LiveNoise
from echelon_jax.reference.rewards import Zone
from echelon_jax.reference.state import Battle, make_mechs
from echelon_jax.reference.world import SmokeCloud, VoxelWorld
from echelon_jax.rules import materials as mat
from echelon_jax.rules.mechs import SCOUT

HEAVY, ENEMY, SCOUT_ROW = 0, 5, 4


def make_config(**overrides):
    modern = dict.fromkeys(("observation", "actions", "reward"), "modern")
    return EnvConfig.revised(**{"size_x": 28, "size_y": 28, "comm_dim": 8, **modern, **overrides})


def make_arena(config, places=None):
    """Ten mechs in two columns on bare ground, facing along x; `places` moves some of them."""
    material = np.zeros((config.size_z, config.size_y, config.size_x), np.uint8)
    position = np.array([[4.0 if i < 5 else 24.0, 3.0 + 5 * (i % 5), 0.0] for i in range(10)])
    position[:, :2] += 0.13 * np.sin(np.arange(20)).reshape(10, 2)  # off the corners of cells
    mechs = make_mechs(1, position, np.zeros(10))
    for mech in mechs:
        x, y = (places or {}).get(mech.index, mech.pos[:2])
        mech.pos = (float(x), float(y), mech.half[2])
    world = VoxelWorld(material, np.zeros(material.shape))
    return Arena(config, Battle(config, world, mechs), Zone(14.0, 14.0, 5.0, config.zone_on_the_ground), world)


def entry(config, row, name):
    return row[observation_layout(config)[name].slice]


@pytest.mark.parametrize("packs", [1, 2])
@pytest.mark.parametrize("comm_dim", [0, 8])
def test_the_reference_has_the_bounds_and_the_length_of_the_table(packs, comm_dim):
    config = make_config(num_packs=packs, comm_dim=comm_dim, size_x=40, size_y=40)
    low, high = observation_layout(config).bounds
    for mine, table in zip(vector_bounds(config), (low, high), strict=True):
        np.testing.assert_array_equal(mine, table[: vector_size(config)])


def test_an_observation_lies_within_the_bounds_of_the_table():
    config = make_config(observation_mode="partial")
    env = ReferenceEnv(config)
    step = env.start(make_arena(config), LiveNoise.from_seed(0))
    low, high = observation_layout(config).bounds
    rng = np.random.default_rng(0)
    for _ in range(3):
        assert step.observation.shape == (10, observation_layout(config).size)
        assert (step.observation >= low).all() and (step.observation <= high).all()
        step = env.step(rng.uniform(-1, 1, (10, action_layout(config).size)))


def test_a_mech_behind_a_wall_is_remembered_where_it_was_seen():
    config = make_config(observation_mode="partial")
    arena = make_arena(config, {HEAVY: (4.0, 3.0), ENEMY: (20.0, 3.0)})
    assert entry(config, arena.look()[HEAVY], "hostile_0/line_of_sight") == 1
    arena.battle.world.material[:8, :, 12] = mat.SOLID
    arena.battle.mechs[ENEMY].pos = (24.0, 20.0, 2.0)
    assert arena.memory is not None
    arena.memory.older([0.0] * 10, arena.battle.mechs)
    row = arena.look()[HEAVY]
    assert entry(config, row, "hostile_0/known") == 1 and entry(config, row, "hostile_0/line_of_sight") == 0
    assert entry(config, row, "hostile_0/age") == pytest.approx(config.decision_seconds / 10)
    assert entry(config, row, "hostile_0/offset_forward") == pytest.approx(16 / math.hypot(28, 28))
    assert entry(config, row, "hostile_0/offset_left") == 0
    assert not entry(config, row, "hostile_0/hp").any()


def test_looking_twice_shows_the_same():
    config = make_config(observation_mode="partial")
    arena = make_arena(config)
    assert np.array_equal(arena.look(), arena.look())


def test_nobody_is_known_before_the_first_look_and_everybody_in_full_mode_after_it():
    assert (np.array(ObservationMemory.fresh(make_config(observation_mode="partial")).age) == -1).all()
    config = make_config(observation_mode="full")
    row = make_arena(config).look()[HEAVY]
    assert all(entry(config, row, f"hostile_{i}/known") == 1 for i in range(5))


def test_the_focus_is_the_mech_of_the_chosen_hostile_slot_if_it_was_ever_seen():
    config = make_config(observation_mode="partial")
    arena = make_arena(config)
    choice = action_layout(config)["target_preference"]
    actions = np.zeros((10, action_layout(config).size), np.float32)
    actions[:, choice.offset + 2] = 1.0  # the second hostile slot
    ModernActions().set_focus(arena, actions)
    assert [mech.focus_target for mech in arena.battle.mechs] == [None] * 10
    arena.look()
    ModernActions().set_focus(arena, actions)
    assert [mech.focus_target for mech in arena.battle.mechs] == [6] * 5 + [1] * 5
    arena.battle.mechs[6].alive = False
    ModernActions().set_focus(arena, actions)
    assert [mech.focus_target for mech in arena.battle.mechs] == [None] * 5 + [1, None, 1, 1, 1]


@pytest.mark.parametrize(("mode", "expected"), [(0, (False, False)), (1, (True, False)), (2, (False, True))])
def test_a_scout_chooses_off_jamming_or_support(mode, expected):
    config = make_config()
    env = ReferenceEnv(config)
    env.start(make_arena(config), LiveNoise.from_seed(0))
    actions = np.zeros((10, action_layout(config).size), np.float32)
    actions[:, action_layout(config)["ewar"].offset + mode] = 1.0
    env.step(actions)
    for mech in env.arena.battle.mechs:
        able = mech.class_id == SCOUT
        assert (mech.ecm_on, mech.eccm_on) == (expected if able else (False, False))


def test_a_message_is_heard_by_the_pack_after_the_decision():
    config = make_config()
    env = ReferenceEnv(config)
    env.start(make_arena(config), LiveNoise.from_seed(0))
    actions = np.zeros((10, action_layout(config).size), np.float32)
    actions[3, action_layout(config)["message"].slice] = 0.5
    step = env.step(actions)
    assert (entry(config, step.observation[0], "message/3") == 0.5).all()
    assert not entry(config, step.observation[5], "message/3").any()


def test_a_timer_is_shown_in_whole_substeps():
    assert share(0.6, 0.6, 0.05) == 1.0 and share(0.0, 0.6, 0.05) == 0.0
    assert share(0.6 - 0.05, 0.6, 0.05) == 12 / 13  # 0.6 s take thirteen steps of 0.05 s in float64


def test_of_clouds_at_one_place_the_youngest_comes_first():
    config = make_config()
    arena = make_arena(config)
    arena.battle.clouds = [SmokeCloud((10.0, 10.0, 2.0), 4.0, life) for life in (3.0, 8.0, 5.0)]
    row = arena.look()[HEAVY]
    shown = [float(entry(config, row, f"cloud_{i}/life")[0]) for i in range(2)]
    assert shown[0] > shown[1] > 0.45


def test_a_mech_high_over_the_zone_is_not_in_it_where_the_ground_counts():
    for grounded in (False, True):
        config = make_config(zone_on_the_ground=grounded)
        arena = make_arena(config, {HEAVY: (14.0, 14.0)})
        x, y, _ = arena.battle.mechs[HEAVY].pos
        arena.battle.mechs[HEAVY].pos = (x, y, 15.0)
        row = arena.look()[HEAVY]
        assert entry(config, row, "self/in_zone") == (not grounded)
        assert entry(config, row, "team/own_tick") == (not grounded)


def test_the_step_plane_shows_a_low_block_ahead():
    config = make_config()
    arena = make_arena(config, {HEAVY: (14.0, 14.0)})
    arena.battle.world.material[0, 14, 20] = mat.SOLID
    step = entry(config, arena.look()[HEAVY], "local/step").reshape(LOCAL_SIDE, LOCAL_SIDE)
    assert step[6, 3] == 0.25 and step[0, 3] == 0.0
