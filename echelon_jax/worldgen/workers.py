"""A pool of worker processes that import numpy and this package's world generator, and nothing else.

Workers are spawned and never forked, because a fork of a process that runs JAX's threads can deadlock. A spawned worker would
import the caller's main script, and JAX with it. The script is hidden while the workers start, which keeps them small and makes
a script without an `if __name__ == "__main__"` guard safe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any

_main_lock = threading.Lock()


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")  # no file and no spec: nothing for a worker to import
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # an orphaned worker would wait for ever


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then closes the pool
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def may_start() -> bool:
    """Return whether this process may have child processes; a worker of `multiprocessing.Pool` may not."""
    return not multiprocessing.current_process().daemon


class WorkerPool:
    """A `ProcessPoolExecutor` of `processes` spawned workers; a context manager that waits for them to end.

    Args:
        processes: 1 or more.
    """

    def __init__(self, processes: int) -> None:
        if processes < 1:
            raise ValueError(f"processes must be a whole number from 1, got {processes}")
        self._executor = ProcessPoolExecutor(
            processes, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
        )

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run a module-level function in a worker.

        Raises:
            RuntimeError: a worker has died (killed, or out of memory).
        """
        try:
            with _hidden_main():  # workers are started from here, as they are needed
                return self._executor.submit(function, *args)
        except BrokenExecutor as error:
            raise RuntimeError(f"a world generator process died: {error}") from error

    def close(self) -> None:
        """Drop what has not started, wait for what has, and end the workers; a second call does nothing."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
