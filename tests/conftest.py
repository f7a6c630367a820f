"""Shared test set-up: one XLA thread per process, a persistent compilation cache, where golden data lives."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Before JAX is imported: small kernels gain nothing from threads, and the suite runs in two processes.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
os.environ.setdefault("ECHELON_GOLDEN", str(ROOT.parent / "shared" / "golden"))

import pytest


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
