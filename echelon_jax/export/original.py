"""A policy as the checkpoint file of the original Echelon, and back (docs/spec/learner.md 2.2, 2.5, 3).

The observation normaliser is folded into the first layer. A block `echelon_jax`, which the original's loaders ignore, keeps
the unfolded layer and the normaliser, so that a file of this project comes back bit for bit.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import torch

from echelon_jax import __version__
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.export.torch_files import write_whole
from echelon_jax.export.torch_policy import (
    PolicyError,
    block_tensors,
    checked_model_state,
    fingerprint,
    read_checkpoint,
)
from echelon_jax.export.weights import (
    Arrays,
    ExportError,
    clip_of,
    fold,
    normaliser_of,
    original_network,
    params_of,
    state_of,
)
from echelon_jax.policies.distributions import LOG_STD_RANGE
from echelon_jax.policies.features import Features, features_of
from echelon_jax.policies.normalize import Moments, empty_moments
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.policies.registry import make_network
from echelon_jax.runs.policy import Policy
from echelon_jax.training.config import TrainConfig

WIDTH = 128  # the original's loaders know no other
NEARLY_DETERMINISTIC = -20.0  # log-std: the original can only sample, and does so within 2e-9
_FIRST = ("encoder.0.weight", "encoder.0.bias", "actor_logstd")
# The fields of EnvConfig under the original's names, and the fields that this game does not have, at their defaults.
_WORLD = {
    "size_x": "size_x",
    "size_y": "size_y",
    "size_z": "size_z",
    "voxel_size_m": "voxel_size_m",
    "connectivity_clearance_z": "clearance_z",
}
_GAME = {
    "num_packs": "num_packs",
    "dt_sim": "dt",
    "decision_repeat": "substeps",
    "max_episode_seconds": "max_episode_seconds",
    "observation_mode": "observation_mode",
    "comm_dim": "comm_dim",
    "enable_target_selection": "target_selection",
    "enable_ewar": "ewar",
    "enable_obs_control": "observation_control",
    "enable_comm": "communication",
}
_WORLD_ELSE: dict[str, Any] = {
    "obstacle_fill": 0.06,
    "ensure_connectivity": True,
    "connectivity_obstacle_inflate_radius": 1,
    "connectivity_wall_cost": 80.0,
    "connectivity_penalty_radius": 3,
    "connectivity_penalty_cost": 20.0,
    "connectivity_carve_width": 5,
}
_GAME_ELSE: dict[str, Any] = {"nav_mode": "off", "record_replay": False, "seed": None}
_ORIGINAL_SIZE = {"size_x": 20, "size_y": 20, "size_z": 20}  # the original's defaults that differ from EnvConfig's


class Imported(NamedTuple):
    """A policy that was read, with one sentence for each part of its file that could not be taken over."""

    policy: Policy
    notes: tuple[str, ...]


# -- Out ----------------------------------------------------------------------------------------------------------------


def write_original(policy: Policy, path: str | Path, log_std: float | None = None) -> Path:
    """Write a .pt file that the original's league, evaluation and trainer load as it is; returns its path.

    Args:
        log_std: replaces the spread of every action component; None keeps it. `NEARLY_DETERMINISTIC` makes the original,
            which always samples, play the mean.

    Raises:
        ExportError: the format cannot hold the policy (the reason is named), or the place cannot be written.
    """
    path = Path(path)
    if path.suffix != ".pt":
        raise ExportError(f"the name of an original export must end in .pt, got {path.name!r}")
    data = io.BytesIO()
    torch.save(original_checkpoint(policy, log_std), data)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data.getvalue())
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def original_checkpoint(policy: Policy, log_std: float | None = None) -> dict[str, Any]:
    """Return what `write_original` writes: tensors and plain types only."""
    network = _holdable(policy)
    unfolded = state_of(policy.params)
    normaliser = normaliser_of(policy.observation_moments, network.features, None)
    state = dict(unfolded)
    shift, scale = normaliser["observation_shift"], normaliser["observation_scale"]
    state["encoder.0.weight"], state["encoder.0.bias"] = fold(
        unfolded["encoder.0.weight"], unfolded["encoder.0.bias"], shift, scale
    )
    if log_std is not None:
        if not np.isfinite(log_std):
            raise ExportError(f"log-std must be a finite number, got {log_std}")
        state["actor_logstd"] = np.full_like(unfolded["actor_logstd"], log_std)
    model_state = {name: _tensor(value) for name, value in state.items()}
    moments = policy.observation_moments
    block: dict[str, Any] = {
        "version": __version__,
        "log_std": log_std,
        "unfolded": {name: _tensor(unfolded[name]) for name in _FIRST},
        "moments": {f.name: _tensor(np.asarray(getattr(moments, f.name))) for f in dataclasses.fields(moments)},
        "train": dataclasses.asdict(policy.config),
        "env": dataclasses.asdict(policy.env_config),  # the original has no name for rules that it does not have
    }
    block["fingerprint"] = fingerprint({**model_state, **block_tensors(block)})
    return {
        "model_state": model_state,
        "env_cfg": original_env(policy.env_config),
        "obs_dim": network.features.size,
        "action_dim": network.action_size,
        "optimizer_state": {"state": {}, "param_groups": [_adam(policy.config.learning_rate, len(model_state))]},
        "return_rms": {"mean": 0.0, "var": 1.0, "count": 1e-8},
        "update": policy.update,
        "global_step": policy.update * policy.config.decisions_per_update,
        "episodes": 0,
        "args": {},
        "echelon_jax": block,
    }


def _holdable(policy: Policy) -> OriginalNetwork:
    """The network, if the format can hold it."""
    if not isinstance(policy.network, OriginalNetwork):
        raise ExportError(
            f"the original's format holds only the original network, not {policy.config.network!r}: "
            "its loaders build the layers themselves; use --format torch"
        )
    network = original_network(policy)
    for name in ("hidden", "lstm"):
        if getattr(network, name) != WIDTH:
            raise ExportError(
                f"the original's loaders know networks with {name} = {WIDTH} only, this one has "
                f"{getattr(network, name)}; use --format torch"
            )
    for name in ("observation", "actions"):
        if getattr(policy.env_config, name) != "original":
            raise ExportError(
                f"the original's arena knows only its own {name}, this policy was trained with "
                f"{name} = {getattr(policy.env_config, name)!r}; use --format torch"
            )
    if clip_of(policy) is not None:
        raise ExportError(
            f"normalised observations are clipped (observation_clip = {policy.config.observation_clip}), which does not "
            "fold into the first layer; use --format torch"
        )
    return network


def original_env(config: EnvConfig) -> dict[str, Any]:
    """Return a configuration as the original's `env_cfg`, every field present (docs/spec/learner.md 3)."""
    world = _WORLD_ELSE | {theirs: getattr(config, ours) for theirs, ours in _WORLD.items()}
    game = {theirs: getattr(config, ours) for theirs, ours in _GAME.items()}
    return {"world": world, **game, **_GAME_ELSE}


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array, np.float32, order="C"))


def _adam(learning_rate: float, count: int) -> dict[str, Any]:
    """The parameter group of a torch Adam that has not stepped yet, as the original's trainer makes it."""
    return {
        "lr": learning_rate,
        "betas": (0.9, 0.999),
        "eps": 1e-5,
        "weight_decay": 0,
        "amsgrad": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "fused": None,
        "params": list(range(count)),
    }


# -- In -----------------------------------------------------------------------------------------------------------------


def import_original(path: str | Path) -> Imported:
    """Return the policy of a .pt file: an export of this project as before folding, or one of the original without normaliser.

    Raises:
        ExportError: missing, damaged, changed or foreign files, or a game that this program does not have.
    """
    try:
        found = read_checkpoint(path)
        tensors = checked_model_state(found, path)
    except PolicyError as error:
        raise ExportError(str(error)) from error
    state: Arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    env_config, notes = env_config_of(found["env_cfg"], path)
    features = features_of(env_config)
    hidden, size = state["encoder.0.weight"].shape
    actions, lstm = state["actor_mean.weight"].shape
    if (size, actions) != (features.size, action_layout(env_config).size):
        raise ExportError(
            f"env_cfg of {path} describes observations of {features.size} and actions of {action_layout(env_config).size}, "
            f"its weights are made for {size} and {actions}"
        )
    block = found.get("echelon_jax")
    if block is None:
        moments = empty_moments(features.own_size)
        config = TrainConfig(network="original", hidden=hidden, lstm=lstm, normalize_observations=False)
        low, high = LOG_STD_RANGE
        outside = int(((state["actor_logstd"] < low) | (state["actor_logstd"] > high)).sum())
        if outside:
            notes.append(f"{outside} components of actor_logstd lie outside {low:g} to {high:g} and were moved there")
            state["actor_logstd"] = np.clip(state["actor_logstd"], low, high)
    else:
        state, moments, config, env_config = _unfold(state, block, features, path)
    extra = {"imported": {"file": Path(path).name, "fingerprint": fingerprint(tensors)}}
    update = int(found.get("update", 0))
    network = make_network(config, env_config)
    return Imported(Policy(network, params_of(state), moments, config, env_config, update, extra), tuple(notes))


def _unfold(
    state: Arrays, block: Mapping[str, Any], features: Features, path: str | Path
) -> tuple[Arrays, Moments, TrainConfig, EnvConfig]:
    """The state, normaliser and configuration from before the export."""
    try:
        unfolded = {name: block["unfolded"][name].numpy() for name in _FIRST}
        moments = Moments(**{name: jnp.asarray(block["moments"][name].numpy()) for name in ("mean", "var", "count")})
        config, env_config = TrainConfig(**block["train"]).validate(), EnvConfig.original(**block["env"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ExportError(f"the block echelon_jax of {path} is damaged or of another version: {error}") from error
    fits = all(unfolded[name].shape == state[name].shape for name in _FIRST) and moments.count.shape == ()
    fits &= features_of(env_config) == features
    fits &= (config.hidden, config.lstm) == (state["encoder.0.bias"].shape[0], state["critic.weight"].shape[1])
    if not fits or any(v.shape != (features.own_size,) for v in (moments.mean, moments.var)):
        raise ExportError(f"the block echelon_jax of {path} does not fit its weights in shape")
    normaliser = normaliser_of(moments, features, None)
    folded = fold(
        unfolded["encoder.0.weight"],
        unfolded["encoder.0.bias"],
        normaliser["observation_shift"],
        normaliser["observation_scale"],
    )
    if not all(np.allclose(state[n], v, rtol=1e-5, atol=1e-5) for n, v in zip(_FIRST[:2], folded, strict=True)):
        raise ExportError(f"the block echelon_jax of {path} does not belong to its weights")
    return state | unfolded, moments, config, env_config


def env_config_of(env_cfg: Any, path: str | Path) -> tuple[EnvConfig, list[str]]:
    """Return the configuration of an `env_cfg`, and a sentence for each setting that this game does not have.

    Raises:
        ExportError: a field is unknown or has a value that this program does not allow.
    """
    world = env_cfg.get("world") if isinstance(env_cfg, Mapping) else None
    if not isinstance(world, Mapping):
        raise ExportError(f"env_cfg of {path} has no world")
    fields: dict[str, Any] = dict(_ORIGINAL_SIZE)
    notes: list[str] = []
    for given, known, otherwise in ((world, _WORLD, _WORLD_ELSE), (env_cfg, _GAME, _GAME_ELSE)):
        for name, value in given.items():
            if name in known:
                fields[known[name]] = value
            elif name in otherwise:
                if value != otherwise[name] and name not in ("record_replay", "seed"):
                    notes.append(f"{name} = {value!r} was not taken over; here it is always {otherwise[name]!r}")
            elif name != "world":
                raise ExportError(f"env_cfg of {path} has the unknown field {name!r}")
    try:
        return EnvConfig.original(**fields), notes
    except ValueError as error:
        raise ExportError(f"env_cfg of {path} describes a game that this program does not have: {error}") from error
