"""Checkpoints: everything that a run needs to go on, in directories that are either whole or not there.

    RUN/checkpoints/00000040/manifest.json   format version, run, configurations, worlds, layout hash, checksums
                             policy/         network parameters (the average, where there is one) and observation normaliser,
                                             a tree of named layers (orbax)
                             run/            the rest of the TrainState (orbax)
    RUN/checkpoints/best/                    the same, from the moment of the highest score

A checkpoint is written under another name, flushed to the disk and renamed. Every failure is a `CheckpointError`
of one sentence. `saver` writes in the background; `migrations` reads what earlier versions wrote.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.policies.network import Network
from echelon_jax.policies.normalize import empty_moments
from echelon_jax.policies.registry import NetworkFactory, given_network
from echelon_jax.runs import migrations, tree_files, zoo
from echelon_jax.runs.checkpoint_files import (
    MANIFEST,
    PARTIAL,
    REPLACED,
    TRAINING_GAMES,
    best_score,
    put,
    put_best,
    reason_of,
    repair,
    whole_checkpoints,
)
from echelon_jax.runs.migrations import FORMAT
from echelon_jax.runs.numerics import difference, numerics
from echelon_jax.runs.policy import Policy
from echelon_jax.runs.tree_files import Flat, TreeError, first_line
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import TrainState

# Of the TrainConfig when a run is resumed.
MAY_CHANGE = (
    "updates",
    "updates_per_call",
    *(f.name for f in dataclasses.fields(TrainConfig) if f.name.startswith(("guard", "validation_"))),
)


class CheckpointError(Exception):
    """A checkpoint could not be written, found, read or used; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Bank:
    """The worlds of a run: the seed of the bank, the swaps done, and a fingerprint of the worlds' contents."""

    seed: int
    swaps: int
    worlds: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The manifest of a checkpoint: everything that it says about itself."""

    path: Path
    update: int
    config: TrainConfig
    env_config: EnvConfig
    extra: dict[str, Any]
    files: dict[str, str]  # checksum by path inside the checkpoint
    run: str | None  # identity of the run that wrote it; None: unknown (format 1)
    bank: Bank | None
    score: float | None  # by which the best is chosen
    was_format: int
    numerics: dict[str, Any] | None = None  # settings of JAX (runs/numerics.py); None: unknown


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A TrainState that was copied to the host, with the contents of its manifest."""

    update: int
    policy: Flat
    run: Flat
    manifest: dict[str, Any]
    score: float | None


def layout_hash(env_config: EnvConfig) -> str:
    """Return a fingerprint of the observation's layout. A policy can read no other layout."""
    entries = [(e.name, e.offset, e.size, e.kind) for e in observation_layout(env_config)]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]


def snapshot(
    state: TrainState,
    config: TrainConfig,
    env_config: EnvConfig,
    *,
    extra: Mapping[str, Any] | None = None,
    run: str | None = None,
    bank: Bank | None = None,
    score: float | None = None,
    scored_by: str = TRAINING_GAMES,
) -> Snapshot:
    """Copy a state to the host. The state may be consumed afterwards. `extra` is any JSON data of the caller.

    The best checkpoint is that with the highest `score`; `scored_by` says what the score is made of.
    """
    policy, fields = _parts(state)
    manifest = {
        "format": FORMAT,
        "update": int(state.update),
        "run": run,
        "train": dataclasses.asdict(config),
        "env": dataclasses.asdict(env_config),
        "observation_layout": layout_hash(env_config),
        "bank": None if bank is None else dataclasses.asdict(bank),
        "score": score,
        "scored_by": scored_by,
        "numerics": numerics(),
        "extra": dict(extra or {}),
    }
    return Snapshot(int(state.update), tree_files.to_flat(policy), tree_files.to_flat(fields), manifest, score)


def write(run_dir: str | Path, snap: Snapshot, keep: int = 3, keep_best: bool = True) -> Path:
    """Write a snapshot, remove all but the last `keep` (and the best), and return its directory.

    It becomes the best if its score is no lower than that of the best so far, or if that has a score of another kind.

    Raises:
        CheckpointError: the directory cannot be written or the disk is full; earlier checkpoints stay.
        ValueError: keep is not a whole number from 1.
    """
    if keep < 1:
        raise ValueError(f"keep must be a whole number from 1, got {keep}")
    folder = Path(run_dir).absolute() / "checkpoints"
    target, partial = folder / f"{snap.update:08d}", folder / f"{PARTIAL}new"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        repair(folder)
        partial.mkdir()
        tree_files.write(partial / "policy", tree_files.nested(snap.policy))
        tree_files.write(partial / "run", snap.run)
        manifest = {**snap.manifest, "files": tree_files.checksums(partial, MANIFEST)}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
        tree_files.flush(partial)
        put(partial, target)
        if keep_best and snap.score is not None and snap.score >= best_score(folder, snap.manifest["scored_by"]):
            put_best(folder, target)
        for old in whole_checkpoints(folder)[:-keep]:
            # Not whole from the first moment on: a removal that is cut short leaves no half checkpoint.
            gone = old.rename(folder / f"{PARTIAL}{old.name}")
            shutil.rmtree(gone)
    except (OSError, ValueError) as error:  # orbax reports a full disk as a ValueError
        for leftover in folder.glob(f"{PARTIAL}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        raise CheckpointError(f"cannot write a checkpoint to {folder}: {reason_of(error)}") from error
    return target


def save(
    run_dir: str | Path,
    state: TrainState,
    config: TrainConfig,
    env_config: EnvConfig,
    keep: int = 3,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint and wait for it: `snapshot`, then `write`."""
    return write(run_dir, snapshot(state, config, env_config, extra=extra), keep)


def find(path: str | Path) -> Path:
    """Return the checkpoint at `path`: itself, or the last one of a run directory.

    Raises:
        CheckpointError: there is none.
    """
    path = Path(path).absolute()
    aside = path.parent / (REPLACED + path.name)  # not with_name: the root has no name
    if not path.exists() and aside.exists():
        path = aside
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint at {path}")
    if (path / MANIFEST).is_file():
        return path
    found = whole_checkpoints(path / "checkpoints")
    if not found:
        raise CheckpointError(f"{path} is neither a checkpoint nor a run directory with checkpoints")
    return found[-1]


def saved_updates(run_dir: str | Path) -> list[int]:
    """Return the updates of the whole checkpoints of a run directory, in order."""
    return [
        int(path.name.removeprefix(REPLACED)) for path in whole_checkpoints(Path(run_dir).absolute() / "checkpoints")
    ]


def read_manifest(path: str | Path) -> Manifest:
    """Return the manifest of the checkpoint at `path`, or of the last one of a run.

    Raises:
        CheckpointError: missing, foreign, damaged, renamed, or of another format or observation layout.
    """
    target = find(path)
    try:
        manifest = json.loads((target / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the manifest of {target} cannot be read: {first_line(error)}") from error
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise CheckpointError(f"{target} is not a checkpoint of this program")
    try:
        manifest = migrations.upgrade(manifest)
    except migrations.FormatError as error:
        raise CheckpointError(f"{target} {error}") from error
    try:
        config = migrations.train_config(manifest["train"])
        env_config = migrations.env_config(manifest["env"])
        layout, update = manifest["observation_layout"], int(manifest["update"])
        extra, files = dict(manifest["extra"]), dict(manifest["files"])
        run, score, settings = manifest["run"], manifest["score"], manifest.get("numerics")
        bank = None if manifest["bank"] is None else Bank(**manifest["bank"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the manifest of {target} is damaged or foreign: {first_line(error)}") from error
    name = target.name.removeprefix(REPLACED)
    if target.parent.name == "checkpoints" and name.isdigit() and int(name) != update:
        raise CheckpointError(f"{target} was copied or renamed: its manifest says update = {update}")
    if layout != layout_hash(env_config):
        raise CheckpointError(f"{target} was trained on another layout of the observation than this version's")
    return Manifest(
        target, update, config, env_config, extra, files, run, bank, score, manifest["was_format"], settings
    )


def require_same(
    manifest: Manifest, config: TrainConfig, env_config: EnvConfig, run: str | None = None, bank: Bank | None = None
) -> None:
    """Refuse a checkpoint that the configured run cannot continue.

    Raises:
        CheckpointError: another configuration, run, worlds or settings of JAX; the field is named.
    """
    for kind, theirs, ours in (("train", manifest.config, config), ("env", manifest.env_config, env_config)):
        for field in dataclasses.fields(ours):
            saved, wanted = getattr(theirs, field.name), getattr(ours, field.name)
            if saved != wanted and not (kind == "train" and field.name in MAY_CHANGE):
                raise CheckpointError(
                    f"{manifest.path} was made with {field.name} = {saved!r}, this run has {field.name} = {wanted!r}"
                )
    other = difference(manifest.numerics)
    if other is not None:
        raise CheckpointError(f"{manifest.path} was made with {other}")
    if run is not None and manifest.run is not None and manifest.run != run:
        raise CheckpointError(f"{manifest.path} belongs to run {manifest.run}, this directory is that of run {run}")
    if bank is not None and manifest.bank is not None and manifest.bank != bank:
        raise CheckpointError(f"{manifest.path} was trained on bank = {manifest.bank}, this version makes {bank}")


def restore(
    path: str | Path,
    template: TrainState,
    config: TrainConfig,
    env_config: EnvConfig,
    fresh: Callable[[], TrainState] | None = None,
) -> TrainState:
    """Return the TrainState saved at `path` (a checkpoint or a run directory), for the configured run.

    `template` has the wanted shapes and dtypes: `train.shapes(env_params)`. `fresh` makes the state
    of a new run. A checkpoint of an older format takes from it the leaves that it does not have (`migrations.NEW_LEAVES`).

    Raises:
        CheckpointError: missing, foreign, damaged, or of another configuration (the field is named).
    """
    manifest = read_manifest(path)
    require_same(manifest, config, env_config)
    policy, fields = _parts(template)

    def fresh_rest() -> dict[str, Any]:
        assert fresh is not None
        return _parts(fresh())[1]

    verify(manifest)
    try:
        old = manifest.was_format
        loaded, _ = tree_files.read(manifest.path / "policy", policy, old_path=migrations.policy_path(old))
        rest, _ = tree_files.read(
            manifest.path / "run",
            fields,
            migrations.may_lack(old),
            migrations.may_drop(old),
            migrations.old_path(old),
            None if fresh is None else fresh_rest,
            migrations.join_trees(old, tree_files.paths(policy["params"])),
        )
    except TreeError as error:
        raise CheckpointError(str(error)) from error
    if "learner" in rest:
        loaded |= {"params": rest.pop("learner"), "average": loaded["params"]}
    return TrainState(**loaded, **rest)


def _parts(state: TrainState) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a state as the two trees of a checkpoint: the policy, and the rest by field. `restore` puts them together.

    With an average the policy's parameters are the average, and the rest holds the learner's own.
    """
    rest = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    policy = {"params": state.playing, "observation_moments": rest.pop("observation_moments")}
    own = rest.pop("params")
    if rest.pop("average") is not None:
        rest["learner"] = own
    return policy, rest


def load_policy(path: str | Path, network: Network | NetworkFactory | None = None) -> Policy:
    """Return the policy saved at `path` (a checkpoint, the best included, or a run directory), ready to play.

    `path` may also be the name of a policy that comes with the package, such as "zoo:champion" (docs/zoo.md). `network` is the one
    that was handed to `make_train`; without it the configuration of the checkpoint names it.

    Raises:
        CheckpointError: missing, foreign, damaged, or of a network that cannot be built here.
    """
    if zoo.is_zoo_name(path):
        try:
            return zoo.load(path)
        except zoo.ZooError as error:
            raise CheckpointError(str(error)) from error
    manifest = read_manifest(path)
    try:
        made = given_network(network, manifest.config, manifest.env_config)
    except ValueError as error:
        raise CheckpointError(f"the policy of {manifest.path} cannot be built: {error}") from error
    template = {
        "params": jax.eval_shape(made.init, jax.random.key(0)),
        "observation_moments": jax.eval_shape(lambda: empty_moments(made.features.own_size)),
    }
    verify(manifest)
    try:
        loaded, _ = tree_files.read(
            manifest.path / "policy", template, old_path=migrations.policy_path(manifest.was_format)
        )
    except TreeError as error:
        raise CheckpointError(str(error)) from error
    return Policy(
        network=made,
        params=loaded["params"],
        observation_moments=loaded["observation_moments"],
        config=manifest.config,
        env_config=manifest.env_config,
        update=manifest.update,
        extra=manifest.extra,
    )


def verify(manifest: Manifest) -> None:
    """Compare the files of a checkpoint with the checksums in its manifest.

    Raises:
        CheckpointError: a file is missing, has changed or cannot be read.
    """
    try:
        found = tree_files.checksums(manifest.path, MANIFEST)
    except OSError as error:
        raise CheckpointError(f"{manifest.path} cannot be read: {first_line(error)}") from error
    for name, checksum in manifest.files.items():
        if found.get(name) != checksum:
            others = [p.name for p in whole_checkpoints(manifest.path.parent) if p != manifest.path]
            advice = f"; move it away to go on from {others[-1]}" if others else ""
            raise CheckpointError(f"{manifest.path} is damaged: {name} is missing or has changed{advice}")
