"""Widths of loops change the speed of a step and not one bit of its result."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fuzz_step import CONFIG, compiled
from helpers.trees import unequal

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.parity.exchange import stack
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.parity.fuzzing.fuzz import WIDTH, default_params
from echelon_jax.sim.widths import LoopWidths, cpu_widths, gpu_widths, loop_widths

BATCHES = 6


def random_widths(seed: int, fixed_rounds: bool) -> LoopWidths:
    """Any widths a loop can have, but few steps written out one after the other, which take long to compile."""
    rng = np.random.default_rng(seed)
    return LoopWidths(
        rays=int(rng.integers(1, 200)),
        ray_steps=int(rng.integers(1, 4)),
        walk_steps=int(rng.integers(1, 4)),
        projectiles=int(rng.integers(1, 30)),
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


def step_with(config: EnvConfig, widths: LoopWidths | None):
    env, case = Echelon(config, widths), batch(config, 0)
    step = jax.jit(env.step_batch_with_noise)
    return step.lower(default_params(config), case.state, case.actions, case.noise).compile()


def assert_same_bits(config, one, other):
    for number in range(BATCHES):
        case = batch(config, number)
        inputs = default_params(config), case.state, case.actions, case.noise
        assert unequal(*(jax.device_get(step(*inputs)) for step in (one, other))) == []


@pytest.mark.parametrize("fixed_rounds", [False, True], ids=["queues", "fixed rounds"])
def test_random_widths_give_the_same_bits(fixed_rounds):
    other = step_with(CONFIG, random_widths(20 + fixed_rounds, fixed_rounds))
    assert_same_bits(CONFIG, compiled(), other)


def test_fixed_rounds_give_the_same_bits_under_the_revised_rules():
    config = EnvConfig(observation_mode="partial")
    widths = dataclasses.replace(gpu_widths(WIDTH), ray_steps=2, walk_steps=2, move_unroll=1)
    assert_same_bits(config, step_with(config, None), step_with(config, widths))


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
