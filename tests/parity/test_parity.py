"""The parity harness: recordings load as they are, real steps agree, and planted mistakes are found."""

import dataclasses
import json
import shutil
from collections import Counter

import jax
import numpy as np
import pytest
from rich.console import Console

from echelon_jax import compiling
from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.parity import ParityCommand
from echelon_jax.parity import page
from echelon_jax.parity.comparison import compare_all
from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.fuzzing.shapes import pair_of_turn, shapes
from echelon_jax.parity.recorded.compare import compare, near, same
from echelon_jax.parity.recorded.event_counts import EventCount
from echelon_jax.parity.recorded.free_running import FreeRunning, follow_files
from echelon_jax.parity.recorded.golden import (
    actions_at,
    counters,
    env_states,
    load_episode,
    noise_for,
    shot_slots,
    shots_at,
)
from echelon_jax.parity.recorded.queries import QueryCount
from echelon_jax.parity.recorded.teacher_forced import (
    NUDGE,
    UNEXPLAINED,
    Difference,
    FieldCount,
    Result,
    check_episode,
    nudged,
    stepper,
)
from echelon_jax.parity.report import COLUMNS, REQUIRED_AGREEMENT, Report
from echelon_jax.rules.materials import COLLIDES, OPAQUE
from echelon_jax.rules.timers import decrements
from echelon_jax.sim.slots import slots
from echelon_jax.sim.widths import gpu_widths

WIDTH = 32
EPISODE = "lava_1"  # deaths, smoke, missiles, lava, partial observation


@pytest.fixture(scope="module", autouse=True)
def short_compile():
    """Compile with few optimisations, which is exact enough for a tolerance; fuzz and the golden set compile as XLA does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "as_xla_does", compiling.for_short_runs)
        yield


@pytest.fixture(scope="module")
def episode(data):
    return load_episode(data / "episodes" / f"{EPISODE}.npz")


@pytest.fixture(scope="module")
def everything(episode):
    return env_states(episode, range(episode.steps))


@pytest.fixture(scope="module")
def step(episode):
    return stepper(episode.config)


# ---- Loading ----


@pytest.mark.parametrize("dt", [0.05, 0.1, 0.07])
@pytest.mark.parametrize("seconds", [0.15, 0.2, 0.6, 1.2, 3.0, 4.0, 5.0])
def test_a_timer_loads_as_the_number_of_decrements_left_at_every_substep(seconds, dt):
    left, value = decrements(seconds, dt), seconds
    for count in range(left, -1, -1):
        assert counters(np.array([value]), dt)[0] == count
        value = max(0.0, value - dt)


def test_grids_follow_the_recorded_edits(episode):
    material, hp = episode.grids
    shape = episode.data["voxels0"].shape
    edits = episode.data["voxel_edits"]
    assert len(edits) > 0
    for t, z, y, x, new_material, new_hp in edits:
        cell = np.ravel_multi_index((int(z), int(y), int(x)), shape)
        assert (material[int(t), cell], hp[int(t), cell]) == (new_material, new_hp)
    changed = (material[1:] != material[:-1]) | (hp[1:] != hp[:-1])
    assert changed.sum() == len(edits)


@pytest.mark.parametrize(("word", "table"), [("collides", COLLIDES), ("opaque", OPAQUE)])
def test_bit_z_of_a_column_word_tells_about_the_voxel_at_level_z(word, table, episode, everything):
    words = np.asarray(getattr(everything.sim.grid, word))
    levels = np.asarray(everything.sim.grid.material).reshape(episode.steps, episode.config.size_z, -1)
    for z in range(episode.config.size_z):
        np.testing.assert_array_equal((words >> z) & 1, table[levels[:, z]])


def test_maps_are_those_of_the_recorded_observations(episode, everything):
    config, seen = episode.config, episode.data["obs"][0]
    layout = 246 + 5 * config.comm_dim
    np.testing.assert_array_equal(seen[:, layout : layout + 256], np.tile(everything.arena_map.telemetry[0], (10, 1)))
    # The middle of the local map is the mech's own column.
    x, y = np.trunc(episode.data["pos"][0, :, :2]).astype(int).T
    own = np.asarray(everything.arena_map.occupancy[0]).reshape(config.size_y, config.size_x)[y, x]
    np.testing.assert_array_equal(seen[:, 125 + 5 * config.comm_dim + 60], own)


def test_shots_load_into_slots_of_their_shooter_in_processing_order(episode, everything):
    shots = everything.sim.projectiles
    seen = 0
    for t in range(episode.steps):
        rows, alive = shots_at(episode, t), np.flatnonzero(shots.alive[t])
        place = alive[np.argsort(np.asarray(shots.order)[t][alive])]
        np.testing.assert_array_equal(slots(episode.config).mech[place], rows[:, 2])
        np.testing.assert_allclose(np.asarray(shots.position)[t][place], rows[:, 5:8], rtol=1e-6)
        np.testing.assert_allclose(np.asarray(shots.age)[t][place] * episode.config.dt, rows[:, 11], atol=1e-6)
        seen += len(rows)
    assert seen > 10


def test_every_recorded_draw_has_its_place(data):
    episode = load_episode(data / "episodes" / "match_40_1.npz")
    noise, s = noise_for(episode, range(episode.steps)), episode.config.substeps
    assert len(episode.data["laser_draws"]) > 0
    for tick, shooter, weapon, u in episode.data["laser_draws"]:
        t, i = divmod(int(tick) - 1, s)
        assert noise.hit_height[t, i, int(shooter), int(weapon)] == np.float32(u)
    table = slots(episode.config)
    assert len(episode.data["ams_draws"]) > 0
    for tick, uid, _, u, shooter, _ in episode.data["ams_draws"]:
        t, i = divmod(int(tick) - 1, s)
        uids = [int(row[1]) for row in shots_at(episode, t)]
        ring = int(table.ring[shot_slots(episode, t)[uids.index(int(uid))]]) if int(uid) in uids else slice(None)
        assert (np.asarray(noise.ams[t, i, table.heavy_of[int(shooter)], ring]) == np.float32(u)).any()
    for t in range(episode.steps):
        for i in range(s):
            living = [m for m in episode.data["move_order"][t, i] if m >= 0]
            order = list(np.asarray(noise.move_order[t, i]))
            assert order[: len(living)] == living
            assert sorted(order) == list(range(10))


def test_a_file_that_is_no_episode_is_refused_in_one_sentence(data):
    with pytest.raises(ValueError, match=r"worlds_40\.npz must be a recorded episode"):
        load_episode(data / "worlds_40.npz")


# ---- Comparing ----


def test_floats_agree_within_tolerance_and_nan_never_does():
    field = near(np.array([[1.0], [1.0005], [1.002], [np.nan]], np.float32), np.ones((4, 1)), 1)
    assert field.equal.tolist() == [True, False, False, False]
    assert field.close.tolist() == [True, True, False, False]


def test_integers_agree_only_when_equal():
    assert same(np.array([[1, 2], [1, 3]]), np.array([[1, 2], [1, 2]]), 1).close.tolist() == [True, False]


def assert_agrees(path, step):
    """Every step of a recorded episode agrees in every field, or is explained."""
    result = Result()
    check_episode(result, step, path, WIDTH)
    assert result.steps == load_episode(path).steps
    assert result.unexplained == 0, result.differences
    assert result.agreeing >= REQUIRED_AGREEMENT * result.mech_rows, result.differences
    assert all(count.unexplained == 0 for count in result.fields.values())
    assert result.events["kill"].rows > 0
    assert all(count.rows == count.exact + count.within_tolerance for count in result.events.values())


@pytest.mark.parametrize("name", [EPISODE, "match_40_1"])
def test_every_step_of_a_recorded_episode_agrees_in_every_field(name, data, step):
    path = data / "episodes" / f"{name}.npz"
    assert_agrees(path, step if name == EPISODE else stepper(load_episode(path).config))


def test_a_recorded_episode_agrees_with_the_loops_of_a_gpu_too(episode, data):
    """With fewer steps of a ray written out one after the other, which would take long to compile for a CPU."""
    widths = dataclasses.replace(gpu_widths(WIDTH), ray_steps=2, walk_steps=2, move_unroll=1)
    assert_agrees(data / "episodes" / f"{EPISODE}.npz", stepper(episode.config, widths))


PLANTED = {
    "hp": ("hp", lambda a, t: a["hp"].__setitem__((t, 0), a["hp"][t, 0] + 0.01)),
    "laser_cooldown": ("laser_cooldown", lambda a, t: a["laser_cooldown"].__setitem__((t, 1), 0.35)),
    "focus_target": ("focus_target", lambda a, t: a["focus_target"].__setitem__((t, 1), 3)),
    "obs": ("obs", lambda a, t: a["obs"].__setitem__((t, 1, 555), a["obs"][t, 1, 555] + 2e-4)),
    "rewards": ("rewards", lambda a, t: a["rewards"].__setitem__((t - 1, 1), a["rewards"][t - 1, 1] + 2e-4)),
    "terminated": ("terminated", lambda a, t: a["terminated"].__setitem__((t - 1, 1), True)),
    "contact_slots": ("contact_slots", lambda a, t: a["contact_slots"].__setitem__((t, 1, 0), 9)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_planted_in_the_next_row_is_noticed_in_its_field(name, episode, step):
    t = 9
    assert episode.data["alive"][t, :2].all()
    field, plant = PLANTED[name]
    wrong = dataclasses.replace(episode, data={key: value.copy() for key, value in episode.data.items()})
    plant(wrong.data, t)
    ts = [t - 1] * WIDTH
    state, made = jax.device_get(step(env_states(episode, ts), actions_at(episode, ts), noise_for(episode, ts)))
    assert all(f.close.all() for f in compare(episode, ts, state, made).values())
    differing = {key for key, f in compare(wrong, ts, state, made).items() if not f.close.all()}
    assert field in differing


def test_a_voxel_that_differs_anywhere_is_noticed(episode, step):
    ts = [8] * WIDTH
    state, made = jax.device_get(step(env_states(episode, ts), actions_at(episode, ts), noise_for(episode, ts)))
    hp = np.array(state.sim.grid.hp)
    hp[0, -1] += 1
    grid = state.sim.grid.replace(hp=hp)
    fields = compare(episode, ts, state.replace(sim=state.sim.replace(grid=grid)), made)
    assert fields["voxel_hp"].close.tolist() == [False] + [True] * (WIDTH - 1)


def test_a_row_that_nothing_explains_is_reported_as_such(data, tmp_path, step):
    source = data / "episodes" / f"{EPISODE}.npz"
    with np.load(source) as file:
        arrays = {key: file[key] for key in file.files}
    arrays["heat"][9, 0] += 0.5
    path = tmp_path / "wrong.npz"
    np.savez(path, **arrays)
    result = Result()
    check_episode(result, step, path, WIDTH, rows=[7, 8])
    assert [(d.row, d.explanation) for d in result.differences] == [(8, UNEXPLAINED)]
    assert "heat" in result.differences[0].fields
    assert 0 in result.differences[0].mechs
    assert result.fields["heat"].unexplained == 1
    assert result.fields["pos"].unexplained == 0


def test_nudges_are_fixed_small_and_never_push_a_mech_down(episode):
    state = env_states(episode, [5] * 8)
    first, again, later = (nudged(state, start).sim.mechs for start in (0, 0, 8))
    before = np.asarray(state.sim.mechs.position, np.float64)
    np.testing.assert_array_equal(first.position, again.position)
    assert (np.asarray(first.position) != np.asarray(later.position)).any()
    moved = np.asarray(first.position, np.float64) - before
    # One unit in the last place of a position of some 40 voxels is 4e-6.
    assert 0 < np.abs(moved).max() <= NUDGE + 4e-6
    assert (moved[..., 2] >= 0).all()


# ---- Reporting ----


def found(**changes):
    result = Result(steps=10, mech_rows=100, agreeing=100, fields={"pos": FieldCount(rows=100, exact=100)})
    return dataclasses.replace(result, **changes)


def test_report_fails_on_anything_unexplained_and_on_too_few_agreeing_rows():
    lost = Difference("game", 3, ("pos",), (1,), UNEXPLAINED)
    assert Report(episodes=found()).failures() == []
    assert len(Report(episodes=found(differences=[lost])).failures()) == 1
    assert len(Report(episodes=found(agreeing=99)).failures()) == 1
    assert Report(episodes=found(agreeing=99), whole_set=False).failures() == []


def test_report_requires_rays_and_worlds_but_only_reports_lattice_rays():
    assert Report(rays={"lattice_rays": QueryCount(100, 50)}).failures() == []
    assert len(Report(rays={"rays": QueryCount(100, 99)}).failures()) == 1
    assert len(Report(worlds=QueryCount(100, 99)).failures()) == 1


def fuzzed(why):
    count = FieldCount(rows=8, exact=7, explained=1)
    return fuzz.Result(8, 70, {"pos": count}, [fuzz.Found(3, ["obs[1]"], why)], {"kill": EventCount(5, 5)})


def test_report_fails_on_a_fault_of_the_fuzz_and_on_a_reference_that_goes_astray():
    assert Report(fuzz={"original full 1": fuzzed(fuzz.BY_RAYS)}).failures() == []
    assert Report(fuzz={"original full 1": fuzzed(fuzz.FAULT)}).failures() == [
        "original full 1: random step 3 differs in obs[1]"
    ]
    assert Report(reference=FreeRunning()).failures() == []
    assert Report(reference=FreeRunning(mismatches=["lava_1: step 3"])).failures() == ["lava_1: step 3"]


def test_json_tables_and_page_show_the_same_keys(capsys, tmp_path):
    events = {"kill": EventCount(7, 6, 1)}
    followed = FreeRunning(1, 4, {"heat": FieldCount(rows=40, exact=40)}, {"paint": EventCount(2, 2)})
    report = Report(
        episodes=found(events=events),
        rays={"rays": QueryCount(5, 5)},
        worlds=QueryCount(2, 2),
        fuzz={"original full 1": fuzzed(fuzz.BY_NUDGE)},
        reference=followed,
    )
    data = json.loads(json.dumps(report.as_dict()))
    for section in (data["episodes"], data["fuzz"]["original full 1"], data["reference"]):
        for rows in (*section["fields"].values(), *section["events"].values()):
            assert set(COLUMNS) <= set(rows)
    report.show(Console(width=200))
    (tmp_path / "run.json").write_text(json.dumps(data))
    shown = capsys.readouterr().out
    assert page.main([str(tmp_path / "run.json")]) == 0
    for text in (shown, capsys.readouterr().out):
        assert all(word in text for column in COLUMNS for word in column.split("_"))
        assert all(name in text for name in ("pos", "rays", "worlds", "original full 1", "heat", "kill", "paint"))


def test_the_reference_on_its_own_is_counted_by_field_and_by_event(data):
    episode = load_episode(data / "episodes" / f"{EPISODE}.npz")
    result = follow_files([data / "episodes" / f"{EPISODE}.npz"])
    assert result.mismatches == [] and result.steps == episode.steps and result.episodes == 1
    assert result.fields["heat"].rows == result.fields["heat"].exact == episode.steps * episode.config.num_mechs
    assert result.fields["voxels"].exact == episode.steps
    assert all(count.unexplained == 0 for count in result.fields.values())
    recorded = Counter(event["type"] for events in episode.events for event in events)
    assert {kind: count.exact for kind, count in result.events.items()} == recorded


def test_the_reference_on_its_own_counts_what_differs(data, tmp_path):
    with np.load(data / "episodes" / f"{EPISODE}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    arrays["heat"][9, 0] += 0.5
    events = json.loads(bytes(arrays["events"]))
    first = next(event for made in events for event in made if event["type"] == "smoke_cloud")
    first["radius"] += 1.0
    arrays["events"] = np.frombuffer(json.dumps(events).encode(), np.uint8)
    np.savez(tmp_path / "wrong.npz", **arrays)
    result = follow_files([tmp_path / "wrong.npz"])
    assert len(result.mismatches) == 2
    assert result.fields["heat"].unexplained == 1 and result.fields["pos"].unexplained == 0
    assert result.events["smoke_cloud"].unexplained == 1


# ---- The command ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"golden": "nowhere"}, "golden must be a folder"),
        ({"width": 0}, "width must be a whole number from 1"),
        ({"golden": None}, "parity needs golden .* fuzz .* or both"),
        ({"golden": None, "reference": True}, "reference needs golden"),
        ({"sections": ("worlds",), "reference": True}, "reference follows the episodes, which sections leave out"),
        ({"fuzz": -1}, "fuzz must be a whole number of steps from 0"),
        ({"sections": ("maps",)}, "sections must be any of episodes"),
        ({"sections": ("episodes",), "files": ("none_such",)}, "files must name recorded episodes"),
        ({"sections": ("queries",)}, "golden must hold .npz files in queries"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_in_one_sentence(changes, message, data, tmp_path):
    command = ParityCommand(golden=data, sections=("episodes",))
    changes = {**changes, **({"golden": tmp_path / "nowhere"} if changes.get("golden") else {})}
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(command, **changes).run()


def test_queries_and_worlds_go_through_the_command(data, tmp_path):
    for name, file in (("queries", "rays_small.npz"), ("worlds", "worlds_40.npz")):
        (tmp_path / name).mkdir()
        shutil.copy(data / file, tmp_path / name)
    command = ParityCommand(golden=tmp_path, sections=("queries", "worlds"))
    lines: list[str] = []
    report = compare_all(command.select(), WIDTH, lines.append)
    assert report.failures() == []
    assert report.worlds.rows == report.worlds.exact > 0
    assert report.rays["rays"].rows > 0
    assert len(lines) == 2


def test_random_steps_go_through_the_command(monkeypatch, capsys):
    steps = []
    monkeypatch.setattr(fuzz, "run", lambda config, seeds: steps.append((config, len(seeds))) or fuzzed(fuzz.BY_RAYS))
    assert ParityCommand(fuzz=50, json=True).run() == 0
    pair = pair_of_turn()
    assert steps == [(shapes()[pair[0]], 40), (shapes()[pair[1]], 10)]
    assert list(json.loads(capsys.readouterr().out)["fuzz"]) == list(pair)
