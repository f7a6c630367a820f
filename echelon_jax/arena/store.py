"""Policies of a league: weights under the fingerprint of their content in the league's folder, and the last few in memory."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from echelon_jax.arena.records import LeagueError
from echelon_jax.runs import tree_files, zoo
from echelon_jax.runs.checkpoint import CheckpointError, Policy, layout_hash, load_policy
from echelon_jax.runs.migrations import FORMAT

FOLDER = "policies"
PACKAGES = "this policy needs PyTorch and safetensors: pip install 'echelon-jax[torch]'"


def read_policy(path: Path) -> tuple[Policy, str]:
    """Return the policy at a path and its kind: "checkpoint" (or a run), "zoo", "original" (.pt) or "torch" (.safetensors).

    Raises:
        LeagueError: missing, damaged or foreign; or torch is needed and not there.
    """
    if zoo.is_zoo_name(path) or path.suffix not in (".pt", ".safetensors"):
        try:
            return load_policy(path), "zoo" if zoo.is_zoo_name(path) else "checkpoint"
        except CheckpointError as error:
            raise LeagueError(str(error)) from error
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise LeagueError(PACKAGES) from error
    from echelon_jax.export.weights import ExportError

    try:
        if path.suffix == ".pt":
            from echelon_jax.export.original import import_original

            return import_original(path).policy, "original"
        from echelon_jax.export.torch_import import import_torch

        return import_torch(path), "torch"
    except ExportError as error:
        raise LeagueError(str(error)) from error


def fingerprint(policy: Policy) -> str:
    """Return 16 hex digits that depend on a policy's weights, normaliser, network and game, but not on its path."""
    flat = tree_files.to_flat({"params": policy.params, "observation_moments": policy.observation_moments})
    described = json.dumps(
        [tree_files.digest(flat), policy.config.network, dataclasses.asdict(policy.env_config)], sort_keys=True
    )
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def keep(folder: Path, policy: Policy) -> str:
    """Put a policy into the league's folder unless it is there, and return its path relative to the folder.

    It is written under another name and renamed, so a policy in the store is whole.

    Raises:
        LeagueError: the folder cannot be written or the disk is full.
    """
    name = fingerprint(policy)
    directory = folder / FOLDER / name
    if directory.exists():
        return f"{FOLDER}/{name}"
    partial = directory.with_name(f".partial-{name}-{os.getpid()}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        tree = {"params": policy.params, "observation_moments": policy.observation_moments}
        tree_files.write((partial / "policy").absolute(), tree_files.nested(tree_files.to_flat(tree)))
        manifest = {
            "format": FORMAT,
            "update": policy.update,
            "run": None,
            "train": dataclasses.asdict(policy.config),
            "env": dataclasses.asdict(policy.env_config),
            "observation_layout": layout_hash(policy.env_config),
            "bank": None,
            "score": None,
            "extra": policy.extra,
            "files": tree_files.checksums(partial, "manifest.json"),
        }
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=1))
        tree_files.flush(partial)
        try:
            partial.rename(directory)
        except OSError:
            if not directory.exists():  # otherwise another process was first with the same content
                raise
        tree_files.flush_one(directory.parent)
    except (OSError, ValueError) as error:  # orbax reports a full disk as a ValueError
        raise LeagueError(f"cannot write a policy to {directory.parent}: {tree_files.first_line(error)}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return f"{FOLDER}/{name}"


class PolicyCache:
    """The policies that were used last. One more than `limit` drops the one that was used longest ago.

    Raises:
        ValueError: limit is not a whole number from 1.
    """

    def __init__(self, limit: int, load: Callable[[Path], Policy] = load_policy) -> None:
        if limit < 1:
            raise ValueError(f"limit must be a whole number from 1, got {limit}")
        self.limit = limit
        self._load = load
        self._held: OrderedDict[Path, Policy] = OrderedDict()

    def __len__(self) -> int:
        """Number of policies in memory."""
        return len(self._held)

    def get(self, directory: Path) -> Policy:
        """Return the policy in the store at `directory`.

        Raises:
            LeagueError: it is missing or damaged.
        """
        if directory not in self._held:
            try:
                policy = self._load(directory)
            except CheckpointError as error:
                raise LeagueError(str(error)) from error
            self._held[directory] = policy
        self._held.move_to_end(directory)
        while len(self._held) > self.limit:
            self._held.popitem(last=False)
        return self._held[directory]
