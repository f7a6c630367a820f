"""A torch export as the JAX policy that it was made from: the way back of `torch_files.write_torch`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.export.modern import modern_state_of
from echelon_jax.export.torch_policy import PolicyError, load_policy
from echelon_jax.export.weights import Arrays, ExportError, params_of
from echelon_jax.policies.features import Features
from echelon_jax.policies.modern_network import ModernNetwork
from echelon_jax.policies.network import Params
from echelon_jax.policies.normalize import Moments, empty_moments
from echelon_jax.policies.registry import make_network
from echelon_jax.runs import migrations
from echelon_jax.runs.checkpoint import Policy, layout_hash

_NORMALISER = ("observation_shift", "observation_scale", "observation_limit")


def import_torch(path: str | Path) -> Policy:
    """Return the policy of a .safetensors file with its card; its normaliser is that of the export, slots pooled.

    Raises:
        ExportError: missing, damaged, changed or foreign files, or made for another layout of the observation.
    """
    try:
        module = load_policy(path)
    except PolicyError as error:
        raise ExportError(str(error)) from error
    card: Mapping[str, Any] = module.card
    try:
        config = migrations.train_config(card["train"])
        env_config = migrations.env_config(card["env"])
        update, extra = int(card["steps"]["updates"]), dict(card["provenance"]["extra"])
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"the card of {path} is of another version: {error}") from error
    if card["layout_hash"] != layout_hash(env_config):
        raise ExportError(f"{path} was made for another layout of the observation than this version's")
    network = make_network(config, env_config)
    state: Arrays = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    normaliser = {name: state.pop(name) for name in _NORMALISER}
    params = _modern_params(network, state) if isinstance(network, ModernNetwork) else params_of(state)
    moments = _moments(network.features, normaliser, config.normalize_observations)
    return Policy(network, params, moments, config, env_config, update, {**extra, "imported": Path(path).name})


def _modern_params(network: ModernNetwork, state: Arrays) -> Params:
    """Parameters from torch's names, by sending numbered entries through `modern_state_of` and reading where they went."""
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    leaves, tree = jax.tree.flatten(shapes)
    ends = np.cumsum([leaf.size for leaf in leaves])
    numbered = [
        np.arange(end - leaf.size + 1, end + 1).reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)
    ]
    flat = np.zeros(
        int(ends[-1]) + 1, np.float32
    )  # entry 0 takes what has no parameter: the second LSTM bias, always zero
    for name, indices in modern_state_of(network, jax.tree.unflatten(tree, numbered)).items():
        if name not in state or state[name].shape != indices.shape:
            raise ExportError(f"the weights do not fit the network: {name} is missing or of another shape")
        flat[indices.ravel()] = state[name].ravel()
    parts = np.split(flat[1:], ends[:-1])
    return jax.tree.unflatten(tree, [jnp.asarray(p.reshape(leaf.shape)) for p, leaf in zip(parts, leaves, strict=True)])


def _moments(features: Features, normaliser: Arrays, normalises: bool) -> Moments:
    """Moments that give the same shift and scale."""
    if not normalises:
        return jax.tree.map(jnp.asarray, empty_moments(features.own_size))
    shared = slice(features.shared_start, features.shared_start + features.shared_size)
    shift, scale = (np.delete(normaliser[name], shared) for name in _NORMALISER[:2])
    return Moments(mean=jnp.asarray(shift), var=jnp.asarray(scale**2), count=jnp.float32(1.0))
