"""The machine's set-up before JAX computes anything: the number of CPU threads and the place of compiled programs."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import platform
from pathlib import Path

# New objects after which Python's garbage collector runs. Tracing makes a great many that stay, and with Python's own number, some
# hundreds, the collector looks through them again and again (docs/benchmarks.md has what this brings).
COLLECT_AFTER = 200_000


def machine_key() -> str:
    """A short name of what compiled programs depend on: architecture and instruction set of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = [next((line for line in lines if line.startswith(word)), "") for word in ("model name", "flags", "Features")]
    told.append(platform.processor())
    return f"{platform.machine()}-{hashlib.sha256(repr(told).encode()).hexdigest()[:10]}"


def cache_folder() -> Path | None:
    """Return the user's folder for caches, None where there is none.

    XDG_CACHE_HOME counts if it is an absolute path, as its specification says; else ~/.cache, if the user has a home.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # no HOME, and a user that the system does not know, as in many containers
        return None


def require_float32() -> None:
    """Refuse 64-bit JAX, in which networks and learner would compute in other numbers than the checkpoints hold.

    Raises:
        ValueError: jax_enable_x64 is on.
    """
    import jax

    if getattr(jax.config, "jax_enable_x64", False):
        raise ValueError("JAX_ENABLE_X64 must be off: networks and learner compute in float32 and int32")


def require_device() -> None:
    """Start JAX's backend.

    Raises:
        ValueError: one sentence: JAX_PLATFORMS names a device that is missing, or JAX computes in 64 bits.
    """
    import jax

    require_float32()
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # JAX asserts that there is a device where CUDA's plugin is missing
        wanted = getattr(jax.config, "jax_platforms", None)
        reason = (str(error).strip() or "there is none").splitlines()[0]
        raise ValueError(f"JAX_PLATFORMS must name a device that JAX can use, got {wanted!r}: {reason}") from error


def set_up_jax(threads: int = 0, cpu_devices: int = 1) -> None:
    """Choose XLA's thread number and a compilation cache; must run before the first computation.

    Python's garbage collector runs less often from then on (COLLECT_AFTER).
    Compiled programs are kept under ~/.cache/echelon-jax/xla/<machine>, so that a program compiled for one processor is never
    loaded on another; JAX_COMPILATION_CACHE_DIR chooses another place, JAX_ENABLE_COMPILATION_CACHE=false keeps none.

    Args:
        threads: XLA's CPU threads; 0 leaves the choice to XLA.
        cpu_devices: devices that the CPU is divided into. Once JAX has started, the number stays as it is.

    Raises:
        ValueError: threads is below 0, or there is no device that JAX can compute on as the game needs it.
    """
    if threads < 0:
        raise ValueError(f"threads must be a whole number from 0, got {threads}")
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    if threads:
        os.environ["NPROC"] = str(threads)
    cache = cache_folder()
    if cache is not None:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "echelon-jax" / "xla" / machine_key()))
    least = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    import jax

    # JAX has read its environment already where it was imported before.
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(least))
    if cpu_devices > 1:
        # Where JAX has started before, it refuses: the number stays, and a run that needs more devices says so itself.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", cpu_devices)
    require_device()
