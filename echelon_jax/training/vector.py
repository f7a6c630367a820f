"""A tree of parameters as one vector: a few kernels do what would take several for every leaf."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32, Shaped


def joined(tree: Any) -> Float32[Array, " entries"]:
    """Return the leaves of a tree of float32 arrays one after another, in the order of `jax.tree.leaves`."""
    leaves = [leaf.reshape(-1) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate(leaves) if leaves else jnp.zeros(0, jnp.float32)


def parted(vector: Shaped[Array, " entries"] | np.ndarray, like: Any) -> Any:
    """Return the tree of which `vector` is the joined one; `like` has its structure and shapes."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([0, *(leaf.size for leaf in leaves)])
    parts = [vector[a:b].reshape(leaf.shape) for a, b, leaf in zip(ends, ends[1:], leaves, strict=False)]
    return jax.tree.unflatten(structure, parts)


def first_bad_leaf(vector: Float32[Array, " entries"], like: Any) -> Int32[Array, ""]:
    """Return 1 + the number of the first leaf of a joined tree that is not finite, 0 if all are; `like` has its shapes."""
    bad = ~jnp.isfinite(vector)
    ends = np.cumsum([leaf.size for leaf in jax.tree.leaves(like)])
    number = 1 + (bad.argmax() >= jnp.asarray(ends, jnp.int32)).sum(dtype=jnp.int32)
    return jnp.where(bad.any(), number, 0).astype(jnp.int32)
