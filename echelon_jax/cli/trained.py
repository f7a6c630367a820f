"""What `echelon train --json` says of the runs that it trained, as one document."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from echelon_jax.runs import checkpoint

# What a run's directory may hold for a reader, besides its checkpoints; a path is named where the file is there.
FILES = ("config.json", "metrics.jsonl", "summary.json", "evaluation.json", "league_matrix.json", "league_matrix.png")


def cpu_seconds() -> float:
    """Processor time that this process and the workers that have ended used so far, all threads together."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def told_of_run(run_dir: Path, evaluation: dict[str, Any] | None, stopped: bool) -> dict[str, Any]:
    """What there is to say of a run as it lies in its directory: how far it came, its evaluation, and its files.

    Args:
        run_dir: a directory with at least one checkpoint.
        evaluation: results by opponent, None if no games were played.
        stopped: whether a signal ended it before its last update.

    Raises:
        CheckpointError: its last checkpoint cannot be read.
    """
    last = checkpoint.read_manifest(run_dir)
    best = run_dir / "checkpoints" / "best"
    paths = {"checkpoint": last.path, "best": best} | {name: run_dir / name for name in FILES}
    return {
        "run_dir": str(run_dir),
        "updates": last.update,
        "planned": last.config.updates,
        "env_steps": last.update * last.config.decisions_per_update,
        "stopped_early": stopped,
        "evaluation": evaluation,
        "paths": {name: str(path) for name, path in paths.items() if path.exists()},
    }
