"""Arenas spread over several devices: each device plays and learns from its own arenas, and sums run over all of them.

The learner is the same on every device. Gradients, counts, moments and metrics are summed over the devices, so the devices
together do the update that one device would do on the minibatches of all of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.policies.normalize import Moments, merge

AXIS = "arenas"
COPIED, SPLIT = (
    PartitionSpec(),
    PartitionSpec(AXIS),
)  # where a leaf lies: whole on every device, or a share of its arenas


@dataclasses.dataclass(frozen=True)
class Across:
    """Sums over all devices, inside a program that runs on each of them; with one device nothing is changed.

    Attributes:
        devices: how many there are.
    """

    devices: int = 1

    def total(self, tree: Any) -> Any:
        """Return a tree of arrays summed over the devices."""
        return tree if self.devices == 1 else jax.lax.psum(tree, AXIS)

    def most(self, tree: Any) -> Any:
        """Return a tree of arrays with the largest of the devices' entries."""
        return tree if self.devices == 1 else jax.lax.pmax(tree, AXIS)

    def mean(self, x: Float32[Array, "*batch"], mask: Bool[Array, "*batch"]) -> Float32[Array, ""]:
        """Return the mean of x where `mask` is true on any device, 0 if it is true nowhere; other entries may be NaN."""
        own = (jnp.where(mask, x, 0.0).sum(), mask.sum(dtype=jnp.float32))
        added, count = self.total(own)
        return added / jnp.maximum(count, 1.0)

    def own_key(self, key: Key[Array, ""]) -> Key[Array, ""]:
        """Return a key of this device's own."""
        return key if self.devices == 1 else jax.random.fold_in(key, jax.lax.axis_index(AXIS))

    def moments(self, own: Moments) -> Moments:
        """Return the moments of the rows of all devices together."""
        if self.devices == 1:
            return own
        every = jax.lax.all_gather(own, AXIS)
        parts = [jax.tree.map(lambda x, i=i: x[i], every) for i in range(self.devices)]
        merged = parts[0]
        for part in parts[1:]:
            merged = merge(merged, part)
        return merged


ALONE = Across()


def device_mesh(devices: int) -> Mesh:
    """Return the first devices as a mesh with the axis "arenas".

    Raises:
        ValueError: JAX has fewer devices.
    """
    there = jax.devices()
    if len(there) < devices:
        raise ValueError(
            f"devices must be at most {len(there)}, the devices that JAX sees, got {devices}; "
            f"on a CPU call jax.config.update('jax_num_cpu_devices', {devices}) before JAX computes anything"
        )
    return Mesh(np.array(there[:devices]), (AXIS,))


def split_over(mesh: Mesh, tree: Any) -> Any:
    """Return a tree whose leaves lead with arenas, with an equal share of them on each device."""
    return jax.device_put(tree, NamedSharding(mesh, SPLIT))


def copied_to(mesh: Mesh, tree: Any) -> Any:
    """Return a tree with a copy of every leaf on each device."""
    return jax.device_put(tree, NamedSharding(mesh, COPIED))


def on_each_device(mesh: Mesh, function: Callable[..., Any], state_lies: Any) -> Callable[..., Any]:
    """Return a function of (state, parameters) to (state, results) that runs on every device, with its share of the state.

    Args:
        mesh: the devices.
        function: what runs on each; its sums run over all devices (`Across`), so that what is copied stays equal.
        state_lies: COPIED or SPLIT for each field of the state. Parameters and results are copied.
    """
    where = (state_lies, COPIED)
    # What is copied leaves equal on all devices by construction; JAX need not prove it.
    return jax.shard_map(function, mesh=mesh, in_specs=where, out_specs=where, check_vma=False)


def allowed_devices(most: int, arenas: int, shares: int) -> int:
    """Return the largest number of devices up to `most` that can share the arenas: each plays both sides and has all shares.

    Args:
        most: devices there are.
        arenas: of the run.
        shares: parts of a pass, `TrainConfig.shares`.
    """
    fits = (n for n in range(most, 0, -1) if arenas % (2 * n) == 0 and arenas % (n * shares) == 0)
    return next(fits, 1)


def arenas_unit(shares: int, devices: int) -> int:
    """Return the number of arenas of which a run needs a multiple.

    Args:
        shares: parts of a pass, `TrainConfig.shares`.
        devices: of the run.
    """
    return math.lcm(2, shares) * devices
