"""Whole decision steps: worked rewards, finished arenas, single arenas, automatic resets.

Source: docs/spec/environment.md 3.4.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes
from helpers.stroll import stroll

from echelon_jax.config import EnvConfig
from echelon_jax.env import environment
from echelon_jax.env.autoreset import AutoReset, write_rows
from echelon_jax.env.environment import Echelon
from echelon_jax.env.original.rewards import original_rewards
from echelon_jax.env.state import STATISTICS, EnvParams
from echelon_jax.rules.materials import LAVA
from echelon_jax.worldgen.bank import generate_worlds

SCENES = EnvConfig.original(size_x=60, size_y=60)
R1, R2, R3, R4, R5, R6, R7, R9, R10, R11, R12, R13, R14, R15, LATE, IDLE = range(16)
PAINT = 90


def laser_duel(made, actions, arena, shift=0.0, **victim):
    made.put(arena, "blue_1", 10.3 + shift, 30.2)
    made.put(arena, "red_3", 14.3 + shift, 30.2, yaw=np.pi, **victim)
    made.act(actions, arena, "blue_1", primary=1)


@pytest.fixture(scope="module")
def played():
    """Three decision steps of all scenes in one batch, with one compiled step."""
    made = Scenes(SCENES, 16)
    first, second = made.actions(), made.actions()
    for arena in (R1, R2):
        made.put(arena, "blue_4", 10, 30)
        made.act(first, arena, "blue_4", forward=1)
    made.put(R2, "blue_1", 30, 30)
    made.put(R2, "blue_2", 30, 33)
    made.put(R3, "blue_0", 28, 30)
    made.put(R3, "blue_4", 30, 33)
    made.put(R3, "red_1", 32.5, 29)
    made.put(R4, "blue_1", 27.5, 30)
    made.put(R4, "red_1", 32.5, 30)
    laser_duel(made, first, R5)
    laser_duel(made, first, R6, shift=18)
    made.put(R7, "blue_1", 28.3, 30.2)
    made.put(R7, "red_3", 31.8, 30.2, yaw=np.pi, hp=5)
    made.put(R7, "red_4", 30.4, 33.3)
    made.act(first, R7, "blue_1", primary=1)
    painted = {"painted": PAINT, "last_painter": 4, "yaw": np.pi}
    made.put(R9, "blue_1", 10.3, 10.2)
    made.put(R9, "red_0", 15.3, 10.2, **painted)
    made.put(R10, "blue_1", 27.3, 30.2)
    made.put(R10, "blue_4", 30, 26.5)
    made.put(R10, "red_0", 32.3, 30.2, **painted)
    for arena in (R9, R10):
        made.act(first, arena, "blue_1", primary=1)
    made.put(R11, "blue_0", 10, 30)
    made.put(R11, "red_4", 19, 30, yaw=np.pi)
    made.put(R11, "blue_4", 19, 31.3, hp=10)
    made.act(first, R11, "blue_0", tertiary=1)
    made.put(R12, "blue_4", 24.2, 30)
    made.act(first, R12, "blue_4", forward=1)
    made.act(second, R12, "blue_4", forward=-1)
    made.box(R13, range(8, 13), range(8, 13), range(1), LAVA)
    made.put(R13, "blue_1", 10.5, 10.5, hp=0.5)
    made.put(R14, "blue_1", 10.3, 10.2)
    made.put(R14, "red_0", 15.3, 10.2, **painted)
    made.act(first, R14, "blue_1", special=1)
    laser_duel(made, first, R15)
    made.change(R15, "red_3", yaw=0.0, hp=1)
    made.put(LATE, "red_3", 30, 30)
    made.state.step_count[LATE] = SCENES.max_steps - 1
    made.change(LATE, "blue_2", alive=False)
    first[IDLE, 3, 4] = np.nan
    env = Echelon(SCENES)
    params = EnvParams(rules=made.rules, rewards=original_rewards(), bank=None)
    step = jax.jit(env.step_batch_with_noise)
    start = state = made.ready()
    results = []
    # The same scenes in another order, with the same compiled step.
    order = np.roll(np.arange(made.count), 5)
    swapped = jax.tree.map(lambda leaf: leaf[order], start)
    elsewhere = step(made.noise(), swapped, jnp.asarray(first[order]), params)
    for actions in (first, second, made.actions()):
        state, result = step(made.noise(), state, jnp.asarray(actions), params)
        results.append((state, result))
    made.order, made.elsewhere = order, elsewhere
    return made, results


def reward(played, arena, name, step=0):
    made, results = played
    return float(results[step][1].reward[arena, made.mech(name)])


@pytest.mark.parametrize(
    ("arena", "name", "step", "value"),
    [
        (R1, "blue_4", 0, 0.042875),
        (R2, "blue_4", 0, 0.0107188),
        (R2, "blue_1", 0, 3.0),
        (R2, "blue_2", 0, 3.0),
        (R2, "red_0", 0, 0.0),
        (R3, "blue_0", 0, 1.453125),
        (R3, "blue_4", 0, 1.453125),
        (R3, "red_1", 0, 0.75),
        (R4, "blue_1", 0, 0.75),
        (R4, "red_1", 0, 0.75),
        (R5, "blue_1", 0, 0.7),
        (R5, "red_3", 0, 0.0),
        (R6, "blue_1", 0, 2.65),
        (R6, "red_3", 0, 0.75),
        (R7, "blue_1", 0, 23.2),
        (R7, "red_3", 0, -1.0),
        (R7, "red_4", 0, 0.75),
        (R7, "blue_1", 1, 1.8),  # R8
        (R7, "red_3", 1, 0.0),
        (R7, "red_4", 1, 0.75),
        (R9, "blue_1", 0, 0.77),
        (R9, "blue_4", 0, 5.0),
        (R10, "blue_1", 0, 2.29),
        (R10, "blue_4", 0, 10.75),
        (R10, "red_0", 0, 0.890625),
        (R11, "blue_0", 1, 13.75),
        (R11, "blue_4", 1, -1.0),
        (R12, "blue_4", 0, 3.0),
        (R12, "blue_4", 1, -0.042875),
        (R13, "blue_1", 0, -1.0),
        (R14, "blue_4", 1, 5.0),
        (R14, "blue_1", 1, 0.0),
        (R15, "blue_1", 0, 11.05),
    ],
)
def test_worked_rewards(played, arena, name, step, value):
    assert reward(played, arena, name, step) == pytest.approx(value, abs=2e-5)


def test_worked_scores_and_zone_control(played):
    _, results = played
    state, step = results[0]
    assert np.allclose(state.score[R2], [0.25, 0])
    assert np.allclose(state.score[R3], [0.12109375, 0.0625])
    assert float(step.info.zone_control[R3]) == pytest.approx(0.234375)
    assert np.allclose(step.observation[R3, [0, 6], 581], [0.3125, -0.3125])


def test_a_killed_mech_is_terminated_blind_and_counted(played):
    _, results = played
    for _, step in results[:2]:
        assert np.flatnonzero(step.terminated[R7]).tolist() == [8]
        assert (step.observation[R7, 8] == 0).all()
    assert not results[0][1].episode_over[R7]
    statistics = results[1][0].statistics
    kills, damage = STATISTICS.index("kills"), STATISTICS.index("damage")
    assert statistics[R11, kills].tolist() == [1, 0] and statistics[R11, damage].tolist() == [75, 0]
    assert statistics[R13, kills].tolist() == [0, 0]  # lava gets no credit


def test_a_bad_action_is_counted_for_its_team(played):
    _, results = played
    assert results[0][0].statistics[IDLE, STATISTICS.index("bad_actions")].tolist() == [1, 0]


def test_an_arena_plays_the_same_bits_at_any_place_in_the_batch(played):
    made, results = played
    for here, there in zip(jax.tree.leaves(results[0]), jax.tree.leaves(made.elsewhere), strict=True):
        assert np.array_equal(np.asarray(here)[made.order], there, equal_nan=np.asarray(here).dtype.kind == "f")


def test_reward_is_the_sum_of_its_components(played):
    _, results = played
    for _, step in results:
        assert np.allclose(step.reward, step.info.reward_components.sum(-1), atol=1e-5)


def test_time_up_truncates_the_living_and_a_finished_arena_stands_still(played):
    _, results = played
    (state, step), (later_state, later) = results[0], results[1]
    assert step.episode_over[LATE] and int(step.info.reason[LATE]) == 3 and int(step.info.winner[LATE]) == 1
    assert np.flatnonzero(step.terminated[LATE]).tolist() == [2]
    assert np.array_equal(step.truncated[LATE], ~step.terminated[LATE])
    for was, now in zip(jax.tree.leaves(state), jax.tree.leaves(later_state), strict=True):
        assert np.array_equal(was[LATE], now[LATE])
    assert (later.reward[LATE] == 0).all() and (later.info.reward_components[LATE] == 0).all()
    for name in ("observation", "terminated", "truncated", "episode_over"):
        assert np.array_equal(getattr(step, name)[LATE], getattr(later, name)[LATE]), name
    assert int(later_state.step_count[IDLE]) == 2


SMALL = EnvConfig.original(size_x=30, size_y=30, max_episode_seconds=1.0)
ARENAS = 3


@pytest.fixture(scope="module")
def small():
    env = Echelon(SMALL)
    return env, env.params(env.make_bank(generate_worlds(SMALL, range(4))))


def test_an_episode_that_ends_is_followed_by_a_new_one(small, monkeypatch):
    monkeypatch.setattr(environment, "simulate", stroll)
    env, params = small
    auto = AutoReset(env)
    step = jax.jit(auto.step_batch)
    state, _ = auto.reset_batch(jax.random.split(jax.random.key(0), ARENAS), params, jnp.array([0, 1, 2]))
    state = state.replace(step_count=jnp.array([0, 3, 0]))
    actions = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (ARENAS, 10, 26)), jnp.float32)
    keys = jax.random.split(jax.random.key(1), ARENAS)
    new, result = step(keys, state, actions, params)
    assert np.asarray(result.episode_over).tolist() == [False, True, False]
    assert result.truncated[1].all() and int(result.info.step_count[1]) == 4
    # The ended arena holds a world of the bank, and shows it; what it last saw is kept.
    world = np.flatnonzero(np.asarray(params.bank.seed) == int(new.arena_map.seed[1]))[0]
    for name in ("material", "hp", "collides", "opaque"):
        assert np.array_equal(getattr(new.sim.grid, name)[1], getattr(params.bank, name)[world]), name
    assert np.array_equal(new.arena_map.occupancy[1], params.bank.occupancy[world])
    assert np.array_equal(new.sim.mechs.position[1], params.bank.position[world])
    assert np.array_equal(new.contact_slots[1], params.bank.contact_slots[world])
    assert np.array_equal(result.observation[1], params.bank.observation[world])
    assert not np.array_equal(result.final_observation[1], result.observation[1])
    assert np.asarray(new.step_count).tolist() == [1, 0, 1] and not new.episode_over.any()
    # The others play on.
    walked = state.sim.mechs.position[0, :, 0] + actions[0, :, 0]
    assert np.allclose(new.sim.mechs.position[0, :, 0], walked)
    assert np.array_equal(result.observation[0], result.final_observation[0])
    assert np.asarray(new.arena_map.seed)[[0, 2]].tolist() == np.asarray(state.arena_map.seed)[[0, 2]].tolist()


def test_rows_are_written_only_where_asked():
    rng = np.random.default_rng(1)
    for count, chunk in ((7, 1), (7, 3), (1, 4)):
        into, source = jnp.asarray(rng.random((count, 5))), jnp.asarray(rng.random((3, 5)))
        mask, row = rng.random(count) < 0.6, rng.integers(0, 3, count)
        (written,) = write_rows((into,), (source,), jnp.asarray(mask), jnp.asarray(row), chunk)
        assert np.array_equal(written, np.where(mask[:, None], np.asarray(source)[row], into))


def test_a_reset_begins_in_the_world_it_names_with_the_view_of_its_state(small):
    from echelon_jax.env.original.observation import observe

    env, params = small
    keys = jax.random.split(jax.random.key(0), 4)
    state, step = env.reset_batch(keys, params, jnp.array([2, 0, 3, 1]))
    assert np.asarray(state.arena_map.seed).tolist() == [2, 0, 3, 1]
    seen = jax.jit(observe, static_argnums=0)(env.config, params.rules, state)
    assert np.allclose(seen.observation, step.observation, atol=1e-6)
    assert np.array_equal(seen.contact_slots, state.contact_slots)
    assert (step.reward == 0).all() and not step.terminated.any() and not step.episode_over.any()


def test_one_arena_has_the_interface_of_the_batch_without_its_axis(small):
    env, params = small
    state, step = env.reset(jax.random.key(0), params, 2)
    assert step.observation.shape == (10, 589) and int(state.arena_map.seed) == 2 and state.sim.tick.shape == ()
    shapes = jax.eval_shape(env.step, jax.random.key(1), state, jnp.zeros((10, 26)), params)
    assert shapes[1].observation.shape == (10, 589) and shapes[1].episode_over.shape == ()
    assert jax.tree.map(jnp.shape, state) == jax.tree.map(lambda leaf: leaf.shape, shapes[0])


def test_drawn_worlds_depend_on_the_arenas_own_key(small):
    env, params = small
    keys = jax.random.split(jax.random.key(5), 64)
    worlds = np.asarray(env.draw_worlds(params, keys))
    assert set(worlds) == {0, 1, 2, 3}
    assert np.array_equal(env.draw_worlds(params, keys[10:20]), worlds[10:20])


def test_a_slice_of_the_bank_can_be_replaced(small):
    env, params = small
    old = jax.tree.map(lambda leaf: np.array(leaf), params.bank)
    bank = env.replace_worlds(jax.tree.map(jnp.asarray, old), 1, generate_worlds(SMALL, [7, 8]))
    assert np.asarray(bank.seed).tolist() == [0, 7, 8, 3]
    assert np.array_equal(bank.observation[3], old.observation[3])
    assert not np.array_equal(bank.observation[1], old.observation[1])
    with pytest.raises(ValueError, match="start must be from 0 to 2 for 2 worlds in a bank of 4, got 3"):
        env.replace_worlds(bank, 3, generate_worlds(SMALL, [7, 8]))


def test_a_bank_of_another_configuration_is_refused(small):
    _, params = small
    with pytest.raises(ValueError, match="material must have 32000 entries a world, got 18000"):
        Echelon(EnvConfig.original(size_x=40, size_y=40)).params(params.bank)
    with pytest.raises(ValueError, match=r"observation must be \[10, 549\] a world"):
        Echelon(EnvConfig.original(size_x=30, size_y=30, comm_dim=0)).params(params.bank)
