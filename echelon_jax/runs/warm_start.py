"""A run that starts from the policy of another run, so that a policy can go on to other maps, teams and opponents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.policies.registry import make_network
from echelon_jax.runs import migrations, zoo
from echelon_jax.runs.checkpoint import CheckpointError, layout_hash, load_policy, read_manifest
from echelon_jax.runs.policy import Policy
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import TrainState

SAME: tuple[str, ...] = (
    *("network", "hidden", "lstm", "memory", "layer_norm", "team_critic", "attention", "class_networks"),
    *("normalize_observations", "observation_clip"),
)


def same_fields(network: str) -> tuple[str, ...]:
    """Return the fields in which a run and the policy that it starts from must agree.

    The spread of a decision follows from parameters alone in the original network; in others from `initial_log_std` as well.
    """
    return SAME if network == "original" else (*SAME, "initial_log_std")


def network_fields(path: Path) -> dict[str, Any]:
    """Return the fields of the configuration that say what network the policy at `path` has, and how it reads an observation.

    Raises:
        CheckpointError: there is no policy.
    """
    if not zoo.is_zoo_name(path):
        config = read_manifest(path).config
    else:
        try:
            config = migrations.train_config(zoo.card(path)["train"])
        except (KeyError, ValueError) as error:  # a ZooError is a ValueError
            raise CheckpointError(str(error)) from error
    return {field: getattr(config, field) for field in same_fields(config.network)}


def load_fitting(path: Path, config: TrainConfig, env_config: EnvConfig) -> Policy:
    """Return the policy at `path` (a run or a checkpoint) if a run of this configuration can start from it.

    Raises:
        CheckpointError: there is no policy, or it has another network or observation, which the message names.
    """
    policy = load_policy(path)
    for field in same_fields(config.network):
        theirs, ours = getattr(policy.config, field), getattr(config, field)
        if theirs != ours:
            raise CheckpointError(f"{path} was made with {field} = {theirs!r}, this run has {field} = {ours!r}")
    if layout_hash(policy.env_config) != layout_hash(env_config):
        raise CheckpointError(f"{path} reads another observation than this run's game gives")
    wanted = jax.eval_shape(make_network(config, env_config).init, jax.random.key(0))
    if jax.tree.map(lambda x: x.shape, wanted) != jax.tree.map(lambda x: x.shape, policy.params):
        raise CheckpointError(f"{path} has a network of other shapes than this run's")
    return policy


def warm(state: TrainState, policy: Policy) -> TrainState:
    """Return a fresh state with the parameters and the observation normaliser of a policy."""
    begun: TrainState = state.replace(params=policy.params, observation_moments=policy.observation_moments)  # type: ignore[attr-defined]
    return begun.replace(average=None if state.average is None else jax.tree.map(jnp.copy, policy.params))  # type: ignore[attr-defined, no-any-return]
