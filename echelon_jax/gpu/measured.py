"""What tools/first_gpu.sh measured, as a section of docs/benchmarks.md and as constants of the cost model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from echelon_jax.gpu.cost import LEVELS

SPREAD = 1.25  # a measured constant's high cost over its mid, and its mid over its low
# Constant of the cost model: step that measured it, and what it is called there.
OVERHEADS = {
    "graph_kernel": ("constants", "kernel_us"),
    "graph": ("constants", "start_us"),
    "kernel": ("constants_no_graphs", "kernel_us"),
}
# The check of a loop's end: step that measured an iteration, and what each of the two kernels in it costs there.
CHECKS = {"host_check": ("constants", "kernel"), "graph_check": ("constants_graphs", "graph_kernel")}
NOTHING = "-"


def result_of(results: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    """Return what a step gave, empty where it gave nothing."""
    found = results["steps"].get(step, {}).get("result")
    return found if isinstance(found, Mapping) else {}


def device_of(results: Mapping[str, Any]) -> str:
    """Return the name of the device that was measured.

    Raises:
        ValueError: if the step that asks for it gave nothing.
    """
    name = result_of(results, "device").get("device")
    if not name:
        raise ValueError("the results must hold the step device, which says what was measured")
    return str(name)


def _around(mid: float) -> dict[str, float]:
    return {
        level: float(f"{mid * factor:.4g}") for level, factor in zip(LEVELS, (1 / SPREAD, 1.0, SPREAD), strict=True)
    }


def calibrated(cost: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of the cost model (data/cost.json) with every constant that was measured; the others stay.

    A copy inside a graph was not measured alone: it keeps its proportion to a kernel there.
    """
    new = copy.deepcopy(dict(cost))
    for constant, (step, name) in OVERHEADS.items():
        value = float(result_of(results, step).get(name, 0.0))
        if value > 0:
            new["microseconds"][constant].update(_around(value))
    for constant, (step, kernel_name) in CHECKS.items():
        iteration = float(result_of(results, step).get("iteration_us", 0.0))
        value = iteration - 2.0 * new["microseconds"][kernel_name]["mid"]
        if value > 0:
            new["microseconds"][constant].update(_around(value))
    old_kernel, kernel = (data["microseconds"]["graph_kernel"]["mid"] for data in (cost, new))
    copied = cost["microseconds"]["graph_copy"]["mid"] * kernel / old_kernel
    new["microseconds"]["graph_copy"].update(_around(copied))
    rates = {"memory": "memory_bytes_per_us", "cache": "cache_bytes_per_us"}
    rows = [(new["bytes_per_microsecond"][row], name) for row, name in rates.items()]
    for row, name in [*rows, (new["flops_per_microsecond"], "flops_per_us")]:
        rate = float(result_of(results, "constants").get(name, 0.0))
        if rate > 0:
            row.update(dict(zip(LEVELS, reversed(_around(rate).values()), strict=True)))  # a high rate is a low cost
    new["measured"] = device_of(results)
    new["source"] = f"measured on {new['measured']} by tools/first_gpu.sh, {results.get('begun', 'undated')}"
    return new


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    names = list(head)
    return [f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *map(list, rows))]


def _number(value: Any, form: str = ",.0f") -> str:
    return format(value, form) if isinstance(value, int | float) else NOTHING


def _benches(results: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, step in results["steps"].items():
        if not name.startswith("bench_"):
            continue
        env = result_of(results, name).get("env", {})
        rows.append(
            [
                name.removeprefix("bench_").replace("_", ", "),
                _number(env.get("env_steps_per_wall_second")),
                _number(env.get("compile_seconds"), ".1f"),
                _number(env.get("peak_memory_mib")),
                "" if step["ok"] else str(step.get("error")),
            ]
        )
    return table(("arenas", "env-steps/s", "compile s", "peak device MiB", "failed"), rows)


def _phases(results: Mapping[str, Any], estimate: Mapping[str, Any] | None) -> list[str]:
    trace = result_of(results, "trace")
    if not trace:
        return []
    lines = [
        f"Trace of {trace['steps']} decision steps at {trace['arenas']:,} arenas, with the profiler on: "
        f"{trace['wall_microseconds_per_step']:,.0f} us of wall time a step. "
        "Time of kernels by phase, and the cost model's estimate of it:",
        "",
    ]
    if estimate is not None and (estimate["arenas"] != trace["arenas"] or estimate["program"] != "env"):
        raise ValueError(f"the estimate must be of env at {trace['arenas']} arenas, as the trace is")
    guessed = {} if estimate is None else estimate["phases"]
    rows = []
    for phase, time in trace["phase_microseconds_per_step"].items():
        guess = guessed.get(phase, {}).get("microseconds")
        spread = NOTHING if guess is None else " / ".join(f"{guess[level]:,.0f}" for level in LEVELS)
        ratio = NOTHING if guess is None or not guess["mid"] else f"{time / guess['mid']:.2f}"
        rows.append([phase, f"{time:,.0f}", spread, ratio])
    lines += table(("phase", "measured us", "estimate us, low / mid / high", "measured / mid"), rows)
    longest = [
        [f"`{row['name']}`", row["phase"], f"{row['microseconds_per_step']:,.1f}"] for row in trace["longest_kernels"]
    ]
    return [*lines, "", "The ten longest kernels:", "", *table(("kernel", "phase", "us a step"), longest)]


def _training(results: Mapping[str, Any]) -> list[str]:
    curve = result_of(results, "train").get("curve", [])
    if not curve:
        return []
    shown = curve if len(curve) <= 8 else [curve[i * (len(curve) - 1) // 7] for i in range(8)]
    rows = [
        [
            _number(row.get("env_steps")),
            _number(row.get("env_steps_per_second")),
            _number(row.get("win_rate"), ".2f"),
            _number(row.get("return_per_mech"), ".2f"),
            _number(row.get("memory/device_mb")),
        ]
        for row in shown
    ]
    preset = "smoke" if results.get("rehearsal") else "gpu"
    text = (
        f"Training, preset {preset}, {len(curve)} calls in {results['steps']['train']['seconds']:.0f} s with compiling:"
    )
    return [text, "", *table(("env-steps", "env-steps/s", "win rate", "return per mech", "peak device MiB"), rows)]


def section(results: Mapping[str, Any], estimate: Mapping[str, Any] | None = None) -> str:
    """Return the section of docs/benchmarks.md.

    Args:
        results: the file that tools/first_gpu.sh wrote.
        estimate: a report of `echelon bench --compile-for`, to set against the trace.

    Raises:
        ValueError: results without a device, or an estimate of another program.
    """
    device = result_of(results, "device")
    title = device_of(results) + (" (rehearsal: tiny sizes, no benchmark)" if results.get("rehearsal") else "")
    policy, default = results["steps"].get("policy", {}), results["steps"].get("policy_as_xla_would", {})
    said = [
        f"{device.get('cores')} CPU cores, jax {device.get('jax')}, Python {device.get('python')}, "
        f"{results.get('begun', '')[:10]}; everything took {results.get('seconds', 0):.0f} s."
    ]
    for name, step in (("with the product's flags", policy), ("with XLA's own choice of matrix products", default)):
        if step:
            seconds = _number((step.get("result") or {}).get("compile_seconds"), ".1f")
            verdict = f"compiles in {seconds} s" if step["ok"] else f"fails: {step.get('error')}"
            said.append(f"The modern policy {name} {verdict}.")
    for name, words in (("export", "Export and its check"), ("parity", "Parity with recorded games")):
        step = results["steps"].get(name)
        if step:
            said.append(f"{words}: {'passed' if step['ok'] else step.get('error')}.")
    failed = [name for name, step in results["steps"].items() if not step["ok"]]
    said.append(f"Steps that gave no result: {', '.join(failed)}." if failed else "Every step gave its result.")
    parts = [[f"## {title}"], said, _benches(results), _phases(results, estimate), _training(results)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def put_section(page: str, text: str, device: str) -> str:
    """Return a page with the section between its markers, replaced where the device has one already."""
    begin, end = f"<!-- measured: {device} -->", f"<!-- end: {device} -->"
    block = f"{begin}\n\n{text}\n{end}\n"
    if begin in page and end in page:
        before, after = page.split(begin, 1)[0], page.split(end, 1)[1].lstrip("\n")
        return before + block + (f"\n{after}" if after else "")
    return page.rstrip("\n") + "\n\n" + block
