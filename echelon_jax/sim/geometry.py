"""Small vector helpers; sums over x, y, z are written out so that they round the same at every batch width."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import roster


def dot3(a: Float32[Array, "*#batch 3"], b: Float32[Array, "*#batch 3"]) -> Float32[Array, "*#batch"]:
    """Dot product of two arrays of 3-vectors, summed in index order."""
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]


def length3(a: Float32[Array, "*#batch 3"]) -> Float32[Array, "*#batch"]:
    """Euclidean length of 3-vectors."""
    return jnp.sqrt(dot3(a, a))


def direction_if_far(v: Float32[Array, "*#batch 3"]) -> tuple[Float32[Array, "*#batch 3"], Bool[Array, "*#batch"]]:
    """v/|v| and whether |v| > 0.1: where the last-damage direction is set (docs/spec/rules.md 5.7, 6.7, 6.8)."""
    length = length3(v)
    return v / jnp.maximum(length, 1e-9)[..., None], length > 0.1


def rear_multiplier(
    target_yaw: Float32[Array, "*#batch"],
    target_xy: Float32[Array, "*#batch 2"],
    origin_xy: Float32[Array, "*#batch 2"],
) -> Float32[Array, "*#batch"]:
    """The rear-arc damage multiplier M (docs/spec/rules.md 5.5): 1.5 where the attack comes from behind, else 1."""
    vx, vy = target_xy[..., 0] - origin_xy[..., 0], target_xy[..., 1] - origin_xy[..., 1]
    length = jnp.sqrt(vx * vx + vy * vy)
    c = (jnp.cos(target_yaw) * vx + jnp.sin(target_yaw) * vy) / jnp.maximum(length, 1e-6)
    return jnp.where((length >= 1e-6) & (c > k.REAR_ARC_COSINE), k.REAR_ARC_MULTIPLIER, 1.0)


def is_leg_hit(
    z: Float32[Array, "*#batch"], centre_z: Float32[Array, "*#batch"], half_z: Float32[Array, "*#batch"]
) -> Bool[Array, "*#batch"]:
    """Whether a hit at height z is on the legs: the lowest 30 % of the box (docs/spec/rules.md 5.7)."""
    return z < (centre_z - half_z) + k.LEG_HEIGHT_FRACTION * (2.0 * half_z)


def grid_rank(
    position: Float32[Array, "rows mechs 3"], insertion_index: Int32[Array, "rows mechs"]
) -> Int32[Array, "rows mechs"]:
    """Rank of each mech in grid order: ascending (cell x, cell y, insertion index) (docs/spec/rules.md 2.6)."""
    cell = (position[..., :2] / k.GRID_CELL).astype(jnp.int32)
    major = cell[..., 0] * 4096 + cell[..., 1]
    a, b = major[..., :, None], major[..., None, :]
    before = (b < a) | ((b == a) & (insertion_index[..., None, :] < insertion_index[..., :, None]))
    return before.sum(-1, dtype=jnp.int32)


def team_masks(num_packs: int) -> tuple[np.ndarray, np.ndarray]:
    """Static [mechs, mechs] tables: are two mechs enemies, and do they belong to the same pack."""
    r = roster(num_packs)
    enemies = r.team[:, None] != r.team[None, :]
    return enemies, ~enemies & (r.pack[:, None] == r.pack[None, :])
