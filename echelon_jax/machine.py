"""What this machine offers: a place for compiled programs, and a device that JAX can use."""

from __future__ import annotations

import os
from pathlib import Path


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
    except RuntimeError as error:
        wanted = getattr(jax.config, "jax_platforms", None)
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"JAX_PLATFORMS must name a device that JAX can use, got {wanted!r}: {reason}") from error
