"""Checkpoints: everything a run needs to go on, in directories that are either whole or not there.

    RUN/checkpoints/00000040/manifest.json   format version, configurations, layout hash, checksums
                             policy/         network parameters and observation normaliser (orbax)
                             run/            the rest of the TrainState (orbax)

A checkpoint is written beside its place and renamed into it. Every failure is a `CheckpointError` of one sentence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import observation_layout
from echelon_jax.learn.config import TrainConfig
from echelon_jax.learn.networks import OriginalNetwork, Params
from echelon_jax.learn.normalize import Moments, empty_moments
from echelon_jax.learn.trainer import TrainState, make_network

FORMAT = 1
MAY_CHANGE = ("updates", "updates_per_launch")  # of the TrainConfig when a run is resumed
_MANIFEST = "manifest.json"
_POLICY_FIELDS = ("params", "observation_moments")
_Config = TypeVar("_Config", TrainConfig, EnvConfig)


class CheckpointError(Exception):
    """A checkpoint could not be written, found, read or used; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """What playing needs: a network with its parameters and normaliser, and what they were trained for."""

    network: OriginalNetwork
    params: Params
    observation_moments: Moments
    config: TrainConfig
    env_config: EnvConfig
    update: int
    extra: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a checkpoint says about itself."""

    path: Path
    update: int
    config: TrainConfig
    env_config: EnvConfig
    extra: dict[str, Any]
    files: dict[str, str]  # checksum by path inside the checkpoint


def layout_hash(env_config: EnvConfig) -> str:
    """Return a fingerprint of the observation's layout; a policy reads no other."""
    entries = [(e.name, e.offset, e.size, e.kind) for e in observation_layout(env_config)]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]


def save(
    run_dir: str | Path,
    state: TrainState,
    config: TrainConfig,
    env_config: EnvConfig,
    keep: int = 3,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint, remove all but the last `keep`, and return its directory; `extra` is any JSON of the caller.

    Raises:
        CheckpointError: the directory cannot be written or the disk is full; earlier checkpoints stay.
        ValueError: keep is not a whole number from 1.
    """
    if keep < 1:
        raise ValueError(f"keep must be a whole number from 1, got {keep}")
    update = int(state.update)
    folder = Path(run_dir).absolute() / "checkpoints"
    place, partial, replaced = folder / f"{update:08d}", folder / ".partial-new", folder / ".partial-replaced"
    fields = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    policy = {name: fields.pop(name) for name in _POLICY_FIELDS}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".partial-*"):  # of a process that died while writing
            shutil.rmtree(leftover)
        partial.mkdir()
        with ocp.PyTreeCheckpointer() as writer:
            writer.save(partial / "policy", _to_flat(policy))
            writer.save(partial / "run", _to_flat(fields))
        manifest = {
            "format": FORMAT,
            "update": update,
            "train": dataclasses.asdict(config),
            "env": dataclasses.asdict(env_config),
            "observation_layout": layout_hash(env_config),
            "extra": dict(extra or {}),
            "files": _checksums(partial),
        }
        (partial / _MANIFEST).write_text(json.dumps(manifest, indent=1))
        if place.exists():
            place.rename(replaced)
        partial.rename(place)
        shutil.rmtree(replaced, ignore_errors=True)
        for old in _all(folder)[:-keep]:
            shutil.rmtree(old)
    except (OSError, ValueError) as error:  # orbax reports a full disk as a ValueError
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(f"cannot write a checkpoint to {folder}: {_first_line(error)}") from error
    return place


def find(path: str | Path) -> Path:
    """Return the checkpoint at `path`: itself, or the last one of a run directory.

    Raises:
        CheckpointError: there is none.
    """
    path = Path(path).absolute()
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint at {path}")
    if (path / _MANIFEST).is_file():
        return path
    found = _all(path / "checkpoints")
    if not found:
        raise CheckpointError(f"{path} is neither a checkpoint nor a run directory with checkpoints")
    return found[-1]


def read_manifest(path: str | Path) -> Manifest:
    """Return what the checkpoint at `path` (or the last one of a run) says about itself.

    Raises:
        CheckpointError: missing, foreign, damaged, or of another format or observation layout.
    """
    place = find(path)
    try:
        manifest = json.loads((place / _MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the manifest of {place} cannot be read: {_first_line(error)}") from error
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise CheckpointError(f"{place} is not a checkpoint of this program")
    if manifest["format"] != FORMAT:
        raise CheckpointError(f"{place} has checkpoint format {manifest['format']!r}, this version reads {FORMAT}")
    try:
        config = _config(TrainConfig, manifest["train"]).validate()
        env_config = _config(EnvConfig, manifest["env"])
        layout, update = manifest["observation_layout"], int(manifest["update"])
        extra, files = dict(manifest["extra"]), dict(manifest["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the manifest of {place} is damaged or foreign: {_first_line(error)}") from error
    if layout != layout_hash(env_config):
        raise CheckpointError(f"{place} was trained on another layout of the observation than this version's")
    return Manifest(place, update, config, env_config, extra, files)


def restore(path: str | Path, template: TrainState, config: TrainConfig, env_config: EnvConfig) -> TrainState:
    """Return the TrainState saved at `path` (a checkpoint or a run directory), for the run that is configured.

    `template` has the wanted shapes and dtypes: `jax.eval_shape(train.init, key, env_params)`.

    Raises:
        CheckpointError: missing, foreign, damaged, or of another configuration (the field is named).
    """
    manifest = read_manifest(path)
    for kind, theirs, ours in (("train", manifest.config, config), ("env", manifest.env_config, env_config)):
        for field in dataclasses.fields(ours):
            saved, wanted = getattr(theirs, field.name), getattr(ours, field.name)
            if saved != wanted and not (kind == "train" and field.name in MAY_CHANGE):
                raise CheckpointError(
                    f"{manifest.path} was made with {field.name} = {saved!r}, this run has {field.name} = {wanted!r}"
                )
    fields = {f.name: getattr(template, f.name) for f in dataclasses.fields(template)}
    policy = {name: fields.pop(name) for name in _POLICY_FIELDS}
    _verify(manifest)
    return TrainState(
        **_from_flat(manifest.path, "policy", policy),
        **_from_flat(manifest.path, "run", fields),
    )


def load_policy(path: str | Path) -> Policy:
    """Return the policy saved at `path` (a checkpoint or a run directory), ready to play.

    Raises:
        CheckpointError: missing, foreign or damaged.
    """
    manifest = read_manifest(path)
    network = make_network(manifest.config, manifest.env_config)
    template = {
        "params": jax.eval_shape(network.init, jax.random.key(0)),
        "observation_moments": jax.eval_shape(lambda: empty_moments(network.features.own_size)),
    }
    _verify(manifest)
    loaded = _from_flat(manifest.path, "policy", template)
    return Policy(
        network=network,
        params=loaded["params"],
        observation_moments=loaded["observation_moments"],
        config=manifest.config,
        env_config=manifest.env_config,
        update=manifest.update,
        extra=manifest.extra,
    )


# -- Files ----------------------------------------------------------------------------------------------------------


def _all(folder: Path) -> list[Path]:
    """All whole checkpoints of a run, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.name.isdigit() and (p / _MANIFEST).is_file())


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != _MANIFEST)
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def _verify(manifest: Manifest) -> None:
    try:
        found = _checksums(manifest.path)
    except OSError as error:
        raise CheckpointError(f"{manifest.path} cannot be read: {_first_line(error)}") from error
    for name, checksum in manifest.files.items():
        if found.get(name) != checksum:
            raise CheckpointError(f"{manifest.path} is damaged: {name} is missing or has changed")


def _config(kind: type[_Config], fields: Any) -> _Config:
    known = {f.name for f in dataclasses.fields(kind)}
    if set(fields) != known:
        raise ValueError(f"fields {sorted(set(fields) ^ known)} of its configuration are unknown or missing")
    return kind(**fields)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# -- Trees as flat dictionaries -------------------------------------------------------------------------------------


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_flat(tree: Any) -> dict[str, np.ndarray]:
    """Leaves by path as host arrays; random keys as their data; empty arrays, which cannot be stored, left out."""
    raw = {name: jax.random.key_data(leaf) if _is_key(leaf) else leaf for name, leaf in _named(tree).items()}
    return {name: np.asarray(leaf) for name, leaf in raw.items() if leaf.size}


def _from_flat(place: Path, item: str, template: Any) -> Any:
    wanted = _named(template)
    names = [name for name, leaf in wanted.items() if leaf.size]
    try:
        with ocp.PyTreeCheckpointer() as reader:
            arguments = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
            found = reader.restore(place / item, item=dict.fromkeys(names, 0), restore_args=arguments)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{place / item} does not hold what this version expects: {_first_line(error)}"
        ) from error

    def leaf(name: str, like: Any) -> jax.Array:
        if not like.size:
            return jnp.zeros(like.shape, like.dtype)
        value = found[name]
        restored = jax.random.wrap_key_data(jnp.asarray(value)) if _is_key(like) else jnp.asarray(value)
        if restored.shape != like.shape or restored.dtype != like.dtype:
            raise CheckpointError(
                f"{place} holds {item}{name} as {restored.dtype}{list(restored.shape)}, "
                f"this run needs {like.dtype}{list(like.shape)}"
            )
        return restored

    return jax.tree.unflatten(jax.tree.structure(template), [leaf(name, like) for name, like in wanted.items()])
