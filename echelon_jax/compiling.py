"""How thoroughly XLA compiles a program for a CPU: options for `jax.jit(..., compiler_options=...)`.

Compiling a decision step takes tens of seconds, and much of that is spent on a little speed. On other devices nothing is set.
"""

from __future__ import annotations

import functools
from typing import Any

import jax

# XLA's older code generator for fused loops. It compiles in a quarter to two fifths less time. A step of the default game is as
# fast with it, training in the original's game is a seventh slower (docs/benchmarks.md).
_RUNS_LONG: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
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
    """Return the options of a program that runs for minutes, such as training: most of the speed, a shorter compile."""
    return _options(_RUNS_LONG)


def for_short_runs() -> dict[str, Any]:
    """Return the options of a program that runs for seconds, such as one game: the shortest compile, a slow program."""
    return _options(_RUNS_ONCE)
