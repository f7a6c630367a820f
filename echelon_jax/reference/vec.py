"""Float32 vectors as tuples of Python floats: each operation is done in float64 and rounded once to float32.

Source: docs/spec/rules.md 1.2.

A sum, product, quotient or square root of float32 numbers, computed in float64 and then rounded, is the correctly
rounded float32 result, so plain Python floats reproduce the original's float32 arithmetic bit for bit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

Vec = tuple[float, float, float]
Cell = tuple[int, int, int]

_PACK, _UNPACK = struct.Struct("f").pack, struct.Struct("f").unpack
_PACK3, _UNPACK3 = struct.Struct("3f").pack, struct.Struct("3f").unpack  # three at once cost little more than one


def f32(value: float) -> float:
    """`value` rounded to float32 (nearest, ties to even), as a Python float."""
    return _UNPACK(_PACK(value))[0]  # type: ignore[no-any-return]


def vec(values: Sequence[float] | np.ndarray) -> Vec:
    """Three numbers (a list, tuple or array) rounded to a float32 vector."""
    x, y, z = values
    return _UNPACK3(_PACK3(float(x), float(y), float(z)))  # type: ignore[return-value]


def add(a: Vec, b: Vec) -> Vec:
    """a + b."""
    return _UNPACK3(_PACK3(a[0] + b[0], a[1] + b[1], a[2] + b[2]))  # type: ignore[return-value]


def sub(a: Vec, b: Vec) -> Vec:
    """a - b."""
    return _UNPACK3(_PACK3(a[0] - b[0], a[1] - b[1], a[2] - b[2]))  # type: ignore[return-value]


def mul(a: Vec, scale: float) -> Vec:
    """a * scale, the scale rounded to float32 first."""
    s = f32(scale)
    return _UNPACK3(_PACK3(a[0] * s, a[1] * s, a[2] * s))  # type: ignore[return-value]


def div(a: Vec, divisor: float) -> Vec:
    """a / divisor, the divisor rounded to float32 first."""
    s = f32(divisor)
    return _UNPACK3(_PACK3(a[0] / s, a[1] / s, a[2] / s))  # type: ignore[return-value]


def dot(a: Vec, b: Vec) -> float:
    """a · b: products rounded to float32, summed in float64 in index order, the sum rounded.

    Source: docs/spec/rules.md 1.2.
    """
    x, y, z = _UNPACK3(_PACK3(a[0] * b[0], a[1] * b[1], a[2] * b[2]))
    return f32(x + y + z)


def norm(a: Vec) -> float:
    """|a|: the square root, in float32, of a · a."""
    return f32(math.sqrt(dot(a, a)))


def flat(a: Vec) -> Vec:
    """The horizontal part (x, y, 0) of a."""
    return a[0], a[1], 0.0


def lift(a: Vec, height: float) -> Vec:
    """a raised by `height` (rounded to float32 first)."""
    return a[0], a[1], f32(a[2] + f32(height))


def distance(a: Vec, b: Vec) -> float:
    """|a - b|, a float32 value taken as a number."""
    return norm(sub(a, b))


def clip(value: float, low: float, high: float) -> float:
    """min(max(value, low), high)."""
    return min(max(value, low), high)


def wrap_angle(angle: float) -> float:
    """The angle wrapped into [-pi, pi) (docs/spec/rules.md 1.1)."""
    return (angle + math.pi) % (2.0 * math.pi) - math.pi
