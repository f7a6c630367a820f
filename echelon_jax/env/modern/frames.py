"""The common parts of the modern observation: the frame of a mech, its units, and the assembly of a table's parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from echelon_jax.config import EnvConfig

NEAR = 8.0  # voxels at which nearness is a half
SPEED = 10.0  # voxels per second
TINY = 1e-6
T = TypeVar("T")


class Frame(NamedTuple):
    """The axes of every mech: cosine and sine of its yaw."""

    cosine: Float32[Array, "arenas mechs"]
    sine: Float32[Array, "arenas mechs"]

    def turn(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Parts forward and to the left of map vectors, [arenas, mechs] or with one more axis."""
        c, s = self.cosine, self.sine
        if x.ndim == c.ndim + 1:
            c, s = c[..., None], s[..., None]
        return x * c + y * s, y * c - x * s


def diagonal(config: EnvConfig) -> float:
    """Length in voxels of the map's diagonal seen from above, the unit of horizontal offsets."""
    return float(np.hypot(config.size_x, config.size_y))


def columns(parts: dict[str, Array], table: tuple, shape: tuple[int, ...]) -> Float32[Array, "*batch entries"]:
    """The parts in the order of their table, beside each other."""
    return jnp.concatenate([parts[name].reshape(*shape, size).astype(jnp.float32) for name, size, *_ in table], -1)


def nearness(distance: Array) -> Array:
    """Return 1 at the mech and a half at 8 voxels, with 0 as the limit."""
    return NEAR / (NEAR + distance)


def direction(x: Array, y: Array, length: Array) -> tuple[Array, Array]:
    """Cosine and sine of a bearing; straight above counts as straight ahead."""
    apart = length > TINY
    scale = 1.0 / jnp.where(apart, length, 1.0)
    return jnp.where(apart, x * scale, 1.0), jnp.where(apart, y * scale, 0.0)


def offsets(position: Array, mechs_position: Array) -> list[Array]:
    """[arenas, mechs, items] offsets along x, y and z of things from mechs."""
    return [position[:, None, :, axis] - mechs_position[:, :, None, axis] for axis in range(3)]


def materialize(wanted: Bool[Array, ""], make: Callable[[], T]) -> T:
    """Return the result of `make`, or zeros if `wanted` is false.

    Without the branch the compiler would fuse the computation into every reader, and take sines and neighbourhoods some fifty
    times.
    """
    shapes = jax.eval_shape(make)
    return jax.lax.cond(wanted, make, lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))
