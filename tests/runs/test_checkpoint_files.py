"""Checkpoints as files: what a crash, a full disk, a copied, foreign or read-only directory does to them, and which are kept."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.checkpoint_states import ENV, TRAIN, same, state_at, template

from echelon_jax.runs import checkpoint, saver, tree_files
from echelon_jax.runs.checkpoint import Bank, CheckpointError, load_policy, restore, save, snapshot, write
from echelon_jax.runs.lock import RunLock
from echelon_jax.runs.saver import Saver

ROOT = Path(__file__).resolve().parents[2]


def snap(update: int, **about):  # type: ignore[no-untyped-def]
    return snapshot(state_at(update), TRAIN, ENV, **about)


def names(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoints").iterdir())


def whole(run: Path, update: int) -> bool:
    """Whether the checkpoint of an update is there and holds what was saved."""
    return same(restore(run / "checkpoints" / f"{update:08d}", template(), TRAIN, ENV), state_at(update))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with the checkpoints of updates 1 and 2."""
    run = tmp_path_factory.mktemp("two")
    for update in (1, 2):
        write(run, snap(update, run="me", bank=Bank(0, 0, "w"), score=0.5))
    return run


@pytest.fixture
def run(two: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(two, tmp_path / "run"))


# -- Which are kept -----------------------------------------------------------------------------------------------------


def test_the_best_is_kept_beside_the_last(tmp_path: Path) -> None:
    for update, score in enumerate((0.2, 0.9, 0.3, 0.1), start=1):
        write(tmp_path, snap(update, score=score), keep=2)
    assert names(tmp_path) == ["00000003", "00000004", "best"]
    best = load_policy(tmp_path / "checkpoints" / "best")
    assert best.update == 2 and same(best.params, state_at(2).params)
    assert same(best.observation_moments, state_at(2).observation_moments)
    assert load_policy(tmp_path).update == 4  # a run directory stands for its last


def test_the_best_can_be_left_out(tmp_path: Path) -> None:
    write(tmp_path, snap(1, score=0.9), keep_best=False)
    assert names(tmp_path) == ["00000001"]


def test_of_equal_scores_the_later_is_the_best(run: Path) -> None:
    assert load_policy(run / "checkpoints" / "best").update == 2


# -- Crashes ------------------------------------------------------------------------------------------------------------


def test_a_crash_between_setting_the_old_aside_and_putting_the_new_in_place_loses_nothing(run: Path) -> None:
    folder = run / "checkpoints"
    (folder / "00000002").rename(folder / ".replaced-00000002")
    assert checkpoint.read_manifest(run).update == 2
    write(run, snap(3))
    assert whole(run, 2) and whole(run, 3) and not list(folder.glob(".*"))


def test_a_best_that_was_set_aside_is_found(run: Path) -> None:
    folder = run / "checkpoints"
    (folder / "best").rename(folder / ".replaced-best")
    assert load_policy(folder / "best").update == 2


def test_a_removal_that_was_cut_short_leaves_no_half_checkpoint(run: Path) -> None:
    (run / "checkpoints" / "00000001").rename(run / "checkpoints" / ".partial-00000001")
    write(run, snap(3))
    assert names(run) == ["00000002", "00000003", "best"]


# -- Directories that are not what they seem ----------------------------------------------------------------------------


def test_a_renamed_checkpoint_is_refused_by_its_update(run: Path) -> None:
    (run / "checkpoints" / "00000002").rename(run / "checkpoints" / "00000009")
    with pytest.raises(CheckpointError, match="copied or renamed: its manifest says update = 2"):
        restore(run, template(), TRAIN, ENV)


def test_a_checkpoint_of_another_run_is_refused_by_name(run: Path) -> None:
    manifest = checkpoint.read_manifest(run)
    checkpoint.require_same(manifest, TRAIN, ENV, run="me")
    with pytest.raises(CheckpointError, match="belongs to run me, this directory is that of run you"):
        checkpoint.require_same(manifest, TRAIN, ENV, run="you")


def test_other_worlds_are_refused(run: Path) -> None:
    manifest = checkpoint.read_manifest(run)
    checkpoint.require_same(manifest, TRAIN, ENV, bank=Bank(0, 0, "w"))
    with pytest.raises(CheckpointError, match=r"trained on bank = .*worlds='w'.*this version makes .*worlds='x'"):
        checkpoint.require_same(manifest, TRAIN, ENV, bank=Bank(0, 0, "x"))


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_truncated_manifest_is_refused(run: Path, length: int) -> None:
    file = run / "checkpoints" / "00000002" / "manifest.json"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"manifest of .*00000002 cannot be read"):
        load_policy(run)


def test_a_missing_file_is_named_with_the_checkpoint_to_go_on_from(run: Path) -> None:
    victim = next(p for p in (run / "checkpoints" / "00000002" / "run").rglob("*") if p.is_file())
    victim.unlink()
    with pytest.raises(CheckpointError, match=f"{victim.name} is missing.*move it away to go on from 00000001"):
        restore(run, template(), TRAIN, ENV)


def test_reading_changes_nothing(run: Path) -> None:
    def look() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}

    before = look()
    restore(run, template(), TRAIN, ENV)
    load_policy(run)
    assert look() == before


# -- Disks --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 400 KiB."""
    disk_dir = tmp_path / "disk"
    disk_dir.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk_dir)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield disk_dir
    subprocess.run(["umount", "-l", str(disk_dir)], check=True)


# orbax leaves a task behind when writing fails; it has nothing more to do.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_fills_up_is_one_sentence_and_older_checkpoints_stay(small_disk: Path) -> None:
    saved = 0
    with pytest.raises(CheckpointError, match=r"cannot write a checkpoint to .*: No space left on device") as failed:
        for saved in range(100):
            save(small_disk, state_at(saved), TRAIN, ENV, keep=1000)
    assert "\n" not in str(failed.value) and saved > 0
    assert names(small_disk) == [f"{k:08d}" for k in range(saved)]  # and nothing half written
    assert whole(small_disk, saved - 1) and whole(small_disk, 0)


def test_a_read_only_disk_is_one_sentence_and_can_be_read(small_disk: Path) -> None:
    save(small_disk, state_at(1), TRAIN, ENV)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(CheckpointError, match="Read-only file system"):
        save(small_disk, state_at(2), TRAIN, ENV)
    with pytest.raises(CheckpointError, match=r"cannot write to .*Read-only file system"):
        RunLock(small_disk).__enter__()
    assert whole(small_disk, 1)


STEPS = ["write policy", "write run", "checksums", "flush", "rename", "link"]


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_at_any_step_of_a_save_leaves_the_older_checkpoints(
    run: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step.startswith("write"):
        real = tree_files.write

        def write_some(disk_dir: Path, flat: tree_files.Flat) -> None:
            real(disk_dir, flat) if disk_dir.name != step.split()[1] else full()

        monkeypatch.setattr(tree_files, "write", write_some)
    elif step == "rename":
        monkeypatch.setattr(checkpoint, "put", full)
    elif step == "link":
        monkeypatch.setattr(checkpoint.shutil, "copytree", full)
    else:
        monkeypatch.setattr(tree_files, step, full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        write(run, snap(3, score=1.0), keep=2)
    monkeypatch.undo()
    assert whole(run, 1) and whole(run, 2) and not list((run / "checkpoints").glob(".*"))
    assert load_policy(run / "checkpoints" / "best").update == 2
    write(run, snap(3, score=1.0))
    assert whole(run, 3)


LIMITED = """
import resource, sys
sys.path[:0] = [{tests!r}]
from helpers.checkpoint_states import ENV, TRAIN, state_at
from echelon_jax.runs.checkpoint import CheckpointError, save
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
state = state_at(5)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    save({run!r}, state, TRAIN, ENV)
except CheckpointError as error:
    sys.stdout.write(str(error))
"""


def test_a_limit_on_the_size_of_files_is_one_sentence(run: Path) -> None:
    code = LIMITED.format(tests=str(ROOT / "tests"), run=str(run))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert "cannot write a checkpoint" in done.stdout and "\n" not in done.stdout, done.stderr
    assert names(run) == ["00000001", "00000002", "best"] and whole(run, 2)


# -- In the background --------------------------------------------------------------------------------------------------


def test_the_state_may_be_consumed_as_soon_as_the_snapshot_is_taken(tmp_path: Path) -> None:
    state = state_at(1)
    taken = snapshot(state, TRAIN, ENV)
    for leaf in (state.params["mean_bias"], state.runner_state.observation):
        leaf.delete()
    with Saver(tmp_path) as saver:
        saver.save(taken)
    assert whole(tmp_path, 1)


def test_a_save_does_not_wait_and_two_never_write_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, writing, most = threading.Event(), [0], [0]

    def slow(run_dir: Path, taken: checkpoint.Snapshot, keep: int, keep_best: bool) -> Path:
        writing[0] += 1
        most[0] = max(most[0], writing[0])
        gate.wait(30)
        writing[0] -= 1
        return run_dir / str(taken.update)

    monkeypatch.setattr(saver, "write", slow)
    with Saver(tmp_path) as background:
        background.save(snap(1))  # returns with the gate still closed
        threading.Timer(0.05, gate.set).start()
        background.save(snap(2))
        background.save(snap(3))
        assert background.wait() == tmp_path / "3"
    assert most[0] == 1


def test_an_error_in_the_background_is_raised_by_the_next_save_and_nothing_is_begun(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    background = Saver(tmp_path)
    background.save(snap(1))
    with pytest.raises(CheckpointError, match="cannot write a checkpoint"):
        background.save(snap(2))
    assert background.wait() is None


def test_an_error_in_the_last_save_is_raised_on_leaving(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot write a checkpoint"), Saver(tmp_path) as background:
        background.save(snap(1))


def test_what_ended_a_run_is_not_hidden_by_a_save_that_failed_too(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(KeyboardInterrupt) as stopped, Saver(tmp_path) as background:
        background.save(snap(1))
        raise KeyboardInterrupt
    assert "cannot write a checkpoint" in stopped.value.__notes__[0]


# -- One process to a run -----------------------------------------------------------------------------------------------

HOLD = "import sys; from pathlib import Path; import fcntl, os; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)"
HOLD += "; fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


def test_a_run_that_another_process_trains_is_refused_until_that_process_is_gone(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    with pytest.raises(CheckpointError, match="another process is training in"), RunLock(tmp_path):
        pass
    other.kill()
    other.communicate()
    with RunLock(tmp_path):
        pass


def test_the_score_and_the_games_are_in_the_manifest(run: Path) -> None:
    manifest = json.loads((run / "checkpoints" / "00000002" / "manifest.json").read_text())
    assert manifest["score"] == 0.5 and manifest["bank"] == {"seed": 0, "swaps": 0, "worlds": "w"}
    assert np.isfinite(manifest["score"]) and manifest["format"] == checkpoint.FORMAT
