"""The implementations of the interface by name, and the ones that a configuration chooses; no other file looks them up."""

from __future__ import annotations

from functools import cache
from typing import Any

from echelon_jax.config import EnvConfig
from echelon_jax.env.interface import ActionInterface, ObservationInterface, RewardInterface
from echelon_jax.env.layout import Layout
from echelon_jax.env.modern.interface import ModernActions, ModernObservation, ModernReward
from echelon_jax.env.observed import Observed
from echelon_jax.env.original.interface import OriginalActions, OriginalObservation, OriginalReward
from echelon_jax.env.state import EnvState
from echelon_jax.plugins import is_import_path, load
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.widths import LoopWidths

OBSERVATIONS: dict[str, ObservationInterface] = {"original": OriginalObservation(), "modern": ModernObservation()}
ACTIONS: dict[str, ActionInterface] = {"original": OriginalActions(), "modern": ModernActions()}
REWARDS: dict[str, RewardInterface] = {"original": OriginalReward(), "modern": ModernReward()}


def _chosen(field: str, name: str, known: dict[str, Any], kind: type) -> Any:
    if name in known:
        return known[name]
    if not is_import_path(name):
        raise ValueError(
            f"{field} must be one of {', '.join(known)} or an import path package.module:NAME, got {name!r}"
        )
    found = load(name, field)
    if isinstance(found, type):  # a class has the methods too, but nobody to call them on
        try:
            found = found()
        except TypeError as error:
            raise ValueError(
                f"{field} must name an object or a class that is made without arguments: {error}"
            ) from error
    if not isinstance(found, kind):
        raise ValueError(f"{field} must name an {kind.__name__} (env/interface.py), and {name} is none")
    return found


@cache
def observation_of(config: EnvConfig) -> ObservationInterface:
    """Return the observation that `config.observation` names.

    Raises:
        ValueError: an unknown name.
    """
    return _chosen("observation", config.observation, OBSERVATIONS, ObservationInterface)


@cache
def actions_of(config: EnvConfig) -> ActionInterface:
    """Return the actions that `config.actions` names.

    Raises:
        ValueError: an unknown name.
    """
    return _chosen("actions", config.actions, ACTIONS, ActionInterface)


@cache
def reward_of(config: EnvConfig) -> RewardInterface:
    """Return the reward that `config.reward` names.

    Raises:
        ValueError: an unknown name.
    """
    return _chosen("reward", config.reward, REWARDS, RewardInterface)


def observation_layout(config: EnvConfig) -> Layout:
    """Return the table of every entry of a mech's observation.

    Example:
        >>> observation_layout(EnvConfig.original())["own/in_zone"].offset
        576
    """
    return observation_of(config).layout(config)


def action_layout(config: EnvConfig) -> Layout:
    """Return the table of every component of a mech's action; everything lies in [-1, 1].

    Example:
        >>> action_layout(EnvConfig.original()).size
        26
    """
    return actions_of(config).layout(config)


def observe(config: EnvConfig, rules: SimRules, state: EnvState, widths: LoopWidths | None = None) -> Observed:
    """What every mech sees in a state, by the configured observation, and the memory that it keeps."""
    return observation_of(config).observe(config, rules, state, actions_of(config).points_at_contacts, widths)
