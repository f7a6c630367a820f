"""The protocols of networks and action distributions: all that a rollout and the update call."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.policies.features import Features, Observation

Params = Any  # a pytree of float32 arrays


@runtime_checkable
class Distribution(Protocol):
    """The distribution of a policy's next action. Raw actions are flat rows; everything per head is [*batch, heads]."""

    def sample(self, key: Key[Array, ""]) -> Float32[Array, "*batch raw"]:
        """Draw a raw action; this is what a rollout stores."""
        ...

    def mode(self) -> Float32[Array, "*batch raw"]:
        """Return the raw action of a policy that does not explore."""
        ...

    def action(self, raw_action: Float32[Array, "*batch raw"]) -> Float32[Array, "*batch actions"]:
        """Return the environment's action of a raw action."""
        ...

    def head_log_prob(self, raw_action: Float32[Array, "*batch raw"]) -> Float32[Array, "*batch heads"]:
        """Return each head's log-prob of a raw action, up to a term that depends on the raw action alone."""
        ...

    def head_entropy(self, key: Key[Array, ""]) -> Float32[Array, "*batch heads"]:
        """Return each head's entropy, or an estimate of it through which the gradient goes."""
        ...

    def loss_mask(self, raw_action: Float32[Array, "*batch raw"]) -> Bool[Array, "*batch heads"]:
        """Return the heads whose choices can have made a difference."""
        ...


class Carry(NamedTuple):
    """The memory of every mech, Flax order (cell, hidden)."""

    c: Float32[Array, "arenas mechs lstm"]
    h: Float32[Array, "arenas mechs lstm"]


@runtime_checkable
class Network(Protocol):
    """A recurrent actor-critic as plain functions of its parameters; frozen and hashable."""

    @property
    def features(self) -> Features:
        """How the network reads an observation."""
        ...

    @property
    def head_names(self) -> tuple[str, ...]:
        """Names of its action heads in order."""
        ...

    @property
    def entropy_weights(self) -> tuple[float, ...]:
        """Weight of each head's entropy, times the coefficient, in the loss."""
        ...

    @property
    def entropy_units(self) -> tuple[float, ...]:
        """Number of choices whose entropies each head adds up. The guard divides by it, so that its limit applies to one choice."""
        ...

    @property
    def values_the_dead(self) -> bool:
        """Whether the critic has a meaningful value for a dead mech."""
        ...

    def init(self, key: Key[Array, ""]) -> Params:
        """Return fresh parameters."""
        ...

    def initial_carry(self, arenas: int, mechs: int) -> Carry:
        """Return the memory at the start of an episode."""
        ...

    def apply(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "arenas mechs"]
    ) -> tuple[Carry, Any, Float32[Array, "arenas mechs"]]:
        """Run one decision. Return the memory after it, the Distribution, and the value in units of the return statistics."""
        ...

    def unroll(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "time arenas mechs"]
    ) -> tuple[Any, Float32[Array, "time arenas mechs"]]:
        """Run a stored sequence from its first memory. It gives what `apply` gives step by step."""
        ...

    def final_carry(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "time arenas mechs"]
    ) -> Carry:
        """Return the memory after a stored sequence."""
        ...

    def clip_params(self, params: Params) -> Params:
        """Return the parameters clipped to their ranges, after a gradient step."""
        ...
