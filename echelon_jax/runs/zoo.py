"""The zoo: trained policies that come with the package, each a file of weights and a card (docs/zoo.md).

    echelon_jax/zoo/NAME.safetensors    parameters and observation normaliser, by path
                    NAME.json           the card: the game, how it was trained, what it scores, its rating

`load_policy("zoo:NAME")` reads one, and every command that takes a policy takes the name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from echelon_jax import __version__
from echelon_jax.agents.registry import ZOO, is_zoo_name
from echelon_jax.policies.normalize import empty_moments
from echelon_jax.policies.registry import make_network
from echelon_jax.runs import migrations
from echelon_jax.runs.policy import Policy

FORMAT = 1
FOLDER = Path(__file__).resolve().parents[1] / "zoo"


__all__ = ["ZooError", "card", "is_zoo_name", "load", "names", "write", "write_card"]


class ZooError(ValueError):
    """A policy of the zoo could not be found, read or written; the message is one sentence."""


def names(folder: Path = FOLDER) -> tuple[str, ...]:
    """Return the names of all policies in the zoo, without the prefix, in order."""
    return tuple(sorted(path.stem for path in folder.glob("*.json")))


def card(name: str | Path, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the card of a policy.

    Args:
        name: with or without the prefix.
        folder: of the zoo.

    Raises:
        ZooError: there is no such policy, or its card is damaged or of a newer format.
    """
    bare = str(name).removeprefix(ZOO)
    there = names(folder)
    if bare not in there:
        raise ZooError(
            f"a policy of the zoo must be one of {', '.join(ZOO + n for n in there) or 'none'}, got {str(name)!r}"
        )
    try:
        found = json.loads((folder / f"{bare}.json").read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not isinstance(found["format"], int):
            raise ValueError("it names no format")
    except (OSError, ValueError, KeyError) as error:
        raise ZooError(f"the card of {ZOO}{bare} cannot be read: {error}") from error
    if found["format"] > FORMAT:
        raise ZooError(f"the card of {ZOO}{bare} has format {found['format']}, this version reads up to {FORMAT}")
    return found


def load(name: str | Path, folder: Path = FOLDER) -> Policy:
    """Return a policy of the zoo, ready to play.

    Raises:
        ZooError: missing, damaged, or of a game that this version does not have.
    """
    told, bare = card(name, folder), str(name).removeprefix(ZOO)
    try:
        config, env_config = migrations.train_config(told["train"]), migrations.env_config(told["env"])
        network = make_network(config, env_config)
        update, checksum = int(told["update"]), told["weights"]
    except (KeyError, TypeError, ValueError) as error:
        raise ZooError(f"the card of {ZOO}{bare} is damaged or foreign: {error}") from error
    wanted = _tree(
        jax.eval_shape(network.init, jax.random.key(0)),
        jax.eval_shape(lambda: empty_moments(network.features.own_size)),
    )
    try:
        data = (folder / f"{bare}.safetensors").read_bytes()
    except OSError as error:
        raise ZooError(f"the weights of {ZOO}{bare} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ZooError(f"the weights of {ZOO}{bare} are not those of its card")
    arrays = safetensors.numpy.load(data)
    leaves, form = jax.tree_util.tree_flatten_with_path(wanted)
    shapes = {_path(path): leaf for path, leaf in leaves}
    if {k: (v.shape, str(v.dtype)) for k, v in arrays.items()} != {
        k: (v.shape, str(v.dtype)) for k, v in shapes.items()
    }:
        raise ZooError(f"the weights of {ZOO}{bare} are of another network than its card says")
    tree = jax.tree_util.tree_unflatten(form, [jax.numpy.asarray(arrays[name]) for name in shapes])
    return Policy(network, tree["params"], tree["moments"], config, env_config, update, {"zoo": bare})


def write(name: str, policy: Policy, about: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Put a policy into the zoo, or replace the one of that name, and return the path of its card.

    Args:
        name: letters, digits and hyphens; without the prefix.
        policy: the policy; its network must be one that its configuration names.
        about: what the card says besides, such as how it was trained.
        folder: of the zoo.

    Raises:
        ZooError: a name that is not allowed, or a folder that cannot be written.
    """
    if not name or not all(c.isalnum() or c == "-" for c in name):
        raise ZooError(f"name must be letters, digits and hyphens, got {name!r}")
    leaves, _ = jax.tree_util.tree_flatten_with_path(_tree(policy.params, policy.observation_moments))
    data = safetensors.numpy.save({_path(path): np.array(leaf, order="C") for path, leaf in leaves})
    told = {
        "format": FORMAT,
        "name": name,
        "about": dict(about),
        "update": policy.update,
        "env_steps": policy.update * policy.config.decisions_per_update,
        "train": dataclasses.asdict(policy.config),
        "env": dataclasses.asdict(policy.env_config),
        "version": __version__,
        "weights": hashlib.sha256(data).hexdigest(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _put(folder / f"{name}.safetensors", data)
    except OSError as error:
        raise ZooError(f"cannot write to {folder}: {error.strerror or error}") from error
    return write_card(told, folder)


def write_card(told: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write a card under the name that it holds, and return its path.

    Raises:
        ZooError: the folder cannot be written.
    """
    target = folder / f"{told['name']}.json"
    try:
        _put(target, (json.dumps(told, indent=1) + "\n").encode())
    except OSError as error:
        raise ZooError(f"cannot write to {folder}: {error.strerror or error}") from error
    return target


def _tree(params: Any, moments: Any) -> dict[str, Any]:
    return {"params": params, "moments": moments}


def _path(path: Any) -> str:
    return "/".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)


def _put(target: Path, data: bytes) -> None:
    """Write a file under another name and rename it, so that it is whole or not there."""
    partial = target.with_name(f".partial-{target.name}")
    partial.write_bytes(data)
    os.replace(partial, target)
