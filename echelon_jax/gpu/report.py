"""The results of a compilation for a GPU, as one JSON-able dictionary and as a table."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from echelon_jax.gpu.compiler import Compiled, Request, compile_program
from echelon_jax.gpu.cost import LEVELS, Cost, Count, Model, decisions_per_second, loops_asking
from echelon_jax.gpu.memory import read_scratch
from echelon_jax.gpu.phases import attribute
from echelon_jax.gpu.target import DATA
from echelon_jax.gpu.thunks import Dump, read_dump
from echelon_jax.terminal import PlainConsole, number_table

ESTIMATE = "estimate; no device has run this"


def _numbers(cost: Cost, decisions: int) -> dict[str, Any]:
    """A part's numbers a decision step."""
    return {
        "launches": cost.launches / decisions,
        **{name: number / decisions for name, number in cost.counts.items()},
        "moved_bytes": cost.bytes / decisions,
        "microseconds": {level: time / decisions for level, time in zip(LEVELS, cost.microseconds, strict=True)},
    }


def describe(
    request: Request, compiled: Compiled, dump: Dump, model: Model, trips: Mapping[str, float], trips_from: str
) -> dict[str, Any]:
    """Return the report of a compiled program; numbers of phases are a decision step of all arenas.

    Args:
        request, compiled, dump: what was compiled and what came of it.
        model: constants of the cost model.
        trips: iterations a decision step of loops whose trip count is data, by key.
        trips_from: where they are from, in words.
    """
    attribute(dump.thunks)
    decisions = compiled.facts["decisions"]
    count = Count(dump.thunks, model, trips, decisions)
    scratch = read_scratch(compiled.dump, dump.stem, dump.program)
    phases = sorted(count.phases.items(), key=lambda row: -row[1].microseconds[1])
    total = count.total
    asking = [loop for loop in count.loops if loop.asks_host]
    speeds = (decisions_per_second(request.arenas, decisions, time) for time in total.microseconds)
    return {
        "target": request.target,
        "program": request.program,
        "arenas": request.arenas,
        "graphs": request.graphs,
        "decisions_per_launch": decisions,
        "facts": compiled.facts["program_facts"],
        "versions": compiled.facts["versions"],
        "xla_flags": compiled.facts["xla_flags"],
        "trace_seconds": compiled.facts["trace_seconds"],
        "compile_seconds": compiled.facts["compile_seconds"],
        "memory_bytes": compiled.facts["memory_bytes"],
        "phases": {name: {**_numbers(cost, decisions), "scratch_bytes": scratch.get(name, 0)} for name, cost in phases},
        "total": _numbers(total, decisions),
        "host_synchronised_loops": len(asking),
        "data_dependent_loops": len(loops_asking(dump.thunks)),
        "loops": [dataclasses.asdict(loop) for loop in count.loops],
        "estimate": {
            "what": ESTIMATE if model.measured is None else f"estimate, calibrated on {model.measured}",
            "decisions_per_second": dict(zip(LEVELS, speeds, strict=True)),
            "cost_model": model.source,
            "constants": {name: list(row) for name, row in model.microseconds.items()},
            "trip_counts": trips_from,
            "loops_counted_once": count.unknown,
        },
    }


def known_trips() -> tuple[dict[str, float], str]:
    """Return iterations a decision step of loops whose trip count is data, as counted once (data/trips.json), and their source."""
    data = json.loads((DATA / "trips.json").read_text())
    return data["iterations"], data["source"]


def compile_and_describe(
    request: Request, trips: Mapping[str, float] | None = None, trips_from: str = "", model: Model | None = None
) -> dict[str, Any]:
    """Compile a program for a GPU and return its report; XLA's dump is thrown away.

    Without `trips` a loop whose trip count is data iterates once each time it is entered.

    Raises:
        NoCompiler, CompileFailed, ValueError: as `compile_program`.
        UnknownListing: as `read_dump`.
    """
    with tempfile.TemporaryDirectory(prefix="echelon-gpu-") as folder:
        compiled = compile_program(request, Path(folder))
        dump = read_dump(compiled.dump)
        from_where = (trips_from or "one iteration each") if loops_asking(dump.thunks) else "none needed"
        return describe(request, compiled, dump, model or Model.read(), trips or {}, from_where)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:,.1f}"


def print_report(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a report as tables, every estimate marked as one."""
    console = console or PlainConsole()
    title = f"{report['program']} at {report['arenas']:,} arenas for {report['target']}, a decision step"
    columns = {"kernels": "kernels", "copies": "copies", "host_launches": "by host", "host_checks": "checks"}
    counts = number_table("phase", (*columns.values(), "MB", "scratch"), title)
    times = number_table("phase", LEVELS, "microseconds of the same (estimate), by cost")

    def row(name: str, part: Mapping[str, Any], scratch: str) -> None:
        moved = _short(part["moved_bytes"] / 1e6)
        counts.add_row(name, *(_short(part[column]) for column in columns), moved, scratch)
        times.add_row(name, *(_short(part["microseconds"][level]) for level in LEVELS))

    for name, part in report["phases"].items():
        row(name, part, f"{part['scratch_bytes'] / 2**20:,.1f}")
    for table in (counts, times):
        table.add_section()
    row("sum", report["total"], f"{report['memory_bytes']['temp'] / 2**20:,.1f}")
    console.print(counts)
    console.print("by host: launched by the host; checks: the host waits for a loop's end; MB: moved; scratch: in MiB")
    console.print()
    console.print(times)
    console.print()
    memory = ", ".join(f"{name} {size / 2**20:,.1f}" for name, size in report["memory_bytes"].items() if size)
    console.print(f"compiled in {report['compile_seconds']:.0f} s with {' '.join(report['xla_flags'])}")
    console.print(f"memory, MiB: {memory}")
    console.print(
        f"launches a decision step (kernels and copies): {_short(report['total']['launches'])}; "
        f"loops that ask the host: {report['host_synchronised_loops']}"
    )
    for loop in report["loops"]:
        if loop["asks_host"]:
            console.print(f"  asks the host: {loop['key']}, entered {_short(loop['entered'])} times a launch")
    estimate = report["estimate"]
    speeds = estimate["decisions_per_second"]
    console.print(
        f"arena decisions a second of this program alone ({estimate['what']}): "
        f"{speeds['high']:,.0f} to {speeds['low']:,.0f}, mid cost {speeds['mid']:,.0f}"
    )
    console.print(f"cost model: {estimate['cost_model']}; trip counts: {estimate['trip_counts']}")
