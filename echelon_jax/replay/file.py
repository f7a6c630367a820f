"""The replay file: a header and compressed arrays. The reader checks every count, type and value.

Layout, all numbers little-endian: 8 bytes MAGIC, version u32, compressed and plain size of the header u32 each, the header as
zlib-compressed JSON, then each array's zlib stream in the order in which the header lists them. An array's bytes are split by
significance (all first bytes, then all second bytes, ...), after a difference along the first axis where its codec is "delta"
(integers, wrapping) or "xor" (the bits of floats).
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from echelon_jax.replay.checks import ReplayError, check, check_header
from echelon_jax.replay.model import ARRAYS, VERSION, Replay

MAGIC = b"ECHRPLY\n"
SUFFIX = ".echelon"
_HEAD = struct.Struct("<8sIII")
MOST_HEADER = 4 << 20  # bytes
MOST_FILE = 256 << 20
MOST_PLAIN = 768 << 20  # bytes of all arrays together
CODECS = ("plain", "delta", "xor")
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def _split(flat: np.ndarray) -> bytes:
    return flat.view(np.uint8).reshape(-1, flat.dtype.itemsize).T.tobytes()


def encode(array: np.ndarray) -> tuple[str, bytes]:
    """Return (codec, bytes) of an array: the shorter of its plain bytes and its differences along the first axis."""
    words = np.ascontiguousarray(array).view(_UNSIGNED[array.dtype.itemsize])
    best = "plain", zlib.compress(_split(words.reshape(-1)), 9)
    if array.ndim and len(array) > 1:
        change = words.copy()
        if array.dtype.kind == "f":
            change[1:] ^= words[:-1]
        else:
            change[1:] -= words[:-1]
        other = zlib.compress(_split(change.reshape(-1)), 9)
        if len(other) < len(best[1]):
            best = ("xor" if array.dtype.kind == "f" else "delta"), other
    return best


def decode(data: bytes, dtype: np.dtype, shape: tuple[int, ...], codec: str, name: str) -> np.ndarray:
    """Return the array of a stream.

    Raises:
        ReplayError: the stream is broken or does not hold exactly the bytes of that type and shape.
    """
    size = math.prod(shape) * dtype.itemsize
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(data, size + 1)
    except zlib.error as error:
        raise ReplayError(f"{name} is damaged: {error}") from error
    if len(plain) != size or not reader.eof or reader.unused_data:
        raise ReplayError(f"{name} must hold {size} bytes, its stream holds another number")
    words = np.frombuffer(plain, np.uint8).reshape(dtype.itemsize, -1).T
    flat = np.ascontiguousarray(words).view(_UNSIGNED[dtype.itemsize]).reshape(shape)
    if codec == "delta":
        flat = np.add.accumulate(flat, axis=0, dtype=flat.dtype)
    elif codec == "xor":
        flat = np.bitwise_xor.accumulate(flat, axis=0)
    return flat.view(dtype)


def to_bytes(replay: Replay) -> bytes:
    """Return the file of a replay.

    Raises:
        ReplayError: the replay is not sound.
    """
    check(replay)
    listed, streams = [], []
    for name in ARRAYS:
        if name not in replay:
            continue
        array = replay[name]
        codec, data = encode(array)
        listed.append(
            {"name": name, "type": array.dtype.name, "shape": list(array.shape), "codec": codec, "bytes": len(data)}
        )
        streams.append(data)
    header = json.dumps({**replay.header, "arrays": listed}, allow_nan=False, separators=(",", ":")).encode()
    packed = zlib.compress(header, 9)
    return b"".join([_HEAD.pack(MAGIC, VERSION, len(packed), len(header)), packed, *streams])


def from_bytes(data: bytes) -> Replay:
    """Return the replay of a file's bytes.

    Raises:
        ReplayError: in one sentence, whatever is wrong with them.
    """
    if len(data) < _HEAD.size or data[: len(MAGIC)] != MAGIC:
        raise ReplayError("this is not an Echelon replay: its first bytes are not those of one")
    _, version, packed, plain = _HEAD.unpack_from(data)
    if not 1 <= version <= VERSION:
        raise ReplayError(f"version must be from 1 to {VERSION} (this program's), got {version}")
    if plain > MOST_HEADER or packed > len(data) - _HEAD.size:
        raise ReplayError("the header is cut off or larger than a replay's")
    header = _header(data[_HEAD.size : _HEAD.size + packed], plain)
    listed = header.pop("arrays", None)
    arrays = _arrays(listed, data, _HEAD.size + packed)
    replay = Replay(header, arrays)
    check(replay)
    return replay


def _header(packed: bytes, plain: int) -> dict[str, Any]:
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(packed, plain + 1)
        if len(text) != plain or not reader.eof:
            raise ReplayError("the header does not hold the bytes that it announces")
        header = json.loads(text, parse_constant=_no_constant)
    except (zlib.error, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ReplayError(f"the header is damaged: {type(error).__name__}") from error
    if not isinstance(header, dict):
        raise ReplayError("the header must be an object")
    check_header(header)
    return header


def _no_constant(name: str) -> float:
    raise ReplayError(f"the header must hold finite numbers, got {name}")


def _arrays(listed: Any, data: bytes, start: int) -> dict[str, np.ndarray]:
    if not isinstance(listed, list) or len(listed) > len(ARRAYS):
        raise ReplayError("arrays must be a list of the arrays that a replay has")
    arrays: dict[str, np.ndarray] = {}
    total = 0
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("name") not in ARRAYS or entry["name"] in arrays:
            raise ReplayError("arrays must name each array of a replay at most once and no other")
        name, spec = entry["name"], ARRAYS[entry["name"]]
        shape: Any = entry.get("shape")
        size: Any = entry.get("bytes")
        if entry.get("type") != spec.dtype:
            raise ReplayError(f"{name} must be of type {spec.dtype}, got {str(entry.get('type'))[:40]!r}")
        if not isinstance(shape, list) or len(shape) != len(spec.shape) or not all(_is_count(n) for n in shape):
            raise ReplayError(f"{name} must have {len(spec.shape)} counts as its shape")
        if entry.get("codec") not in CODECS:
            raise ReplayError(f"{name} must have one of the codecs {', '.join(CODECS)}")
        if not _is_count(size) or start + size > len(data):
            raise ReplayError(f"the file is cut off: {name} is not whole")
        dtype = np.dtype(spec.dtype)
        total += math.prod(shape) * dtype.itemsize
        if total > MOST_PLAIN:
            raise ReplayError(f"the arrays must hold at most {MOST_PLAIN >> 20} MiB together")
        arrays[name] = decode(data[start : start + size], dtype, tuple(shape), entry["codec"], name)
        start += size
    if start != len(data):
        raise ReplayError("the file must end with its last array")
    return arrays


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def write_replay(path: Path, replay: Replay) -> Path:
    """Write a replay's file and return its path; the file appears whole or not at all.

    Raises:
        ReplayError: the replay is not sound.
        OSError: the place cannot be written.
    """
    data = to_bytes(replay)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)
    return path


def read_replay(path: Path) -> Replay:
    """Return the replay of a file: this project's, or the original's JSON.

    Raises:
        ReplayError: in one sentence, with the path, whatever is wrong with it.
    """
    from echelon_jax.replay.original import from_original_json

    try:
        if path.stat().st_size > MOST_FILE:
            raise ReplayError(f"a replay has at most {MOST_FILE >> 20} MiB")
        data = path.read_bytes()
        if data[:1] in (b"{", b" ", b"\n") and data[: len(MAGIC)] != MAGIC:
            return from_original_json(data)
        return from_bytes(data)
    except OSError as error:
        raise ReplayError(f"cannot read {path}: {error.strerror or error}") from error
    except ReplayError as error:
        raise ReplayError(f"{path}: {error}") from error
