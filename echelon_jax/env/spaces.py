"""Spaces of one mech's observation and action, with the names that gymnax uses."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Key

from echelon_jax.env.layout import Layout


@dataclasses.dataclass(frozen=True, eq=False)
class Box:
    """All arrays between two bounds: vectors for one mech, or a row for each of several.

    Attributes:
        low, high: float32 [size] or [mechs, size]; infinite where there is no bound.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one array."""
        return self.low.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of its numbers."""
        return self.low.dtype

    def sample(self, key: Key[Array, ""], batch: tuple[int, ...] = ()) -> Float32[Array, "*batch size"]:
        """Draw vectors: uniform between two bounds, bound plus or minus an exponential at one, standard normal at none.

        Args:
            key: of the draw.
            batch: leading axes, such as (arenas, mechs); none for a single vector.
        """
        shape = (*batch, *self.shape)
        below, above = np.isfinite(self.low), np.isfinite(self.high)
        low, high = np.where(below, self.low, 0.0), np.where(above, self.high, 0.0)
        uniform_key, exponential_key, normal_key = jax.random.split(key, 3)
        uniform = low + (high - low) * jax.random.uniform(uniform_key, shape, jnp.float32)
        away = jax.random.exponential(exponential_key, shape, jnp.float32)
        one_sided = jnp.where(below, low + away, high - away)
        free = jax.random.normal(normal_key, shape, jnp.float32)
        drawn = jnp.where(below & above, uniform, jnp.where(below | above, one_sided, free))
        return jnp.clip(drawn, self.low, self.high).astype(jnp.float32)  # rounding may reach past a bound

    def contains(self, x: Array | np.ndarray) -> bool:
        """Return whether every array of `x`, [*batch, *shape], lies between the bounds; never inside a jit."""
        x = np.asarray(x)
        if x.ndim < len(self.shape) or x.shape[x.ndim - len(self.shape) :] != self.shape:
            return False
        return bool(np.all((x >= self.low) & (x <= self.high)))


def box_of(layout: Layout) -> Box:
    """Return the space of a vector from its layout table."""
    return Box(*layout.bounds)
