"""Measurements on a device that calibrate the cost model: `python -m echelon_jax.gpu.probe NAME` prints JSON.

    device     what the device is
    policy     one decision of the modern policy: does it compile and run under the flags given, and how fast
    constants  the cost model's constants, each by a small program of its own

Run by tools/first_gpu.sh, each in a process of its own, because XLA's flags differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib

from echelon_jax.config import EnvConfig
from echelon_jax.gpu.programs import make_program
from echelon_jax.runs.clock import device_megabytes

SHORT, LONG = 64, 512  # kernels or iterations of the two programs whose difference is taken
REPEATS = 7
SMALL = 1024  # entries of an array whose kernel costs its launch alone


def device_facts() -> dict[str, Any]:
    """Return what the first device is, and the versions that it runs under."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
        "cores": os.cpu_count(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "python": sys.version.split()[0],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def seconds_of(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the median wall time of a compiled function, after two runs that do not count."""
    times = []
    for i in range(REPEATS + 2):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        if i >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def chain(length: int) -> Callable[[Any], Any]:
    """Return a compiled program of so many small kernels, each needing the one before."""

    def run(x: Any) -> Any:
        for _ in range(length):
            x = jax.lax.optimization_barrier(x * 1.0001 + 1.0)
        return x

    return jax.jit(run)


def asking_loop() -> Callable[[Any, Any], Any]:
    """Return a compiled loop of small kernels whose end is data: it stops when its array has counted to the second argument."""

    def run(x: Any, end: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < end, lambda c: c + 1.0, x)

    return jax.jit(run)


def measure_constants(entries: int = 1 << 28, matrix: int = 8192) -> dict[str, float]:
    """Return the measured constants: microseconds of a kernel, of a program's start and of a loop's iteration, rates.

    Args:
        entries: of the array that is streamed from memory, a multiple of 64; a 64th of it is streamed from the cache.
        matrix: edge of the matrices that are multiplied.
    """
    small = jnp.zeros(SMALL, jnp.float32)
    few, many = (seconds_of(chain(length), small) for length in (SHORT, LONG))
    kernel = (many - few) / (LONG - SHORT)
    loop, ends = asking_loop(), (jnp.float32(SHORT), jnp.float32(LONG))
    short, long = (seconds_of(loop, small, end) for end in ends)
    iteration = (long - short) / (LONG - SHORT)
    large, cached = (jnp.zeros(size, jnp.float32) for size in (entries, entries // 64))
    stream = jax.jit(lambda x: x + 1.0)
    square = jnp.ones((matrix, matrix), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    return {
        "kernel_us": kernel * 1e6,
        "start_us": max(0.0, few - SHORT * kernel) * 1e6,
        # A check of the loop's end, and two kernels: the condition's and the body's.
        "iteration_us": iteration * 1e6,
        "memory_bytes_per_us": 8.0 * entries / (seconds_of(stream, large) * 1e6),
        "cache_bytes_per_us": 8.0 * (entries // 64) / (seconds_of(stream, cached) * 1e6),
        "flops_per_us": 2.0 * matrix**3 / (seconds_of(product, square) * 1e6),
    }


def run_policy(arenas: int, size: int) -> dict[str, Any]:
    """Compile the modern policy's decision here and run it."""
    program = make_program("policy", EnvConfig(size_x=size, size_y=size), arenas, {})
    start = time.perf_counter()
    compiled = program.function.lower(*program.arguments).compile()  # type: ignore[attr-defined]
    seconds = time.perf_counter() - start

    def filled(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        return jnp.zeros(leaf.shape, leaf.dtype)

    arguments = jax.tree.map(filled, program.arguments)
    decision = seconds_of(compiled, *arguments)
    memory = compiled.memory_analysis()
    return {
        "arenas": arenas,
        "compile_seconds": seconds,
        "microseconds": decision * 1e6,
        "temporaries_bytes": memory.temp_size_in_bytes,
        "peak_device_mib": device_megabytes(),
    }


def main(argv: list[str] | None = None) -> int:
    """Run one probe and print its numbers as JSON."""
    parser = argparse.ArgumentParser(prog="python -m echelon_jax.gpu.probe")
    parser.add_argument("probe", choices=("device", "policy", "constants"))
    parser.add_argument("--arenas", type=int, default=4096)
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--entries", type=int, default=1 << 28)
    parser.add_argument("--matrix", type=int, default=8192)
    asked = parser.parse_args(argv)
    if asked.probe == "device":
        result = device_facts()
    elif asked.probe == "policy":
        result = run_policy(asked.arenas, asked.size)
    else:
        result = measure_constants(asked.entries, asked.matrix)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
