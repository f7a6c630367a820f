"""Checkpoints in the background: the state is copied to the host at once, and one thread writes the files."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from echelon_jax.runs.checkpoint import CheckpointError, Snapshot, write


class Saver:
    """Writes the checkpoints of one run, one at a time; leaving the context waits for the last.

    The next method call raises the error of a failed write, and so does leaving the context.

    Args:
        run_dir: the run's directory.
        keep: number of checkpoints that stay, 1 or more; older ones are removed.
        keep_best: whether to keep a copy of the checkpoint with the highest score as well.

    Example:
        >>> with Saver(run_dir, keep=3) as saver:
        ...     saver.save(snapshot(state, config, env_config))
    """

    def __init__(self, run_dir: Path, *, keep: int = 3, keep_best: bool = True) -> None:
        if keep < 1:
            raise ValueError(f"keep must be a whole number from 1, got {keep}")
        self.run_dir, self.keep, self.keep_best = run_dir, keep, keep_best
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[Path] | None = None
        self.saved: Path | None = None  # the last that is known to be whole

    def save(self, snap: Snapshot) -> None:
        """Wait for the write in progress, then begin this one.

        Raises:
            CheckpointError: the write before this one failed; nothing is begun.
        """
        self.wait()
        self._pending = self._thread.submit(write, self.run_dir, snap, self.keep, self.keep_best)

    def wait(self) -> Path | None:
        """Wait for the write in progress; return the last checkpoint written, None if there is none.

        Raises:
            CheckpointError: it failed.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            self.saved = pending.result()
        return self.saved

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True)
        try:
            self.wait()
        except CheckpointError as failed:
            if error is None:
                raise
            error.add_note(f"and the last checkpoint failed: {failed}")  # never instead of what ended the run
