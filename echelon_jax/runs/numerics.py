"""Settings of JAX that change the numbers of a run. A run goes on bit for bit only under the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

SETTINGS = (
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_enable_x64",
    "jax_default_matmul_precision",
)


def numerics() -> dict[str, Any]:
    """Return the present settings of this process by their JAX names; None for a setting that JAX does not have."""
    values = {name: getattr(jax.config, name, None) for name in SETTINGS}
    return {
        name: value if isinstance(value, (bool, int)) or value is None else str(value) for name, value in values.items()
    }


def difference(saved: Mapping[str, Any] | None) -> str | None:
    """Return in words how the settings of this process differ from saved ones; None if they are equal or unknown."""
    here = numerics()
    for name, value in (saved or {}).items():
        if name in here and here[name] != value:
            return f"{name} = {value!r}, this process has {here[name]!r}; set {name.upper()}={value}"
    return None
