"""The same compiled step gives an arena the same bits whatever stands beside it; other compilations agree closely."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fuzz_step import CONFIG, compiled
from helpers.trees import disagreeing, leaves, unequal

from echelon_jax.env import environment
from echelon_jax.env.actions import sanitise
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.original.actions import decide
from echelon_jax.parity.exchange import row_of, stack, to_reference, to_row
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.parity.fuzzing.fuzz import WIDTH, default_params
from echelon_jax.runs import tree_files
from echelon_jax.sim import step as simulation

pytestmark = pytest.mark.optimised


SEEDS = range(300, 300 + WIDTH)
DECISIONS = 4


def batch(seeds):
    return jax.tree.map(jnp.asarray, stack([make_case(CONFIG, seed) for seed in seeds]))


def play(case):
    """Result of one decision step with the compiled step of the batch's width, numpy leaves."""
    step = compiled(len(case.actions))
    return jax.device_get(step(default_params(CONFIG), case.state, case.actions, case.noise))


def rows(tree, arenas):
    return jax.tree.map(lambda leaf: leaf[np.array(arenas)], tree)


@pytest.fixture(scope="module")
def cases():
    return batch(SEEDS)


@pytest.fixture(scope="module")
def result(cases):
    return play(cases)


@pytest.mark.parametrize(
    "arenas", [pytest.param((4,), marks=pytest.mark.extended, id="width 1"), pytest.param((2, 5, 7), id="width 3")]
)
def test_an_arena_gives_the_same_bits_in_a_batch_of_any_width(cases, result, arenas):
    assert unequal(play(rows(cases, arenas)), rows(result, arenas)) == []


def test_the_same_call_gives_the_same_bits(cases, result):
    assert unequal(play(cases), result) == []


def test_permuted_arenas_give_permuted_results(cases, result):
    order = np.random.default_rng(0).permutation(WIDTH)
    assert unequal(play(rows(cases, order)), rows(result, order)) == []


@pytest.mark.extended
def test_phases_compiled_one_by_one_agree_with_the_whole_step(cases, result, monkeypatch):
    """The simulation, each phase its own program, from the same decisions; what reads the actions is not compiled at all."""
    scan = jax.lax.scan

    def loop(body, carry, xs, **options):
        """A scan without compilation; a scan inside a phase stays one."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((carry, xs))):
            return scan(body, carry, xs, **options)
        for i in range(len(jax.tree.leaves(xs)[0])):
            carry, _ = body(carry, jax.tree.map(lambda leaf, i=i: leaf[i], xs))
        return carry, None

    for name in ("upkeep", "update_projectiles", "fire", "move"):
        monkeypatch.setattr(simulation, name, jax.jit(getattr(simulation, name), static_argnames=("config", "widths")))
    monkeypatch.setattr(jax.lax, "scan", loop)
    clean, _ = sanitise(CONFIG, action_layout(CONFIG), cases.actions)
    decision = decide(CONFIG, cases.state, clean)
    before = cases.state.sim.replace(mechs=decision.mechs)
    rules = default_params(CONFIG).rules
    after = simulation.simulate(CONFIG, rules, before, decision.commands, cases.noise)
    assert disagreeing(jax.device_get(after), result[0].sim, 1e-5) == []


def test_the_rest_of_the_step_agrees_without_compilation(cases, result, monkeypatch):
    """Zone, score, end, rewards, messages and statistics operation by operation around the simulation's result.

    The observation is one program of its own: its rays alone would take a quarter of a minute an arena operation by operation.
    """
    simulated = jax.tree.map(jnp.asarray, result[0].sim)
    monkeypatch.setattr(environment, "simulate", lambda *inputs: simulated)
    monkeypatch.setattr(environment, "observe", jax.jit(environment.observe, static_argnums=0))
    rest = Echelon(CONFIG).step_batch_with_noise(cases.noise, cases.state, cases.actions, default_params(CONFIG))
    assert disagreeing(jax.device_get(rest), result, 1e-5) == []


def digest(tree):
    """A hash of every bit of a tree of arrays."""
    total = hashlib.sha256()
    for name, leaf in leaves(tree).items():
        total.update(name.encode() + str(leaf.dtype).encode() + np.ascontiguousarray(leaf).tobytes())
    return total.hexdigest()


def test_a_second_process_gives_the_same_bits(result):
    """The same program (compiled once where the persistent cache is on) on the same numbers."""
    code = "import test_determinism as t; print(t.digest(t.play(t.batch(t.SEEDS))))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest(result)


@pytest.mark.parametrize("through", ["reference", "files"])
def test_a_state_that_was_saved_and_loaded_goes_on_identically(cases, result, through, tmp_path):
    """Through the exchange with the reference, and through the files of a checkpoint, in the middle of a fight."""
    state = result[0]
    if through == "reference":
        rows = [row_of(state, b) for b in range(WIDTH)]
        loaded = stack([to_row(CONFIG, to_reference(CONFIG, row), row) for row in rows])
    else:
        tree_files.write(tmp_path / "state", tree_files.to_flat(state))
        loaded, lacking = tree_files.read(tmp_path / "state", state)
        assert lacking == []
    went_on = [play(cases.replace(state=start)) for start in (state, loaded)]
    assert unequal(*went_on) == []
    assert (went_on[0][0].sim.tick == np.asarray(cases.state.sim.tick) + 2 * CONFIG.substeps).any()


@pytest.mark.extended
def test_one_scan_agrees_with_single_calls(cases):
    env, params = Echelon(CONFIG), default_params(CONFIG)
    turns = [
        jax.tree.map(lambda leaf, i=i: jnp.roll(leaf, i, 0), (cases.actions, cases.noise)) for i in range(DECISIONS)
    ]
    state, step = cases.state, None
    for actions, noise in turns:
        state, step = compiled()(params, state, actions, noise)

    @jax.jit
    def scanned(state, many):
        return jax.lax.scan(lambda state, one: env.step_batch_with_noise(one[1], state, one[0], params), state, many)

    last, steps = scanned(cases.state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *turns))
    single, whole = jax.device_get(((state, step), (last, jax.tree.map(lambda leaf: leaf[-1], steps))))
    # Four decisions, each to 1e-5.
    assert disagreeing(whole, single, DECISIONS * 1e-5) == []


def test_the_step_makes_no_temporary_of_the_size_of_the_grids():
    grid = make_case(CONFIG, 0).state.sim.grid
    grids = WIDTH * sum(leaf.nbytes for leaf in jax.tree.leaves(grid))
    assert compiled().memory_analysis().temp_size_in_bytes < grids / 2
