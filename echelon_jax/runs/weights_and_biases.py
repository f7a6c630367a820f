"""A sink for Weights & Biases; the package is imported only here, and only when a run asks for it."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from pathlib import Path
from typing import Any

from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.sinks import Line
from echelon_jax.runs.tree_files import first_line

REPLAYS = "*.echelon"


@dataclasses.dataclass(frozen=True)
class Options:
    """What a run of Weights & Biases may be told.

    Attributes:
        group: of the run among others.
        tags: of the run.
        offline: keep everything in RUN/wandb, without login and network.
        artifacts: send checkpoints and replays when the run ends.
    """

    group: str | None = None
    tags: tuple[str, ...] = ()
    offline: bool = False
    artifacts: bool = False


class WeightsAndBiases:
    """A run of a Weights & Biases project.

    It is a run of its own beside any other of this process: those of other seeds, or one that the caller has begun.

    Raises:
        CheckpointError: the package is not installed, or there is no login.
    """

    _starting = threading.Lock()  # seeds start theirs from threads of their own

    def __init__(
        self, project: str, run_dir: Path, description: dict[str, Any], options: Options | None = None
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise CheckpointError("wandb is not installed: pip install 'echelon-jax[wandb]'") from error
        self.wandb, self.run_dir, self.options = wandb, run_dir, options or Options()
        file = run_dir / "wandb_id"  # a resumed run goes on in the same place
        self.identity = file.read_text().strip() if file.is_file() else uuid.uuid4().hex[:12]
        file.write_text(self.identity)
        try:
            with self._starting:
                self.run = wandb.init(
                    project=project,
                    name=run_dir.absolute().name,
                    dir=str(run_dir.absolute()),
                    config=description,
                    id=self.identity,
                    group=self.options.group,
                    tags=list(self.options.tags) or None,
                    mode="offline" if self.options.offline else None,
                    resume=None if self.options.offline else "allow",
                    reinit="create_new",
                )
        except wandb.Error as error:
            raise CheckpointError(f"Weights & Biases cannot be used: {first_line(error)}") from error

    def write(self, line: Line) -> None:
        """Log the line."""
        self.run.log({name: value for name, value in line.items() if value is not None}, step=line["update"])

    def close(self) -> None:
        """Send the artifacts, if that was asked for, and finish the run.

        Raises:
            CheckpointError: an artifact cannot be sent; checkpoints on the disk stay.
        """
        try:
            if self.options.artifacts:
                self._send("checkpoints", "model", self.run_dir / "checkpoints")
                for replay in sorted(self.run_dir.rglob(REPLAYS)):
                    self._send(f"replay-{replay.stem}", "replay", replay)
        except (self.wandb.Error, OSError, ValueError) as error:
            raise CheckpointError(f"Weights & Biases took no artifact: {first_line(error)}") from error
        finally:
            self.run.finish()

    def _send(self, name: str, kind: str, path: Path) -> None:
        if not path.exists():
            return
        artifact = self.wandb.Artifact(f"{name}-{self.identity}", type=kind)
        (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
        self.run.log_artifact(artifact)
