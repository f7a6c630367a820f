"""Where the time of an environment step goes on a device: `python -m echelon_jax.gpu.trace` prints JSON.

JAX's profiler records every kernel; its name tells the instruction of the program, and that the phase.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from echelon_jax.gpu.phases import OTHER, attribute, phase_of
from echelon_jax.gpu.thunks import Thunk, UnknownListing, read_dump

LONGEST = 10
HOLDERS = ("while", "conditional", "call")  # their time is that of what they run
DEVICE_WORDS = ("/device:", "GPU")  # in the name of a trace's process that is a device


def kernel_events(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a trace that ran on a device; on the CPU, those that belong to an instruction."""
    events = trace["traceEvents"]
    devices = {
        event["pid"]
        for event in events
        if event.get("name") == "process_name" and any(word in event["args"].get("name", "") for word in DEVICE_WORDS)
    }
    timed = [event for event in events if event.get("ph") == "X"]
    if devices:
        return [event for event in timed if event["pid"] in devices and not event["name"].startswith("$")]
    return [event for event in timed if not event.get("args", {}).get("hlo_op", "while").startswith(HOLDERS)]


def microseconds_by(events: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, float]:
    """Return the summed durations of events by what `names` calls their instruction or kernel, `other` where it does not."""
    sums: collections.Counter[str] = collections.Counter()
    for event in events:
        instruction = event.get("args", {}).get("hlo_op", event["name"])
        sums[names.get(instruction, names.get(event["name"], OTHER))] += event["dur"]
    return dict(sums.most_common())


def phases_of_dump(dump: Path) -> dict[str, str]:
    """Return the phase of every instruction that XLA launches on a GPU, by its dump; nothing without one."""
    try:
        read = read_dump(dump)
    except UnknownListing:
        return {}
    attribute(read.thunks)
    phases: dict[str, str] = {}

    def note(thunks: Iterable[Thunk]) -> None:
        for thunk in thunks:
            if thunk.instruction is not None:
                phases[thunk.instruction.name] = thunk.phase
            for inner in thunk.inner:
                note(inner)

    note(read.thunks)
    return phases


def trace_env(arenas: int, size: int, steps: int, rules: str, dump: Path | None) -> dict[str, Any]:
    """Run so many decision steps of the environment under the profiler and return where their time went.

    Args:
        arenas, size, rules: the game.
        steps: traced, after as many that are not.
        dump: directory that XLA_FLAGS told XLA to dump into, if any.
    """
    import jax
    import jax.numpy as jnp

    from echelon_jax.config import EnvConfig
    from echelon_jax.env.autoreset import AutoReset
    from echelon_jax.env.environment import Echelon
    from echelon_jax.env.interfaces import action_layout
    from echelon_jax.gpu.hlo import read_instructions
    from echelon_jax.worldgen.bank import bank_seeds, generate_worlds

    jax.config.update("jax_traceback_in_locations_limit", -1)
    config: EnvConfig = getattr(EnvConfig, rules)(size_x=size, size_y=size)
    env = Echelon(config)
    params = env.params(env.make_bank(generate_worlds(config, bank_seeds(0, 0, 0, 16))))
    keys = jax.random.split(jax.random.key(0), arenas)
    state, _ = jax.jit(env.reset_batch)(keys, params)
    actions = jax.random.uniform(
        jax.random.key(1), (arenas, config.num_mechs, action_layout(config).size), jnp.float32, -1.0, 1.0
    )
    step = jax.jit(AutoReset(env).step_batch, donate_argnums=1)
    start = time.perf_counter()
    compiled = step.lower(keys, state, actions, params).compile()
    compile_seconds = time.perf_counter() - start
    for _ in range(steps):
        state, _ = compiled(keys, state, actions, params)
    jax.block_until_ready(state)
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        with jax.profiler.trace(scratch):
            for _ in range(steps):
                state, _ = compiled(keys, state, actions, params)
            jax.block_until_ready(state)
        wall = time.perf_counter() - start
        files = sorted(Path(scratch).rglob("*.trace.json.gz"))
        trace = json.loads(gzip.decompress(files[-1].read_bytes())) if files else {"traceEvents": []}
    events = kernel_events(trace)
    program = read_instructions(compiled.as_text() or "")
    phases = {name: phase_of(instruction.frames) for name, instruction in program.items()}
    phases |= phases_of_dump(dump) if dump is not None else {}
    by_phase = microseconds_by(events, phases)
    by_kernel = microseconds_by(events, {name: name for name in program} | {e["name"]: e["name"] for e in events})
    return {
        "arenas": arenas,
        "rules": rules,
        "steps": steps,
        "compile_seconds": compile_seconds,
        "wall_microseconds_per_step": wall * 1e6 / steps,
        "events_per_step": len(events) / steps,
        "phase_microseconds_per_step": {name: time / steps for name, time in by_phase.items()},
        "longest_kernels": [
            {"name": name, "phase": phases.get(name, OTHER), "microseconds_per_step": time / steps}
            for name, time in list(by_kernel.items())[:LONGEST]
        ],
    }


def main(argv: list[str] | None = None) -> int:
    """Trace and print JSON."""
    parser = argparse.ArgumentParser(prog="python -m echelon_jax.gpu.trace")
    parser.add_argument("--arenas", type=int, default=4096)
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rules", default="original")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="echelon-gpu-") as scratch:
        dump = Path(scratch)
        told = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{told} --xla_dump_to={dump} --xla_dump_hlo_as_text".strip()
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        print(json.dumps(trace_env(asked.arenas, asked.size, asked.steps, asked.rules, dump)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
