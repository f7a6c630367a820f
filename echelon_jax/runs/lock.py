"""One process to a run: a lock that the system lets go of when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from echelon_jax.runs.checkpoint import CheckpointError


class RunLock:
    """Holds RUN/.lock while it is entered.

    Raises:
        CheckpointError: another process holds it, or the directory cannot be written.
    """

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / ".lock"
        self.descriptor: int | None = None

    def __enter__(self) -> RunLock:
        try:
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise CheckpointError(f"cannot write to {self.path.parent}: {error.strerror}") from error
        try:
            # Of the process, not of the file: worker processes do not hold on to it.
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.__exit__()
            raise CheckpointError(f"another process is training in {self.path.parent}") from error
        return self

    def __exit__(self, *exc: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
