"""`api_test`: whether an environment keeps what learners, adaptors and evaluation rely on."""

from __future__ import annotations

from typing import Any

import jax

from echelon_jax.testing.checks import CHECKS, reset_on_done, stays_over
from echelon_jax.testing.scenes import Compile, gather

MEMBERS = ("config", "observation_space", "action_space", "reset", "step", "reset_batch", "step_batch")


def api_faults(
    env: Any,
    params: Any,
    *,
    auto_reset: bool = True,
    vmapped: bool = True,
    seed: int = 0,
    compile: Compile = jax.jit,
) -> list[str]:
    """Return one sentence for every fault that `api_test` finds; arguments as there."""
    missing = [name for name in MEMBERS if not hasattr(env, name)]
    if missing:
        return [f"an environment must have {', '.join(MEMBERS)}; this one lacks {', '.join(missing)}"]
    seen = gather(env, params, jax.random.key(seed), vmapped, compile)
    found: list[str] = []
    for check in (*CHECKS, reset_on_done if auto_reset else stays_over):
        found += check(env, params, seen)
        if check is CHECKS[0] and found:
            break  # arrays of other shapes cannot be judged further
    return found


def api_test(
    env: Any,
    params: Any,
    *,
    auto_reset: bool = True,
    vmapped: bool = True,
    seed: int = 0,
    compile: Compile = jax.jit,
) -> None:
    """Check that an environment keeps its promises: shapes, spaces, masks, flags, deaths, ends, resets, determinism.

    Four arenas play five decisions. A mech, a whole team and the clock are set by hand, so that deaths and ends are seen. The
    step must compile for a batch, and give the same by `jax.vmap` over single arenas.

    Args:
        env: an environment such as `echelon_jax.make` returns, or a wrapper with the same members. Its state must be an
            `EnvState`.
        params: its parameters.
        auto_reset: whether a step that ends an episode begins the next one, as `AutoReset` does.
        vmapped: whether to compare with `jax.vmap(env.step)` too, which compiles a second program.
        seed: of keys.
        compile: what compiles a function; another one than `jax.jit` for an environment that is compiled already.

    Raises:
        AssertionError: one line for every fault.

    Example:
        >>> env, params = echelon_jax.make("5v5-28", worlds=2, fair_zone=False)
        >>> api_test(env, params)
    """
    found = api_faults(env, params, auto_reset=auto_reset, vmapped=vmapped, seed=seed, compile=compile)
    if found:
        raise AssertionError(
            "\n".join(["the environment does not keep its interface:", *(f"- {fault}" for fault in found)])
        )
