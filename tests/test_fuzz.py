"""Fuzzed parity with the plain reference: fresh random steps, kept cases, and the harness itself with planted mistakes."""

from pathlib import Path

import jax
import numpy as np
import pytest
from fuzz_step import CONFIG, compiled
from test_exchange import unequal

from echelon_jax.config import EnvConfig
from echelon_jax.parity import fuzz
from echelon_jax.parity.fuzz_cases import make_case
from echelon_jax.rules.weapons import GAUSS

FRESH = 320
EVENTS = {
    "laser_hit", "missile_launch", "kinetic_fire", "smoke_launch", "paint", "ams_intercept", "projectile_hit", "assist",
    "kill", "explosion", "smoke_cloud",
}  # fmt: skip
FILES_OF_LIMITS = Path(__file__).parent / "data" / "fuzz" / "limits"
FILES = sorted(FILES_OF_LIMITS.parent.glob("*.npz"))


@pytest.fixture(scope="session")
def step():
    return fuzz.stepper(CONFIG, compiled())


@pytest.fixture(scope="session")
def too_strong():
    """The step with a gauss that does one point too much damage."""
    params = fuzz.original_params(CONFIG)
    rules = params.rules.replace(damage=params.rules.damage.at[GAUSS].add(1.0))
    return fuzz.stepper(CONFIG, compiled(), params.replace(rules=rules))


def test_fresh_random_steps_agree_with_the_reference(step):
    result = fuzz.run(CONFIG, range(FRESH), step)
    assert result.steps == FRESH and [f"{f.seed}: {f.fields}" for f in result.unexplained] == []
    assert result.events.keys() == EVENTS  # everything happened somewhere


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kept_case_agrees_with_the_reference(step, path):
    config, case = fuzz.load_case(path)
    own = step if config == CONFIG else fuzz.stepper(config)
    fields = fuzz.fields_of(own, config, [case])
    assert fuzz.agreeing(fields, 1).all() or fuzz.explained(own, config, case), fuzz.differing(fields, 0)


def test_a_case_is_a_function_of_its_seed():
    assert unequal(make_case(CONFIG, 5), make_case(CONFIG, 5)) == []
    assert unequal(make_case(CONFIG, 5), make_case(CONFIG, 6)) != []


def test_cases_reach_where_play_rarely_goes():
    config = EnvConfig.original()
    states = [make_case(config, seed).state for seed in range(40)]
    position = np.stack([state.sim.mechs.position for state in states])
    assert (position[..., 2] > config.size_z).any() and (position[..., :2] < 2).all(-1).any()
    for state in states:
        assert len(np.unique(state.sim.grid.material)) > 1
    mechs = [state.sim.mechs for state in states]
    assert all(
        any(getattr(m, name).any() for m in mechs) for name in ("fallen", "painted", "suppressed", "tube_cooldown")
    )
    assert any((m.leg_hp <= 0).any() for m in mechs) and any((~m.alive).any() for m in mechs)
    actions = [make_case(config, seed).actions for seed in range(40)]
    assert any(np.isnan(a).any() for a in actions) and any((a == 0).all(-1).any() for a in actions)


def test_a_planted_mistake_is_found_explained_by_nothing_and_made_small(too_strong):
    result = fuzz.run(CONFIG, range(160), too_strong, nudges=8, stop=lambda r: len(r.unexplained) >= 1)
    assert result.unexplained
    case = make_case(CONFIG, result.unexplained[0].seed)
    small = fuzz.shrink(too_strong, CONFIG, case, nudges=2)
    assert not fuzz.agreeing(fuzz.fields_of(too_strong, CONFIG, [small]), 1)[0]
    assert (small.actions != 0).any(-1).sum() <= 1
    assert small.state.sim.projectiles.alive.sum() <= 1
    assert small.state.sim.mechs.alive.sum() < case.state.sim.mechs.alive.sum()


def test_a_written_case_reads_back_the_same(tmp_path):
    case = make_case(CONFIG, 3)
    fuzz.save_case(tmp_path / "case.npz", CONFIG, case)
    config, again = fuzz.load_case(tmp_path / "case.npz")
    assert config == CONFIG and unequal(case, again) == []


@pytest.mark.parametrize("number", [0, 1, 5])
def test_a_nudge_moves_floats_by_at_most_a_hundred_thousandth(number):
    case = make_case(CONFIG, 3)
    moved = fuzz.nudged(case, number)
    changed = unequal(case, moved)
    assert changed and unequal(moved, fuzz.nudged(case, number)) == []
    for one, other in zip(jax.tree.leaves(case), jax.tree.leaves(moved), strict=True):
        if np.issubdtype(one.dtype, np.floating):
            np.testing.assert_allclose(other, one, rtol=0, atol=2e-5)  # beside the rounding of a heat of 150
        else:
            np.testing.assert_array_equal(one, other)
    assert (moved.state.sim.mechs.position[:, 2] >= case.state.sim.mechs.position[:, 2]).all()


def test_the_command_prints_counts_and_writes_small_cases(too_strong, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fuzz, "stepper", lambda config: too_strong)
    monkeypatch.setattr(fuzz, "shrink", lambda step, config, case: case)
    assert fuzz.main(["--steps", "160", "--faults", "1", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    (path,) = tmp_path.glob("*.npz")
    assert "FAULT" in printed and str(path) in printed and "projectile_hit" in printed
    assert fuzz.load_case(path)[0] == CONFIG


def test_the_command_succeeds_where_nothing_differs(step, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fuzz, "stepper", lambda config: step)
    assert fuzz.main(["--steps", "8", "--out", str(tmp_path)]) == 0
    assert "8 steps" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_the_known_limit_is_a_ray_whose_order_of_cells_float32_cannot_tell(step):
    """Two mechs pressed into opposite corners: the ray between them runs along the diagonals of the cells.

    Float64 tells its two axes apart by 4e-8 of their length, float32 finds them equal. Only what is heard differs, and no
    nudge helps, because both mechs are clamped back into their corners.
    """
    config, case = fuzz.load_case(FILES_OF_LIMITS / "corner_to_corner.npz")
    assert config == CONFIG
    assert fuzz.differing(fuzz.fields_of(step, config, [case]), 0) == ["obs[2, 9]"]
    dx, dy, _ = np.abs(np.subtract(*case.state.sim.mechs.position[[2, 9]]))
    assert dx == dy and np.subtract(*np.abs(np.subtract(*case.state.sim.mechs.position[[2, 9], :2].astype(float)))) != 0
