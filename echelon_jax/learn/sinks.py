"""Where a run's metrics go: RUN/metrics.jsonl and TensorBoard files always, Weights & Biases if asked for.

A line is a flat dictionary of numbers by name (docs/metrics.md); what has no value is None in the file and left out elsewhere.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from echelon_jax.learn.checkpoint import CheckpointError

Line = dict[str, Any]


class Sink(Protocol):
    """Takes lines until it is closed."""

    def write(self, line: Line) -> None:
        """Take one line; its "update" is its place on the axis."""
        ...

    def close(self) -> None:
        """Write what is still held back."""
        ...


def append_line(path: Path, line: Line) -> None:
    """Append one line of JSON to a file.

    Raises:
        CheckpointError: the disk is full or the file can no longer be written; checkpoints already saved stay.
    """
    try:
        with path.open("a") as log:  # closing flushes, and fails here too where the disk is full
            log.write(json.dumps(line) + "\n")
    except OSError as error:
        raise CheckpointError(f"cannot write to {path}: {error.strerror or error}") from error


def drop_lines_after(path: Path, update: int) -> int:
    """Remove from a metrics file the lines of updates after `update`, which a resumed run does again; return how many.

    A line that a crash cut short goes too. The file is replaced as a whole, or not at all.

    Raises:
        CheckpointError: the file cannot be replaced.
    """
    if not path.exists():
        return 0
    kept, dropped = [], 0
    for text in path.read_text().splitlines():
        try:
            stays = json.loads(text)["update"] <= update
        except (ValueError, KeyError, TypeError):
            stays = False
        kept += [text + "\n"] if stays else []
        dropped += not stays
    if dropped:
        partial = path.with_suffix(".partial")
        try:
            partial.write_text("".join(kept))
            os.replace(partial, path)
        except OSError as error:
            raise CheckpointError(f"cannot write to {path}: {error.strerror or error}") from error
    return dropped


class JsonLines:
    """RUN/metrics.jsonl; every line is on the disk when `write` returns."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "metrics.jsonl"

    def write(self, line: Line) -> None:
        """Append the line."""
        append_line(self.path, line)

    def close(self) -> None:
        """Nothing is held back."""


class TensorBoard:
    """RUN/tensorboard: one scalar per name, on the axis of updates; `after` is the update that a resumed run goes on from."""

    def __init__(self, run_dir: Path, after: int = 0) -> None:
        from tensorboardX import SummaryWriter

        again = {"purge_step": after + 1} if after else {}  # hides what a crashed run wrote beyond its checkpoint
        self.writer = SummaryWriter(str(run_dir / "tensorboard"), flush_secs=30, **again)

    def write(self, line: Line) -> None:
        """Hand the line to the writer's thread."""
        for name, value in line.items():
            if value is not None and name != "update":
                self.writer.add_scalar(name, value, line["update"])

    def close(self) -> None:
        """Flush and close the file."""
        self.writer.close()


class WeightsAndBiases:
    """A run of a Weights & Biases project; the package is imported only here.

    Raises:
        CheckpointError: the package is not installed.
    """

    def __init__(self, project: str, run_dir: Path, description: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise CheckpointError("wandb is not installed: pip install 'echelon-jax[wandb]'") from error
        file = run_dir / "wandb_id"  # a resumed run goes on in the same place
        identity = file.read_text().strip() if file.is_file() else uuid.uuid4().hex[:12]
        file.write_text(identity)
        self.run = wandb.init(
            project=project, name=run_dir.name, dir=str(run_dir), config=description, id=identity, resume="allow"
        )

    def write(self, line: Line) -> None:
        """Log the line."""
        self.run.log({name: value for name, value in line.items() if value is not None}, step=line["update"])

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()


class Sinks:
    """Several sinks as one; a context manager that closes all of them, whatever happens."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = list(sinks)

    def __enter__(self) -> Sinks:
        return self

    def write(self, line: Line) -> None:
        """Hand the line to every sink, the file first."""
        for sink in self.sinks:
            sink.write(line)

    def __exit__(self, *exc: object) -> None:
        for sink in self.sinks:
            sink.close()
