"""The modern observation: symmetry of turned, mirrored and exchanged worlds, bounds, and rules on hand-made scenes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observe
from echelon_jax.env.modern.layout import LOCAL_SIDE, MAP_SIDE, mirror, observation_layout, slot_mechs, vector_size
from echelon_jax.rules.materials import FOLIAGE, GLASS, LAVA, REINFORCED, SOLID, WATER
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import GAUSS, MISSILE, SMOKE
from echelon_jax.sim.slots import slots

PARTIAL = EnvConfig.original(size_x=60, size_y=60, observation_mode="partial", observation="modern", actions="modern")
LAYOUT = observation_layout(PARTIAL)
BASE, SCENES = 8, 6
AS_IS, TURNED_1, TURNED_2, TURNED_3, MIRRORED, EXCHANGED = range(6)
GROUND, HIDDEN, REMEMBERED, FACED, DEAD, HOMING = range(6)
EDGE = 60
sees = jax.jit(observe, static_argnums=0, compiler_options=compiling.as_xla_does())


def fill_at_random(made: Scenes, rng: np.random.Generator) -> None:
    """Everything an observation reads, drawn at random; the numbers exceed what play produces."""
    c, state = made.config, made.state
    count, n = made.count, c.num_mechs
    for a in range(count):
        for _ in range(25):
            x, y = rng.integers(0, EDGE - 6, 2)
            w, d, h = rng.integers(1, 6, 3)
            made.box(a, range(x, x + w), range(y, y + d), range(h), rng.choice([SOLID, GLASS, REINFORCED, FOLIAGE]))
        for material in (LAVA, WATER, LAVA, WATER):
            x, y = rng.integers(0, EDGE - 8, 2)
            made.box(a, range(x, x + 8), range(y, y + 8), range(1), material)
    mechs, full = state.sim.mechs, made.rules
    mechs.position[..., :2] = rng.uniform(12.0, 48.0, (count, n, 2))
    mechs.position[..., 2] = np.asarray(full.half[:, 2]) + rng.choice([0.0, 0.0, 3.3], (count, n))
    mechs.velocity[:] = rng.normal(0, 8, (count, n, 3))
    mechs.yaw[:] = rng.uniform(-np.pi, np.pi, (count, n))
    mechs.hp[:] = rng.uniform(0.0, 1.1, (count, n)) * np.asarray(full.max_hp)
    mechs.leg_hp[:] = rng.uniform(-0.5, 1.0, (count, n)) * np.asarray(full.max_leg_hp)
    mechs.heat[:] = rng.uniform(0.0, 1.4, (count, n)) * np.asarray(full.heat_cap)
    mechs.stability[:] = rng.uniform(-5, 100, (count, n))
    mechs.loudness[:] = rng.uniform(0, 20, (count, n))
    mechs.alive[:] = rng.random((count, n)) < 0.85
    for name in ("fallen", "suppressed", "ams_cooldown", "laser_cooldown", "tube_cooldown", "kinetic_cooldown"):
        getattr(mechs, name)[:] = rng.integers(0, 25, (count, n))
    mechs.painter_cooldown[:] = rng.integers(0, 21, (count, n))
    mechs.painted[:] = rng.integers(0, 60, (count, n)) * (rng.random((count, n)) < 0.5)
    mechs.last_painter[:] = rng.integers(-1, n, (count, n))
    mechs.focus[:] = np.where(rng.random((count, n)) < 0.6, rng.integers(0, n, (count, n)), -1)
    mechs.ecm_on[:, 4::5] = rng.random((count, n // 5)) < 0.4
    tally = state.sim.tally
    direction = rng.normal(size=(count, n, 3))
    tally.damage_direction[:] = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    tally.has_damage_direction[:] = rng.random((count, n)) < 0.7
    tally.took_damage[:] = rng.uniform(0, 300, (count, n))
    for name in ("laser_hits", "missile_launches", "kinetic_fires", "smoke_launches", "paints"):
        getattr(tally, name)[:] = rng.integers(0, 2, (count, n))
    shots, smoke = state.sim.projectiles, state.sim.smoke
    shots.alive[:] = rng.random(shots.alive.shape) < 0.4
    shots.weapon[:] = rng.choice([MISSILE, SMOKE, GAUSS], shots.weapon.shape)
    shots.target[:] = rng.integers(-1, n, shots.target.shape)
    shots.position[:] = rng.uniform(5, 50, shots.position.shape) * [1, 1, 0.1]
    shots.velocity[:] = rng.normal(0, 20, shots.velocity.shape)
    smoke.life[:] = rng.integers(0, 200, smoke.life.shape) * (rng.random(smoke.life.shape) < 0.1)
    smoke.position[:] = rng.uniform(5, 50, smoke.position.shape) * [1, 1, 0.1]
    state.arena_map.zone[:] = np.stack([*rng.uniform(15, 45, (2, count)), rng.uniform(4, 11, count)], -1)
    state.messages[:] = rng.uniform(-1, 1, state.messages.shape)
    state.score[:] = rng.uniform(0, 40, state.score.shape)
    state.sim.tick[:] = rng.integers(0, 1200, count)
    state.memory.turn[:] = rng.uniform(-1, 1, (count, n))
    if state.memory.age is not None:
        state.memory.age[:] = rng.integers(-1, 60, (count, n, n))
        state.memory.last_seen[:] = rng.uniform(2, 58, (count, n, n, 3)) * [1, 1, 0.1]


# ---- Worlds turned, mirrored and exchanged: plain numpy on the state ----


def vectors_of(state):
    """(points, vectors) of a state: arrays whose last axis starts with x and y."""
    sim = state.sim
    points = [
        sim.mechs.position,
        sim.projectiles.position,
        sim.smoke.position,
        state.arena_map.zone,
        state.memory.last_seen,
    ]
    return points, [sim.mechs.velocity, sim.projectiles.velocity, sim.tally.damage_direction]


def turn(made: Scenes, arena: int) -> None:
    """A quarter to the left: (x, y) becomes (edge - y, x)."""
    points, vectors = vectors_of(made.state)
    for array, edge in [*((p, EDGE) for p in points), *((v, 0) for v in vectors)]:
        x, y = array[arena, ..., 0].copy(), array[arena, ..., 1].copy()
        array[arena, ..., 0], array[arena, ..., 1] = edge - y, x
    yaw = made.state.sim.mechs.yaw
    yaw[arena] = np.mod(yaw[arena] + 1.5 * np.pi, 2 * np.pi) - np.pi
    made.voxels[arena] = made.voxels[arena].transpose(0, 2, 1)[:, :, ::-1].copy()


def reflect(made: Scenes, arena: int) -> None:
    """y becomes edge - y."""
    points, vectors = vectors_of(made.state)
    for array, edge in [*((p, EDGE) for p in points), *((v, 0) for v in vectors)]:
        array[arena, ..., 1] = edge - array[arena, ..., 1]
    made.state.sim.mechs.yaw[arena] *= -1
    made.state.memory.turn[arena] *= -1
    made.voxels[arena] = made.voxels[arena][:, ::-1].copy()


def exchange(made: Scenes, arena: int) -> None:
    """Blue becomes red and red blue; every index into the roster follows."""
    state, half = made.state, made.config.team_size

    def swap(array, axis=0):
        array[arena] = np.roll(array[arena], array[arena].shape[axis] // 2, axis)

    for tree in (state.sim.mechs, state.sim.tally, state.sim.projectiles, state.sim.smoke):
        for leaf in jax.tree.leaves(tree):
            swap(leaf)
    for array in (state.messages, state.score, state.score_carry, state.memory.turn):
        swap(array)
    for array in (state.memory.age, state.memory.last_seen):
        swap(array)
        swap(array, 1)
    for array in (state.sim.mechs.focus, state.sim.mechs.last_painter, state.sim.projectiles.target):
        index = array[arena]
        array[arena] = np.where(index < 0, index, (index + half) % (2 * half))


@pytest.fixture(scope="module")
def worlds():
    """Observations [6 versions, BASE arenas, mechs, obs] of random states, and [scenes, ...] of hand-made ones."""
    made = Scenes(PARTIAL, 6 * BASE + SCENES)
    rng = np.random.default_rng(11)
    fill_at_random(made, rng)
    slot = slots(PARTIAL)
    assert np.array_equal(slot.mech[len(slot.mech) // 2 :], slot.mech[: len(slot.mech) // 2] + 5)
    for leaf in [*jax.tree.leaves(made.state), made.voxels]:
        leaf[: 6 * BASE] = np.tile(leaf[:BASE], (6, *[1] * (leaf.ndim - 1)))
    for base in range(BASE):
        for version, quarters in ((TURNED_1, 1), (TURNED_2, 2), (TURNED_3, 3)):
            for _ in range(quarters):
                turn(made, version * BASE + base)
        reflect(made, MIRRORED * BASE + base)
        exchange(made, EXCHANGED * BASE + base)
    plain = Scenes(PARTIAL, SCENES)
    hand_made(plain)
    for leaf, scene in zip(
        [*jax.tree.leaves(made.state), made.voxels], [*jax.tree.leaves(plain.state), plain.voxels], strict=True
    ):
        leaf[6 * BASE :] = scene
    state = made.ready()
    seen = sees(PARTIAL, made.rules, state)
    memory = seen.memory
    observation = np.asarray(seen.observation)
    return state, memory, observation[: 6 * BASE].reshape(6, BASE, 10, -1), observation[6 * BASE :], seen


def hand_made(made: Scenes) -> None:
    made.put(GROUND, "blue_3", 30.5, 30.5, velocity=(3.0, 4.0, 0.0), laser_cooldown=13, tube_cooldown=101)
    made.change(GROUND, "blue_3", tube_was_smoke=True, yaw=np.pi / 2)
    made.box(GROUND, range(30, 31), range(34, 35), range(1))  # four voxels ahead, one high
    made.box(GROUND, range(24, 25), range(30, 31), range(5))  # six to the left, five high
    made.box(GROUND, range(36, 37), range(30, 31), range(1), LAVA)  # six to the right
    made.box(GROUND, range(30, 31), range(26, 27), range(3), GLASS)  # four behind
    for arena in (HIDDEN, REMEMBERED):
        made.put(arena, "blue_0", 10.3, 30.2)
        made.put(arena, "red_1", 25.3, 30.2, heat=10.0)
        made.box(arena, range(20, 21), range(60), range(20))
    viewer, other = made.mech("blue_0"), made.mech("red_1")
    made.state.memory.age[REMEMBERED, viewer, other] = 4
    made.state.memory.last_seen[REMEMBERED, viewer, other] = (18.3, 36.2, 2.0)
    made.put(FACED, "blue_0", 30.3, 20.2, yaw=0.05)
    made.put(FACED, "red_1", 30.3, 26.2, yaw=-np.pi / 2)  # faces it
    made.put(FACED, "red_2", 36.3, 20.2, yaw=0.0)  # is faced by it
    made.change(FACED, "blue_0", focus=made.mech("red_2"))
    made.change(DEAD, "red_2", alive=False)
    shots = made.state.sim.projectiles
    shots.alive[HOMING, :3] = True
    shots.weapon[HOMING, :3] = SMOKE, GAUSS, MISSILE
    shots.target[HOMING, 2] = made.mech("red_0")
    shots.position[HOMING, :3] = made.state.sim.mechs.position[HOMING, 5] + np.array([[1, 0, 0], [3, 0, 0], [20, 0, 0]])
    shots.velocity[HOMING, :3] = -1.0


def whole_map(name: str) -> bool:
    return name.startswith(("map/", "shared_map/"))


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_turned_world_turns_heading_and_whole_map_planes_and_changes_nothing_else(worlds, quarters):
    _, _, seen, _, _ = worlds
    expected = seen[AS_IS].copy()
    cosine, sine = (LAYOUT[f"self/heading_{name}"].offset for name in ("cosine", "sine"))
    for _ in range(quarters):
        expected[..., [cosine, sine]] = np.stack([-expected[..., sine], expected[..., cosine]], -1)
        for entry in LAYOUT:
            if whole_map(entry.name):
                plane = expected[..., entry.slice].reshape(BASE, 10, MAP_SIDE, MAP_SIDE)
                expected[..., entry.slice] = plane.swapaxes(2, 3)[..., ::-1].reshape(BASE, 10, -1)
    assert np.allclose(seen[quarters], expected, atol=2e-4), names_of(seen[quarters], expected)
    assert not np.allclose(seen[quarters], seen[AS_IS], atol=0.1)


def names_of(got: np.ndarray, expected: np.ndarray) -> list[str]:
    wrong = np.abs(got - expected).reshape(-1, got.shape[-1]).max(0) > 2e-4
    return [entry.name for entry in LAYOUT if wrong[entry.slice].any()]


def test_a_mirrored_world_negates_and_swaps_what_the_table_marks(worlds):
    _, _, seen, _, _ = worlds
    source, sign = mirror(PARTIAL)
    expected = sign * seen[AS_IS][..., source]
    assert np.allclose(seen[MIRRORED], expected, atol=2e-4), names_of(seen[MIRRORED], expected)


def test_every_odd_and_paired_entry_is_put_to_the_test(worlds):
    _, _, seen, _, _ = worlds
    source, sign = mirror(PARTIAL)
    moved = np.abs(sign * seen[AS_IS][..., source] - seen[AS_IS]).reshape(-1, LAYOUT.size).max(0)
    for entry in LAYOUT:
        assert (moved[entry.slice].max() > 1e-3) == (entry.mirroring != "even"), entry.name


def test_exchanged_teams_see_what_the_others_saw(worlds):
    _, _, seen, _, _ = worlds
    expected = np.roll(seen[AS_IS], 5, 1)
    assert np.allclose(seen[EXCHANGED], expected, atol=2e-4), names_of(seen[EXCHANGED], expected)


def test_every_entry_is_inside_its_box(worlds):
    state, _, _, _, all_seen = worlds
    low, high = LAYOUT.bounds
    wild = state.replace(
        sim=state.sim.replace(
            mechs=state.sim.mechs.replace(
                velocity=state.sim.mechs.velocity * 100,
                heat=state.sim.mechs.heat * 50,
                loudness=state.sim.mechs.loudness * 1e6,
            )
        ),
        score=state.score * 1e3,
    )
    beyond = sees(PARTIAL, Scenes(PARTIAL, 1).rules, wild).observation
    for observation in (all_seen.observation, beyond):
        assert np.isfinite(observation).all()
        assert (observation >= low).all() and (observation <= high).all()
    assert np.isfinite(low).all() and np.isfinite(high).all()


def test_planes_and_flags_hold_whole_numbers(worlds):
    _, _, _, _, seen = worlds
    observation = np.asarray(seen.observation)
    for entry in LAYOUT:
        if entry.kind in ("flag", "one_hot"):
            assert np.isin(observation[..., entry.slice], (0.0, 1.0)).all(), entry.name
        if entry.kind == "one_hot":
            assert (observation[..., entry.slice].sum(-1) <= 1).all(), entry.name
        if entry.kind == "map":
            scaled = observation[..., entry.slice] * (4 if entry.name == "local/step" else 1)
            assert (scaled == np.round(scaled)).all(), entry.name


def test_a_broken_velocity_is_zeroed_and_counted(worlds):
    state, _, _, _, _ = worlds
    mechs = state.sim.mechs
    broken = state.replace(sim=state.sim.replace(mechs=mechs.replace(velocity=mechs.velocity.at[-1, 0].set(jnp.nan))))
    seen = sees(PARTIAL, Scenes(PARTIAL, 1).rules, broken)
    assert np.isfinite(seen.observation).all() and seen.bad[-1, 0] and not seen.bad[:-1].any()


def test_a_mech_that_is_shut_down_still_feels_its_own_motion(worlds):
    """It coasts and falls on (docs/spec/rules.md 7.3), and it sees where it is: its velocity is no secret. The original shows 0."""
    state, _, _, _, seen = worlds
    rules, mechs = Scenes(PARTIAL, 1).rules, state.sim.mechs
    off = np.asarray(mechs.alive & (mechs.heat > rules.heat_cap))
    cool = state.replace(sim=state.sim.replace(mechs=mechs.replace(heat=jnp.zeros_like(mechs.heat))))
    entries = [LAYOUT[f"self/velocity_{way}"].offset for way in ("forward", "left", "up")]
    felt = np.asarray(seen.observation)[off][:, entries]
    assert len(felt) > 5 and np.abs(felt).max(-1).min() > 0
    assert np.array_equal(felt, np.asarray(sees(PARTIAL, rules, cool).observation)[off][:, entries])
    assert np.asarray(seen.observation)[off][:, LAYOUT["self/shutdown"].offset].all()


def test_observing_again_with_the_returned_memory_changes_nothing(worlds):
    state, memory, _, _, seen = worlds
    again = sees(PARTIAL, Scenes(PARTIAL, 1).rules, state.replace(memory=memory))
    later = again.memory
    assert np.array_equal(again.observation, seen.observation)
    assert np.array_equal(later.age, memory.age) and np.array_equal(later.last_seen, memory.last_seen)


def test_the_dead_see_nothing_and_leave_an_empty_slot(worlds):
    state, _, _, scenes, seen = worlds
    assert not np.asarray(seen.observation)[~np.asarray(state.sim.mechs.alive)].any()
    assert not scenes[DEAD, 0, LAYOUT.block("hostile_2")].any() and scenes[DEAD, 0, LAYOUT.block("hostile_3")].any()


# ---- Rules on hand-made scenes ----


def entry(scenes, arena, mech, name):
    value = scenes[arena, mech, LAYOUT[name].slice]
    return float(value[0]) if value.size == 1 else value


def plane(scenes, arena, mech, name):
    return entry(scenes, arena, mech, name).reshape(LOCAL_SIDE, LOCAL_SIDE)


def test_the_local_planes_tell_steps_walls_glass_and_lava_apart(worlds):
    _, _, _, scenes, _ = worlds
    foot, body, opaque, hazard, step = (
        plane(scenes, GROUND, 3, f"local/{name}") for name in ("foot", "body", "opaque", "hazard", "step")
    )
    ahead, left, right, behind, here = (5, 3), (3, 6), (3, 0), (1, 3), (3, 3)
    assert [foot[c] for c in (ahead, left, right, behind, here)] == [1, 1, 0, 1, 0]
    assert [body[c] for c in (ahead, left, right, behind, here)] == [0, 1, 0, 1, 0]
    assert [opaque[c] for c in (ahead, left, right, behind, here)] == [0, 1, 0, 0, 0]
    assert [hazard[c] for c in (ahead, left, right, behind, here)] == [0, 0, 1, 0, 0]
    assert [step[c] for c in (ahead, left, right, behind, here)] == [0.25, 1, 0, 0.75, 0]


def test_vectors_are_in_the_mechs_own_frame(worlds):
    _, _, _, scenes, _ = worlds
    got = [entry(scenes, GROUND, 3, f"self/velocity_{name}") for name in ("forward", "left", "up")]
    assert np.allclose(got, [0.4, -0.3, 0.0], atol=1e-6)


def test_cooldowns_are_shares_of_the_fitted_weapons_reload(worlds):
    _, _, _, scenes, _ = worlds
    names = ("laser", "missile", "smoke", "kinetic")
    assert np.allclose([entry(scenes, GROUND, 3, f"self/{n}_cooldown") for n in names], [1.0, 0.0, 1.0, 0.0], atol=1e-6)


def test_a_hostile_behind_a_wall_is_unknown_until_it_was_seen(worlds):
    _, _, _, scenes, _ = worlds
    assert not scenes[HIDDEN, 0, LAYOUT.block("hostile_1")].any()
    slot = {
        name: entry(scenes, REMEMBERED, 0, f"hostile_1/{name}")
        for name in ("known", "age", "offset_forward", "offset_left", "hp", "line_of_sight")
    }
    assert slot["known"] == 1 and slot["age"] == pytest.approx(4 * 0.25 / 10)
    assert slot["offset_forward"] == pytest.approx(8.0 / np.hypot(60, 60), abs=1e-6)
    assert slot["offset_left"] == pytest.approx(6.0 / np.hypot(60, 60), abs=1e-6)
    assert slot["hp"] == 0 and slot["line_of_sight"] == 0
    bins = [entry(scenes, arena, 0, "map/hostiles").reshape(MAP_SIDE, MAP_SIDE) for arena in (HIDDEN, REMEMBERED)]
    assert np.argwhere(bins[0] != bins[1]).tolist() == [[4, 2]] and bins[1][4, 2] == 1  # y = 36.2, x = 18.3


def test_aim_and_reach_follow_range_arc_and_sight(worlds):
    _, _, _, scenes, _ = worlds
    names = ("aims", "reached", "focused", "aim_cosine", "bearing_cosine", "bearing_sine")
    faces, faced = ([entry(scenes, FACED, 0, f"{s}/{n}") for n in names] for s in ("hostile_1", "hostile_2"))
    # Almost abeam, hence still within the missile's half circle; the other shows its back.
    assert np.allclose(faces, [1, 1, 0, 1, np.sin(0.05), np.cos(0.05)], atol=1e-6)
    assert np.allclose(faced, [0, 1, 1, -1, np.cos(0.05), -np.sin(0.05)], atol=1e-6)


def test_line_of_sight_is_looked_at_within_its_range_only(worlds):
    _, _, _, scenes, _ = worlds
    names = ("line_of_sight", "known")
    assert [entry(scenes, FACED, 0, f"hostile_2/{n}") for n in names] == [1, 1]
    assert [entry(scenes, FACED, 0, f"hostile_4/{n}") for n in names] == [0, 1]  # in plain view, 36 voxels away


def test_a_homing_missile_comes_before_nearer_shots_and_smoke_last(worlds):
    _, _, _, scenes, _ = worlds
    kinds = [int(entry(scenes, HOMING, 5, f"shot_{i}/kind").argmax()) for i in range(3)]
    assert kinds == [0, 2, 1]
    assert [entry(scenes, HOMING, 5, f"shot_{i}/homing") for i in range(4)] == [1, 0, 0, 0]
    assert [entry(scenes, HOMING, m, "self/incoming_missile") for m in (5, 6)] == [1, 0]
    assert entry(scenes, HOMING, 5, "shot_3/known") == 0


def test_in_full_mode_everybody_knows_every_living_mech_in_its_slot():
    config = EnvConfig.original(size_x=60, size_y=60, num_packs=2, observation="modern", actions="modern")
    layout, who = observation_layout(config), roster(2)
    made = Scenes(config, 1)
    mechs = made.state.sim.mechs
    mechs.position[..., 0] = 2.8 + 5.9 * (np.arange(20) % 10)
    mechs.hp[:] = np.asarray(made.rules.max_hp) * (0.2 + 0.04 * np.arange(20))
    mechs.alive[0, [3, 14]] = False
    made.box(0, range(60), range(30, 31), range(20))
    seen = np.asarray(sees(config, made.rules, made.ready()).observation)[0]
    hp = [e.offset for e in layout if e.name.endswith("/hp") and e.name != "self/hp"]
    known = [e.offset for e in layout if e.name.startswith(("friend", "hostile")) and e.name.endswith("/known")]
    for viewer in np.flatnonzero(mechs.alive[0]):
        order = slot_mechs(config)[viewer]
        assert np.array_equal(who.team[order] == who.team[viewer], np.arange(19) < 9)
        assert np.array_equal(seen[viewer, known], mechs.alive[0, order])
        assert np.allclose(seen[viewer, hp], np.where(mechs.alive[0, order], 0.2 + 0.04 * order, 0.0), atol=1e-6)


# ---- The table ----


@pytest.mark.parametrize(("packs", "comm_dim"), [(1, 8), (1, 0), (2, 8), (3, 2)])
def test_the_table_has_the_configured_size_and_a_short_vector(packs, comm_dim):
    config = EnvConfig.original(size_x=60, size_y=60, num_packs=packs, comm_dim=comm_dim, observation="modern")
    layout = observation_layout(config)
    assert layout.size == observation_layout(config).size
    assert packs > 1 or vector_size(config) < 600
    assert len({e.name for e in layout}) == len(layout.entries)


def test_mirroring_twice_is_nothing():
    source, sign = mirror(PARTIAL)
    assert np.array_equal(source[source], np.arange(LAYOUT.size)) and (sign * sign[source] == 1).all()
