"""Kill test: kill a run with SIGKILL at random moments, many inside a save, resume it, and compare it with one never killed.

    python benchmarks/kill_test.py --train-kills 30 --save-kills 70

There are two parts. `train` kills and resumes `echelon train` itself, on the smallest game. `save` kills a process that does
hardly anything but write checkpoints in the background through the same code, so that nearly every kill hits a write.

After every kill each checkpoint in the directory must be whole (checksums), the last one must be no older than the last one
before the kill, and no more updates may be repeated than one save interval. At the end the last checkpoint, the best one and
all metrics except times and memory must equal those of the run that was never killed, bit for bit.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
GAME = "--rules original --size 20 --network original --opponent random"
SMALL = "--hidden 8 --lstm 8 --arenas 2 --rollout-steps 4 --epochs 1 --minibatches 1 --bank-size 2 --eval-games 0"
SWAPS = "--bank-swap-every 6 --bank-swap-size 1"
SAVE_EVERY = 3
UNLIKE = ("seconds/", "memory/", "env_steps_per", "time")  # metrics that no two runs share


@dataclasses.dataclass
class Tally:
    """What was seen over all kills."""

    kills: int = 0
    inside_a_save: int = 0
    early: int = 0  # before that life had done anything that the lives before it had not
    repeated: int = 0  # most updates that one kill cost
    faults: list[str] = dataclasses.field(default_factory=list)


def whole_checkpoints(run_dir: Path) -> dict[int, str | None]:
    """Return what is wrong with each checkpoint of a run, by update; None where nothing is."""
    from echelon_jax.runs import checkpoint

    found: dict[int, str | None] = {}
    for path in checkpoint.whole_checkpoints(run_dir / "checkpoints"):
        try:
            manifest = checkpoint.read_manifest(path)
            checkpoint.verify(manifest)
            found[manifest.update] = None
        except checkpoint.CheckpointError as error:
            found[int(path.name[-8:])] = str(error)
    return found


def half_done(folder: Path) -> set[tuple[str, int, int]]:
    """Return what an interrupted save has left, told apart from what an earlier one left."""
    left = [*folder.glob(".partial-*"), *folder.glob(".replaced-*")]
    return {(p.name, p.stat().st_ino, p.stat().st_ctime_ns) for p in left}


def updates_reported(run_dir: Path) -> int:
    """Return the last update in the metrics, 0 if there is none."""
    from echelon_jax.runs.description import read_lines

    return max((line["update"] for line in read_lines(run_dir)), default=0)


def live_and_die(start: Callable[[], int], run_dir: Path, rng: random.Random, tally: Tally, between: int) -> bool:
    """Start a life, end it at a random moment, and look at what it left; true if it came to its natural end instead."""
    folder = run_dir / "checkpoints"
    before = whole_checkpoints(run_dir)
    last = max(before, default=0)
    reported = max(last, updates_reported(run_dir))
    unfinished = half_done(folder)
    pid = start()
    inside = rng.random() < 0.6
    # Either so many writes from now and some milliseconds into it, or some time after so many checkpoints.
    goal, delay = last + between * rng.randint(0 if last else 1, 2), rng.uniform(0.0, 0.25)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            if status:
                tally.faults.append(f"a life ended with status {status}")
            return True
        there = [int(p.name) for p in folder.glob("[0-9]*")] if folder.is_dir() else []
        if max(there, default=0) >= goal and (not inside or (folder / ".partial-new").exists()):
            break
        time.sleep(0.002)
    time.sleep(delay if inside else delay * 4)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    after = whole_checkpoints(run_dir)
    tally.kills += 1
    tally.inside_a_save += bool(half_done(folder) - unfinished)  # and not what an earlier kill left
    tally.early += updates_reported(run_dir) <= reported
    tally.repeated = max(tally.repeated, updates_reported(run_dir) - max(after, default=0))
    tally.faults += [problem for problem in after.values() if problem]
    if max(after, default=0) < last:
        tally.faults.append(f"update {last} was saved and is gone")
    return False


def same_checkpoint(one: Path, other: Path) -> list[str]:
    """Return the names of what differs between two checkpoints: every array bit for bit, update, worlds, score and games."""
    from echelon_jax.runs import tree_files

    different = []
    for part in ("policy", "run"):
        a, b = tree_files.read_flat(one / part), tree_files.read_flat(other / part)
        different += sorted(set(a) ^ set(b))
        different += [k for k in a if k in b and np.asarray(a[k]).tobytes() != np.asarray(b[k]).tobytes()]
    a, b = (json.loads((directory / "manifest.json").read_text()) for directory in (one, other))
    return different + [k for k in ("update", "train", "env", "bank", "score", "extra") if a[k] != b[k]]


def same_metrics(one: Path, other: Path) -> list[str]:
    """Return what differs between two metrics files, times and memory apart."""
    from echelon_jax.runs.description import read_lines

    a, b = read_lines(one), read_lines(other)
    if [line["update"] for line in a] != [line["update"] for line in b]:
        return ["the updates that have a line"]
    return sorted({k for x, y in zip(a, b, strict=True) for k in x if not k.startswith(UNLIKE) and x[k] != y.get(k)})


# -- Part 1: echelon train ---------------------------------------------------------------------------------------------


def train_life(run_dir: Path, updates: int, log: Path) -> Callable[[], int]:
    """Return what starts `echelon train` on a run, or resumes it, and returns the process id."""

    def start() -> int:
        command = [sys.executable, str(ROOT / "train.py"), "--updates", str(updates), "--run-dir", str(run_dir)]
        command += ["--save-every", str(SAVE_EVERY), "--eval-games", "0"]
        if any((run_dir / "checkpoints").glob("[0-9]*")):
            command += ["--resume"]
        else:
            shutil.rmtree(run_dir, ignore_errors=True)  # killed before its first checkpoint: there is nothing to resume
            command += ["--preset", "smoke", "--validation-every", "0", *f"{GAME} {SMALL} {SWAPS}".split()]
        with log.open("a") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT).pid

    return start


# -- Part 2: nothing but saves ------------------------------------------------------------------------------------------


def save_life(run_dir: Path, updates: int, log: Path) -> Callable[[], int]:
    """Return what forks a process that goes on from the last checkpoint, one made-up update and one save after another."""

    def life() -> None:
        from echelon_jax.runs import checkpoint
        from echelon_jax.runs.saver import Saver

        rng_state = {"a": np.zeros((200, 100), np.float32), "b": np.zeros(1000, np.float32)}
        update = 0
        if any((run_dir / "checkpoints").glob("[0-9]*")) or any((run_dir / "checkpoints").glob(".replaced-0*")):
            update = checkpoint.read_manifest(run_dir).update
            rng_state = _read_numbers(checkpoint.find(run_dir))
        lines = run_dir / "metrics.jsonl"
        run_dir.mkdir(parents=True, exist_ok=True)
        with Saver(run_dir, keep=3) as saver:
            while update < updates:  # as the runner does with save_every 2
                update += 1
                rng_state = {
                    k: np.sin(v * 1.7 + update + np.arange(v.size).reshape(v.shape)) for k, v in rng_state.items()
                }
                rng_state = {k: v.astype(np.float32) for k, v in rng_state.items()}
                with lines.open("a") as out:
                    out.write(json.dumps({"update": update}) + "\n")
                saver.save(_numbers_snapshot(update, rng_state))

    def start() -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            with log.open("a") as out:
                os.dup2(out.fileno(), 2)
                life()
            status = 0
        finally:
            os._exit(status)

    return start


def _numbers_snapshot(update: int, numbers: dict[str, np.ndarray]):  # type: ignore[no-untyped-def]
    """A checkpoint with the manifest of a real run and made-up numbers; its score has a new best now and then."""
    from echelon_jax.config import EnvConfig
    from echelon_jax.runs import checkpoint
    from echelon_jax.training.config import TrainConfig

    env_config = EnvConfig.original(size_x=20, size_y=20)
    score = float(np.float32(np.sin(update)))
    manifest = {
        "format": checkpoint.FORMAT,
        "update": update,
        "run": "kill-test",
        "train": dataclasses.asdict(TrainConfig.smoke()),
        "env": dataclasses.asdict(env_config),
        "observation_layout": checkpoint.layout_hash(env_config),
        "bank": None,
        "score": score,
        "extra": {},
    }
    return checkpoint.Snapshot(update, {"x": numbers["a"]}, numbers, manifest, score)


def _read_numbers(directory: Path) -> dict[str, np.ndarray]:
    from echelon_jax.runs import tree_files

    return {k: np.asarray(v) for k, v in tree_files.read_flat(directory / "run").items()}


# -- Both ---------------------------------------------------------------------------------------------------------------


def part(name: str, life: Callable, kills: int, updates: int, save_every: int, directory: Path, seed: int) -> bool:
    """Run one part and print what was seen; true if nothing was wrong."""
    rng, tally, began = random.Random(seed), Tally(), time.perf_counter()
    calm, killed, log = directory / f"{name}-calm", directory / f"{name}-killed", directory / f"{name}.log"
    pid = life(calm, updates, log)()
    if os.waitpid(pid, 0)[1]:
        print(f"{name}: the run that nobody killed failed; see {log}")
        return False
    start = life(killed, updates, log)
    finished = False
    while tally.kills < kills and not finished:
        finished = live_and_die(start, killed, rng, tally, save_every - 1)
        print(f"{name}: kill {tally.kills}, saved {max(whole_checkpoints(killed), default=0)}", flush=True)
    if not finished and os.waitpid(start(), 0)[1]:
        tally.faults.append(f"the last life failed; see {log}")
    last = f"checkpoints/{updates:08d}"
    differs = same_checkpoint(calm / last, killed / last)
    differs += [f"best: {k}" for k in same_checkpoint(calm / "checkpoints" / "best", killed / "checkpoints" / "best")]
    if name == "train":
        differs += [f"metrics: {k}" for k in same_metrics(calm, killed)]
    if tally.repeated > save_every:
        tally.faults.append(f"{tally.repeated} updates repeated, {save_every} allowed")
    print(
        f"{name}: {tally.kills} kills over {updates} updates ({tally.inside_a_save} inside a save, {tally.early} before "
        f"anything new), at most {tally.repeated} updates repeated after one kill (a save interval, {save_every}, is allowed), "
        f"{len(tally.faults)} lost or unreadable checkpoints, final state, best and metrics "
        f"{'equal bit for bit' if not differs else f'DIFFER in {differs[:5]}'}; {time.perf_counter() - began:.0f} s"
    )
    for fault in tally.faults:
        print(f"{name}: {fault}")
    if tally.kills < kills:
        print(f"{name}: the run came to its end before {kills} kills; give it more updates")
    return not tally.faults and not differs and tally.kills >= kills


def main() -> int:
    """Run both parts; returns 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train-kills", type=int, default=30)
    parser.add_argument("--save-kills", type=int, default=70)
    parser.add_argument("--train-updates", type=int, default=0, help="0: eight for each kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dir", type=Path, default=None, help="where the runs go; a temporary directory by default")
    given = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("NPROC", "1")
    # Imported before the forks, and nothing computed: a process with JAX's threads must not be forked.
    import echelon_jax.runs.saver  # noqa: F401

    directory = given.dir or Path(tempfile.mkdtemp(prefix="kill-test-"))
    directory.mkdir(parents=True, exist_ok=True)
    good = True
    if given.save_kills:
        good &= part("save", save_life, given.save_kills, 16 * given.save_kills, 2, directory, given.seed)
    if given.train_kills:
        updates = given.train_updates or 8 * given.train_kills
        good &= part("train", train_life, given.train_kills, updates, SAVE_EVERY, directory, given.seed)
    if given.dir is None and good:
        shutil.rmtree(directory)
    print("kill test:", "nothing lost" if good else "NOT PASSED, see above")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
