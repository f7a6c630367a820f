"""Echelon-JAX: a mech-combat game for reinforcement learning as pure JAX functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echelon_jax.config import EnvConfig

if TYPE_CHECKING:
    from echelon_jax.api import make
    from echelon_jax.env.autoreset import AutoReset
    from echelon_jax.env.environment import Echelon
    from echelon_jax.evaluation.matches import evaluate
    from echelon_jax.runs.checkpoint import load_policy
    from echelon_jax.training.config import TrainConfig
    from echelon_jax.training.trainer import make_train
    from echelon_jax.worldgen.bank import generate_worlds

__all__ = [
    "AutoReset",
    "Echelon",
    "EnvConfig",
    "TrainConfig",
    "evaluate",
    "generate_worlds",
    "load_policy",
    "make",
    "make_train",
]
__version__ = "0.1.0"

# Looked up on first use, so that processes that only make worlds never import JAX.
_HOMES = {
    "AutoReset": "echelon_jax.env.autoreset",
    "Echelon": "echelon_jax.env.environment",
    "TrainConfig": "echelon_jax.training.config",
    "evaluate": "echelon_jax.evaluation.matches",
    "generate_worlds": "echelon_jax.worldgen.bank",
    "load_policy": "echelon_jax.runs.checkpoint",
    "make": "echelon_jax.api",
    "make_train": "echelon_jax.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
