"""The machine's set-up before JAX computes anything: the number of CPU threads and the place of compiled programs."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path


def machine_key() -> str:
    """A short name of what compiled programs depend on: architecture and instruction set of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = [next((line for line in lines if line.startswith(word)), "") for word in ("model name", "flags", "Features")]
    told.append(platform.processor())
    return f"{platform.machine()}-{hashlib.sha256(repr(told).encode()).hexdigest()[:10]}"


def set_up_jax(threads: int = 0) -> None:
    """Choose XLA's thread number and a compilation cache; must run before the first computation.

    Compiled programs are kept under ~/.cache/echelon-jax/xla/<machine>, so that a program compiled for one processor is never
    loaded on another; JAX_COMPILATION_CACHE_DIR chooses another place, JAX_ENABLE_COMPILATION_CACHE=false keeps none.

    Args:
        threads: XLA's CPU threads; 0 leaves the choice to XLA.

    Raises:
        ValueError: threads is below 0.
    """
    if threads < 0:
        raise ValueError(f"threads must be a whole number from 0, got {threads}")
    if threads:
        os.environ["NPROC"] = str(threads)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "echelon-jax" / "xla" / machine_key()
    path = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    least = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    import jax

    # JAX has read its environment already where it was imported before.
    jax.config.update("jax_compilation_cache_dir", path)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(least))
