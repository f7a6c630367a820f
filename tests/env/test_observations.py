"""Observations: worked numbers (docs/spec/environment.md Appendix A), recorded episodes, and rules as properties."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.env.contacts import choose_contacts
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.env.original.observation import observe
from echelon_jax.parity.recorded.golden import env_states, load_episode
from echelon_jax.rules.mechs import CLASS_NAMES, roster
from echelon_jax.rules.weapons import SMOKE
from echelon_jax.sim.ewar import distances, sensor_quality
from echelon_jax.sim.readings import kinetic_seconds, laser_seconds, tube_seconds
from echelon_jax.sim.rules import sim_rules

FULL = EnvConfig.original(size_x=60, size_y=60)
LAYOUT = observation_layout(FULL)
CONTACT, BROKEN, SOUND, WALLED, MAP, CORNER, TURNED, HIT, DEAD, HOMING = range(10)
look = jax.jit(observe, static_argnums=0, compiler_options=compiling.as_xla_does())


def contact_scene(made: Scenes, arena: int) -> None:
    made.put(arena, "blue_0", 10.3, 30.2, yaw=0.7, velocity=(0.5, 0, 0))
    made.put(
        arena,
        "red_1",
        20.3,
        27.2,
        yaw=1.0,
        velocity=(1, 2, 0),
        hp=75,
        heat=50,
        stability=60,
        painted=40,
        last_painter=4,
    )


def sound_scene(made: Scenes, arena: int) -> None:
    made.put(arena, "blue_0", 30.3, 20.2, yaw=np.pi / 2)
    for name, x, y, noise in (
        ("red_1", 27.4, 26.3, 5.39),
        ("blue_1", 33.6, 24.7, 13.475),
        ("red_3", 28.1, 15.3, 9.996),
        ("red_0", 35.2, 15.6, 9.8),
    ):
        made.put(arena, name, x, y, loudness=noise)


@pytest.fixture(scope="module")
def full():
    """Hand-made scenes in full mode, one arena each, and what is seen in them."""
    made = Scenes(FULL, 10)
    contact_scene(made, CONTACT)
    contact_scene(made, BROKEN)
    made.change(BROKEN, "red_1", velocity=np.nan)
    sound_scene(made, SOUND)
    sound_scene(made, WALLED)
    made.box(WALLED, range(20, 40), range(23, 24), range(8))
    made.put(MAP, "blue_0", 30.6, 20.3, yaw=np.pi / 6)
    made.box(MAP, range(33, 35), range(21, 23), range(2))
    made.put(CORNER, "blue_0", 30.5, 30.5, yaw=0.0)
    made.box(CORNER, range(33, 34), range(31, 32), range(1))
    made.put(CORNER, "blue_1", 2.5, 10.5, yaw=0.0)
    sound_scene(made, TURNED)
    made.change(TURNED, "blue_0", yaw=0.4)
    for arena, yaw in ((HIT, 1.3), (DEAD, np.pi / 2)):
        i = made.change(arena, "blue_0", yaw=yaw)
        made.state.sim.tally.damage_direction[arena, i] = 1, 0, 0
        made.state.sim.tally.has_damage_direction[arena, i] = True
    made.change(DEAD, "red_2", alive=False)
    shots = made.state.sim.projectiles
    shots.alive[HOMING, :3] = True
    shots.weapon[HOMING, :3] = 2, SMOKE, 2
    shots.target[HOMING, :3] = 6, 7, -1
    state = made.ready()
    return state, jax.tree.map(np.asarray, look(FULL, made.rules, state))


def entry(seen, arena, mech, name):
    return seen.observation[arena, mech, LAYOUT[name].slice]


def test_a_contact_row_has_the_worked_numbers(full):
    _, seen = full
    assert seen.contact_slots[CONTACT, 0].tolist() == [1, 2, 3, 6, 7]
    expected = [0.166667, -0.05, -0.00833333, 0.05, 0.2, 0, 0.841471, 0.540302, 0.5, 0.5, 0.6, 0, 0, 0, 1, 0]
    expected += [0, 0, 1, 0, 1, 1, -0.020224, 0.0095673, 0.828855]
    assert np.allclose(seen.observation[CONTACT, 0, 75:100], expected, atol=2e-6)
    scalars = {
        563: 0.666667,
        569: 0.05,
        570: 0,
        571: 0,
        577: 0.328333,
        578: -0.00333335,
        579: -0.0333333,
        580: 0.0833333,
    }
    for index, value in scalars.items():
        assert seen.observation[CONTACT, 0, index] == pytest.approx(value, abs=1e-6), index


def test_sound_comes_from_its_quadrant_and_cover_takes_four_fifths(full):
    _, seen = full
    open_field = [0.0217707, 0.0695705, 0.0561344, 0.0384971]
    behind_wall = [0.00454786, 0.0159848, 0.0561344, 0.0384971]
    assert np.allclose(seen.observation[SOUND, 0, 542:546], open_field, atol=1e-6)
    assert np.allclose(seen.observation[WALLED, 0, 542:546], behind_wall, atol=1e-6)


def test_turning_on_the_spot_changes_map_sound_and_damage_direction_only(full):
    _, seen = full
    changed = np.flatnonzero(seen.observation[SOUND, 0] != seen.observation[TURNED, 0])
    allowed = [*range(165, 286), *range(542, 546), 559, 560]
    assert set(changed) <= set(allowed) and len(changed) >= 4


def test_the_local_map_turns_with_the_mech(full):
    _, seen = full
    assert (np.flatnonzero(seen.observation[MAP, 0, 165:286]) + 165).tolist() == [258, 268, 269, 280]
    wall = seen.observation[CORNER, 0, 165:286].reshape(11, 11)
    assert np.argwhere(wall).tolist() == [[8, 6]]


def test_the_low_edge_of_the_map_reads_one_row_too_few(full):
    _, seen = full
    rows = seen.observation[CORNER, 1, 165:286].reshape(11, 11).all(1)
    assert rows.tolist() == [True, True, *[False] * 9]  # x = 2.5: -2.5 and -1.5 are outside, -0.5 reads column 0


def test_telemetry_marks_the_blocks_with_walls(full):
    _, seen = full
    assert (np.flatnonzero(seen.observation[MAP, 3, 286:542]) + 286).tolist() == [375, 391]


def test_damage_direction_is_in_the_mechs_own_frame(full):
    _, seen = full
    assert np.allclose(seen.observation[HIT, 0, 559:562], [0.267499, -0.963558, 0], atol=1e-6)
    assert np.allclose(seen.observation[DEAD, 0, 559:562], [0, -1, 0], atol=1e-6)


def test_the_dead_see_nothing_and_are_not_seen(full):
    _, seen = full
    assert (seen.observation[DEAD, 7] == 0).all() and (seen.contact_slots[DEAD, 7] == -1).all()
    assert not (seen.contact_slots[DEAD] == 7).any()
    assert (seen.observation[DEAD, 6] != 0).any()


def test_a_broken_velocity_is_zeroed_and_counted_for_the_mech_and_its_viewers(full):
    _, seen = full
    viewers = (seen.contact_slots[BROKEN] == 6).any(-1)
    viewers[6] = True
    assert np.array_equal(seen.bad[BROKEN], viewers)
    assert np.isfinite(seen.observation).all()
    assert not seen.bad[CONTACT].any()
    assert (entry(seen, BROKEN, 6, "own/velocity") == 0).all()


def test_only_a_homing_missile_warns_its_target(full):
    _, seen = full
    assert [int(entry(seen, HOMING, i, "own/incoming_missile")[0]) for i in range(10)] == [0] * 6 + [1] + [0] * 3


def test_a_mech_knows_its_own_hull(full):
    _, seen = full
    hulls = seen.observation[SOUND, :, LAYOUT["hull"].slice].argmax(-1)
    assert [CLASS_NAMES[h] for h in hulls[:5]] == ["heavy", "medium", "medium", "light", "scout"]


@pytest.mark.parametrize("width", [1])
def test_an_arena_sees_the_same_bits_in_a_batch_of_any_width(full, width):
    state, seen = full
    part = jax.tree.map(lambda leaf: leaf[WALLED : WALLED + width], state)
    alone = look(FULL, sim_rules(FULL), part)
    assert np.array_equal(alone.observation, seen.observation[WALLED : WALLED + width])


RADAR, BEHIND, HOT, HOTTER, OWN_PAINT, OTHER_PAINT, JAMMER, SMOKED, JAMMED = range(9)


@pytest.fixture(scope="module")
def hidden():
    """Scenes of docs/spec/environment.md A4, with two packs a team so that another pack can paint."""
    config = EnvConfig.original(size_x=60, size_y=60, observation_mode="partial", num_packs=2)
    made = Scenes(config, 9)
    for arena in range(9):
        made.put(arena, "blue_0", 10.3, 30.2)
        made.box(arena, range(20, 21), range(60), range(20))
        made.put(arena, "red_1", 23.3 if arena == RADAR else 25.3, 30.2)
    made.change(HOT, "red_1", heat=80.0)
    made.change(HOTTER, "red_1", heat=80.1)
    made.change(OWN_PAINT, "red_1", painted=10, last_painter=made.mech("blue_4"))
    made.change(OTHER_PAINT, "red_1", painted=10, last_painter=made.mech("blue_7"))
    for arena in (JAMMER, SMOKED):
        made.put(arena, "red_4", 50.3, 30.2, ecm_on=True)
    made.smoke(SMOKED, 15.0, 30.2, 1.5)
    made.put(JAMMED, "red_4", 30.3, 30.2, ecm_on=True)
    made.put(JAMMED, "red_1", 21.5, 30.2)
    state = made.ready().replace(hostile_only=jnp.ones((9, 20), bool))
    seen = look(config, made.rules, state)
    return made, state, np.asarray(seen.contact_slots[:, 0]), seen


@pytest.mark.parametrize(
    ("arena", "name", "visible"),
    [
        (RADAR, "red_1", True),
        (BEHIND, "red_1", False),
        (HOT, "red_1", False),
        (HOTTER, "red_1", True),
        (OWN_PAINT, "red_1", True),
        (OTHER_PAINT, "red_1", False),
        (JAMMER, "red_4", True),
        (SMOKED, "red_4", False),
        (JAMMED, "red_1", False),
        (JAMMED, "red_4", True),
    ],
)
def test_partial_visibility_has_the_worked_cases(hidden, arena, name, visible):
    made, _, slots, _ = hidden
    assert (made.mech(name) in slots[arena]) is visible


def test_a_jammer_at_twenty_voxels_halves_the_sensors(hidden):
    made, state, _, seen = hidden
    quality = sensor_quality(made.config, made.rules, state.sim.mechs)
    assert float(quality.q[JAMMED, 0]) == pytest.approx(0.4905, abs=1e-4)
    layout = observation_layout(made.config)
    assert float(seen.observation[JAMMED, 0, layout["own/sensor_quality"].offset]) == pytest.approx(
        0.4905 / 1.5, abs=1e-4
    )


def test_sensor_quality_has_the_worked_numbers():
    made = Scenes(FULL, 2)
    made.put(0, "blue_4", 10.3, 30.2, eccm_on=True)
    made.put(0, "blue_0", 20.3, 30.2)
    made.put(0, "red_4", 30.3, 30.2, ecm_on=True)
    made.change(1, "blue_0", heat=131.0)
    made.change(1, "blue_1", alive=False)
    quality = sensor_quality(FULL, made.rules, made.ready().sim.mechs)
    assert np.allclose(quality.q[0, [4, 0, 9]], [0.4900, 0.8402, 1.0], atol=1e-4)
    assert np.allclose(quality.jam[0, [4, 0]], [0.6, 0.7988], atol=1e-4)
    assert np.allclose(quality.q[1, :3], [0.25, 0.25, 1.0])  # shut down, dead, quiet


def slots_by_hand(viewer, visible, team, key, distance, hostile_only):
    """The slot rule of docs/spec/environment.md 2.5 as a person would follow it: fill place by place."""

    def ranked(friendly):
        group = [o for o in range(len(team)) if visible[o] and (team[o] == team[viewer]) == friendly]
        return sorted(group, key=lambda o: (key[o], distance[o], o))

    friends, hostiles = ranked(True), ranked(False)
    if hostile_only:
        chosen = hostiles[:5]
    else:
        chosen = friends[:3] + hostiles[:1]
        friends, hostiles = friends[3:], hostiles[1:]
        while len(chosen) < 5 and (hostiles or friends):
            chosen.append((hostiles or friends).pop(0))
    return chosen + [-1] * (5 - len(chosen))


def test_contact_slots_follow_the_rule_in_every_mode():
    config = EnvConfig.original(size_x=60, size_y=60, num_packs=2)
    who, rng, arenas = roster(2), np.random.default_rng(3), 24
    made = Scenes(config, arenas)
    n = config.num_mechs
    mechs = made.state.sim.mechs
    mechs.position[..., :2] = rng.integers(2, 8, (arenas, n, 2)) * 2.0  # a coarse lattice: many ties in distance
    mechs.position[..., 2] = 1.0
    mechs.hp[:] = np.asarray(made.rules.max_hp) * rng.choice([0.25, 0.5, 1.0, 1.5], (arenas, n))
    made.state.sort_mode[:] = rng.integers(0, 3, (arenas, n))
    made.state.hostile_only[:] = rng.random((arenas, n)) < 0.3
    visible = (rng.random((arenas, n, n)) < rng.choice([0.1, 0.3, 0.7, 1.0], (arenas, 1, 1))) & ~np.eye(n, dtype=bool)
    state = made.ready()
    distance = distances(state.sim.mechs.position)
    chosen = choose_contacts(config, made.rules, state, jnp.asarray(visible), distance)
    rank = np.array([{0: 1, 1: 1, 2: 2, 3: 3}[c] for c in who.mech_class])
    for a in range(arenas):
        health = np.clip(mechs.hp[a] / np.asarray(made.rules.max_hp), 0, 1)
        for i in range(n):
            key = (np.zeros(n), -rank, health)[made.state.sort_mode[a, i]]
            by_hand = slots_by_hand(
                i, visible[a, i], who.team, key, np.asarray(distance[a, i]), made.state.hostile_only[a, i]
            )
            assert chosen[a, i].tolist() == by_hand, (a, i)


def test_a_smoke_reload_reads_full_for_its_first_two_seconds():
    made = Scenes(FULL, 21)
    for step in range(1, 22):  # fired in the first substep: 101 decrements, four of them within the first step
        made.change(step - 1, "blue_4", tube_cooldown=max(0, 102 - 5 * step), tube_was_smoke=True)
    reading = np.clip(tube_seconds(FULL, made.ready().sim.mechs)[:, 4] / 3.0, 0, 1)
    expected = {1: 1.0, 8: 1.0, 9: 0.933333, 10: 0.85, 11: 0.766667, 20: 0.0166667, 21: 0.0}
    for step, value in expected.items():
        assert reading[step - 1] == pytest.approx(value, abs=1e-6), step


def test_counters_read_as_the_float64_timers_of_the_original():
    """Repeated float64 subtraction, for the timer with a residue (laser) and for each class's kinetic weapon."""
    durations = {"blue_0": 4.0, "blue_1": 0.2, "blue_3": 0.15}
    for dt in (0.05, 0.1):
        config = EnvConfig.original(size_x=60, size_y=60, dt=dt)
        rows = {name: [duration] for name, duration in {**durations, "laser": 0.6}.items()}
        for timer in rows.values():
            while timer[-1] > 0:
                timer.append(max(0.0, timer[-1] - dt))
        made = Scenes(config, max(map(len, rows.values())))
        for name, timer in rows.items():
            for arena in range(made.count):
                left = max(0, len(timer) - 1 - arena)
                field = {"laser_cooldown": left} if name == "laser" else {"kinetic_cooldown": left}
                made.change(arena, "blue_2" if name == "laser" else name, **field)
        mechs = made.ready().sim.mechs
        laser, kinetic = laser_seconds(config, mechs), kinetic_seconds(config, mechs)
        for name, timer in rows.items():
            read = laser[:, 2] if name == "laser" else kinetic[:, made.mech(name)]
            assert np.allclose(read[: len(timer)], timer, atol=1e-5), (name, dt)


@pytest.mark.parametrize("name", ["lava_1", "match_40_1"])  # partial and full mode
def test_recorded_observations_are_reproduced_from_the_state_alone(data, name):
    episode = load_episode(data / "episodes" / f"{name}.npz")
    rows, width = episode.steps + 1, 32
    seen = partial(look, episode.config, sim_rules(episode.config))
    for first in range(0, rows, width):
        ts = [min(t, rows - 1) for t in range(first, first + width)]
        got = seen(env_states(episode, ts))
        assert np.allclose(got.observation, episode.data["obs"][ts], atol=1e-4)
        assert np.array_equal(got.contact_slots, episode.data["contact_slots"][ts])
