"""Shared test set-up: one XLA thread per process, a persistent compilation cache, runs in memory, where golden data lives."""

import ctypes
import functools
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Before JAX is imported: small kernels gain nothing from threads, and the suite runs in two processes.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")
os.environ.setdefault(
    "JAX_NUM_CPU_DEVICES", "2"
)  # for tests/training/test_devices.py; everything else runs on the first
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("ECHELON_NATIVE_CACHE", str(ROOT / ".cache" / "native"))
FEW_OPTIMISATIONS = (
    "JAX_DISABLE_MOST_OPTIMIZATIONS"  # in files without the marker `optimised`; set it to false for none
)
ALWAYS_OPTIMISED = os.environ.setdefault(FEW_OPTIMISATIONS, "true").lower() in ("0", "false")
# As echelon_jax/compiling.py has it, for what the tests compile themselves. XLA ends the process at a flag that it does not know,
# so another process tries it; the workers inherit what comes out.
SHORT_COMPILE = "--xla_cpu_use_fusion_emitters=false"
if SHORT_COMPILE.split("=")[0] not in os.environ.get("XLA_FLAGS", ""):
    tried = os.environ | {"XLA_FLAGS": SHORT_COMPILE, "JAX_PLATFORMS": "cpu"}
    if not subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"], env=tried, capture_output=True
    ).returncode:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {SHORT_COMPILE}".strip()
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
# Runs are many small files, each flushed to the disk; a file system in memory, where there is room, does not wait for that.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
os.environ.setdefault("ECHELON_GOLDEN", str(ROOT.parent / "shared" / "golden"))

import pytest

# JAX makes a great many small objects while it traces, and Python's collector goes through all that live each time it thinks that
# there may be garbage. Looking seldom takes a sixth off the time of tests that trace; memory is bounded below.
gc.set_threshold(200_000, 20, 100)

# A file goes to one of the two workers as a whole; the longest first, so that neither ends up waiting for one of them.
LONGEST_FIRST = (
    "product",
    "widths",
    "learning",
    "determinism",
    "fuzz",
    "examples",
    "simulation",
    "replay_game",
    "weapon_example",
    "parity",
    "evaluation",
    "games",
    "modern_actions",
    "modern_rewards",
    "modern_network",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest at the front."""
    ranks = {f"test_{name}": rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))


def pytest_collection_finish() -> None:
    """Leave everything that is imported by now out of the collector's sight."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="module", autouse=True)
def optimisation(request: pytest.FixtureRequest) -> None:
    """Compile with few of XLA's optimisations, in this process and in those that it starts, unless the file is `optimised`.

    That takes a third to nearly half off the time of compiling a step, which then runs four to five times slower. Files that hold
    the simulator to recordings and to the reference, or that play for long, compile as users do.
    """
    few = not ALWAYS_OPTIMISED and request.node.get_closest_marker("optimised") is None
    os.environ[FEW_OPTIMISATIONS] = str(few).lower()
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_disable_most_optimizations", few)


# Folders whose tests are about what lies around the simulation. They let native code play the game, which is in a program sooner
# and plays faster in one of few optimisations; where it cannot be built, and in all other folders, XLA plays.
AROUND_THE_SIMULATION = (
    "agents",
    "arena",
    "cli",
    "compat",
    "evaluation",
    "examples",
    "export",
    "live",
    "runs",
    "testing",
    "training",
)
KERNELS = "ECHELON_KERNELS"


@functools.cache
def native_kernels() -> bool:
    """Whether the native code can be built here, which this does."""
    from echelon_jax.native.build import CannotBuild, build

    try:
        build("cpu")
    except CannotBuild:
        return False
    return True


@pytest.fixture(scope="module", autouse=True)
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Choose what runs the simulation in a file of tests, and in the processes that it starts, unless ECHELON_KERNELS is set."""
    if KERNELS in os.environ or request.path.parent.name not in AROUND_THE_SIMULATION or not native_kernels():
        yield
        return
    os.environ[KERNELS] = "native"
    yield
    del os.environ[KERNELS]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser for the tests of pages, or a skip with the reason."""
    from helpers.browser import chromium

    yield from chromium()


# A worker keeps every program that it has compiled. Beyond this much memory they are dropped after a file of tests; what a later
# file needs again comes from the persistent cache.
MOST_MEGABYTES = int(os.environ.get("ECHELON_TEST_MEGABYTES", "1800"))


def resident_megabytes() -> float:
    """Memory of this process in MiB, 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Drop compiled programs after a file of tests if the process has grown large."""
    yield
    jax = sys.modules.get("jax")
    if jax is not None and resident_megabytes() > MOST_MEGABYTES:
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system
