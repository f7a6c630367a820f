"""The native simulation as a function of JAX, with the signature of `sim.step.simulate`."""

from __future__ import annotations

import ctypes
from functools import cache

import jax
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.native.arguments import arguments, numbers, with_results
from echelon_jax.native.build import build
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Commands, SimState

_TARGET = "echelon_simulate"


@cache
def load(kind: str, architecture: str = "sm_90") -> None:
    """Build the library of `cpu` or `cuda` and tell JAX of it.

    Raises:
        CannotBuild: if it cannot be built here.
    """
    library = ctypes.cdll.LoadLibrary(str(build(kind, architecture)))
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(library.EchelonSimulate), platform={"cuda": "CUDA"}.get(kind, kind))


def simulate_natively(
    config: EnvConfig, rules: SimRules, state: SimState, commands: Commands, noise: Noise
) -> SimState:
    """One decision step of every arena as one call: what `sim.step.simulate` does, for any number of arenas.

    Integers are equal to those of the JAX code; floats may differ in the last bits (sine and cosine are the C library's).
    """
    written, read = arguments(config, rules, state, commands, noise)
    call = jax.ffi.ffi_call(
        _TARGET,
        [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in written],
        input_output_aliases={i: i for i in range(len(written))},
    )
    results = call(*written, *read, numbers=numbers(config), dt=np.float64(config.dt))
    return with_results(state, list(results))
