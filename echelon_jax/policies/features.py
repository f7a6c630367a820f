"""How a learner reads an observation: which entries are a mech's own, which its arena shares, and which are continuous."""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, UInt8

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout, observation_of
from echelon_jax.policies.heads import Heads, heads_of
from echelon_jax.policies.normalize import Moments, normalize
from echelon_jax.policies.structure import structure_of


class Observation(flax.struct.PyTreeNode):
    """An observation in two parts. `shared` is stored once per arena, because all mechs see the same in it all episode long."""

    own: Float32[Array, "*batch arenas mechs own"]
    shared: UInt8[Array, "*batch arenas shared"]
    action_mask: Bool[Array, "*batch arenas mechs mask"] | None = (
        None  # what each head may choose, for a network with heads
    )


@dataclasses.dataclass(frozen=True)
class Features:
    """Which entries of an observation are shared by an arena, and which of the others are continuous.

    Attributes:
        size: entries of a whole observation.
        shared_start, shared_size: the block of flags (0 or 1) that all mechs of an arena see alike; size 0 for none.
        continuous: one flag per entry: a measured number that a normaliser may shift and scale. Flags, one-hots and map
            cells are not.
        slots: runs (start, count, width) of equal slots, counted in the own part. A network shares its weights among the slots
            of a run, so they are normalised alike.
        heads: the action heads whose action mask is read from an observation; None for a network without them.

    Raises:
        ValueError: a block outside the observation, or flags of another length.
    """

    size: int
    shared_start: int
    shared_size: int
    continuous: tuple[bool, ...]
    slots: tuple[tuple[int, int, int], ...] = ()
    heads: Heads | None = None

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
        """Split an observation. The dead show zeros, so the shared flags are the largest over the mechs, those of a living one."""
        shared = self.shared_of(observation).max(-2).astype(jnp.uint8)
        action_mask = None if self.heads is None else self.heads.action_mask(observation)
        return Observation(own=self.own_of(observation), shared=shared, action_mask=action_mask)

    def pooled(self, moments: Moments) -> Moments:
        """Return moments of the own part in which each entry of a slot has the moments over all slots of its run."""
        mean, var = moments.mean, moments.var
        for start, count, width in self.slots:
            run = slice(start, start + count * width)
            means, variances = mean[run].reshape(count, width), var[run].reshape(count, width)
            together = means.mean(0)
            spread = (variances + jnp.square(means - together)).mean(0)
            mean, var = (x.at[run].set(jnp.tile(y, count)) for x, y in ((mean, together), (var, spread)))
        return Moments(mean, var, moments.count)


def features_of(config: EnvConfig, factored: bool = False) -> Features:
    """Return the reading of the environment's observation, from its layout table; `factored` for a network with heads and slots.

    The shared entries are the whole-map planes: the original's telemetry, or the modern planes that a team's mechs see alike.
    """
    layout = observation_layout(config)
    shared = layout.block(observation_of(config).reading.shared_block)
    continuous = tuple(bool(flag) for flag in layout.continuous)
    whole = Features(layout.size, shared.start, shared.stop - shared.start, continuous)
    if not factored:
        return whole
    runs = tuple((group.start, group.number, group.width) for group in structure_of(config).slots)
    return dataclasses.replace(whole, slots=runs, heads=heads_of(config))


def read(
    features: Features, moments: Moments, clip: float | None, observation: Float32[Array, "arenas team obs"]
) -> Observation:
    """Return an observation in two parts and normalised, as the network reads it."""
    cut = features.split(observation)
    own = normalize(features.pooled(moments), cut.own, jnp.asarray(features.own_continuous), clip)
    return cut.replace(own=own)
