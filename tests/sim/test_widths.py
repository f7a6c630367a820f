"""Widths of loops change the speed of a step and not its result: not one bit where the loops are the same.

Fixed rounds are other loops, and so another program, in which XLA may fuse another product of a sum with the sum: integers
stay equal, floats may differ in their last bit. So they may in a round of 16 projectiles or more.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fuzz_step import CONFIG, compiled
from helpers.trees import disagreeing, unequal

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.parity.exchange import stack
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.parity.fuzzing.fuzz import WIDTH, compile_step, default_params
from echelon_jax.sim.projectiles import update_projectiles
from echelon_jax.sim.slots import slots
from echelon_jax.sim.widths import LoopWidths, cpu_widths, gpu_widths, loop_widths

pytestmark = pytest.mark.optimised


BATCHES = 4
LAST_BITS = 1e-5


def random_widths(seed: int, fixed_rounds: bool) -> LoopWidths:
    """Any widths a loop can have, but few steps written out one after the other, which take long to compile."""
    rng = np.random.default_rng(seed)
    return LoopWidths(
        rays=int(rng.integers(1, 200)),
        observed_rays=int(rng.integers(1, 200)),
        ray_steps=int(rng.integers(1, 4)),
        walk_steps=int(rng.integers(1, 4)),
        projectiles=int(rng.integers(1, 12)),  # from 16 on XLA computes several at once, which may change a last bit
        wrecks=int(rng.integers(1, 12)),
        blasts=int(rng.integers(1, 12)),
        resets=int(rng.integers(1, 12)),
        compaction_rounds=int(rng.integers(0, 4)),
        move_unroll=int(rng.integers(1, 3)),
        fixed_rounds=fixed_rounds,
    )


def batch(config: EnvConfig, number: int):
    """Cases with deaths, blasts, shots and clouds, also outside the map; every batch holds other ones."""
    seeds = range(number * WIDTH, (number + 1) * WIDTH)
    return jax.tree.map(jnp.asarray, stack([make_case(config, seed) for seed in seeds]))


def results(config, *steps):
    """What each step makes of every batch."""
    for number in range(BATCHES):
        case = batch(config, number)
        inputs = default_params(config), case.state, case.actions, case.noise
        yield [jax.device_get(step(*inputs)) for step in steps]


def test_random_widths_of_queues_give_the_same_bits():
    for one, other in results(CONFIG, compiled(), compile_step(CONFIG, WIDTH, random_widths(20, fixed_rounds=False))):
        assert unequal(one, other) == []


def test_a_round_of_as_many_projectiles_as_there_are_slots_ends_with_the_same_result():
    """Its projectiles stand in the order of their turns, not of the slots, to which they are written back."""
    case, every = batch(CONFIG, 0), len(slots(CONFIG).mech)

    def phase(number: int):
        widths = dataclasses.replace(cpu_widths(WIDTH), projectiles=number)
        return jax.jit(partial(update_projectiles, CONFIG, widths=widths))

    inputs = default_params(CONFIG).rules, case.state.sim, case.noise.ams[:, 0]
    few, all_in_one = (jax.device_get(phase(number)(*inputs)) for number in (4, every))
    assert (few.projectiles.alive != case.state.sim.projectiles.alive).any()
    assert disagreeing(few, all_in_one, LAST_BITS) == []


@pytest.mark.extended
def test_random_widths_of_fixed_rounds_give_the_same_result(monkeypatch):
    """Under the revised rules; a recorded episode does the same for the original's (tests/parity/test_parity.py)."""
    monkeypatch.setattr(compiling, "as_xla_does", compiling.for_short_runs)  # last bits are not compared
    config = EnvConfig(observation_mode="partial")
    widths = random_widths(21, fixed_rounds=True)
    for one, other in results(config, compile_step(config), compile_step(config, WIDTH, widths)):
        assert disagreeing(one, other, LAST_BITS) == []


def test_the_backend_chooses_and_the_variable_has_the_last_word(monkeypatch):
    monkeypatch.delenv("ECHELON_LOOP_WIDTHS", raising=False)
    assert loop_widths(64, "cpu") == cpu_widths(64) and not cpu_widths(64).fixed_rounds
    assert loop_widths(64, "gpu") == loop_widths(64, "cuda") == gpu_widths(64) and gpu_widths(64).fixed_rounds
    monkeypatch.setenv("ECHELON_LOOP_WIDTHS", "gpu")
    assert loop_widths(64, "cpu") == gpu_widths(64)
    monkeypatch.setenv("ECHELON_LOOP_WIDTHS", "wide")
    with pytest.raises(ValueError, match="ECHELON_LOOP_WIDTHS must be cpu or gpu, got 'wide'"):
        loop_widths(64, "cpu")


@pytest.mark.parametrize("name", ["rays", "ray_steps", "projectiles", "resets", "move_unroll"])
def test_a_width_below_one_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        dataclasses.replace(cpu_widths(4), **{name: 0})
