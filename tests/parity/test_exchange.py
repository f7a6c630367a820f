"""State exchange: a row of the JAX simulator through the reference and back is the same to the last bit."""

import jax
import numpy as np
import pytest
from helpers.trees import unequal

from echelon_jax.config import EnvConfig
from echelon_jax.parity.exchange import SlotNoise, assign_slots, row_of, stack, to_reference, to_row
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.parity.timers import ages, residues
from echelon_jax.reference.state import Projectile
from echelon_jax.rules.timers import decrements
from echelon_jax.rules.weapons import AUTOCANNON, MISSILE, WEAPONS
from echelon_jax.sim.slots import TUBE, slots

CONFIG = EnvConfig.original()
CONFIGS = {
    "one pack": CONFIG,
    "two packs, other clock, no messages": EnvConfig.original(num_packs=2, dt=0.1, comm_dim=0, size_x=30),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("seed", range(6))
def test_a_row_comes_back_with_the_same_bits(config, seed):
    row = make_case(config, seed).state
    assert unequal(row, to_row(config, to_reference(config, row), row)) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_row_after_a_step_of_the_reference_survives_the_exchange(seed):
    case = make_case(CONFIG, seed)
    loaded = to_reference(CONFIG, case.state)
    loaded.arena.advance(case.actions, SlotNoise(CONFIG, case.noise, loaded))
    row = to_row(CONFIG, loaded, case.state)
    assert unequal(row, case.state) != []
    again = to_reference(CONFIG, row)
    assert unequal(row, to_row(CONFIG, again, row)) == []
    ours, theirs = again.arena.battle, loaded.arena.battle
    assert [(s.weapon, s.shooter, s.target, s.pos, s.age) for s in ours.projectiles] == [
        (s.weapon, s.shooter, s.target, s.pos, s.age) for s in theirs.projectiles
    ]
    assert [ours.grid.rank(i) for i in range(10)] == [theirs.grid.rank(i) for i in range(10)]
    assert [mech.missile_cooldown for mech in ours.mechs] == [mech.missile_cooldown for mech in theirs.mechs]


def test_the_arena_owns_what_it_was_loaded_with():
    case = make_case(CONFIG, 1)
    before = jax.tree.map(np.copy, case.state)
    loaded = to_reference(CONFIG, case.state)
    loaded.arena.advance(case.actions, SlotNoise(CONFIG, case.noise, loaded))
    assert unequal(before, case.state) == []


@pytest.mark.parametrize("weapon", range(7))
def test_a_timer_shows_the_float64_residue_of_its_decrements(weapon):
    seconds = WEAPONS[weapon].cooldown
    shown = residues(seconds, 0.05)
    assert len(shown) == decrements(seconds, 0.05) + 1 and shown[0] == 0 and shown[-1] == seconds
    left = seconds
    for expected in reversed(shown[:-1]):
        left = max(0.0, left - 0.05)
        assert left == expected


def test_a_timer_beyond_its_start_is_refused():
    row = make_case(CONFIG, 0).state
    row.sim.mechs.laser_cooldown[3] = 14
    with pytest.raises(ValueError, match="laser_cooldown of blue_3 must be from 0 to 13 substeps, got 14"):
        to_reference(CONFIG, row)


def test_an_age_is_dt_added_again_and_again():
    assert ages(0.05, 3)[-1] == 0.05 + 0.05 + 0.05 and ages(0.05, 0) == (0.0,)


def test_a_new_shot_takes_the_first_free_slot_of_its_launcher():
    row = make_case(CONFIG, 0).state
    row.sim.projectiles.alive[:] = False
    loaded = to_reference(CONFIG, row)
    table, battle = slots(CONFIG), loaded.arena.battle
    first, second = (Projectile(MISSILE, 0, 5, (1, 1, 1), (1, 0, 0)) for _ in range(2))
    gun = Projectile(AUTOCANNON, 1, None, (1, 1, 1), (1, 0, 0))
    battle.projectiles += [first, gun]
    assign_slots(CONFIG, loaded)
    battle.projectiles.append(second)
    assign_slots(CONFIG, loaded)
    tube = np.flatnonzero((table.mech == 0) & (table.launcher == TUBE))
    assert [slot for shot, slot in loaded.shots if shot.shooter == 0] == tube.tolist()
    battle.projectiles.remove(first)
    third = Projectile(MISSILE, 0, 5, (1, 1, 1), (1, 0, 0))
    battle.projectiles += [third]
    assign_slots(CONFIG, loaded)
    assert next(slot for shot, slot in loaded.shots if shot is third) == tube[0]
    battle.projectiles.append(Projectile(MISSILE, 0, 5, (1, 1, 1), (1, 0, 0)))
    with pytest.raises(ValueError, match="must be at most 2"):
        assign_slots(CONFIG, loaded)


def test_both_simulators_are_told_the_same_draws():
    case = make_case(CONFIG, 4)
    loaded = to_reference(CONFIG, case.state)
    noise, first = SlotNoise(CONFIG, case.noise, loaded), loaded.arena.battle.tick + 1
    for substep in (0, 3):
        noise.start_substep(first + substep)
        for mech in (0, 7):
            for place, weapon in enumerate((0, 1)):  # laser, flamer
                assert noise.hit_height(mech, weapon) == case.noise.hit_height[substep, mech, place]
        assert noise.move_order([2, 5, 9]) == [i for i in case.noise.move_order[substep] if i in (2, 5, 9)]


def test_rows_make_a_batch_and_a_batch_rows():
    rows = [make_case(CONFIG, seed).state for seed in range(3)]
    assert unequal(row_of(stack(rows), 1), rows[1]) == []


@pytest.mark.parametrize("mode", ["full", "partial"])
@pytest.mark.parametrize("seed", range(2))
def test_a_row_of_the_default_game_comes_back_with_what_it_remembers(mode, seed):
    config = EnvConfig.revised(
        observation_mode=mode, comm_dim=8, observation="modern", actions="modern", reward="modern"
    )
    row = make_case(config, seed).state
    assert row.memory is not None and (row.memory.age is None) == (mode == "full")
    assert unequal(row, to_row(config, to_reference(config, row), row)) == []
