"""What differs between operating systems, in one place: record locks and the memory of this process.

`fcntl` and `resource` exist on Linux and macOS, not on Windows; no other module imports them.
"""

from __future__ import annotations

import contextlib
import os
import sys

try:
    import fcntl
except ImportError:  # pragma: no cover  (Windows)
    fcntl = None  # type: ignore[assignment]
try:
    import resource
except ImportError:  # pragma: no cover  (Windows)
    resource = None  # type: ignore[assignment]


def try_lock(descriptor: int) -> bool:
    """Lock a file for this process, without waiting.

    Args:
        descriptor: of a file that is open for writing.

    Returns:
        False where the system has no record locks.

    Raises:
        OSError: another process holds the lock (EACCES or EAGAIN), or the file system cannot lock files.
    """
    if fcntl is None:
        return False
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def resident_megabytes() -> float | None:
    """Return the memory of this process in MiB: the present amount on Linux, the largest on macOS, None on Windows."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return peak_megabytes()


def peak_megabytes() -> float | None:
    """Return the largest amount of memory that this process had so far in MiB; None on Windows."""
    if resource is None:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def available_bytes() -> int:
    """Return the bytes of this machine's memory that programs can still get; where that cannot be asked, 4 GiB."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 4 * 2**30
