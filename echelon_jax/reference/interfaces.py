"""The implementations of reference/interface.py by name, and those that a configuration chooses; no other file looks them up."""

from __future__ import annotations

from typing import TypeVar

from echelon_jax.config import EnvConfig
from echelon_jax.reference.interface import Actions, Observation, Reward
from echelon_jax.reference.modern.interface import ModernActions, ModernObservation, ModernReward
from echelon_jax.reference.original import OriginalActions, OriginalObservation, OriginalReward

OBSERVATIONS: dict[str, Observation] = {"original": OriginalObservation(), "modern": ModernObservation()}
ACTIONS: dict[str, Actions] = {"original": OriginalActions(), "modern": ModernActions()}
REWARDS: dict[str, Reward] = {"original": OriginalReward(), "modern": ModernReward()}

_Part = TypeVar("_Part", Observation, Actions, Reward)


def _chosen(field: str, name: str, known: dict[str, _Part]) -> _Part:
    if name not in known:
        raise ValueError(f"the reference plays {field} {' and '.join(known)} only, got {name!r}")
    return known[name]


def observation_of(config: EnvConfig) -> Observation:
    """Return the observation that `config.observation` names.

    Raises:
        ValueError: a name that the reference does not play.
    """
    return _chosen("observation", config.observation, OBSERVATIONS)


def actions_of(config: EnvConfig) -> Actions:
    """Return the actions that `config.actions` names.

    Raises:
        ValueError: a name that the reference does not play.
    """
    return _chosen("actions", config.actions, ACTIONS)


def reward_of(config: EnvConfig) -> Reward:
    """Return the reward that `config.reward` names.

    Raises:
        ValueError: a name that the reference does not play.
    """
    return _chosen("reward", config.reward, REWARDS)
