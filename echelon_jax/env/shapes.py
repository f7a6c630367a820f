"""Shapes of what a run holds on its device, without making any of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout, observation_of
from echelon_jax.env.layout import CONTACTS
from echelon_jax.env.state import Bank


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays (or their shapes) of a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def abstract_bank(config: EnvConfig, worlds: int) -> Bank:
    """The shapes of a bank of so many worlds, without making one."""
    voxels, columns, n = config.size_x * config.size_y * config.size_z, config.size_x * config.size_y, config.num_mechs

    def shape(dtype: Any, *rest: int) -> Any:
        return jax.ShapeDtypeStruct((worlds, *rest), dtype)

    remembers = observation_of(config).remembers_sightings(config)
    return Bank(
        material=shape(jnp.uint8, voxels),
        hp=shape(jnp.int16, voxels),
        collides=shape(jnp.uint32, columns),
        opaque=shape(jnp.uint32, columns),
        occupancy=shape(jnp.uint8, columns),
        telemetry=shape(jnp.uint8, 256),
        zone=shape(jnp.float32, 3),
        position=shape(jnp.float32, n, 3),
        yaw=shape(jnp.float32, n),
        seed=shape(jnp.int32),
        observation=shape(jnp.float32, n, observation_layout(config).size),
        contact_slots=shape(jnp.int32, n, CONTACTS),
        known=shape(jnp.bool_, n, n) if remembers else None,
    )
