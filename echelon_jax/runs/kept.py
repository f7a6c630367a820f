"""The checkpoints that a run keeps: one of them by its update, and what stays when the run goes on from an earlier one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from echelon_jax.runs.checkpoint import CheckpointError, saved_updates
from echelon_jax.runs.checkpoint_files import BEST, MANIFEST, PARTIAL, put_best, repair, whole_checkpoints
from echelon_jax.runs.tree_files import first_line


def at_update(run_dir: str | Path, update: int) -> Path:
    """Return the checkpoint of a run that was saved after so many updates.

    Raises:
        CheckpointError: there is none; the sentence names those that there are.
    """
    saved = dict(zip(saved_updates(run_dir), whole_checkpoints(Path(run_dir).absolute() / "checkpoints"), strict=True))
    if update not in saved:
        kept = f"it keeps those of {', '.join(map(str, saved))}" if saved else "it keeps none"
        raise CheckpointError(f"{run_dir} keeps no checkpoint of update {update}; {kept}")
    return saved[update]


def drop_after(run_dir: str | Path, update: int) -> None:
    """Remove the checkpoints of a run that lie after an update; a run that goes on from there makes its own.

    If the best one is among them, the best of those that stay takes its place.

    Raises:
        CheckpointError: one of them cannot be removed.
    """
    folder = Path(run_dir).absolute() / "checkpoints"
    try:
        repair(folder)
        found = [path for path in (*whole_checkpoints(folder), folder / BEST) if (path / MANIFEST).is_file()]
        told = {path: json.loads((path / MANIFEST).read_text()) for path in found}
        for path in found:
            if told[path]["update"] > update:
                shutil.rmtree(path.rename(folder / f"{PARTIAL}{path.name}"))
        if folder / BEST in told and not (folder / BEST).exists():
            kind = told[folder / BEST].get("scored_by")
            stay = [
                p
                for p in whole_checkpoints(folder)
                if told[p]["score"] is not None and told[p].get("scored_by") == kind
            ]
            if stay:
                put_best(folder, max(reversed(stay), key=lambda p: float(told[p]["score"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"cannot remove the later checkpoints in {folder}: {first_line(error)}") from error
