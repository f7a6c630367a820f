"""Time and memory of a run, measured on the host where it waits for the device anyway."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax

from echelon_jax import compiling


def cpu_seconds() -> float:
    """Return the processor time that this process has used, all its threads together."""
    return time.process_time()


def device_megabytes() -> float | None:
    """Return the largest amount of memory of the first device in MiB; None if its backend does not report it (the CPU)."""
    told = jax.local_devices()[0].memory_stats()
    return told["peak_bytes_in_use"] / 2**20 if told and "peak_bytes_in_use" in told else None


def rollout_alone(update: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a program that does only the rollout of an update (`Train.update`).

    It keeps only the results of the rollout, so XLA drops the gradient steps.
    """
    return jax.jit(lambda state, env_params: update(state, env_params)[0].runner_state)


def time_rollout(update: Callable[[Any, Any], Any], state: Any, env_params: Any, env_steps: int) -> float:
    """Return the seconds of a rollout alone in a run of so many steps, measured once. This compiles one more program."""
    lowered = rollout_alone(update).lower(state, env_params)  # type: ignore[attr-defined]
    program = lowered.compile(compiling.for_training(env_steps))
    jax.block_until_ready(program(state, env_params))
    began = time.perf_counter()
    jax.block_until_ready(program(state, env_params))
    return time.perf_counter() - began


class CallClock:
    """Wall and processor time from the end of one call to the end of the next.

    A call overlaps with the reporting of the call before, so the host does not see where it begins. The clock measures how long
    the run takes per call, with saving and reporting.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start again, for example after compiling."""
        self.wall, self.cpu = time.perf_counter(), cpu_seconds()

    def lap(self) -> tuple[float, float]:
        """Return (wall, processor) seconds since the last lap."""
        wall, cpu = time.perf_counter(), cpu_seconds()
        out = wall - self.wall, cpu - self.cpu
        self.wall, self.cpu = wall, cpu
        return out
