"""How thoroughly XLA compiles a program for a CPU: options for `jax.jit(..., compiler_options=...)`.

Compiling a decision step takes tens of seconds, and much of that is spent on a little speed. On other devices nothing is set.
"""

from __future__ import annotations

import functools
from typing import Any

import jax

# XLA's older code generator for fused loops. It takes ten to thirteen CPU seconds off compiling a training program, and training
# is then a tenth to a sixth slower (docs/benchmarks.md).
_RUNS_LONG: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
# Environment steps from which XLA's own options win: some 100 CPU us a step against ten to thirteen CPU s (docs/benchmarks.md).
WORTH_COMPILING = 150_000
# It compiles in a third of the time, and the program is some six times slower.
_RUNS_ONCE: dict[str, Any] = {
    **_RUNS_LONG,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


@functools.cache
def _known(name: str, value: Any) -> bool:
    """Whether the installed XLA has an option; it names those that it does not have in an error."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _options(wanted: dict[str, Any]) -> dict[str, Any]:
    if jax.default_backend() != "cpu":
        return {}
    return {name: value for name, value in wanted.items() if _known(name, value)}


def as_xla_does() -> dict[str, Any]:
    """Return XLA's own options, whatever XLA_FLAGS says: those under which results agree bit for bit (docs/parity.md)."""
    return _options({"xla_cpu_use_fusion_emitters": True})


def for_long_runs() -> dict[str, Any]:
    """Return the options of a program that runs for a minute or so, such as evaluation games: most of the speed."""
    return _options(_RUNS_LONG)


def for_training(env_steps: int) -> dict[str, Any]:
    """Return the options with which compiling and training for so many environment steps take the least time together."""
    return as_xla_does() if env_steps >= WORTH_COMPILING else for_long_runs()


def for_short_runs() -> dict[str, Any]:
    """Return the options of a program that runs for seconds, such as one game: the shortest compile, a slow program."""
    return _options(_RUNS_ONCE)
