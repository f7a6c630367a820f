"""The native simulation as a function of JAX, with the signature of `sim.step.simulate`."""

from __future__ import annotations

import ctypes
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from echelon_jax.config import EnvConfig
from echelon_jax.native.arguments import arguments, numbers, with_results
from echelon_jax.native.build import CannotBuild, build
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Commands, SimState

_TARGET = "echelon_simulate"
_PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}  # a kind of library, and JAX's name of what runs it


@cache
def load(kind: str, architecture: str | None = None) -> None:
    """Build the library of `cpu` or `cuda`, unless the cache has it, and tell JAX of it.

    Args:
        architecture: of the card for `cuda`, such as `sm_90`; that of the first device without it.

    Raises:
        CannotBuild: if it cannot be built here.
    """
    if kind == "cuda" and architecture is None:
        architecture = f"sm_{jax.devices()[0].compute_capability.replace('.', '')}"
    path = build(kind, architecture or "")
    try:
        library = ctypes.cdll.LoadLibrary(str(path))
    except OSError as error:
        raise CannotBuild(f"kernels must be xla, or {path} deleted and built anew: {error}") from error
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(library.EchelonSimulate), platform=_PLATFORMS[kind])


def load_for_this_machine() -> None:
    """Load the library for the devices that JAX computes on.

    Raises:
        CannotBuild: if there is none for such devices, or if it cannot be built here.
    """
    kinds = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}
    backend = jax.default_backend()
    if backend not in kinds:
        raise CannotBuild(f"kernels must be xla on {backend}, got native, which is for CPUs and NVIDIA's cards")
    load(kinds[backend])


def simulate_natively(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    commands: Commands,
    noise: Noise,
    resting: Bool[Array, " arenas"] | None = None,
) -> SimState:
    """One decision step of every arena as one call: what `sim.step.simulate` does, for any number of arenas.

    An arena of `resting` stays as it is. To put it back after the call instead, the whole state would have to be copied before it.

    Integers are those of the JAX code; floats may differ in the last bits, as sine and cosine do. Under `vmap` the batches are
    played side by side, or one after the other where the rules differ between them.

    Raises:
        CannotBuild: if the library cannot be built on this machine.
    """
    load_for_this_machine()
    if resting is None:
        resting = jnp.zeros(state.tick.shape, bool)
    return _for_any_batch(config)(rules, state, commands, noise, resting)


@cache
def _for_any_batch(config: EnvConfig) -> Any:
    call = jax.custom_batching.custom_vmap(partial(_call, config))

    @call.def_vmap
    def side_by_side(size: int, batched: Any, rules: Any, *rest: Any) -> tuple[SimState, Any]:
        rules_differ, *given = batched
        rest = jax.tree.map(
            lambda leaf, has: leaf if has else jnp.broadcast_to(leaf, (size, *leaf.shape)), rest, tuple(given)
        )
        if any(jax.tree.leaves(rules_differ)):
            rules = jax.tree.map(
                lambda leaf, has: leaf if has else jnp.broadcast_to(leaf, (size, *leaf.shape)), rules, rules_differ
            )
            result = jax.lax.map(lambda one: call(*one), (rules, *rest))
        else:
            flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rest)
            result = jax.tree.map(lambda leaf: leaf.reshape(size, -1, *leaf.shape[1:]), call(rules, *flat))
        return result, jax.tree.map(lambda _: True, result)

    return call


def _call(
    config: EnvConfig, rules: SimRules, state: SimState, commands: Commands, noise: Noise, resting: Array
) -> SimState:
    written, read = arguments(config, rules, state, commands, noise, resting)
    call = jax.ffi.ffi_call(
        _TARGET,
        [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in written],
        input_output_aliases={i: i for i in range(len(written))},
    )
    results = call(*written, *read, numbers=numbers(config), dt=np.float64(config.dt))
    return with_results(state, list(results))
