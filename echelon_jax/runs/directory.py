"""The life of a run directory: its owner, its last settings, and the meaning of a start in it.

    nothing there           a new run; config.json is made exclusively, whole or not at all
    config.json alone       the start before ended before its first checkpoint: the run starts anew under its identity
    config.json, checkpoint a run to resume

Everything is written under the run's lock (runs/lock.py). A start that is refused leaves a directory as it found it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon_jax.config import EnvConfig
from echelon_jax.runs import checkpoint, migrations
from echelon_jax.runs.checkpoint import MAY_CHANGE, CheckpointError, Manifest
from echelon_jax.runs.description import describe
from echelon_jax.training.config import TrainConfig

CONFIG = "config.json"


@dataclasses.dataclass(frozen=True)
class Claim:
    """The meaning of a start in a directory.

    Attributes:
        described: the contents of config.json; None if there is none yet.
        manifest: the checkpoint to go on from; None to start at update 0.
    """

    described: dict[str, Any] | None
    manifest: Manifest | None

    @property
    def run_id(self) -> str | None:
        """The identity of the run; None of a new run, and of one made before runs had one."""
        found = None if self.described is None else self.described.get("run")
        return None if found is None else str(found)


def look(run_dir: Path, config: TrainConfig, env_config: EnvConfig, resume: bool, at: int | None = None) -> Claim:
    """Return the meaning of a start in a directory. Nothing is written.

    `resume` allows to go on from a checkpoint, the last one or that of update `at`. Without a checkpoint both start: at
    update 0, under the identity of the start before if there was one.

    Raises:
        CheckpointError: it holds another run, a run that `resume` is not given for, or something that cannot be read.
    """
    saved = checkpoint.saved_updates(run_dir)
    holds = f"{run_dir} already holds a run; give another --run-dir, or --resume to continue it"
    if saved and not resume:
        raise CheckpointError(holds)
    described = read_config(run_dir)
    if not saved or at == 0:
        if described is not None:
            _require_same(run_dir, described, config, env_config, holds)
        return Claim(described, None)
    path = run_dir if at is None else run_dir / "checkpoints" / f"{at:08d}"
    claim = Claim(described, checkpoint.read_manifest(path))
    assert claim.manifest is not None
    checkpoint.require_same(claim.manifest, config, env_config, run=claim.run_id)
    return claim


def tell(run_dir: Path, claim: Claim, config: TrainConfig, env_config: EnvConfig, identity: Mapping[str, Any]) -> Claim:
    """Write the settings of the run under its lock, and return the claim as it is then.

    A new directory gets its config.json, with the `identity` of the run ("run", and where it begins); in one that is known,
    the fields that may change become those that it is told now.

    Raises:
        CheckpointError: another process made a run here meanwhile, or the directory cannot be written.
    """
    path = run_dir / CONFIG
    try:
        if claim.described is None and claim.manifest is None:
            described = {**describe(config, env_config), **identity}
            _write(path, described, exclusive=True)
        elif claim.described is not None and claim.described["train"] != dataclasses.asdict(config):
            described = {**claim.described, "train": dataclasses.asdict(config)}
            _write(path, described)
        else:
            return claim
    except FileExistsError as error:
        raise CheckpointError(f"another process has started a run in {run_dir}") from error
    except OSError as error:
        raise CheckpointError(f"cannot write to {run_dir}: {error.strerror or error}") from error
    return Claim(described, claim.manifest)


def undo(run_dir: Path, made: Sequence[Path]) -> None:
    """Remove what a failed start has written into a directory, and the directories that it has `made`."""
    for name in (CONFIG, "wandb_id", ".lock"):
        (run_dir / name).unlink(missing_ok=True)
    for name in ("wandb", "tensorboard", "checkpoints"):
        shutil.rmtree(run_dir / name, ignore_errors=True)
    for folder in reversed(made):
        with contextlib.suppress(OSError):  # somebody else has put something there
            folder.rmdir()


def read_config(run_dir: Path) -> dict[str, Any] | None:
    """Return the contents of a run's config.json, None if there is none.

    Raises:
        CheckpointError: it cannot be read.
    """
    path = run_dir / CONFIG
    try:
        described = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise CheckpointError(f"cannot write to {path.parent}: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(described, dict):
        raise CheckpointError(f"{path} cannot be read: it holds no configuration")
    return described


def _require_same(
    run_dir: Path, described: dict[str, Any], config: TrainConfig, env_config: EnvConfig, holds: str
) -> None:
    """Refuse a new start in a directory with another configuration."""
    try:
        before = migrations.train_config(described["train"]), migrations.env_config(described["env"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(holds) from error
    was = dataclasses.asdict(before[0]) | dataclasses.asdict(before[1])
    now = dataclasses.asdict(config) | dataclasses.asdict(env_config)
    for name, value in now.items():
        if was[name] != value and name not in MAY_CHANGE:
            raise CheckpointError(
                f"{run_dir} already holds a run with {name} = {was[name]!r}, without a checkpoint yet, and this run has "
                f"{name} = {value!r}; give another --run-dir"
            )


def _write(path: Path, described: dict[str, Any], exclusive: bool = False) -> None:
    """Write config.json as a whole or not at all; `exclusive` fails if it is there."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("w") as file:
            json.dump(described, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        if exclusive:
            try:
                os.link(partial, path)
            except FileExistsError:
                raise
            except OSError:  # a file system without links; the lock keeps others out
                os.rename(partial, path)
        else:
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
