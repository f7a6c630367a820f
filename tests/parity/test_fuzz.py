"""Fuzzed parity with the plain reference: fresh random steps, kept cases, and the harness itself with planted mistakes.

Fresh steps run in two shapes. Which two, the environment variable ECHELON_FUZZ_TURN says, a number such as the day of the
year; the turns together are every preset, mode and number of packs.
"""

import itertools
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.fuzz_step import CONFIG, compiled
from helpers.trees import unequal

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.parity.fuzzing import command as fuzz_command
from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.parity.fuzzing.shapes import MODES, PRESETS, pair_of_turn, shapes, turns
from echelon_jax.parity.fuzzing.shrink import load_case, save_case, shrink
from echelon_jax.parity.sight import sight_in_float32
from echelon_jax.reference.world import VoxelWorld
from echelon_jax.rules.weapons import GAUSS

pytestmark = pytest.mark.optimised


FRESH = {1: 2000, 2: 400}  # steps, by packs a team
FIRST = 1_000_000  # seed of the first; the long fuzz began there too
EVENTS = {
    "laser_hit", "missile_launch", "kinetic_fire", "smoke_launch", "paint", "ams_intercept", "projectile_hit", "assist",
    "kill", "explosion", "smoke_cloud",
}  # fmt: skip
FILES_OF_LIMITS = Path(__file__).parents[1] / "data" / "fuzz" / "limits"
FILES = sorted(FILES_OF_LIMITS.parent.glob("*.npz"))


@pytest.fixture(scope="session")
def step():
    return fuzz.stepper(CONFIG, compiled())


@pytest.fixture(scope="session")
def too_strong():
    """The step with a gauss that does one point too much damage."""
    params = fuzz.default_params(CONFIG)
    rules = params.rules.replace(damage=params.rules.damage.at[GAUSS].add(1.0))
    return fuzz.stepper(CONFIG, compiled(), params.replace(rules=rules))


@pytest.fixture(scope="session")
def steppers(step):
    """The compiled step of each shape of this turn."""
    return {name: step if shapes()[name] == CONFIG else fuzz.stepper(shapes()[name]) for name in pair_of_turn()}


@pytest.mark.parametrize("number", [0, 1])
def test_fresh_random_steps_agree_with_the_reference(steppers, number):
    name = pair_of_turn()[number]
    config = shapes()[name]
    count = FRESH[config.num_packs]
    result = fuzz.run(config, range(FIRST, FIRST + count), steppers[name])
    assert result.steps == count and [f"{name} {f.seed}: {f.fields}" for f in result.unexplained] == []
    assert len(result.found) <= 0.03 * count
    assert result.events.keys() == EVENTS  # everything happened somewhere
    assert all(events.unexplained == 0 for events in result.events.values())


def test_the_turns_are_every_preset_mode_and_number_of_packs():
    assert sorted(itertools.chain(*turns())) == sorted(shapes())
    assert len(shapes()) == len(PRESETS) * len(MODES) * 2
    assert len(set(shapes().values())) == len(shapes())
    for one, two in turns():
        assert shapes()[one].num_packs == 1 and shapes()[two].num_packs == 2
        assert one.split()[0] != two.split()[0] and one.split()[1] != two.split()[1]


def test_the_turn_is_the_first_without_the_variable_and_goes_round_with_it(monkeypatch):
    monkeypatch.delenv("ECHELON_FUZZ_TURN", raising=False)
    assert pair_of_turn() == turns()[0]
    monkeypatch.setenv("ECHELON_FUZZ_TURN", str(len(turns()) + 1))
    assert pair_of_turn() == turns()[1]
    monkeypatch.setenv("ECHELON_FUZZ_TURN", "monday")
    with pytest.raises(ValueError, match="ECHELON_FUZZ_TURN must be a whole number from 0, got 'monday'"):
        pair_of_turn()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kept_case_agrees_with_the_reference(step, path):
    config, case = load_case(path)
    own = step if config == CONFIG else fuzz.stepper(config)
    fields = fuzz.fields_of(own, config, [case])
    assert fuzz.agreeing(fields, 1).all() or fuzz.explanation(own, config, case), fuzz.differing(fields, 0)


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
    small = shrink(too_strong, CONFIG, case, nudges=2)
    assert not fuzz.agreeing(fuzz.fields_of(too_strong, CONFIG, [small]), 1)[0]
    assert (small.actions != 0).any(-1).sum() <= 1
    assert small.state.sim.projectiles.alive.sum() <= 1
    assert small.state.sim.mechs.alive.sum() < case.state.sim.mechs.alive.sum()


def test_a_written_case_reads_back_the_same(tmp_path):
    case = make_case(CONFIG, 3)
    save_case(tmp_path / "case.npz", CONFIG, case)
    config, again = load_case(tmp_path / "case.npz")
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
    monkeypatch.setattr(fuzz_command, "shrink", lambda step, config, case: case)
    # Two of these eight cases have a gauss hit.
    arguments = ["--steps", "8", "--shapes", "original full 1", "--faults", "1", "--out", str(tmp_path)]
    assert fuzz_command.main(arguments) == 1
    printed = capsys.readouterr().out
    path = sorted(tmp_path.glob("*.npz"))[0]
    assert "FAULT" in printed and str(path) in printed and "| original full 1 |" in printed
    assert load_case(path)[0] == CONFIG


def test_the_command_goes_on_from_the_counts_it_kept(step, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fuzz, "stepper", lambda config: step)
    kept = tmp_path / "counts.json"
    arguments = [
        "--steps",
        "16",
        "--shapes",
        "original full 1",
        "--progress",
        str(kept),
        "--out",
        str(tmp_path / "cases"),
    ]
    assert fuzz_command.main(arguments) == 0
    first = fuzz_command.load_progress(kept, list(shapes()))["original full 1"]
    assert fuzz_command.main(arguments) == 0
    both = fuzz_command.load_progress(kept, list(shapes()))["original full 1"]
    whole = fuzz.run(CONFIG, range(32), step)
    assert first.steps == 16 and both == whole
    assert f"| all | 32 | {whole.mech_rows} |" in capsys.readouterr().out
    assert not (tmp_path / "cases").exists()


def test_a_shape_that_does_not_exist_is_refused_with_the_names_of_those_that_do(capsys):
    with pytest.raises(SystemExit):
        fuzz_command.main(["--shapes", "original full 3"])
    assert "shapes must be any of 'original full 1'" in capsys.readouterr().err


# ---- rays -----------------------------------------------------------------------------------------------------------


def test_a_ray_in_float32_is_that_of_the_reference_away_from_edges():
    rng = np.random.default_rng(0)
    world = VoxelWorld((rng.random((8, 20, 20)) < 0.05).astype(np.uint8), np.zeros((8, 20, 20)))
    ends = rng.uniform(0.1, [19.9, 19.9, 9.0], (400, 2, 3)).astype(np.float32).tolist()
    clear = [world.terrain_los(tuple(a), tuple(b)) for a, b in ends]
    assert [sight_in_float32(world, tuple(a), tuple(b)) for a, b in ends] == clear
    assert any(clear) and not all(clear)


def test_a_ray_cast_from_the_wrong_end_is_no_rounding(step):
    """The kept case with the bit that the backward rays give: nudges explain it, the rays of the very state do not."""
    config, case = load_case(FILES_OF_LIMITS.parent / "targeted_one_way.npz")
    targeted = observation_layout(config)["own/targeted"].offset

    def backward(state, actions, noise):
        after, made = step(state, actions, noise)
        seen = np.array(made.observation)
        same = (np.asarray(state.sim.mechs.position) == case.state.sim.mechs.position).all((1, 2))
        seen[same, 3, targeted] = 1 - seen[same, 3, targeted]
        return after, made.replace(observation=seen)

    assert fuzz.differing(fuzz.fields_of(backward, config, [case]), 0) == ["obs[3]"]
    assert fuzz.explanation(backward, config, case) == fuzz.FAULT
    nudges = [fuzz.nudged(case, i) for i in range(fuzz.WIDTH)]
    assert fuzz.agreeing(fuzz.fields_of(backward, config, nudges), len(nudges)).any()


def test_the_known_limit_is_a_ray_whose_order_of_cells_float32_cannot_tell(step):
    """Two mechs pressed into opposite corners: the ray between them runs along the diagonals of the cells.

    Float64 tells its two axes apart by 4e-8 of their length, float32 finds them equal. Only what is heard differs, and no
    nudge helps, because both mechs are clamped back into their corners. The reference with rays in float32 hears the same.
    """
    config, case = load_case(FILES_OF_LIMITS / "corner_to_corner.npz")
    assert config == CONFIG
    assert fuzz.differing(fuzz.fields_of(step, config, [case]), 0) == ["obs[2, 9]"]
    assert fuzz.explanation(step, config, case) == fuzz.BY_RAYS
    dx, dy, _ = np.abs(np.subtract(*case.state.sim.mechs.position[[2, 9]]))
    assert dx == dy and np.subtract(*np.abs(np.subtract(*case.state.sim.mechs.position[[2, 9], :2].astype(float)))) != 0


def test_a_timer_above_what_the_rules_set_is_a_fault_and_ends_nothing(step, monkeypatch):
    play = fuzz.play

    def suppressed_for_too_long(*args):
        state, made = play(*args)
        mechs = state.sim.mechs
        return state.replace(sim=state.sim.replace(mechs=mechs.replace(suppressed=mechs.suppressed + 99))), made

    monkeypatch.setattr(fuzz, "play", suppressed_for_too_long)
    assert fuzz.explanation(step, CONFIG, make_case(CONFIG, 0)) == fuzz.FAULT
