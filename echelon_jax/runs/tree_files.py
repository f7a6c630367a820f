"""Trees of arrays as directories: the only file that calls orbax.

A tree is stored without its classes, so that a directory can be read without the package that wrote it: flat, by the path of
each leaf, or nested, as dictionaries in dictionaries (`nested`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

Flat = dict[str, np.ndarray]
Nested = dict[str, Any]  # dictionaries in dictionaries, arrays at their ends
_PART = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")  # of a leaf's path: key, index or field
_PLAIN = re.compile(r"[A-Za-z0-9_./ +,=@-]+")
_DESCRIPTORS = Path("/proc/self/fd")


class TreeError(Exception):
    """A directory does not hold the wanted tree; the message is one sentence that names the leaf."""


def to_flat(tree: Any) -> Flat:
    """Return the leaves by path as copies on the host. Random keys become their data.

    Empty arrays cannot be stored and are left out. The leaves are copies, because a view of a donated buffer would change
    during the write.
    """
    raw = {name: jax.random.key_data(leaf) if _is_key(leaf) else leaf for name, leaf in _named(tree).items()}
    return {name: np.array(leaf) for name, leaf in raw.items() if leaf.size}


def paths(tree: Any) -> list[str]:
    """Return the paths of the leaves that are not empty, in their order."""
    return [name for name, leaf in _named(tree).items() if leaf.size]


def nested(flat: Flat) -> Nested:
    """Return a flat tree as dictionaries in dictionaries: fields, keys and indices of the paths are their keys.

    Raises:
        ValueError: a key of the tree holds a quotation mark, so that its path cannot be taken apart.
    """
    tree: Nested = {}
    for path, leaf in flat.items():
        *inner, last = _parts(path)
        node = tree
        for part in inner:
            node = node.setdefault(part, {})
        node[last] = leaf
    return tree


def nested_path(path: str) -> str:
    """Return the path under which `read_flat` finds a leaf that `nested` has stored."""
    return "".join(f"['{part}']" for part in _parts(path))


def _parts(path: str) -> list[str]:
    found = list(_PART.finditer(path))
    if "".join(match[0] for match in found) != path:
        raise ValueError(f"keys of a tree must be words without quotation marks, got the path {path}")
    return [next(group for group in match.groups() if group is not None) for match in found]


def write(folder: Path, flat: Flat | Nested) -> None:
    """Write a flat or nested tree into the directory `folder`, which must not exist.

    Raises:
        OSError, ValueError: the disk is full or cannot be written (orbax reports a full disk as a ValueError).
    """
    with _plain_path(folder.parent) as parent, ocp.PyTreeCheckpointer() as writer:
        writer.save(parent / folder.name, flat)


def read_flat(folder: Path) -> Flat:
    """Return all leaves of the directory `folder`, by path.

    Raises:
        TreeError: it cannot be read.
    """
    try:
        with _plain_path(folder) as plain, ocp.PyTreeCheckpointer() as reader:
            there = reader.metadata(plain).item_metadata.tree
            arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), there)
            return _paths(reader.restore(plain, item=jax.tree.map(lambda _: 0, there), restore_args=arguments))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TreeError(f"{folder} cannot be read: {first_line(error)}") from error


def read(
    folder: Path,
    template: Any,
    may_lack: Callable[[str], bool] = lambda name: False,
    may_drop: Callable[[str], bool] = lambda name: False,
    old_path: Callable[[str], str] = lambda name: name,
    fresh: Callable[[], Any] | None = None,
    change: Callable[[Flat], Flat] = lambda flat: flat,
) -> tuple[Any, list[str]]:
    """Return a tree like `template` (shapes and dtypes) from `folder`, and the names of the leaves it lacked.

    `old_path` gives the path under which a leaf is stored. A missing leaf that `may_lack` allows comes from `fresh()`, a tree of
    the same structure. A stored leaf that the template does not have is ignored if `may_drop` allows it. `change` makes other
    leaves of the stored ones first.

    Raises:
        TreeError: a leaf is missing, unknown, of another shape or dtype, or the directory cannot be read.
    """
    wanted = {name: leaf for name, leaf in _named(template).items() if leaf.size}
    loaded = change(read_flat(folder))
    stored = {old_path(name): name for name in wanted}
    found = {stored[path]: value for path, value in loaded.items() if path in stored}
    for path in loaded:
        if path not in stored and not may_drop(path):
            raise TreeError(f"{folder} holds {path}, which this version does not know")
    lacking = [name for name in wanted if name not in found]
    for name in lacking:
        if fresh is None or not may_lack(name):
            raise TreeError(f"{folder} does not hold {name}, which this version expects")
    instead = _named(fresh()) if lacking and fresh is not None else {}

    def leaf(name: str, like: Any) -> jax.Array:
        if not like.size:
            return jnp.zeros(like.shape, like.dtype)
        if name in instead and name in lacking:
            return instead[name]
        value = found[name]
        restored = jax.random.wrap_key_data(jnp.asarray(value)) if _is_key(like) else jnp.asarray(value)
        if restored.shape != like.shape or restored.dtype != like.dtype:
            raise TreeError(
                f"{folder} holds {name} as {restored.dtype}{list(restored.shape)}, "
                f"this run needs {like.dtype}{list(like.shape)}"
            )
        return restored

    leaves = [leaf(name, like) for name, like in _named(template).items()]
    return jax.tree.unflatten(jax.tree.structure(template), leaves), lacking


def checksums(folder: Path, leave_out: str) -> dict[str, str]:
    """Return the SHA-256 of every file below `folder` by relative path, files named `leave_out` excepted."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != leave_out)
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a fingerprint of named arrays: names, dtypes, shapes and content."""
    sha = hashlib.sha256()
    for name, array in arrays.items():
        sha.update(f"{name} {array.dtype.str} {array.shape};".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()[:16]


def flush(folder: Path) -> None:
    """Flush `folder` and every file and directory below it to the disk."""
    for path in [*folder.rglob("*"), folder]:
        flush_one(path)


def flush_one(path: Path) -> None:
    """Flush one file, or the names in one directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class where there is none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def _plain_path(folder: Path) -> Iterator[Path]:
    """Another path to an existing directory, for libraries that interpret characters of a path.

    Orbax globs its directory ("[", "?", "*" and a backslash are special), and tensorstore reads "://" as an address.
    """
    if _PLAIN.fullmatch(str(folder)):
        yield folder
    elif _DESCRIPTORS.is_dir():
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            yield _DESCRIPTORS / str(descriptor)
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as parent:
            alias = Path(parent) / "folder"
            alias.symlink_to(folder, target_is_directory=True)
            yield alias


def _paths(tree: Nested) -> Flat:
    """Leaves by path: of a flat tree the names that they have, of a nested one those of `nested_path`."""
    if not any(isinstance(value, dict) for value in tree.values()):
        return tree
    return {name: np.asarray(leaf) for name, leaf in _named(tree).items()}


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
