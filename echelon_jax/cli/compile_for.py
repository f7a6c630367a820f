"""`echelon bench --compile-for GPU`: what a GPU that is not here would run, counted, and an estimate of how fast."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.config import RULE_SETS, EnvConfig

PROGRAMS = ("env", "policy", "league", "update", "train")


def compile_for(
    target: str,
    program: str,
    rules: str,
    size: int,
    packs: int,
    arenas: int,
    graphs: bool,
    trip_steps: int,
    as_json: bool,
    kernels: str = "xla",
) -> int:
    """Compile one program for a GPU and print what it would run; returns the exit status.

    Args:
        target: name of the GPU.
        program: `env`, `policy`, `league`, `update` or `train`.
        rules, size, packs: the game.
        arenas: side by side.
        graphs: whether loops and conditionals go into CUDA graphs.
        trip_steps: decision steps that are played on the CPU to count iterations of loops whose trip count is data; with 0 those
            of data/trips.json count.
        as_json: print JSON instead of tables.
        kernels: what runs the simulation, `xla` or `native`.

    Raises:
        UsageError: a flag out of range, the compiler is missing, or the program does not compile.
    """
    if program not in PROGRAMS:
        raise UsageError(f"program must be one of {', '.join(PROGRAMS)}, got {program!r}")
    if rules not in RULE_SETS:
        raise UsageError(f"rules must be one of {', '.join(RULE_SETS)}, got {rules!r}")
    if trip_steps < 0:
        raise UsageError(f"trip-steps must be a whole number from 0, got {trip_steps}")
    config: EnvConfig = checked(getattr(EnvConfig, rules), size_x=size, size_y=size, num_packs=packs)

    from echelon_jax.gpu.compiler import CompileFailed, NoCompiler, Request
    from echelon_jax.gpu.report import compile_and_describe, print_report
    from echelon_jax.gpu.target import missing, target_text
    from echelon_jax.gpu.thunks import UnknownListing

    checked(target_text, target)
    lacks = missing()
    if lacks is not None:
        raise UsageError(lacks)
    request = Request.of(config, target=target, program=program, arenas=arenas, graphs=graphs, kernels=kernels)
    trips, trips_from = counted_trips(config, program, arenas, trip_steps)
    try:
        report = checked(compile_and_describe, request, trips, trips_from)
    except (NoCompiler, UnknownListing) as error:
        raise UsageError(str(error)) from error
    except CompileFailed as error:
        raise UsageError(f"{program} does not compile for {target}: {error}") from error
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)
    return 0


def counted_trips(config: EnvConfig, program: str, arenas: int, steps: int) -> tuple[Mapping[str, float], str]:
    """Iterations of loops whose trip count is data, counted in a game on the CPU, and where they are from in words."""
    if not steps or program in ("policy", "update"):
        from echelon_jax.gpu.report import known_trips

        return known_trips()
    from echelon_jax.gpu.trips import measure_trips
    from echelon_jax.sim.widths import ENVIRONMENT_VARIABLE

    os.environ.setdefault(ENVIRONMENT_VARIABLE, "gpu")
    every = max(1, steps // 10)
    trips = measure_trips(config, arenas, steps, every, scripted=program == "train")
    words = f"counted on the CPU at {trips.arenas} arenas in {trips.steps} of {steps} decision steps, {trips.who}"
    return trips.mean, words
