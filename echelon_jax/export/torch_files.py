"""Write a policy for PyTorch: the weights as safetensors, a card, and the one-file module that reads both."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
import torch

from echelon_jax import __version__
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.layout import Layout
from echelon_jax.export import torch_policy
from echelon_jax.export.modern import modern_dimensions, modern_state_of, plan_of
from echelon_jax.export.parity import jax_steps
from echelon_jax.export.weights import Arrays, ExportError, clip_of, described, normaliser_of, state_of
from echelon_jax.policies.modern_network import ModernNetwork
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.runs.checkpoint import layout_hash
from echelon_jax.runs.policy import Policy


def write_torch(policy: Policy, path: str | Path) -> list[Path]:
    """Write NAME.safetensors, NAME.json and torch_policy.py into one directory, and return the three paths.

    Raises:
        ExportError: a network without a torch module, a name that does not end in .safetensors, or a place that cannot be
            written.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ExportError(f"the name of a torch export must end in .safetensors, got {path.name!r}")
    data = safetensors.numpy.save(_tensors(policy))
    card = card_of(policy, data)
    module = path.parent / "torch_policy.py"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        write_whole(path.with_suffix(".json"), json.dumps(card, indent=1).encode())
        shutil.copyfile(Path(torch_policy.__file__), module)
    except OSError as error:
        raise ExportError(f"cannot write to {path.parent}: {error.strerror or error}") from error
    return [path, path.with_suffix(".json"), module]


def torch_module(policy: Policy) -> torch_policy.Policy:
    """Return a policy as the module that `load_policy` would read, without writing a file.

    Raises:
        ExportError: a network without a torch module.
    """
    tensors = _tensors(policy)
    card = card_of(policy, safetensors.numpy.save(tensors), probe=False)
    module = torch_policy.made(card, "a policy in memory")
    module.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=True)
    module.card = card
    return module.eval()


def state_arrays(policy: Policy) -> Arrays:
    """Return the torch module's state dictionary in the dtype of the parameters.

    Raises:
        ExportError: a network without a torch module.
    """
    network = policy.network
    if isinstance(network, ModernNetwork):
        state = modern_state_of(network, policy.params)
    elif isinstance(network, OriginalNetwork):
        state = state_of(policy.params)
    else:
        raise ExportError(
            f"no torch module exists for the network {policy.config.network!r}: only modern and original can be exported"
        )
    return state | normaliser_of(policy.observation_moments, network.features, clip_of(policy))


def _tensors(policy: Policy) -> Arrays:
    return {name: np.array(value, np.float32, order="C") for name, value in state_arrays(policy).items()}


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under another name and rename it, so that it is whole or not there."""
    partial = path.with_name(f".partial-{path.name}")
    partial.write_bytes(data)
    os.replace(partial, path)


def card_of(policy: Policy, weights: bytes, probe: bool = True) -> dict[str, Any]:
    """Return the card of a policy with these weights. With `probe` the file can check itself."""
    config, env_config, network = policy.config, policy.env_config, policy.network
    sizes: dict[str, Any]
    if isinstance(network, ModernNetwork):
        sizes = {"dimensions": modern_dimensions(network, env_config), "plan": plan_of(network)}
    else:
        sizes = {"dimensions": described(policy)}
    card = {
        "kind": torch_policy.KIND,
        "format": torch_policy.FORMAT,
        "network": config.network,
        **sizes,
        "observation_layout": _rows(observation_layout(env_config)),
        "action_layout": _rows(action_layout(env_config)),
        "layout_hash": layout_hash(env_config),
        "env": dataclasses.asdict(env_config),
        "train": dataclasses.asdict(config),
        "steps": {
            "updates": policy.update,
            "env_steps": policy.update * config.decisions_per_update,
            "mech_steps": policy.update * config.decisions_per_update * env_config.team_size,
        },
        "provenance": {"echelon_jax": __version__, "jax": jax.__version__, "extra": policy.extra},
        "weights": hashlib.sha256(weights).hexdigest(),
    }
    if probe:
        card["probe"] = _probe(policy)
    card = json.loads(json.dumps(card))  # tuples as lists, as the reader will see them
    return {**card, "hash": torch_policy.card_hash(card)}


def _rows(layout: Layout) -> list[dict[str, Any]]:
    return [{"name": e.name, "offset": e.offset, "size": e.size, "kind": e.kind} for e in layout]


def _probe(policy: Policy) -> dict[str, Any]:
    """The probe's numbers as the JAX network gives them."""
    features = policy.network.features
    shared = (features.shared_start, features.shared_size) if isinstance(policy.network, ModernNetwork) else (0, 0)
    observation = np.array(torch_policy.probe_observation(features.size, shared), np.float32)
    done = np.zeros(observation.shape[:2], bool)
    done[-1, -1] = True
    heads = jax_steps(policy, observation, done)
    return {name: head[-1].tolist() for name, head in heads.items() if name not in ("h", "c")}
