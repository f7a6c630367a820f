"""The compiled steps that the tests of simulator, fuzz and determinism share: one compile per width and process."""

from functools import cache

from echelon_jax.config import EnvConfig
from echelon_jax.parity.fuzzing.fuzz import WIDTH, compile_step

CONFIG = EnvConfig.original()


@cache
def compiled(width: int = WIDTH):
    return compile_step(CONFIG, width)
