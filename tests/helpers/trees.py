"""Comparing trees of arrays bit for bit."""

import jax
import numpy as np


def leaves(tree):
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def unequal(one, other):
    """Names of the leaves that differ in type, shape or any bit."""
    a, b = leaves(one), leaves(other)
    assert a.keys() == b.keys()
    return [name for name in a if a[name].dtype != b[name].dtype or a[name].tobytes() != b[name].tobytes()]


def disagreeing(one, other, tolerance):
    """Names of the leaves whose integers differ at all, or whose floats differ by more than the tolerance."""
    a, b = leaves(one), leaves(other)
    return [
        name
        for name in a
        if not (
            np.allclose(a[name], b[name], rtol=0, atol=tolerance)
            if np.issubdtype(a[name].dtype, np.floating)
            else np.array_equal(a[name], b[name])
        )
    ]
