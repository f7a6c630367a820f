"""The first minutes on a GPU: a step that fails costs only itself, and what was measured becomes a page and constants."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from echelon_jax.gpu.cost import Model
from echelon_jax.gpu.measured import calibrated, put_section, section
from echelon_jax.gpu.target import DATA
from echelon_jax.gpu.trace import kernel_events, microseconds_by

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def tool(name: str) -> ModuleType:
    """A script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


first_gpu, report = tool("first_gpu"), tool("first_gpu_report")


def saying(name: str, text: str, **fields: Any) -> Any:
    """A step that prints a text."""
    return first_gpu.Step(name, [sys.executable, "-c", text], 30.0, read=first_gpu.last_json, **fields)


GOOD = "print('a line before'); print('{\"speed\": 3}')"
CRASH = "import os, sys; print('why', file=sys.stderr); sys.stderr.flush(); os.abort()"
FOREVER = "import time; print('{}', flush=True); time.sleep(600)"


def run(tmp_path: Path, *steps: Any, seconds: float = 60.0) -> dict[str, Any]:
    out = tmp_path / "out.json"
    results = first_gpu.run_all(list(steps), out, seconds, dict(os.environ), {})
    assert json.loads(out.read_text()) == results
    return results["steps"]


def test_a_step_that_crashes_keeps_its_last_words_and_the_next_one_runs(tmp_path: Path) -> None:
    steps = run(tmp_path, saying("bad", CRASH), saying("good", GOOD))
    assert not steps["bad"]["ok"]
    assert "why" in steps["bad"]["said"]
    assert steps["good"]["ok"]
    assert steps["good"]["result"] == {"speed": 3}


def test_a_step_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    begun = time.monotonic()
    steps = run(tmp_path, first_gpu.Step("slow", [sys.executable, "-c", FOREVER], 0.5, 0.0, read=first_gpu.last_json))
    assert time.monotonic() - begun < 60
    assert steps["slow"]["stopped"]
    assert not steps["slow"]["ok"]


def test_a_step_without_time_left_is_not_begun_and_says_so(tmp_path: Path) -> None:
    steps = run(tmp_path, saying("late", GOOD), seconds=1.0)
    assert steps["late"]["error"].startswith("not begun")


def test_results_so_far_are_written_before_the_next_step(tmp_path: Path) -> None:
    look = f"import json; print(json.dumps(json.load(open({str(tmp_path / 'out.json')!r}))['steps']['good']))"
    steps = run(tmp_path, saying("good", GOOD), saying("look", look))
    assert steps["look"]["result"]["result"] == {"speed": 3}


def test_a_steps_own_flags_come_after_the_products(tmp_path: Path) -> None:
    words = "import json, os; print(json.dumps({'flags': os.environ['XLA_FLAGS'].split()}))"
    flags = run(tmp_path, saying("flags", words, flags="--xla_gpu_enable_triton_gemm=true"))["flags"]["result"]["flags"]
    assert [flag for flag in flags if "triton_gemm" in flag] == ["--xla_gpu_enable_triton_gemm=true"]


def test_all_steps_fit_in_nine_minutes_and_training_leaves_time_for_its_export() -> None:
    steps = first_gpu.steps(False, Path("out.json"), Path("tests/data"))
    names = [step.name for step in steps]
    assert names.index("train") < names.index("export")
    train = steps[names.index("train")]
    assert train.leave >= steps[names.index("export")].limit
    assert sum(step.least for step in steps) < 9 * 60


RESULTS = {
    "rehearsal": False,
    "begun": "2027-01-02T03:04:05Z",
    "seconds": 500.0,
    "steps": {
        "device": {"ok": True, "result": {"device": "Card X", "cores": 16, "jax": "1", "python": "3"}},
        "policy": {"ok": True, "result": {"compile_seconds": 12.0}},
        "policy_as_xla_would": {"ok": False, "error": "ended with status 1"},
        "bench_4096": {
            "ok": True,
            "result": {"env": {"env_steps_per_wall_second": 250000.0, "compile_seconds": 30.0, "peak_memory_mib": 900.0}},
        },
        "bench_4096_graphs": {"ok": False, "error": "ended with status -6"},
        "constants": {
            "ok": True,
            "result": {
                "kernel_us": 2.0, "start_us": 6.0, "iteration_us": 17.0,
                "memory_bytes_per_us": 2.6e6, "cache_bytes_per_us": 5e6, "flops_per_us": 1e8,
            },
        },
        "constants_no_graphs": {"ok": True, "result": {"kernel_us": 3.0}},
        "trace": {
            "ok": True,
            "result": {
                "arenas": 4096, "steps": 4, "wall_microseconds_per_step": 16000.0,
                "phase_microseconds_per_step": {"fire": 5000.0},
                "longest_kernels": [{"name": "fusion.1", "phase": "fire", "microseconds_per_step": 70.0}],
            },
        },
        "train": {"ok": True, "seconds": 180.0, "result": {"calls": 1, "curve": [{"env_steps": 100, "win_rate": 0.5}]}},
    },
}  # fmt: skip
ESTIMATE = {
    "program": "env",
    "arenas": 4096,
    "phases": {"fire": {"microseconds": {"low": 2000, "mid": 4000, "high": 8000}}},
}


def test_measured_constants_replace_assumptions_and_the_model_reads_them(tmp_path: Path) -> None:
    old = json.loads((DATA / "cost.json").read_text())
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(calibrated(old, RESULTS)))
    model = Model.read(path)
    assert model.measured == "Card X"
    assert [model.microseconds[name][1] for name in ("graph_kernel", "graph", "kernel", "host_check")] == [2, 6, 3, 11]
    assert model.memory[1] == 2.6e6  # and an iteration of 17 us is two kernels of 3 us and a check
    assert model.memory[0] > model.memory[1] > model.memory[2]
    copies = (model.microseconds["graph_copy"][1], old["microseconds"]["graph_copy"]["mid"])
    kernels = (2.0, old["microseconds"]["graph_kernel"]["mid"])
    assert copies[0] / copies[1] == pytest.approx(kernels[0] / kernels[1], rel=1e-3)  # four digits are kept


def test_a_constant_that_was_not_measured_stays() -> None:
    old = json.loads((DATA / "cost.json").read_text())
    assert calibrated(old, RESULTS)["microseconds"]["graph_check"] == old["microseconds"]["graph_check"]


def test_the_section_sets_the_estimate_against_what_was_measured() -> None:
    text = section(RESULTS, ESTIMATE)
    assert "| fire | 5,000 | 2,000 / 4,000 / 8,000 | 1.25 |" in text
    assert "| 4096 | 250,000 | 30.0 | 900 |  |" in text
    assert "ended with status -6" in text
    assert "fails: ended with status 1" in text


def test_an_estimate_of_another_program_is_refused() -> None:
    with pytest.raises(ValueError, match="4096 arenas"):
        section(RESULTS, ESTIMATE | {"arenas": 256})


def test_writing_a_section_twice_leaves_one() -> None:
    page = put_section("# Page\n\nText.\n", "old", "Card X")
    again = put_section(page, "new", "Card X")
    assert again.count("measured: Card X") == 1
    assert "new" in again
    assert "old" not in again
    assert put_section(again, "other", "Card Y").count("<!-- measured:") == 2


def test_a_rehearsal_never_changes_the_projects_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(RESULTS | {"rehearsal": True}))
    assert report.main([str(path)]) == 2
    assert "rehearsal" in capsys.readouterr().err
    cost = tmp_path / "cost.json"
    cost.write_text((DATA / "cost.json").read_text())
    assert report.main([str(path), "--page", str(tmp_path / "page.md"), "--cost", str(cost)]) == 0
    assert "Card X (rehearsal" in (tmp_path / "page.md").read_text()


def test_kernels_of_a_device_are_summed_by_the_phase_of_their_instruction() -> None:
    trace = {
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
            {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "/host:CPU"}},
            {"ph": "X", "pid": 1, "name": "k", "dur": 2.0, "args": {"hlo_op": "fusion.1"}},
            {"ph": "X", "pid": 1, "name": "k", "dur": 3.0, "args": {"hlo_op": "fusion.1"}},
            {"ph": "X", "pid": 1, "name": "memcpy", "dur": 1.0, "args": {}},
            {"ph": "X", "pid": 2, "name": "python", "dur": 99.0, "args": {}},
        ]
    }
    assert microseconds_by(kernel_events(trace), {"fusion.1": "fire"}) == {"fire": 5.0, "other": 1.0}


@pytest.mark.parametrize("names", [["device", "constants"]])
def test_the_script_runs_from_the_shell_and_writes_one_file(tmp_path: Path, names: list[str]) -> None:
    out = tmp_path / "r.json"
    environ = os.environ | {"PYTHON": sys.executable}
    command = [str(TOOLS / "first_gpu.sh"), "--rehearse", "--out", str(out), "--only", *names]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps = json.loads(out.read_text())["steps"]
    assert {name: step["ok"] for name, step in steps.items()} == dict.fromkeys(names, True)


@pytest.mark.slow
def test_a_whole_rehearsal_gives_every_result(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    assert first_gpu.main(["--rehearse", "--out", str(out), "--golden", str(TOOLS.parent / "tests" / "data")]) == 0
    steps = json.loads(out.read_text())["steps"]
    assert {name: step.get("error") for name, step in steps.items() if not step["ok"]} == {}
