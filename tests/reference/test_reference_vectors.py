"""Worked numbers of the rules, checked on the plain reference.

Source: docs/spec/rules.md Appendix A, Appendix B, docs/spec/environment.md 3.4, Appendix A.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.reference.environment import Arena
from echelon_jax.reference.noise import LiveNoise
from echelon_jax.reference.observation import SightCache, occupancy_map, telemetry_map, viewer_sensors, visible
from echelon_jax.reference.projectiles import update_projectiles
from echelon_jax.reference.rewards import Zone
from echelon_jax.reference.simulator import substep
from echelon_jax.reference.state import Battle, Mech, Projectile, make_mechs
from echelon_jax.reference.status import TIMERS, kill_if_dead, upkeep, wreck_cells, wreck_roll
from echelon_jax.reference.vec import vec
from echelon_jax.reference.weapons import fire, kinetic
from echelon_jax.reference.world import SmokeCloud, SpatialGrid, VoxelWorld, smoke_clear
from echelon_jax.rules import constants as c
from echelon_jax.rules import materials as m
from echelon_jax.rules.mechs import CLASS_NAMES, HEAVY, LIGHT, MECH_CLASSES, MEDIUM, SCOUT
from echelon_jax.rules.timers import decrements
from echelon_jax.rules.weapons import AUTOCANNON, GAUSS, MISSILE, SMOKE, WEAPONS

FORWARD, STRAFE, VERTICAL, YAW, PRIMARY, VENT, SECONDARY, TERTIARY, SPECIAL = range(9)


class Steady:
    """Draws without chance: body hits, no interception, roster order."""

    def start_substep(self, tick):
        pass

    def ams(self, shooter, projectile, defender):
        return 0.99

    def hit_height(self, shooter, weapon):
        return 0.5

    def move_order(self, living):
        return living


def empty_world(x=20, y=20, z=20, ground=m.AIR):
    material = np.zeros((z, y, x), np.uint8)
    material[0] = ground
    return VoxelWorld(material, np.zeros((z, y, x), np.float32))


def mech(index, class_id, pos, yaw=0.0, team=0, **fields):
    spec = MECH_CLASSES[class_id]
    made = Mech(index, f"m_{index}", team, 0, index, class_id, vec(pos), yaw, spec.hp, spec.leg_hp)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def battle(*mechs, world=None):
    return Battle(EnvConfig.original(), world or empty_world(40, 40, 20, m.DIRT), list(mechs))


def pulls(**components):
    action = [0.0] * 26
    for name, value in components.items():
        action[globals()[name.upper()]] = value
    return action


# ---- rays and smoke (docs/spec/rules.md Appendix B) ------------------------------------------------------------------

CLEAR, BLOCKED = (False, None), (True, None)


@pytest.mark.parametrize(
    ("start", "end", "include_end", "expected"),
    [
        ((4.5, 8.5, 5.5), (7, 6, 5.5), False, BLOCKED),
        ((7, 6, 5.5), (4.5, 8.5, 5.5), False, CLEAR),
        ((8.5, 4.5, 5.5), (6, 7, 5.5), False, CLEAR),
        ((4.5, 5.5, 8.5), (7, 5.5, 6), False, BLOCKED),
        ((8.5, 5.5, 4.5), (6, 5.5, 7), False, CLEAR),
        ((18.5, 5.5, 5.5), (20.5, 5.5, 5.5), True, CLEAR),
        ((18.5, 5.5, 5.5), (21.5, 5.5, 5.5), True, BLOCKED),
        ((20.5, 5.5, 5.5), (18.5, 5.5, 5.5), True, CLEAR),
        ((21.5, 5.5, 5.5), (18.5, 5.5, 5.5), True, BLOCKED),
        ((21.5, 5.5, 5.5), (21.7, 5.5, 5.5), True, CLEAR),
    ],
)
def test_ray_in_an_empty_world(start, end, include_end, expected):
    assert empty_world().ray(start, end, include_end) == expected


@pytest.mark.parametrize(
    ("start", "end", "include_end", "expected"),
    [
        ((5.5, 5.5, 5.5), (9.5, 5.5, 5.5), False, CLEAR),
        ((9.5, 5.5, 5.5), (5.5, 5.5, 5.5), False, CLEAR),
        ((9.5, 5.5, 5.5), (5.5, 5.5, 5.5), True, (True, (5, 5, 5))),
        ((5.2, 5.5, 5.5), (5.7, 5.5, 5.5), False, CLEAR),
        ((5.2, 5.5, 5.5), (5.7, 5.5, 5.5), True, (True, (5, 5, 5))),
        ((5.5, 5.5, 5.5), (5.5, 5.5, 5.5), True, CLEAR),
    ],
)
def test_ray_at_a_solid_cell(start, end, include_end, expected):
    world = empty_world()
    world.material[5, 5, 5] = m.SOLID
    assert world.ray(start, end, include_end) == expected


@pytest.mark.parametrize(
    ("start", "end", "clear"),
    [
        ((0, 14, 2), (20, 14, 2), False),
        ((0, 14.01, 2), (20, 14.01, 2), True),
        ((10, 10, 2), (10, 10, 2), True),
        ((10, 10, 2), (10.5, 10, 2), False),
        ((0, 10, 2), (6, 10, 2), False),
        ((0, 10, 2), (5.99, 10, 2), True),
    ],
)
def test_smoke_hides_what_its_sphere_touches(start, end, clear):
    assert smoke_clear([SmokeCloud((10, 10, 2), 4.0, 1.0)], vec(start), vec(end)) is clear


def test_glass_is_transparent_and_foliage_opaque():
    world = empty_world()
    world.material[5, 5, 5] = m.GLASS
    world.material[5, 7, 5] = m.FOLIAGE
    assert world.terrain_los((2.5, 5.5, 5.5), (9.5, 5.5, 5.5))
    assert not world.terrain_los((2.5, 7.5, 5.5), (9.5, 7.5, 5.5))


# ---- voxels, boxes, grid (docs/spec/rules.md 2) ----------------------------------------------------------------------


def test_boxes_are_free_outside_except_below_the_floor():
    world = empty_world()
    assert not world.box_hits((-5, -5, 3), (-2, -2, 4))
    assert not world.box_hits((3, 3, 25), (4, 4, 26))
    assert world.box_hits((3, 3, -0.01), (4, 4, 1))


def test_touching_a_face_from_outside_is_no_hit():
    world = empty_world()
    world.material[5, 5, 5] = m.SOLID
    assert not world.box_hits((4.0, 5.0, 5.0), (5.0, 6.0, 6.0))
    assert world.box_hits((4.0, 5.0, 5.0), (5.001, 6.0, 6.0))
    assert not world.box_hits((6.0, 5.0, 5.0), (7.0, 6.0, 6.0))
    assert world.box_hits((5.999, 5.0, 5.0), (7.0, 6.0, 6.0))


def test_zero_damage_destroys_a_cell_without_hit_points_but_not_reinforced():
    world = empty_world()
    world.material[1, 1, 1], world.material[1, 1, 2] = m.SOLID_DEBRIS, m.REINFORCED
    world.damage((1, 1, 1), 0.0)
    world.damage((2, 1, 1), 1e9)
    assert world.voxel((1, 1, 1)) == m.AIR
    assert world.voxel((2, 1, 1)) == m.REINFORCED


def test_grid_order_is_cell_x_cell_y_then_arrival():
    grid = SpatialGrid()
    for i, pos in enumerate([(15, 5, 1), (5, 15, 1), (5, 5, 1), (6, 6, 1)]):
        grid.place(i, pos)
    assert grid.near((5, 5, 1), 10) == [2, 3, 1, 0]
    grid.place(2, (7, 15, 1))  # leaves, comes last in its new cell
    assert grid.near((5, 5, 1), 10) == [3, 1, 2, 0]


# ---- wrecks and randomness (docs/spec/rules.md Appendix A and B) -----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "class_id", "lo", "hi", "roll"),
    [
        ("blue_0", HEAVY, (2, 2, 0), (6, 6, 4), 1777444726),
        ("red_3", LIGHT, (10, 12, 0), (12, 14, 2), 3139243155),
        ("blue_4", SCOUT, (16, 2, 0), (18, 4, 2), 2882472130),
        ("red_1", MEDIUM, (7, 3, 0), (10, 6, 3), 2499349274),
    ],
)
def test_wreck_roll_hashes_name_class_and_cells(name, class_id, lo, hi, roll):
    assert wreck_roll(mech(0, class_id, (0, 0, 0), id=name), lo, hi) == roll / 2**32


def test_a_wreck_spares_other_boxes_and_leaves_hit_points_alone():
    dead = mech(0, HEAVY, (10, 10, 2), hp=-1.0)
    scene = battle(dead, mech(1, SCOUT, (10.5, 10.5, 3.5)))
    kill_if_dead(scene, dead, "lava")
    assert wreck_cells(scene, dead) == ((8, 8, 0), (12, 12, 4))
    wreck = np.isin(scene.world.material, (m.DEBRIS_FIELD, m.SOLID_DEBRIS))
    # The scout's box touches cells 9..11 in x and y, 2..4 in z: 3 * 3 * 2 of the 64 cells stay free.
    assert wreck.sum() == 4 * 4 * 4 - 3 * 3 * 2
    assert (scene.world.hp == 0).all()


@pytest.mark.parametrize(
    ("seed", "first", "u", "second", "uniform"),
    [
        (0, [4, 6, 2, 7, 3, 5, 9, 0, 8, 1], 0.6066357757671799, [3, 2, 0, 1, 4, 6, 5], 0.6433276978576249),
        (1, [8, 4, 7, 0, 1, 2, 5, 9, 6, 3], 0.8277025938204418, [1, 0, 3, 5, 6, 4, 2], 0.45632359561465197),
        (2, [2, 0, 7, 6, 9, 5, 3, 4, 8, 1], 0.05514662733306819, [0, 4, 1, 6, 3, 2, 5], -0.629887926050395),
    ],
)
def test_live_noise_draws_the_original_stream(seed, first, u, second, uniform):
    noise = LiveNoise(np.random.default_rng(seed))
    assert noise.move_order(list(range(10))) == first
    assert noise.ams(0, None, 1) == u
    assert noise.move_order(list(range(7))) == second
    assert -0.9 + 1.8 * noise.hit_height(0, 0) == pytest.approx(uniform, abs=1e-15)


def test_ordering_one_mech_takes_no_draw():
    one, other = (LiveNoise(np.random.default_rng(3)) for _ in range(2))
    one.move_order([4])
    assert one.hit_height(0, 0) == other.hit_height(0, 0)


# ---- timers (docs/spec/rules.md 1.2) and lifetimes (docs/spec/rules.md 6.2) ------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "n"), [(0.6, 13), (0.15, 3), (0.2, 5), (4.0, 81), (3.0, 61), (5.0, 101), (1.0, 20), (1.2, 24)]
)
def test_timers_keep_the_residues_of_float64(seconds, n):
    one = mech(0, HEAVY, (20, 20, 2))
    for timer in TIMERS:
        setattr(one, timer, seconds)
    scene, counts = battle(one), dict.fromkeys(TIMERS, 0)
    while any(getattr(one, timer) > 0 for timer in TIMERS):
        counts = {timer: k + (getattr(one, timer) > 0) for timer, k in counts.items()}
        upkeep(scene, one, pulls())
    assert set(counts.values()) == {n}
    assert decrements(seconds, 0.05) == n  # the tables of the fast simulator


@pytest.mark.parametrize(
    ("weapon", "moves", "path"), [(MISSILE, 83, 49.8), (GAUSS, 10, 20.0), (AUTOCANNON, 9, 11.25), (SMOKE, 26, 19.5)]
)
def test_projectiles_expire_without_a_trace(weapon, moves, path):
    scene = battle(mech(0, HEAVY, (5, 20, 2)), world=empty_world(80, 40, 32))
    shot = Projectile(weapon, 0, None, (6.5, 20.5, 25.5), (WEAPONS[weapon].speed, 0.0, 0.0))
    scene.projectiles = [shot]
    count, last = 0, shot.pos[0]
    while True:
        update_projectiles(scene, Steady())
        if not scene.projectiles:
            break
        count, last = count + 1, shot.pos[0]
    assert count == moves
    assert last - 6.5 == pytest.approx(path, abs=1e-4)
    assert scene.events == [] and scene.clouds == []


# ---- movement (docs/spec/rules.md Appendix B) ------------------------------------------------------------------------


def run(scene, action, substeps):
    for _ in range(substeps):
        substep(scene, [action] * len(scene.mechs), Steady())
    return scene.mechs[0]


def test_scout_one_substep_forward():
    got = run(battle(mech(0, SCOUT, (20, 20, 0.9))), pulls(forward=1), 1)
    assert got.pos == pytest.approx((20.3430004, 20, 0.9), abs=1e-6)
    assert got.vel == pytest.approx((6.86, 0, 0), abs=1e-6)


def test_scout_forward_strafe_and_turn():
    got = run(battle(mech(0, SCOUT, (20, 20, 0.9))), pulls(forward=1, strafe=1, yaw=0.5), 10)
    assert got.pos == pytest.approx((21.7426548, 22.9210930, 0.9), abs=1e-6)
    assert got.yaw == pytest.approx(0.45)
    assert got.vel == pytest.approx((2.2579360, 6.4777565, 0), abs=1e-6)


def test_scout_jets_up():
    got = run(battle(mech(0, SCOUT, (20, 20, 0.9))), pulls(forward=1, vertical=1), 20)
    assert got.pos == pytest.approx((26.8600082, 20, 4.6249509), abs=1e-6)
    assert got.vel == pytest.approx((6.86, 0, 6.6696138), abs=1e-6)
    assert got.noise_level == pytest.approx(9.5678291, abs=1e-6)


def test_light_falls_and_hovers_just_above_the_floor():
    got = run(battle(mech(0, LIGHT, (20, 20, 5))), pulls(), 40)
    assert got.pos == pytest.approx((20, 20, 1.0135516), abs=1e-6)


def test_legged_medium_limps():
    got = run(battle(mech(0, MEDIUM, (20, 20, 1.5), leg_hp=0.0)), pulls(forward=1), 10)
    assert got.pos == pytest.approx((21.0779953, 20, 1.5), abs=1e-6)
    assert got.vel == pytest.approx((2.156, 0, 0), abs=1e-6)
    assert got.stability == 50.0


def test_venting_heavy_cools_threefold():
    got = run(battle(mech(0, HEAVY, (20, 20, 2), 1.0, heat=100.0)), pulls(forward=1, vent=1), 10)
    assert got.pos == pytest.approx((20.6618690, 21.0308075, 2), abs=1e-6)
    assert got.heat == pytest.approx(85)


def test_shutdown_coasts_without_turning():
    scene = battle(mech(0, HEAVY, (20, 20, 2), heat=200.0, vel=(2.0, 1.0, 0.0)))
    got = run(scene, pulls(forward=1, yaw=1), 5)
    assert got.pos == pytest.approx((20.4707890, 20.2353935, 2), abs=1e-6)
    assert got.yaw == 0.0
    assert got.heat == pytest.approx(197.5)


def test_water_slows_and_cools():
    scene = battle(mech(0, MEDIUM, (20, 20, 1.5), heat=50.0), world=empty_world(40, 40, 20, m.WATER))
    got = run(scene, pulls(forward=1), 10)
    assert got.pos == pytest.approx((21.6169930, 20, 1.5), abs=1e-6)
    assert got.heat == pytest.approx(29.5)


def test_knockdown_lasts_61_substeps_of_movement():
    scene = battle(mech(0, HEAVY, (20, 20, 2), stability=0.0))
    got = run(scene, pulls(forward=1), 1)
    assert got.fallen_time == 3.0
    run(scene, pulls(forward=1), 60)
    assert 0 < got.fallen_time < 1e-14 and got.pos[0] == 20
    run(scene, pulls(forward=1), 1)
    assert got.fallen_time == 0 and got.stability == 50
    assert got.pos[0] == pytest.approx(20.1225, abs=1e-6)
    run(scene, pulls(forward=1), 1)
    assert got.stability == 50.25


# ---- shots (docs/spec/rules.md Appendix B) ---------------------------------------------------------------------------


def heavy_and_medium():
    return battle(mech(0, HEAVY, (10, 10, 2)), mech(1, MEDIUM, (20, 10.5, 3), team=1))


def test_gauss_aims_above_the_drop():
    scene = heavy_and_medium()
    fire(scene, scene.mechs[0], pulls(tertiary=1), Steady())
    assert scene.projectiles[0].pos == pytest.approx((10, 10, 3.6), abs=1e-6)
    assert scene.projectiles[0].vel == pytest.approx((39.9331589, 1.9966580, -1.1643206), abs=1e-5)


def test_missile_climbs_homes_and_hits_from_behind():
    scene = heavy_and_medium()
    fire(scene, scene.mechs[0], pulls(secondary=1), Steady())
    shot = scene.projectiles[0]
    assert shot.pos == pytest.approx((10, 10, 4.5), abs=1e-6)
    assert shot.vel == pytest.approx((10.2663593, 0.5133179, 6.1917987), abs=1e-6)
    update_projectiles(scene, Steady())
    assert shot.pos == pytest.approx((10.5497351, 10.0274868, 4.7388215), abs=1e-6)
    assert shot.vel == pytest.approx((10.9947004, 0.5497350, 4.7764339), abs=1e-6)
    for _ in range(14):
        update_projectiles(scene, Steady())
    assert scene.projectiles
    update_projectiles(scene, Steady())  # update 16
    hit = next(e for e in scene.events if e["type"] == "projectile_hit")
    assert hit["pos"] == pytest.approx((19.2630959, 10.4631538, 3.5554628), abs=1e-6)
    assert hit["is_crit"] and hit["damage"] == 60 and hit["stability"] == 22.5


def test_autocannon_flies_straight_and_suppresses():
    scene = battle(mech(0, MEDIUM, (10, 10, 1.5)), mech(1, HEAVY, (18, 10.5, 2), team=1))
    kinetic(scene, scene.mechs[0], pulls(tertiary=1))  # alone: the same trigger would paint too
    assert scene.projectiles[0].pos == pytest.approx((10, 10, 2.7), abs=1e-6)
    assert scene.projectiles[0].vel == pytest.approx((24.8567104, 1.5535444, -2.1749623), abs=1e-6)
    for _ in range(4):
        update_projectiles(scene, Steady())
    assert scene.projectiles
    update_projectiles(scene, Steady())  # update 5
    hit = next(e for e in scene.events if e["type"] == "projectile_hit")
    assert hit["pos"] == pytest.approx((16.2141800, 10.3883839, 2.1562591), abs=1e-6)
    assert hit["damage"] == 12 and hit["stability"] == 7.5
    assert scene.mechs[1].suppressed_time == c.SUPPRESSION_DURATION


@pytest.mark.parametrize(
    ("pos", "vel", "update", "impact"),
    [
        ((35, 20.5, 5.5), (12, 0, 0), 84, None),
        ((35, 20.3, 5.5), (11, 4, 0.5), 19, (45.45, 24.10, 5.975)),
        ((35, 20.5, 5.5), (40, 0, 0), 3, (41, 20.5, 5.5)),
        ((35.2, 20.5, 3), (0, 0, -12), 5, (35.2, 20.5, 0)),
    ],
)
def test_shots_that_leave_the_map(pos, vel, update, impact):
    scene = battle(mech(0, HEAVY, (5, 5, 2)))
    shot = Projectile(MISSILE, 0, None, vec(pos), vec(vel))
    scene.projectiles = [shot]
    for _ in range(update - 1):
        update_projectiles(scene, Steady())
    assert scene.projectiles
    update_projectiles(scene, Steady())
    assert not scene.projectiles
    explosions = [e["pos"] for e in scene.events if e["type"] == "explosion"]
    if impact is None:
        assert explosions == [] and shot.pos[0] == pytest.approx(84.8, abs=1e-3)
    else:
        assert explosions == [pytest.approx(impact, abs=1e-3)]


def test_every_ready_heavy_rolls_until_one_intercepts():
    class Rolls(Steady):
        asked: list[int] = []  # noqa: RUF012

        def ams(self, shooter, projectile, defender):
            self.asked.append(defender)
            return 0.60 if defender == 1 else 0.59

    scene = battle(*(mech(i, HEAVY, (10 + 4 * i, 10, 2), team=int(i > 0)) for i in range(4)))
    scene.projectiles = [Projectile(MISSILE, 0, 1, (14.0, 13.0, 4.0), (0.0, 0.0, 0.0))]
    update_projectiles(scene, Rolls())
    assert Rolls.asked == [1, 2]  # 0.60 is not below 0.60; the third is not asked
    assert scene.mechs[2].ams_cooldown == c.AMS_COOLDOWN and scene.mechs[1].ams_cooldown == 0
    assert [e["type"] for e in scene.events] == ["ams_intercept"]


# ---- rewards (docs/spec/environment.md 3.4) --------------------------------------------------------------------------


def arena(config=None, world=None, **placed):
    """Everybody parked outside the zone, the named mechs at (x, y[, yaw]): the scene of
    docs/spec/environment.md 3.4."""
    config = config or EnvConfig.original(size_x=60, size_y=60, size_z=10)
    n = config.team_size
    spots = [(4.3 + 5.5 * (i % n), 4.2 if i < n else 55.8) for i in range(2 * n)]
    mechs = make_mechs(config.num_packs, [(x, y, 0.0) for x, y in spots], [0.0] * (2 * n))
    for one in mechs:
        x, y, *yaw = placed.get(one.id, one.pos[:2])
        one.pos, one.yaw = vec((x, y, one.half[2])), yaw[0] if yaw else 0.0
    world = world or empty_world(60, 60, 10, m.DIRT)
    made = Arena(config, Battle(config, world, mechs), Zone(30.0, 30.0, 5.0), world)
    made.look()
    return made


def named(made, name):
    return next(one for one in made.battle.mechs if one.id == name)


def decide(made, **actions):
    """One decision step with the named actions; the step and the rewards by name."""
    rows = np.zeros((len(made.battle.mechs), action_layout(made.config).size))
    for name, action in actions.items():
        rows[named(made, name).index] = action
    step = made.advance(rows, Steady())
    return step, {one.id: float(step.reward[one.index]) for one in made.battle.mechs}


def test_r1_approach():
    _, reward = decide(arena(blue_4=(10, 30)), blue_4=pulls(forward=1))
    assert reward["blue_4"] == pytest.approx(0.042875, abs=1e-7)


def test_r2_members_halve_approach_and_get_the_full_tick():
    made = arena(blue_4=(10, 30), blue_1=(30, 30), blue_2=(30, 33))
    _, reward = decide(made, blue_4=pulls(forward=1))
    assert reward["blue_4"] == pytest.approx(0.0107188, abs=1e-7)
    assert reward["blue_1"] == reward["blue_2"] == 3.0
    assert reward["red_1"] == 0 and made.scores == [0.25, 0.0]


def test_r3_contested_ticks_by_tonnage():
    made = arena(blue_0=(28, 30), blue_4=(30, 33), red_1=(32.5, 29))
    step, reward = decide(made)
    assert reward["blue_0"] == reward["blue_4"] == 1.453125 and reward["red_1"] == 0.75
    assert made.scores == [0.12109375, 0.0625]
    assert step.observation[0, 581] == pytest.approx(0.3125) and step.observation[5, 581] == pytest.approx(-0.3125)


def test_r4_parity_pays_the_floor():
    made = arena(blue_1=(28, 30), red_1=(32, 30))
    _, reward = decide(made)
    assert reward["blue_1"] == reward["red_1"] == 0.75 and made.scores == [0.0625, 0.0625]


def test_r5_damage():
    made = arena(blue_1=(10.3, 30.2), red_3=(14.3, 30.2, math.pi))
    _, reward = decide(made, blue_1=pulls(primary=1))
    assert reward["blue_1"] == pytest.approx(0.7) and reward["red_3"] == 0


def test_r6_damage_counts_double_in_a_contested_zone():
    made = arena(blue_1=(28.3, 30.2), red_3=(32.3, 30.2, math.pi))
    _, reward = decide(made, blue_1=pulls(primary=1))
    assert reward["blue_1"] == pytest.approx(2.65) and reward["red_3"] == 0.75


def test_r7_and_r8_kill_in_a_contested_zone_and_the_step_after():
    made = arena(blue_1=(28.3, 30.2), red_3=(31.8, 30.2, math.pi), red_4=(30.4, 33.3))
    named(made, "red_3").hp = 5.0
    step, reward = decide(made, blue_1=pulls(primary=1))
    assert reward["blue_1"] == pytest.approx(23.2)
    assert reward["red_3"] == -1.0 and step.terminated[8] and not step.truncated[8]
    assert reward["red_4"] == 0.75
    step, reward = decide(made)
    assert reward["blue_1"] == pytest.approx(1.8)
    assert reward["red_3"] == 0 and not step.observation[8].any() and reward["red_4"] == 0.75
    assert made.contact_slots[8] == [-1] * 5


def painted_pair(blue_1, red_0, blue_4=None):
    places = {"blue_1": blue_1, "red_0": (*red_0, math.pi)} | ({"blue_4": blue_4} if blue_4 else {})
    made = arena(**places)
    named(made, "red_0").painted_remaining, named(made, "red_0").last_painter = 5.0, 4
    return made


def test_r9_assist_pays_the_painter_for_each_hit():
    made = painted_pair((10.3, 30.2), (16.3, 30.2))
    _, reward = decide(made, blue_1=pulls(primary=1))
    assert reward["blue_1"] == pytest.approx(0.77) and reward["blue_4"] == 5.0
    for _ in range(2):
        _, reward = decide(made)
    _, reward = decide(made, blue_1=pulls(primary=1))
    assert reward["blue_1"] == pytest.approx(0.77) and reward["blue_4"] == 5.0


def test_r10_assist_in_a_contested_zone():
    made = painted_pair((26.3, 30.2), (32.3, 30.2), (30.4, 33.3))
    _, reward = decide(made, blue_1=pulls(primary=1))
    assert reward["blue_4"] == pytest.approx(10.75)
    assert reward["blue_1"] == pytest.approx(2.29)
    assert reward["red_0"] == 0.890625


def until_hit(made, **actions):
    """Fire, then wait for the decision step in which the shot lands."""
    step, reward = decide(made, **actions)
    while not any(e["type"] == "projectile_hit" for e in step.events):
        assert made.step_count < 10, "the shot never landed"
        step, reward = decide(made)
    return step, reward


def test_r11_friendly_fire_pays():
    made = arena(blue_0=(10, 30), red_4=(19, 30, math.pi), blue_4=(19, 31.3))
    named(made, "blue_4").hp = 10.0
    _, reward = until_hit(made, blue_0=pulls(tertiary=1))
    assert reward["blue_0"] == pytest.approx(13.75) and reward["blue_4"] == -1.0
    assert made.statistics["kills_blue"] == 1 and made.statistics["damage_blue"] == 75


def test_r12_approach_is_cut_on_entering_and_charged_on_leaving():
    made = arena(blue_4=(24.2, 30))
    step, reward = decide(made, blue_4=pulls(forward=1))
    assert step.components[4][0] == 0 and reward["blue_4"] == 3.0
    _, reward = decide(made, blue_4=pulls(forward=-1))
    assert reward["blue_4"] == pytest.approx(-0.042875, abs=1e-7)


def test_r13_lava_kills_are_credited_to_nobody():
    made = arena(blue_1=(10, 30))
    made.battle.world.material[0, 28:32, 8:12] = m.LAVA
    named(made, "blue_1").hp = 0.5
    step, reward = decide(made)
    assert [e for e in step.events if e["type"] == "kill"] == [{"type": "kill", "shooter": "lava", "target": "blue_1"}]
    assert reward["blue_1"] == -1.0
    assert made.statistics["kills_blue"] == made.statistics["kills_red"] == 0


def test_r14_a_smoke_hit_pays_an_assist():
    made = painted_pair((10.3, 30.2), (18.3, 30.2))
    step, reward = until_hit(made, blue_1=pulls(special=1))
    assert [e["damage"] for e in step.events if e["type"] == "assist"] == [0.0]
    assert reward["blue_4"] == 5.0 and reward["blue_1"] == 0


def test_r15_overkill_from_behind_counts_in_full():
    made = arena(blue_1=(10.3, 30.2), red_3=(14.3, 30.2))
    named(made, "red_3").hp = 1.0
    _, reward = decide(made, blue_1=pulls(primary=1))
    assert reward["blue_1"] == pytest.approx(11.05)


# ---- observations (docs/spec/environment.md Appendix A) --------------------------------------------------------------


def test_a1_contact_row():
    made = arena(blue_0=(10.3, 30.2, 0.7), red_1=(20.3, 27.2, 1.0))
    viewer, other = named(made, "blue_0"), named(made, "red_1")
    viewer.vel, other.vel = (0.5, 0.0, 0.0), (1.0, 2.0, 0.0)
    other.hp, other.heat, other.stability, other.painted_remaining, other.last_painter = 75.0, 50.0, 60.0, 1.0, 4
    row = made.look()[0]
    assert made.contact_slots[0] == [1, 2, 3, 6, 7]
    expected = [
        0.166667,
        -0.05,
        -0.00833333,
        0.05,
        0.2,
        0,
        0.841471,
        0.540302,
        0.5,
        0.5,
        0.6,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        1,
        0,
    ]
    expected += [1, 1, -0.020224, 0.0095673, 0.828855]
    assert row[75:100] == pytest.approx(expected, abs=1e-6)
    assert row[563] == pytest.approx(0.666667, abs=1e-6)
    assert row[569:572] == pytest.approx([0.05, 0, 0], abs=1e-7)
    assert row[577:581] == pytest.approx([0.328333, -0.00333335, -0.0333333, 0.0833333], abs=1e-6)


def noisy(world=None):
    places = {"blue_0": (30.3, 20.2, math.pi / 2), "red_1": (27.4, 26.3), "blue_1": (33.6, 24.7)}
    made = arena(world=world, **places, red_3=(28.1, 15.3), red_0=(35.2, 15.6))
    for name, level in (("red_1", 5.39), ("blue_1", 13.475), ("red_3", 9.996), ("red_0", 9.8)):
        named(made, name).noise_level = level
    return made.look()[0][542:546]


def test_a2_sound_by_quadrant():
    assert noisy() == pytest.approx([0.0217707, 0.0695705, 0.0561344, 0.0384971], abs=1e-7)


def test_a2_a_wall_muffles_sound():
    world = empty_world(60, 60, 10, m.DIRT)
    world.material[0:8, 23, 20:40] = m.SOLID
    assert noisy(world) == pytest.approx([0.00454786, 0.0159848, 0.0561344, 0.0384971], abs=1e-7)


def test_a3_eccm_does_not_help_its_carrier():
    made = arena(blue_4=(10.3, 30.2), blue_0=(20.3, 30.2), red_4=(30.3, 30.2))
    named(made, "blue_4").eccm_on = named(made, "red_4").ecm_on = True

    def quality(name):
        return viewer_sensors(made.battle.mechs, named(made, name))

    assert quality("blue_4")[:2] == pytest.approx((0.4900, 0.6), abs=1e-4)
    assert quality("blue_0")[:2] == pytest.approx((0.8402, 0.7988), abs=1e-4)
    assert quality("red_4")[0] == 1.0


def walled(packs=1, **placed):
    """Partial mode, blue_0 at (10.3, 30.2), a wall of full height at x = 20."""
    world = empty_world(60, 60, 10, m.DIRT)
    world.material[:, :, 20] = m.SOLID
    config = EnvConfig.original(size_x=60, size_y=60, size_z=10, num_packs=packs, observation_mode="partial")
    return arena(config, world, blue_0=(10.3, 30.2), **placed)


def sees(made, name):
    viewer = named(made, "blue_0")
    quality = viewer_sensors(made.battle.mechs, viewer)[0]
    return visible(made.scene(), viewer, named(made, name), quality, SightCache(made.battle))


@pytest.mark.parametrize(("away", "seen"), [(13, True), (15, False)])
def test_a4_radar_sees_through_walls(away, seen):
    assert sees(walled(red_1=(10.3 + away, 30.2)), "red_1") is seen


@pytest.mark.parametrize(("heat", "seen"), [(80.0, False), (80.1, True)])
def test_a4_heat_gives_away(heat, seen):
    made = walled(red_1=(25.3, 30.2))
    named(made, "red_1").heat = heat
    assert sees(made, "red_1") is seen


@pytest.mark.parametrize(("painter", "seen"), [(4, True), (7, False)])
def test_a4_paint_shows_to_the_painters_pack_only(painter, seen):
    made = walled(packs=2, red_1=(25.3, 30.2))
    named(made, "red_1").painted_remaining, named(made, "red_1").last_painter = 1.0, painter
    assert sees(made, "red_1") is seen


def test_a4_emissions_are_seen_far_off_but_not_through_smoke():
    made = walled(red_4=(50.3, 30.2))
    assert not sees(made, "red_4")
    named(made, "red_4").ecm_on = True
    assert sees(made, "red_4")
    made.battle.clouds.append(SmokeCloud((15.0, 30.2, 1.5), 4.0, 1.0))
    assert not sees(made, "red_4")


def test_a4_jamming_shrinks_radar():
    made = walled(red_4=(30.3, 30.2), red_1=(21.5, 30.2))
    assert sees(made, "red_1")
    named(made, "red_4").ecm_on = True
    assert viewer_sensors(made.battle.mechs, named(made, "blue_0"))[0] == pytest.approx(0.4905, abs=1e-4)
    assert not sees(made, "red_1")


def test_a5_local_map_and_telemetry():
    world = empty_world(60, 60, 10, m.DIRT)
    world.material[0:2, 21:23, 33:35] = m.SOLID
    row = arena(world=world, blue_0=(30.6, 20.3, math.radians(30))).look()[0]
    assert np.flatnonzero(row[165:286]).tolist() == [258 - 165, 268 - 165, 269 - 165, 280 - 165]
    assert np.flatnonzero(row[286:542]).tolist() == [375 - 286, 391 - 286]


@pytest.mark.parametrize(("yaw", "cell"), [(0.0, [8, 6]), (math.pi / 2, [6, 2])])
def test_a5_local_map_turns_with_the_mech(yaw, cell):
    world = empty_world(60, 60, 10, m.DIRT)
    world.material[0, 31, 33] = m.SOLID
    block = arena(world=world, blue_0=(30.5, 30.5, yaw)).look()[0][165:286].reshape(11, 11)
    assert np.argwhere(block).tolist() == [cell]


@pytest.mark.parametrize(("yaw", "expected"), [(math.pi / 2, (0, -1, 0)), (1.3, (0.267499, -0.963558, 0))])
def test_a6_damage_direction_is_in_the_body_frame(yaw, expected):
    made = arena(blue_0=(10.3, 30.2, yaw))
    named(made, "blue_0").last_damage_dir = (1.0, 0.0, 0.0)
    assert made.look()[0][559:562] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("side", "edges"),
    [
        (20, [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18, 20]),
        (60, [0, 3, 7, 11, 15, 18, 22, 26, 30, 33, 37, 41, 45, 48, 52, 56, 60]),
        (100, [0, 6, 12, 18, 25, 31, 37, 43, 50, 56, 62, 68, 75, 81, 87, 93, 100]),
    ],
)
def test_a7_telemetry_edges(side, edges):
    for x in range(side):
        world = empty_world(side, 16, 2)
        world.material[1, 0, x] = m.SOLID
        assert np.flatnonzero(telemetry_map(world)).tolist() == [int(np.searchsorted(edges, x, side="right")) - 1]


def test_maps_show_only_solid_and_solid_debris():
    world = empty_world(16, 16, 8)
    for x in range(10):
        world.material[1, 2, x] = x
    assert np.flatnonzero(occupancy_map(world, 4)[2]).tolist() == [m.SOLID, m.SOLID_DEBRIS]


def test_a8_smoke_reload_saturates():
    made = arena()
    step, _ = decide(made, blue_0=pulls(special=1))
    seen = [step.observation[0, 573]]
    for _ in range(20):
        seen.append(decide(made)[0].observation[0, 573])
    assert seen[:8] == [1.0] * 8
    assert [seen[i - 1] for i in (9, 10, 11, 20, 21)] == pytest.approx(
        [0.933333, 0.85, 0.766667, 0.0166667, 0], abs=1e-6
    )


@pytest.mark.parametrize(
    ("seconds", "dt", "substeps", "limit"),
    [(60, 0.05, 5, 240), (125, 0.05, 5, 500), (40, 0.1, 3, 134), (60, 0.05, 6, 200), (60, 0.1, 3, 200)],
)
def test_a9_episode_limit(seconds, dt, substeps, limit):
    made = arena(EnvConfig.original(size_x=60, size_y=60, max_episode_seconds=seconds, dt=dt, substeps=substeps))
    made.step_count = limit - 1
    assert not made.episode_outcome()[1].any()
    made.step_count = limit
    assert made.episode_outcome()[1].all()


@pytest.mark.parametrize(("comm", "size"), [(8, 589), (0, 549)])
def test_a10_sizes(comm, size):
    config = EnvConfig.original(size_x=60, size_y=60, comm_dim=comm)
    assert arena(config).look().shape == (10, size)


# ---- actions and episode end (docs/spec/environment.md 1, 4) ---------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "ecm", "eccm"), [(0.0, 0, 0), (1e-9, 1, 0), (0.5, 1, 0), (0.5000001, 0, 1), (-1.0, 0, 0)]
)
def test_ewar_selector(selector, ecm, eccm):
    made = arena()
    decide(made, blue_4=pulls(secondary=selector), blue_0=pulls(secondary=selector))
    scout, heavy = named(made, "blue_4"), named(made, "blue_0")
    assert (scout.ecm_on, scout.eccm_on) == (ecm, eccm)
    assert not (heavy.ecm_on or heavy.eccm_on)


def test_focus_comes_from_the_slots_of_the_last_observation():
    made = arena()
    assert made.contact_slots[0] == [1, 2, 3, 5, 6]
    action = pulls()
    action[9 + 3] = 0.5
    decide(made, blue_0=action)
    assert named(made, "blue_0").focus_target == 5
    action[9] = 0.6  # a friend is preferred more: no fall-back to the second best
    decide(made, blue_0=action)
    assert named(made, "blue_0").focus_target is None


def test_messages_reach_the_own_pack_and_die_with_the_sender():
    made = arena()
    action = pulls()
    action[18:] = [0.25] * 8
    step, _ = decide(made, blue_4=action)
    assert (step.observation[0:5, 125 + 32 : 165] == 0.25).all() and not step.observation[5:, 125:165].any()
    named(made, "blue_4").hp = 0.0
    kill_if_dead(made.battle, named(made, "blue_4"), "lava")
    step, _ = decide(made, blue_4=action)
    assert not step.observation[:, 125:165].any()


@pytest.mark.parametrize(("scores", "winner"), [((30.0, 29.0), "blue"), ((29.0, 30.0), "red"), ((30.0, 30.0), "red")])
def test_zone_win_and_its_tie(scores, winner):
    made = arena()
    made.scores = list(scores)
    terminated, truncated = made.episode_outcome()
    assert terminated.all() and not truncated.any()
    assert (made.outcome["reason"], made.outcome["winner"]) == ("zone_control", winner)


@pytest.mark.parametrize(
    ("scores", "hurt", "winner"),
    [((1.0, 1.0), None, "draw"), ((1.0, 1.0011), None, "red"), ((1.0, 1.0009), "red_0", "blue")],
)
def test_time_up_goes_to_score_then_hit_points(scores, hurt, winner):
    made = arena()
    made.scores, made.step_count = list(scores), made.config.max_steps
    if hurt:
        named(made, hurt).hp -= 1.0
    assert made.episode_outcome()[1].all() and made.outcome["reason"] == "time_up" and made.outcome["winner"] == winner


def test_elimination_beats_time_up():
    made = arena()
    made.step_count = made.config.max_steps
    for one in made.battle.mechs[:5]:
        one.alive = False
    terminated, truncated = made.episode_outcome()
    assert terminated.all() and not truncated.any()
    assert (made.outcome["reason"], made.outcome["winner"]) == ("elimination", "red")


def test_classes_are_named_as_in_the_tables():
    assert [spec.name for spec in MECH_CLASSES] == list(CLASS_NAMES)
