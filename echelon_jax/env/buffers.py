"""One buffer per field: a state that a caller may donate to a compiled program."""

from __future__ import annotations

from typing import Any, TypeVar

import jax

Tree = TypeVar("Tree")


def unshared(tree: Tree, *others: Any) -> Tree:
    """Return a tree in which no two leaves are the same array, nor one of `others`, so that all of it may be donated.

    Outside of `jit` one array may stand in several fields. Inside, leaves are no buffers yet, and nothing is done.
    """
    seen = {_buffer(leaf) for leaf in jax.tree.leaves(others) if _is_buffer(leaf)}

    def own(leaf: Any) -> Any:
        if not _is_buffer(leaf):
            return leaf
        buffer = _buffer(leaf)
        if buffer in seen:
            leaf = leaf.copy()
            buffer = _buffer(leaf)
        seen.add(buffer)
        return leaf

    return jax.tree.map(own, tree)


def _is_buffer(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and leaf.size > 0


def _buffer(leaf: Any) -> int:
    """Return the address of an array's memory; two array objects may share one address."""
    try:
        return leaf.unsafe_buffer_pointer()
    except (AttributeError, ValueError, RuntimeError):  # keys, and arrays on several devices
        return id(leaf)
