"""Flax parameters of the `original` network as the original's state dictionary, and back; numpy only.

Source: docs/spec/learner.md 2.2, 2.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from echelon_jax.policies.distributions import LOG_STD_RANGE
from echelon_jax.policies.features import Features
from echelon_jax.policies.network import Params
from echelon_jax.policies.normalize import Moments, shift_and_scale
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.runs.policy import Policy

Arrays = dict[str, np.ndarray]


class ExportError(Exception):
    """A policy cannot be written in a format, or a file cannot be read; the message is one sentence."""


def original_network(policy: Policy) -> OriginalNetwork:
    """Return the policy's network if it is the `original` one.

    Raises:
        ExportError: it is another.
    """
    if not isinstance(policy.network, OriginalNetwork):
        raise ExportError(
            f"this needs the original network, the policy's is {policy.config.network!r}: its sets, masks and heads have no "
            "place in the original's layers"
        )
    return policy.network


def state_of(params: Params) -> Arrays:
    """Return the original's state dictionary, in its order and the parameters' dtype.

    Kernels are transposed. The bias of the LSTM goes into `bias_ih`, and zeros into `bias_hh`; gates are in torch's order
    on both sides. Log-std is stored as it is used, within its range.
    """
    p = {name: np.asarray(value) for name, value in params.items()}
    hidden = p["encoder_1_kernel"].shape[1]
    state = {
        "actor_logstd": np.clip(p["log_std"], *LOG_STD_RANGE),
        "encoder.0.weight": p["encoder_0_kernel"].T,
        "encoder.0.bias": p["encoder_0_bias"],
        "encoder.2.weight": p["encoder_1_kernel"].T,
        "encoder.2.bias": p["encoder_1_bias"],
        "lstm.weight_ih_l0": p["lstm_kernel"][:hidden].T,
        "lstm.weight_hh_l0": p["lstm_kernel"][hidden:].T,
        "lstm.bias_ih_l0": p["lstm_bias"],
        "lstm.bias_hh_l0": np.zeros_like(p["lstm_bias"]),
        "actor_mean.weight": p["mean_kernel"].T,
        "actor_mean.bias": p["mean_bias"],
        "critic.weight": p["value_kernel"].T,
        "critic.bias": p["value_bias"],
    }
    return {name: np.array(value, order="C") for name, value in state.items()}


def params_of(state: Mapping[str, np.ndarray]) -> Params:
    """Return Flax parameters from the original's state dictionary: the inverse of `state_of`."""
    params = {
        "log_std": state["actor_logstd"],
        "encoder_0_kernel": state["encoder.0.weight"].T,
        "encoder_0_bias": state["encoder.0.bias"],
        "encoder_1_kernel": state["encoder.2.weight"].T,
        "encoder_1_bias": state["encoder.2.bias"],
        "lstm_kernel": np.concatenate([state["lstm.weight_ih_l0"].T, state["lstm.weight_hh_l0"].T]),
        "lstm_bias": state["lstm.bias_ih_l0"] + state["lstm.bias_hh_l0"],
        "mean_kernel": state["actor_mean.weight"].T,
        "mean_bias": state["actor_mean.bias"],
        "value_kernel": state["critic.weight"].T,
        "value_bias": state["critic.bias"],
    }
    return {name: jnp.asarray(value) for name, value in params.items()}


def _whole(features: Features, own: np.ndarray, shared: float) -> np.ndarray:
    """An array over a mech's own entries as one over the whole observation."""
    start = features.shared_start
    return np.concatenate([own[:start], np.full(features.shared_size, shared, own.dtype), own[start:]])


def normaliser_of(moments: Moments, features: Features, clip: float | None) -> Arrays:
    """Return `observation_shift`, `_scale` and `_limit` [size]: x' = clamp((x - shift) / scale, -limit, limit).

    Slots that a network reads alike are normalised alike (`Features.pooled`).
    """
    flags = features.own_continuous
    shift, scale = (np.asarray(v) for v in shift_and_scale(features.pooled(moments), jnp.asarray(flags)))
    limit = np.where(flags, np.inf if clip is None else clip, np.inf).astype(scale.dtype)
    return {
        "observation_shift": _whole(features, shift, 0.0),
        "observation_scale": _whole(features, scale, 1.0),
        "observation_limit": _whole(features, limit, np.inf),
    }


def fold(weight: np.ndarray, bias: np.ndarray, shift: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, in float64, the weight [hidden, size] and bias that read raw rows as these read (x - shift) / scale."""
    folded = weight.astype(np.float64) / scale.astype(np.float64)
    return folded, bias.astype(np.float64) - folded @ shift.astype(np.float64)


def clip_of(policy: Policy) -> float | None:
    """Return the clip of normalised features, None for none."""
    return policy.config.observation_clip or None


def described(policy: Policy) -> dict[str, Any]:
    """Return sizes by name: observation, action, hidden, lstm."""
    network = original_network(policy)
    return {
        "observation": network.features.size,
        "action": network.action_size,
        "hidden": network.hidden,
        "lstm": network.lstm,
    }
