"""Which code runs the simulation: XLA's, the default everywhere, or the native call."""

from __future__ import annotations

import os

ENVIRONMENT_VARIABLE = "ECHELON_KERNELS"
KERNELS = ("xla", "native")


def chosen_kernels(kernels: str | None = None) -> str:
    """`kernels`, else what the environment variable ECHELON_KERNELS says while a step is traced, else `xla`.

    Raises:
        ValueError: for any other name.
    """
    name = kernels or os.environ.get(ENVIRONMENT_VARIABLE) or KERNELS[0]
    if name not in KERNELS:
        where = "kernels" if kernels else ENVIRONMENT_VARIABLE
        raise ValueError(f"{where} must be {' or '.join(KERNELS)}, got {name!r}")
    return name
