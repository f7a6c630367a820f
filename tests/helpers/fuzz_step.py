"""The compiled steps that the tests of simulator, fuzz and determinism share: one compile per width and process."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import jax

from echelon_jax.config import EnvConfig
from echelon_jax.parity.fuzzing.fuzz import WIDTH, compile_step

CONFIG = EnvConfig.original()


@contextmanager
def optimised() -> Iterator[None]:
    """Compile with all of XLA's optimisations, whatever the file of the test says (tests/conftest.py)."""
    few = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", few)


@cache
def compiled(width: int = WIDTH):
    with optimised():
        return compile_step(CONFIG, width)
