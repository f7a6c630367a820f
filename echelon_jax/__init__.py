"""Echelon-JAX: a mech-combat game for reinforcement learning as pure JAX functions."""

from echelon_jax.config import EnvConfig

__all__ = ["EnvConfig"]
__version__ = "0.1.0"
