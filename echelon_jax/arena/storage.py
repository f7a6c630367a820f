"""The league file on disk: it is read whole or refused, written under another name and renamed, by one writer at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from echelon_jax.arena.records import LeagueData, LeagueError, from_text, to_text

FILE, LOCK = "league.json", "league.lock"
_PARTIAL = ".partial-league.json"
LOCK_SECONDS = 60.0  # a change takes milliseconds; who waits longer waits for a process that hangs


def exists(folder: Path) -> bool:
    """Whether the folder holds a league."""
    return (folder / FILE).is_file()


def read(folder: Path) -> LeagueData:
    """Return the league in a folder. This needs no lock, because the file is always whole.

    Raises:
        LeagueError: missing, damaged, foreign, or of a newer format.
    """
    return read_file(folder / FILE)


def read_file(path: Path) -> LeagueData:
    """Return the league of a file, as `read` does."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise LeagueError(f"there is no league in {path.parent}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LeagueError(f"{path} cannot be read and was left as it is: {error}") from error
    return from_text(text, str(path))


def write(folder: Path, data: LeagueData) -> None:
    """Replace the league file. A process that dies meanwhile leaves the old one. Call it with the lock held.

    Raises:
        LeagueError: the folder cannot be written or the disk is full; the old file stays.
    """
    partial = folder / _PARTIAL
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(to_text(data))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, folder / FILE)
        _flush_names(folder)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise LeagueError(f"cannot write to {folder}: {error.strerror or error}") from error


@contextmanager
def locked(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the league's lock. The system releases it when the process ends, however it ends.

    Raises:
        LeagueError: another process holds it for longer than `seconds`, or the folder cannot be written.
    """
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=seconds)
    except Timeout as error:
        raise LeagueError(f"another process has been changing the league in {folder} for {seconds:g} s") from error
    except OSError as error:
        raise LeagueError(f"cannot write to {folder}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def _flush_names(folder: Path) -> None:
    """Flush the folder's names to the disk, so that the rename survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
