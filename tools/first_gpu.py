"""The steps of tools/first_gpu.sh: each a process of its own with a time limit, its result written before the next one starts.

A step that fails, crashes or runs too long leaves its message and the others go on; a step for which no time is left says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echelon_jax.gpu.flags import GRAPH_FLAGS, merged

ROOT = Path(__file__).resolve().parents[1]
GRACE = 40.0  # seconds that a stopped step has to save what it has
KEPT_LINES = 15  # of a failed step's messages
CURVE = ("env_steps", "env_steps_per_second", "win_rate", "return_per_mech", "update/entropy", "memory/device_mb")
NO_GRAPHS = "--xla_gpu_enable_command_buffer="
GRAPHS = " ".join(flag.text for flag in GRAPH_FLAGS)
AS_XLA_WOULD = "--xla_gpu_enable_triton_gemm=true"


@dataclasses.dataclass(frozen=True)
class Step:
    """One measurement.

    Attributes:
        name: in the file of results.
        command: to run.
        limit: seconds it may take; 0 for all that is left but `leave`.
        least: seconds without which it is not begun.
        flags: XLA flags besides the product's own.
        read: makes the result of its output.
        leave: seconds to leave for the steps behind it, where it has no limit.
        stopped_is_fine: whether running out of time is how it ends.
    """

    name: str
    command: list[str]
    limit: float
    least: float = 10.0
    flags: str = ""
    read: Callable[[str], Any] = json.loads
    leave: float = 0.0
    stopped_is_fine: bool = False


def last_json(text: str) -> Any:
    """Return the JSON value that begins on the first line starting with a brace."""
    return json.loads(text[text.index("{") :])


def curve_of(run: Path) -> Callable[[str], Any]:
    """Return a reader of a run's metrics: the numbers of `CURVE`, a row per call."""

    def read(_: str) -> Any:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return {"calls": len(rows), "curve": [{name: row.get(name) for name in CURVE} for row in rows]}

    return read


def steps(rehearse: bool, out: Path, golden: Path) -> list[Step]:
    """Return the steps in order of worth."""
    python, run = sys.executable, out.with_name(f"{out.stem}_run")
    echelon = [python, "-m", "echelon_jax.cli.main"]
    probe = [python, "-m", "echelon_jax.gpu.probe"]
    small, middle, large = (8, 16, 24) if rehearse else (4096, 16384, 65536)
    seconds = "0.2" if rehearse else "4"
    sizes = ["--arenas", "8", "--size", "28"] if rehearse else []
    tiny = ["--entries", "65536", "--matrix", "64"] if rehearse else []

    def bench(arenas: int, flags: str = "", kernels: str = "xla") -> Step:
        command = [*echelon, "bench", "--which", "env", "--arenas", str(arenas), "--seconds", seconds, "--json"]
        command += ["--kernels", kernels]
        name = f"bench_{arenas}" + ("_graphs" if flags else "") + ("_native" if kernels == "native" else "")
        return Step(name, [*command, "--threads", "0"], 75.0, 25.0, flags, last_json)

    preset = ["--preset", "smoke"] if rehearse else ["--preset", "gpu", "--updates-per-call", "1"]
    train = [*echelon, "train", *preset, "--run-dir", str(run), "--eval-games", "0"]
    trace = [python, "-m", "echelon_jax.gpu.trace", *(["--steps", "2"] if rehearse else []), *sizes]
    parity = [*echelon, "parity", "--golden", str(golden), "--sections", "episodes", "--json"]
    chosen = first_files(golden, 1 if rehearse else 10)
    parity += ["--files", *chosen] if chosen else []
    return [
        Step("device", [*probe, "device"], 40.0, read=last_json),
        Step("policy_as_xla_would", [*probe, "policy", *sizes], 60.0, flags=AS_XLA_WOULD, read=last_json),
        Step("policy", [*probe, "policy", *sizes], 60.0, read=last_json),
        bench(small),
        bench(small, GRAPHS),
        bench(small, kernels="native"),
        Step("constants", [*probe, "constants", *tiny], 40.0, read=last_json),
        Step("constants_no_graphs", [*probe, "constants", *tiny], 40.0, flags=NO_GRAPHS, read=last_json),
        Step("constants_graphs", [*probe, "constants", *tiny], 40.0, flags=GRAPHS, read=last_json),
        Step("trace", trace, 80.0, 30.0, read=last_json),
        bench(middle),
        bench(middle, kernels="native"),
        Step("train", train, 180.0, 60.0, read=curve_of(run), leave=90.0, stopped_is_fine=True),
        Step("export", [*echelon, "export", str(run)], 45.0, read=str.splitlines),
        Step("parity", parity, 75.0, 25.0, read=last_json),
        bench(large, kernels="native"),
        Step("parity_native", [*parity, "--kernels", "native"], 75.0, 25.0, read=last_json),
        bench(middle, GRAPHS),
        bench(large),
        bench(large, GRAPHS),
    ]


def first_files(golden: Path, number: int) -> list[str]:
    """Return the names of the smallest recorded episodes."""
    files = sorted((golden / "episodes").glob("*.npz"), key=lambda path: path.stat().st_size)
    return [path.stem for path in files[:number]]


def stop(process: subprocess.Popen[str], with_signal: int) -> None:
    """Send a signal to a step and all that it started."""
    try:
        os.killpg(process.pid, with_signal)
    except ProcessLookupError:
        return


def run_step(step: Step, seconds: float, environ: dict[str, str]) -> dict[str, Any]:
    """Run a step for so long at most and return what it gave: `ok`, `seconds`, and `result` or `error`."""
    environ = environ | {"XLA_FLAGS": merged(f"{environ.get('XLA_FLAGS', '')} {step.flags}")}
    start = time.monotonic()
    process = subprocess.Popen(
        step.command,
        cwd=ROOT,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    stopped = False
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        stopped = True
        stop(process, signal.SIGINT)
        try:
            out, errors = process.communicate(timeout=GRACE if step.stopped_is_fine else 5.0)
        except subprocess.TimeoutExpired:
            stop(process, signal.SIGKILL)
            out, errors = process.communicate()
    answer: dict[str, Any] = {
        "seconds": round(time.monotonic() - start, 1),
        "status": process.returncode,
        "stopped": stopped,
        "xla_flags": environ["XLA_FLAGS"],
    }
    said = "\n".join(errors.splitlines()[-KEPT_LINES:])
    try:
        answer["result"] = step.read(out)
    except (ValueError, OSError) as error:
        return answer | {"ok": False, "error": f"no result: {error}", "said": said}
    answer["ok"] = process.returncode == 0 or (stopped and step.stopped_is_fine)
    return answer if answer["ok"] else answer | {"error": f"ended with status {process.returncode}", "said": said}


def write(out: Path, results: dict[str, Any]) -> None:
    """Write the results whole or not at all."""
    beside = out.with_suffix(".partial")
    beside.write_text(json.dumps(results, indent=1))
    beside.replace(out)


def run_all(
    todo: list[Step], out: Path, seconds: float, environ: dict[str, str], about: dict[str, Any]
) -> dict[str, Any]:
    """Run the steps in order within so many seconds; the file is written after each of them."""
    begun = time.monotonic()
    results: dict[str, Any] = {**about, "steps": {}}
    for step in todo:
        left = seconds - (time.monotonic() - begun)
        room = min(step.limit, left - step.leave) if step.leave else min(step.limit, left)
        if room < step.least:
            results["steps"][step.name] = {"ok": False, "error": f"not begun: {max(left, 0):.0f} s were left"}
        else:
            results["steps"][step.name] = run_step(step, room, environ)
        results["seconds"] = round(time.monotonic() - begun, 1)
        write(out, results)
        done = results["steps"][step.name]
        print(f"{step.name}: {'ok' if done['ok'] else done['error']} ({done.get('seconds', 0)} s)", flush=True)
    return results


def main(argv: list[str] | None = None) -> int:
    """Run everything; 0 once the file is written, whatever the steps said."""
    parser = argparse.ArgumentParser(prog="tools/first_gpu.sh", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("first_gpu.json"), help="file of results")
    parser.add_argument("--minutes", type=float, default=8.9, help="time for everything")
    parser.add_argument(
        "--golden", type=Path, default=None, help="folder of recordings; by default ECHELON_GOLDEN or tests/data"
    )
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU, without the clock")
    parser.add_argument("--only", nargs="*", default=None, help="names of steps")
    asked = parser.parse_args(argv)
    told = os.environ.get("ECHELON_GOLDEN", "")
    golden = asked.golden or (Path(told) if told and Path(told).is_dir() else ROOT / "tests" / "data")
    out = asked.out.absolute()
    todo = steps(asked.rehearse, out, golden.absolute())
    unknown = set(asked.only or ()) - {step.name for step in todo}
    if unknown:
        parser.error(f"--only must be of {', '.join(step.name for step in todo)}, got {', '.join(sorted(unknown))}")
    todo = [step for step in todo if asked.only is None or step.name in asked.only]
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    }
    if asked.rehearse:
        environ |= {"JAX_PLATFORMS": "cpu"}
        todo = [dataclasses.replace(step, limit=step.limit * 20, leave=0.0, least=0.0) for step in todo]
    run = out.with_name(f"{out.stem}_run")
    if run.exists() and any(step.name == "train" for step in todo):
        shutil.move(run, run.with_name(f"{run.name}_{int(time.time())}"))
    out.parent.mkdir(parents=True, exist_ok=True)
    about = {"rehearsal": asked.rehearse, "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    seconds = 3600.0 * 3 if asked.rehearse else asked.minutes * 60.0 - GRACE / 2
    run_all(todo, out, seconds, environ, about)
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
