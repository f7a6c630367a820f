"""What must hold without an oracle: finite numbers, inert dead, damage given is damage taken, counted overflow."""

import jax
import numpy as np
import pytest
from helpers.fuzz_step import CONFIG, compiled
from helpers.trees import unequal

from echelon_jax.env.environment import Echelon
from echelon_jax.parity.exchange import row_of, stack
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.parity.fuzzing.fuzz import WIDTH, default_params
from echelon_jax.rules import constants as k
from echelon_jax.rules import materials as mat
from echelon_jax.rules.timers import decrements
from echelon_jax.rules.weapons import AUTOCANNON, SMOKE, TERTIARY
from echelon_jax.sim.slots import BARREL, TUBE, slots

SEEDS = range(500, 500 + 6 * WIDTH)
MEDIUM = 1


def play(cases, params=None):
    """State and result of one decision step of `WIDTH` cases, numpy leaves."""
    full = stack(list(cases))
    params = default_params(CONFIG) if params is None else params
    return jax.device_get(compiled()(params, full.state, full.actions, full.noise))


@pytest.fixture(scope="module")
def steps():
    """Case, state after and result of many random steps."""
    rows = []
    for start in range(SEEDS.start, SEEDS.stop, WIDTH):
        cases = [make_case(CONFIG, seed) for seed in range(start, start + WIDTH)]
        state, step = play(cases)
        rows += [(case, row_of(state, b), row_of(step, b)) for b, case in enumerate(cases)]
    return rows


def test_finite_states_stay_finite_whatever_the_actions(steps):
    assert any(not np.isfinite(case.actions).all() for case, _, _ in steps)
    for _, state, step in steps:
        for leaf in jax.tree.leaves((state, step)):
            assert np.isfinite(leaf).all()


def test_observations_stay_within_their_declared_bounds(steps):
    low, high = Echelon(CONFIG).observation_bounds()
    for _, _, step in steps:
        # A rotated unit vector may exceed 1 by its last bit.
        assert (step.observation >= low - 1e-6).all() and (step.observation <= high + 1e-6).all()


def test_the_dead_do_nothing_get_nothing_and_see_nothing(steps):
    counts = ("paints", "laser_hits", "missile_launches", "kinetic_fires", "smoke_launches", "ams_intercepts")
    for case, state, step in steps:
        dead = ~case.state.sim.mechs.alive
        before, after = case.state.sim.mechs, state.sim.mechs
        assert not after.alive[dead].any() and not state.sim.tally.took_damage[dead].any()
        for name in ("position", "velocity", "yaw", "hp", "heat", "fallen", "laser_cooldown", "loudness"):
            assert np.array_equal(getattr(after, name)[dead], getattr(before, name)[dead])
        assert not any(getattr(state.sim.tally, name)[dead].any() for name in counts)
        assert not step.reward[dead].any() and step.terminated[dead].all()
        assert not step.observation[~after.alive].any() and (state.contact_slots[~after.alive] == -1).all()


def test_the_living_walk_through_the_dead():
    """Two mediums on one spot cannot move apart; when one is dead, the other walks off."""
    moved = []
    for alive in (True, False):
        case = alone(MEDIUM)
        mechs = case.state.sim.mechs
        mechs.position[2], mechs.alive[2] = mechs.position[MEDIUM], alive
        case.actions[MEDIUM, 0] = 1.0
        state, _ = play([case] * WIDTH)
        moved.append(float(np.abs(state.sim.mechs.position[0, MEDIUM] - mechs.position[MEDIUM]).max()))
    assert moved[0] == 0 and moved[1] > 1


def test_damage_dealt_is_damage_taken_hazards_apart():
    cases = []
    for seed in range(600, 600 + 3 * WIDTH):
        case = make_case(CONFIG, seed)
        material = case.state.sim.grid.material
        material[np.isin(material, (mat.LAVA, mat.DEBRIS_FIELD))] = mat.WATER
        cases.append(case)
    total = 0.0
    for start in range(0, len(cases), WIDTH):
        tally = play(cases[start : start + WIDTH])[0].sim.tally
        np.testing.assert_allclose(tally.dealt_damage.sum(-1), tally.took_damage.sum(-1), atol=1e-3)
        total += tally.took_damage.sum()
    assert total > 100


def test_hit_points_fall_by_the_damage_taken(steps):
    for case, state, _ in steps:
        lost = case.state.sim.mechs.hp - state.sim.mechs.hp
        np.testing.assert_allclose(lost, state.sim.tally.took_damage, atol=1e-3)


def test_voxels_change_only_into_air_and_into_wrecks(steps):
    changed = 0
    for case, state, _ in steps:
        before, after = case.state.sim.grid.material, state.sim.grid.material
        cells = before != after
        changed += cells.sum()
        assert np.isin(after[cells], (mat.AIR, mat.DEBRIS_FIELD, mat.SOLID_DEBRIS)).all()
        # Wrecks fill air and dirt, and what a shot has just turned to air.
        assert not (before[cells] == mat.REINFORCED).any()
        assert (state.sim.grid.hp <= case.state.sim.grid.hp).all() and (state.sim.grid.hp >= 0).all()
    assert changed > 0


def test_without_deaths_and_shots_no_voxel_changes(steps):
    quiet = [
        (case.state.sim.grid.material, state.sim.grid.material)
        for case, state, _ in steps
        if not case.state.sim.projectiles.alive.any()
        and not state.sim.tally.died.any()
        and not state.sim.tally.kinetic_fires.any()
        and not state.sim.tally.missile_launches.any()
        and not state.sim.tally.smoke_launches.any()
    ]
    assert quiet and all(np.array_equal(before, after) for before, after in quiet)


def test_random_states_overflow_nothing(steps):
    assert all(state.sim.lost_shots == 0 and state.sim.lost_clouds == 0 for _, state, _ in steps)


# ---- forced overflow ------------------------------------------------------------------------------------------------


def alone(mech):
    """One living mech on bare ground, unhurt, doing nothing, no shots and no clouds; a red scout watches from a corner."""
    case = make_case(CONFIG, 0)
    sim, scout = case.state.sim, 9
    case.actions[:] = 0
    sim.projectiles.alive[:] = False
    sim.smoke.life[:] = 0
    sim.grid.material[:] = 0
    sim.grid.collides[:] = 0
    sim.grid.opaque[:] = 0
    mechs = sim.mechs
    mechs.alive[:] = False
    for i, place in ((mech, (20.0, 20.0, 1.5)), (scout, (39.0, 39.0, 0.9))):
        mechs.alive[i], mechs.position[i], mechs.velocity[i], mechs.yaw[i] = True, place, 0, 0
        mechs.hp[i], mechs.leg_hp[i], mechs.heat[i], mechs.stability[i] = 50, 50, 0, 100
        for name in ("fallen", "tube_cooldown", "kinetic_cooldown", "painter_cooldown", "suppressed"):
            getattr(mechs, name)[i] = 0
    return case


def test_shots_without_a_slot_are_counted():
    params = default_params(CONFIG)
    rules = params.rules.replace(cooldown=params.rules.cooldown.at[AUTOCANNON].set(1))
    case = alone(MEDIUM)
    case.actions[MEDIUM, TERTIARY] = 1.0
    state, step = play([case] * WIDTH, params.replace(rules=rules))
    room = int(((slots(CONFIG).mech == MEDIUM) & (slots(CONFIG).launcher == BARREL)).sum())
    assert state.sim.tally.kinetic_fires[0, MEDIUM] == CONFIG.substeps
    assert state.sim.projectiles.alive[0].sum() == room
    assert state.sim.lost_shots[0] == step.info.lost_shots[0] == CONFIG.substeps - room > 0


def test_a_cloud_without_a_slot_replaces_the_oldest_and_is_counted():
    case = alone(MEDIUM)
    table, sim = slots(CONFIG), case.state.sim
    own = slice(MEDIUM * table.clouds, (MEDIUM + 1) * table.clouds)
    sim.smoke.life[own] = [100, 20, 150]
    sim.smoke.position[own] = (5, 5, 5)
    (slot,) = np.flatnonzero((table.mech == MEDIUM) & (table.launcher == TUBE))
    shots = sim.projectiles
    shots.alive[slot], shots.weapon[slot], shots.age[slot] = True, SMOKE, 0
    shots.position[slot], shots.velocity[slot] = (10, 10, 0.5), (0, 0, -15)
    state, step = play([case] * WIDTH)
    opened = decrements(k.SMOKE_CLOUD_LIFE, CONFIG.dt) - CONFIG.substeps + 1
    assert state.sim.lost_clouds[0] == step.info.lost_clouds[0] == 1
    assert state.sim.smoke.life[0, own].tolist() == [95, opened, 145]


def test_a_finished_arena_stays_as_it_is():
    cases = [make_case(CONFIG, seed) for seed in range(WIDTH)]
    state = stack([case.state for case in cases]).replace(episode_over=np.ones(WIDTH, bool))
    full = stack(cases)
    after, step = jax.device_get(compiled()(default_params(CONFIG), state, full.actions, full.noise))
    seen = {"contact_slots": after.contact_slots, "statistics": after.statistics}  # an observation is made again
    assert unequal(after, state.replace(**seen)) == []
    assert not step.reward.any()
