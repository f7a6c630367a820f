"""How a learner reads an observation: what is a mech's own, what its whole arena shares, what is a continuous number."""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, UInt8


@flax.struct.dataclass
class Observation:
    """An observation cut in two. `shared` is stored once per arena: it is constant over an episode and the same for all mechs."""

    own: Float32[Array, "*batch arenas mechs own"]
    shared: UInt8[Array, "*batch arenas shared"]


@dataclasses.dataclass(frozen=True)
class Features:
    """Which entries of an observation are shared by an arena, and which of the others are continuous.

    Attributes:
        size: entries of a whole observation.
        shared_start, shared_size: the block of flags (0 or 1) that all mechs of an arena see alike; size 0 for none.
        continuous: one flag per entry: a measured number that a normaliser may shift and scale. Flags, one-hots and map
            cells are not.

    Raises:
        ValueError: a block outside the observation, or flags of another length.
    """

    size: int
    shared_start: int
    shared_size: int
    continuous: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.shared_start <= self.shared_start + self.shared_size <= self.size:
            raise ValueError(
                f"the shared block must lie within the {self.size} entries of an observation, "
                f"got start {self.shared_start} and size {self.shared_size}"
            )
        if len(self.continuous) != self.size:
            raise ValueError(f"continuous must have one flag per entry ({self.size}), got {len(self.continuous)}")

    @property
    def own_size(self) -> int:
        """Entries of a mech's own part."""
        return self.size - self.shared_size

    @property
    def own_continuous(self) -> np.ndarray:
        """The continuous flags of the own part, bool [own]."""
        flags = np.asarray(self.continuous, bool)
        return np.concatenate([flags[: self.shared_start], flags[self.shared_start + self.shared_size :]])

    def own_of(self, array: Array, axis: int = -1) -> Array:
        """Return the own entries of an array with `size` entries along `axis`, in order."""
        before, _, after = jnp.split(array, (self.shared_start, self.shared_start + self.shared_size), axis)
        return jnp.concatenate([before, after], axis)

    def shared_of(self, array: Array, axis: int = -1) -> Array:
        """Return the shared entries of an array with `size` entries along `axis`."""
        return jnp.split(array, (self.shared_start, self.shared_start + self.shared_size), axis)[1]

    def split(self, observation: Float32[Array, "*batch mechs obs"]) -> Observation:
        """Cut an observation in two. The dead show zeros, so the shared block is read from whoever lives (the largest entry)."""
        shared = self.shared_of(observation).max(-2).astype(jnp.uint8)
        return Observation(own=self.own_of(observation), shared=shared)


def _positions(*blocks: tuple[int, int]) -> set[int]:
    return {i for start, size in blocks for i in range(start, start + size)}


def original_features(comm_dim: int) -> Features:
    """Return the reading of the original's observation of 549 + 5 comm_dim entries (environment spec 2.1, 2.6, 2.12)."""
    size, local_map = 549 + 5 * comm_dim, 125 + 5 * comm_dim
    telemetry, acoustic, scalars = local_map + 121, local_map + 377, local_map + 385
    # Of a contact row: offset, velocity, heading, hp, heat, stability; pitch, closing speed, crossing.
    contacts = _positions(*((25 * slot + start, length) for slot in range(5) for start, length in ((0, 11), (22, 3))))
    # Of the scalars: hp to damage direction, sensor quality and jam, suppression to cooldowns, zone offset to time.
    numbers = _positions((scalars + 5, 7), (scalars + 13, 2), (scalars + 17, 9), (scalars + 27, 8))
    continuous = contacts | _positions((125, 5 * comm_dim), (acoustic, 4)) | numbers
    return Features(size, telemetry, 256, tuple(i in continuous for i in range(size)))
