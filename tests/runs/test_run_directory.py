"""The life of a run directory: claimed before anything is written, started and requeued alike, told once and for all."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers.made_up_runs import CONFIG, ENV, GAME, call, last, make_up, run, stop_after, stop_early

from echelon_jax import system
from echelon_jax.runs import checkpoint, directory, numerics, tree_files
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.description import read_lines, summary_of
from echelon_jax.runs.directory import Claim
from echelon_jax.runs.lock import RunLock
from echelon_jax.runs.seeds import common_update
from echelon_jax.runs.tree_files import TreeError
from echelon_jax.training.config import TrainConfig

TRAIN = TrainConfig(**{**CONFIG.__dict__, **GAME})


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch)


def described(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "config.json").read_text())


def refuse(run_dir: Path, told: dict[str, Any]) -> Any:
    raise CheckpointError("there is no login")


# -- A start that ends before its first checkpoint ------------------------------------------------------------------


@pytest.mark.parametrize("resume", [False, True])
def test_the_same_start_begins_anew_under_its_identity_where_there_is_no_checkpoint(
    tmp_path: Path, resume: bool
) -> None:
    whole, run_dir = tmp_path / "whole", tmp_path / "cut"
    run(whole, updates=4)
    with pytest.raises(MemoryError):
        run(run_dir, stop_after(2), updates=4, save_every=10)
    begun = described(run_dir)["run"]
    assert not checkpoint.saved_updates(run_dir)
    assert [line["update"] for line in read_lines(run_dir)] == [1]
    run(run_dir, updates=4, resume=resume)
    assert described(run_dir)["run"] == begun == checkpoint.read_manifest(run_dir).run
    assert last(run_dir) == last(whole)
    assert [line["update"] for line in read_lines(run_dir)] == [1, 2, 3, 4]


def test_one_call_starts_and_goes_on(tmp_path: Path) -> None:
    run(tmp_path / "run", stop_early(3), resume=True)
    run(tmp_path / "run", resume=True)
    run(tmp_path / "alone")
    assert last(tmp_path / "run") == last(tmp_path / "alone")


def test_another_configuration_does_not_take_over_a_directory_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        run(tmp_path, stop_after(0))
    before = described(tmp_path)
    with pytest.raises(CheckpointError, match=r"already holds a run with gamma = 0\.99, .* gamma = 0\.5; give another"):
        run(tmp_path, gamma=0.5)
    assert described(tmp_path) == before


def test_a_run_with_a_checkpoint_is_only_continued_when_that_is_asked_for(tmp_path: Path) -> None:
    run(tmp_path, updates=3)
    with pytest.raises(CheckpointError, match="already holds a run; give another --run-dir, or --resume"):
        run(tmp_path, updates=3)


@pytest.mark.parametrize("there", [False, True])
def test_nothing_stays_behind_where_metrics_cannot_be_sent(tmp_path: Path, there: bool) -> None:
    run_dir = tmp_path / "runs" / "mine"
    if there:
        run_dir.mkdir(parents=True)
    with pytest.raises(CheckpointError, match="no login"):
        run(run_dir, sinks=refuse)
    assert list(tmp_path.rglob("*")) == ([run_dir.parent, run_dir] if there else [])
    run(run_dir, updates=1)


def test_an_interruption_before_training_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("echelon_jax.runs.runner.Runner._first_state", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_before_is_not_removed_with_a_start_that_failed(tmp_path: Path) -> None:
    run(tmp_path, stop_early(2))
    before = last(tmp_path), described(tmp_path)
    with pytest.raises(CheckpointError, match="no login"):
        run(tmp_path, resume=True, sinks=refuse)
    assert (last(tmp_path), described(tmp_path)) == before


def test_seeds_that_were_killed_between_their_saves_go_on_from_what_they_have_in_common(tmp_path: Path) -> None:
    folders = [tmp_path / "seed0", tmp_path / "seed1"]
    run(folders[0], stop_early(4), save_every=2)
    run(folders[1], stop_early(3), save_every=2)
    assert common_update(folders) == 3
    run(folders[0], resume=True, at=3)
    run(tmp_path / "alone")
    assert last(folders[0]) == last(tmp_path / "alone")
    assert [line["update"] for line in read_lines(folders[0])] == list(range(1, 13))
    assert common_update([tmp_path / "seed2", folders[1]]) == 0


def test_seeds_that_were_told_different_lengths_are_resumed_alone(tmp_path: Path) -> None:
    run(tmp_path / "seed0", updates=2)
    run(tmp_path / "seed1", updates=4)
    with pytest.raises(CheckpointError, match="have reached 2, 4; resume each alone"):
        common_update([tmp_path / "seed0", tmp_path / "seed1"])


# -- What a run was last told ---------------------------------------------------------------------------------------


def test_a_run_goes_on_with_the_length_that_it_was_last_told(tmp_path: Path) -> None:
    run(tmp_path, updates=3)
    run(tmp_path, stop_early(1), updates=6, resume=True)
    assert described(tmp_path)["train"]["updates"] == summary_of(tmp_path).planned == 6
    run(tmp_path, updates=described(tmp_path)["train"]["updates"], resume=True)
    assert checkpoint.read_manifest(tmp_path).update == 6


def test_what_may_change_is_the_only_thing_that_changes_in_config_json(tmp_path: Path) -> None:
    run(tmp_path, updates=3)
    before = described(tmp_path)
    run(tmp_path, updates=6, guard_kl=0.5, resume=True)
    before["train"] |= {"updates": 6, "guard_kl": 0.5}
    assert described(tmp_path) == before


def test_a_refused_resume_tells_a_run_nothing(tmp_path: Path) -> None:
    run(tmp_path, updates=3)
    before = described(tmp_path)
    with pytest.raises(CheckpointError, match="gamma"):
        run(tmp_path, updates=6, gamma=0.5, resume=True)
    assert described(tmp_path) == before


# -- Two starts at one moment ---------------------------------------------------------------------------------------


def test_of_many_starts_at_one_moment_one_trains_and_its_run_goes_on(tmp_path: Path) -> None:
    run_dir, barrier, started = tmp_path / "run", threading.Barrier(8), []

    def start() -> None:
        claim = directory.look(run_dir, TRAIN, ENV, resume=False)
        barrier.wait()
        try:
            with RunLock(run_dir):
                claim = directory.tell(run_dir, claim, TRAIN, ENV, {"run": threading.current_thread().name})
                started.append(claim.run_id)
        except CheckpointError as error:
            assert "already training" in str(error) or "has started a run" in str(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert started == [described(run_dir)["run"]]


def _hold(run_dir: str, ready: Any, done: Any) -> None:
    with RunLock(Path(run_dir)):
        ready.set()
        done.wait(60)


def test_a_start_beside_a_running_process_writes_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path / "run"), ready, done))
    other.start()
    assert ready.wait(120)
    with pytest.raises(CheckpointError, match="another process is training in"):
        run(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    done.set()
    other.join()
    run(tmp_path / "run", updates=1)


def test_config_json_is_never_overwritten_by_a_second_start(tmp_path: Path) -> None:
    for name in ("one", "two"):
        try:
            directory.tell(tmp_path, Claim(None, None), TRAIN, ENV, {"run": name})
        except CheckpointError as error:
            assert "another process has started a run" in str(error)
    assert described(tmp_path)["run"] == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_thread_of_the_same_process_is_kept_out_too(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(CheckpointError, match="already training"), RunLock(tmp_path / "." / ""):
        pass
    with RunLock(tmp_path):
        pass


def test_a_lock_file_that_was_removed_meanwhile_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another start made the directory, was refused, and removed it while this one was locking its file."""
    real, removals = fcntl.lockf, [1]

    def lockf(descriptor: int, how: int) -> None:
        real(descriptor, how)
        if removals:
            removals.pop()
            (tmp_path / "run" / ".lock").unlink()
            (tmp_path / "run").rmdir()

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with RunLock(tmp_path / "run") as held:
        assert held.descriptor is not None
        assert os.path.samestat(os.fstat(held.descriptor), os.stat(tmp_path / "run" / ".lock"))


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_one_warning_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def lockf(descriptor: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with pytest.warns(RuntimeWarning, match="is not protected against a second process") as said:
        run(tmp_path, updates=1)
    ours = [warning for warning in said if "second process" in str(warning.message)]
    assert len(ours) == 1 and checkpoint.saved_updates(tmp_path) == [1]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EAGAIN])
def test_what_posix_says_of_a_held_lock_is_a_held_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def lockf(descriptor: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with pytest.raises(CheckpointError, match="another process is training in"), RunLock(tmp_path):
        pass


def test_a_system_without_record_locks_warns_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    with pytest.warns(RuntimeWarning, match="no record locks"), RunLock(tmp_path):
        pass


def test_a_lock_that_is_held_warns_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with RunLock(tmp_path):
            pass


# -- Any legal path -------------------------------------------------------------------------------------------------

NAMES = ["x [2026] y", "q?*", "[!a]", "a\\b", "{1,2}", "gs://bucket", "file:", "100%20", "#1", "~", "-x", "two\nlines"]
NAMES += ["ü é", "not\udcffutf8", "'\"", "$HOME", " ", "[/1]", "[lr=0.001]"]
TREE = {"a": np.arange(6.0).reshape(2, 3), "['b'].c": np.int32([3])}


@pytest.mark.parametrize("aliases", ["descriptor", "link"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_under_any_legal_path_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, aliases: str
) -> None:
    if aliases == "link":
        monkeypatch.setattr(tree_files, "_DESCRIPTORS", tmp_path / "nowhere")
    run_dir = tmp_path / "runs" / name
    run_dir.mkdir(parents=True)
    tree_files.write(run_dir / "policy", TREE)
    found = tree_files.read_flat(run_dir / "policy")
    assert found.keys() == TREE.keys() and all(np.array_equal(found[key], TREE[key]) for key in TREE)
    assert (run_dir / "policy").is_dir()


def test_a_whole_run_goes_on_under_a_path_of_patterns(tmp_path: Path) -> None:
    run_dir = tmp_path / "x [2026] *?"
    run(run_dir, stop_early(3))
    run(run_dir, resume=True)
    run(tmp_path / "alone")
    assert last(run_dir) == last(tmp_path / "alone")


def test_a_directory_that_is_not_there_is_one_sentence_under_such_a_path_too(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="cannot be read"):
        tree_files.read_flat(tmp_path / "[none]")


# -- Settings that change numbers -----------------------------------------------------------------------------------

OTHERS = {
    "jax_default_prng_impl": "rbg",
    "jax_threefry_partitionable": False,
    "jax_random_seed_offset": 7,
    "jax_enable_x64": True,
    "jax_default_matmul_precision": "bfloat16",
}


def test_every_setting_that_changes_numbers_has_a_test() -> None:
    assert set(OTHERS) == set(numerics.SETTINGS)


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_is_not_resumed_under_another_setting(tmp_path: Path, name: str) -> None:
    run(tmp_path, stop_early(2))
    saved = checkpoint.read_manifest(tmp_path)
    assert saved.numerics == numerics.numerics()
    before = getattr(jax.config, name)
    jax.config.update(name, OTHERS[name])
    try:
        with pytest.raises(CheckpointError, match=f"made with {name} = .*, this process has {OTHERS[name]!r}; set"):
            checkpoint.require_same(saved, TRAIN, ENV)
    finally:
        jax.config.update(name, before)
    checkpoint.require_same(saved, TRAIN, ENV)


def test_a_checkpoint_that_does_not_know_its_settings_is_resumed(tmp_path: Path) -> None:
    run(tmp_path, stop_early(2))
    manifest = checkpoint.find(tmp_path) / "manifest.json"
    content = json.loads(manifest.read_text())
    del content["numerics"]
    manifest.write_text(json.dumps(content))
    run(tmp_path, call, resume=True)
    assert checkpoint.read_manifest(tmp_path).update == 12
