"""Shared test set-up: one XLA thread per process, a persistent compilation cache, runs in memory, where golden data lives."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Before JAX is imported: small kernels gain nothing from threads, and the suite runs in two processes.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
# Runs are many small files, each flushed to the disk; a file system in memory, where there is room, does not wait for that.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
os.environ.setdefault("ECHELON_GOLDEN", str(ROOT.parent / "shared" / "golden"))

import pytest

# A file goes to one of the two workers as a whole; the longest first, so that neither ends up waiting for one of them.
LONGEST_FIRST = ("learning", "product", "evaluation", "modern_actions", "fuzz", "determinism", "modern_network", "soak")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest at the front."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session")
def golden() -> Path:
    """The whole golden set, or a skip with the reason."""
    path = Path(os.environ["ECHELON_GOLDEN"])
    if not (path / "episodes").is_dir():
        pytest.skip(f"golden data not found at ECHELON_GOLDEN={path}")
    return path


@pytest.fixture(scope="session")
def data() -> Path:
    """The small cases that travel with the project."""
    return ROOT / "tests" / "data"
