"""A run on the host, with a made-up program instead of the compiled one: what is saved when, what is refused, how it ends."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.checkpoint_states import same, state_at
from helpers.made_up_runs import (
    CAUSES,
    CONFIG,
    ENV,
    GAME,
    call,
    last,
    make_up,
    metrics_of,
    run,
    stop_after,
    stop_early,
)

from echelon_jax.runs import checkpoint, runner
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.guard_log import RunStopped
from echelon_jax.runs.runner import Runner, begins_save
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import Metrics


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch)


def test_a_run_that_crashes_and_is_resumed_equals_one_that_was_left_alone(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    crashed = tmp_path / "crashed"
    for number, calls in enumerate((3, 5)):
        with pytest.raises(MemoryError):
            run(crashed, stop_after(calls), resume=number > 0)
    run(crashed, resume=True)
    assert last(crashed) == last(tmp_path / "whole")
    best = [p / "checkpoints" / "best" for p in (crashed, tmp_path / "whole")]
    assert last(best[0]) == last(best[1])
    updates = [json.loads(line)["update"] for line in (crashed / "metrics.jsonl").read_text().splitlines()]
    assert updates == list(range(1, 13))


class SlowestSaver:
    """Stands for the saver whose writes take as long as it may ever happen: done only when somebody waits for them."""

    def __init__(self, run_dir: Path, *, keep: int, keep_best: bool) -> None:
        self.whole = self.pending = 0
        self.beside = 0  # calls that began while a write was under way

    def save(self, snap: checkpoint.Snapshot) -> None:
        self.wait()
        self.pending = snap.update

    def wait(self) -> Path:
        self.whole = max(self.whole, self.pending)
        return Path()

    def __enter__(self) -> SlowestSaver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.wait()


@pytest.mark.parametrize("per_call", [1, 3])
@pytest.mark.parametrize("save_every", [1, 2, 3, 7])
@pytest.mark.parametrize("reached", [0, 5])
def test_a_crash_costs_at_most_one_save_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_every: int, per_call: int, reached: int
) -> None:
    """At no moment have more calls begun since the last whole checkpoint than `save_every`, however slow the disk is."""
    options = {"bank_swap_every": 0, "updates": 16 * per_call}
    if reached:
        run(tmp_path, stop_early(reached), **options)
    savers: list[SlowestSaver] = []
    monkeypatch.setattr(runner, "Saver", lambda *a, **o: savers.append(SlowestSaver(*a, **o)) or savers[0])
    at_risk = []

    def step(state: Any, env_params: Any) -> Any:
        begun, first = int(state.update) + per_call, not at_risk
        if first:
            savers[0].whole = savers[0].pending = int(state.update)
        savers[0].beside += savers[0].pending > savers[0].whole
        at_risk.append((begun - savers[0].whole) / per_call)
        state, _ = call(state, env_params)
        metrics = jax.tree.map(lambda x: jnp.repeat(x, per_call, 0), metrics_of(begun - 1))
        return state.replace(update=jnp.int32(begun)), metrics

    run(tmp_path, step, resume=bool(reached), save_every=save_every, updates_per_call=per_call, **options)
    assert max(at_risk) == save_every
    assert (savers[0].beside > 0) == (save_every > 1)  # and training does not stand still for it


def test_where_a_run_saves_does_not_depend_on_where_it_was_resumed() -> None:
    """By updates alone, at least every `save_every - 1` calls, and never further apart after the calls change size."""
    for save_every in (1, 2, 5, 10):
        for per_call in (1, 4):
            interval = max(save_every - 1, 1)
            for start in range(9):
                ends = [start + per_call * n for n in range(1, 60)]
                saved = [n for n, end in enumerate(ends, 1) if begins_save(end, per_call, save_every)]
                assert saved[0] <= interval and set(np.diff(saved)) <= {interval}
                if start % per_call == 0:
                    assert all(ends[n - 1] % (interval * per_call) == 0 for n in saved)


def test_the_last_are_kept_and_the_best_by_its_games(tmp_path: Path) -> None:
    run(tmp_path, keep=2, save_every=3)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["00000010", "00000012", "best"]
    best = json.loads((tmp_path / "checkpoints" / "best" / "manifest.json").read_text())
    assert best["score"] >= last(tmp_path)[1]["score"] and best["extra"]["games"]


def test_a_finished_run_that_is_resumed_is_left_as_it_is(tmp_path: Path) -> None:
    run(tmp_path)
    before = {str(p): p.read_bytes() for p in (tmp_path / "checkpoints").rglob("*") if p.is_file()}
    run(tmp_path, stop_after(0), resume=True)
    assert {str(p): p.read_bytes() for p in (tmp_path / "checkpoints").rglob("*") if p.is_file()} == before


def test_another_configuration_is_refused_before_any_world_is_made(tmp_path: Path) -> None:
    run(tmp_path, updates=3)
    config = TrainConfig(**{**CONFIG.__dict__, **GAME, "gamma": 0.5})
    with pytest.raises(CheckpointError, match=r"made with gamma = 0\.99, this run has gamma = 0\.5"):
        Runner(tmp_path, config, ENV, resume=True)


def test_the_guards_thresholds_may_change(tmp_path: Path) -> None:
    run(tmp_path, updates=3)
    run(tmp_path, updates=6, resume=True, guard_kl=0.5)
    assert checkpoint.read_manifest(tmp_path).update == 6


def test_checkpoints_copied_from_another_run_are_refused(tmp_path: Path) -> None:
    run(tmp_path / "one", updates=3)
    run(tmp_path / "two", updates=3)
    shutil.rmtree(tmp_path / "two" / "checkpoints")
    shutil.copytree(tmp_path / "one" / "checkpoints", tmp_path / "two" / "checkpoints")
    with pytest.raises(CheckpointError, match=r"belongs to run .*, this directory is that of run"):
        run(tmp_path / "two", resume=True)


def test_a_whole_run_that_was_copied_goes_on(tmp_path: Path) -> None:
    run(tmp_path / "one", updates=3)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    run(tmp_path / "two", resume=True)
    run(tmp_path / "one", resume=True)
    assert last(tmp_path / "one") == last(tmp_path / "two")


def test_other_worlds_than_the_run_was_trained_on_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, updates=3)
    monkeypatch.setattr(runner, "digest", lambda arrays: "other")
    with pytest.raises(CheckpointError, match="trained on bank = "):
        run(tmp_path, resume=True)


# orbax leaves a task behind when writing fails; it has nothing more to do.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_fills_up_ends_the_run_and_older_checkpoints_stay(tmp_path: Path) -> None:
    disk_dir = tmp_path / "disk"
    disk_dir.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1200k", "none", str(disk_dir)], capture_output=True
    ).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        with pytest.raises(CheckpointError, match=r"cannot write .*: No space left on device"):
            run(disk_dir / "run", keep=100, updates=999, save_every=1)
        reached = checkpoint.read_manifest(disk_dir / "run").update
        assert reached >= 2
        for old in sorted((disk_dir / "run" / "checkpoints").glob("0*"))[:-1]:
            shutil.rmtree(old)  # somebody makes room
        run(disk_dir / "run", keep=1, updates=999, save_every=1, resume=True, step=stop_early(2))
        assert checkpoint.read_manifest(disk_dir / "run").update == reached + 2
    finally:
        subprocess.run(["umount", "-l", str(disk_dir)], check=True)


def test_a_signal_ends_the_run_after_the_call_with_a_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, stop_early(5))
    assert checkpoint.read_manifest(tmp_path).update == 5
    run(tmp_path, resume=True)
    run(tmp_path.with_name("alone"))
    assert last(tmp_path) == last(tmp_path.with_name("alone"))


def test_rollout_and_update_add_up_to_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "time_rollout", lambda update, state, env_params, env_steps: 1e-4)
    run(tmp_path, updates=3, time_parts=True)
    for line in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines()):
        assert line["seconds/rollout"] == 1e-4 and line["seconds/update"] > 0
        assert line["seconds/rollout"] + line["seconds/update"] == pytest.approx(line["seconds/call"])


def test_when_the_guard_gives_up_the_state_is_saved_and_the_report_says_why(tmp_path: Path) -> None:
    def step(state: Any, env_params: Any) -> tuple[Any, Metrics]:
        state, _ = call(state, env_params)
        update = int(state.update)
        failed = jnp.asarray(update >= 5)
        told = state.guard.replace(counts=state.guard.counts * 0 + jnp.arange(CAUSES), failed=failed)
        return state.replace(guard=told), metrics_of(update, bad=update >= 3, failed=update >= 5)

    with pytest.raises(RunStopped, match=r"gave up after 3 rollbacks, most often for spike; .*guard_report\.json"):
        run(tmp_path, step)
    report = json.loads((tmp_path / "guard_report.json").read_text())
    assert report["last_events"][0] == {
        "event": "guard",
        "update": 3,
        "causes": {"kl": "action"},
        "rolled_back": False,
        "failed": False,
    }
    assert Path(report["checkpoint"]) == checkpoint.find(tmp_path) and report["thresholds"]["patience"] == 3
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines[:3]] == [3, 4, 5] and lines[2]["failed"]
    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [m["guard/dropped"] for m in metrics[:4]] == [0.0, 0.0, 1.0, 1.0]


def test_a_run_that_the_guard_gave_up_on_starts_again_when_resumed(tmp_path: Path) -> None:
    def give_up(state: Any, env_params: Any) -> tuple[Any, Metrics]:
        state, _ = call(state, env_params)
        return state.replace(guard=state.guard.replace(failed=jnp.asarray(True))), metrics_of(1, True, True)

    with pytest.raises(RunStopped):
        run(tmp_path, give_up)
    seen = []

    def watch(state: Any, env_params: Any) -> Any:
        seen.append(bool(state.guard.failed))
        return call(state, env_params)

    run(tmp_path, watch, resume=True)
    assert seen and not any(seen)


def test_the_made_up_states_differ(tmp_path: Path) -> None:
    assert same(state_at(1), state_at(1)) and not same(state_at(1), state_at(2))
