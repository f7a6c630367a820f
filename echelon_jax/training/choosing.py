"""One of two trees, by a flag that only the compiled program knows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


def choose(flag: Bool[Array, ""], first: Any, other: Any, branch: bool) -> Any:
    """Return `first` where the flag is true, else `other`; both are trees of the same shapes and dtypes.

    Args:
        branch: choose the whole trees by one branch instead of leaf by leaf. XLA for CPUs computes anew for each leaf what the
            flag depends on, which was two fifths of the code of a training program. A GPU's host would have to be asked for
            the branch.
    """
    if branch:
        return jax.lax.cond(flag, lambda a, b: a, lambda a, b: b, first, other)
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), first, other)
