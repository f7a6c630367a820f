"""One process per run: a lock that the system releases when the process ends, however it ends.

It is a record lock (`lockf`) rather than the `flock` of the library filelock: a record lock belongs to the process, so
that a forked worker does not keep a run locked after its parent has died. The file system may be one that has no locks.
"""

from __future__ import annotations

import errno
import os
import threading
import warnings
from pathlib import Path

from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.system import try_lock

_HELD_BY_ANOTHER = (errno.EACCES, errno.EAGAIN)  # what POSIX lets lockf answer then; everything else is no answer
_TRIES = 20  # a directory that a refused start removes at this moment is made again

# A record lock does not keep out threads of its own process, and closing any descriptor of the file drops it.
_mine: set[str] = set()
_mine_lock = threading.Lock()


class RunLock:
    """Holds RUN/.lock while it is entered, and makes the directory if there is none.

    Where the file system has no locks it warns once and lets the run go on.

    Attributes:
        made: the directories that were not there before, the outermost first.

    Raises:
        CheckpointError: another process or thread holds it, or the directory cannot be written.
    """

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / ".lock"
        self.made: list[Path] = []
        self.descriptor: int | None = None
        self._name: str | None = None

    def __enter__(self) -> RunLock:
        folder = self.path.parent
        name = os.path.realpath(folder)
        with _mine_lock:
            if name in _mine:
                raise CheckpointError(f"this process is already training in {folder}")
            try:
                for _ in range(_TRIES):
                    if self._try():
                        break
                else:
                    raise CheckpointError(f"another process removes {folder} again and again")
            except OSError as error:
                raise CheckpointError(f"cannot write to {folder}: {error.strerror or error}") from error
            self._name = name
            _mine.add(name)
        return self

    def _try(self) -> bool:
        """Lock the file; False if it was removed meanwhile, together with its directory."""
        folder = self.path.parent
        if not folder.is_dir():
            self.made = [path for path in (*reversed(folder.absolute().parents), folder) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            return False
        try:
            self._lock(descriptor)
            same = os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except FileNotFoundError:
            same = False
        except BaseException:
            os.close(descriptor)
            raise
        if same:
            self.descriptor = descriptor
        else:
            os.close(descriptor)
        return same

    def _lock(self, descriptor: int) -> None:
        try:
            if try_lock(descriptor):
                return
            reason = "this system has no record locks"
        except OSError as error:
            if error.errno in _HELD_BY_ANOTHER:
                raise CheckpointError(f"another process is training in {self.path.parent}") from error
            reason = f"its file system cannot lock files ({error.strerror or error})"
        message = f"{self.path.parent} is not protected against a second process: {reason}"
        warnings.warn(message, RuntimeWarning, stacklevel=4)

    def __exit__(self, *exc: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        if self._name is not None:
            with _mine_lock:
                _mine.discard(self._name)
            self._name = None
