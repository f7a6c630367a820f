"""The protocols of networks and action distributions: all that a rollout and the update call.

`RecurrentNetwork` is a base class for a network of one's own.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from flax import linen as nn
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


class RecurrentNetwork(abc.ABC):
    """Base of a network of one's own: a Flax linen module in three parts, and how an observation is read.

    A subclass is a frozen dataclass that gives `features` (policies/features.py:features_of), `module` and `initial_carry`.
    The module has three methods, of which only `step` runs once per decision when a stored sequence is replayed:

        encode(observation) -> x                what needs no memory; axes [*batch, arenas, mechs]
        step(carry, x, reset) -> (carry, y)     one decision; the memory starts from that of `initial_carry` where `reset`
        heads(y) -> (distribution, value)       a Distribution and the value; axes [*batch, arenas, mechs]

    examples/own_network.py shows one. Everything else has a default that a subclass may replace.
    """

    features: Features  # how the network reads an observation

    @property
    @abc.abstractmethod
    def module(self) -> nn.Module:
        """The linen module with `encode`, `step` and `heads`."""

    @abc.abstractmethod
    def initial_carry(self, arenas: int, mechs: int) -> Any:
        """Return the memory at the start of an episode: a pytree whose leaves lead with [arenas, mechs]."""

    @property
    def head_names(self) -> tuple[str, ...]:
        """Names of the action heads: one head."""
        return ("action",)

    @property
    def entropy_weights(self) -> tuple[float, ...]:
        """Weight of each head's entropy in the loss: 1."""
        return (1.0,) * len(self.head_names)

    @property
    def entropy_units(self) -> tuple[float, ...]:
        """Choices whose entropies each head adds up: 1."""
        return (1.0,) * len(self.head_names)

    @property
    def values_the_dead(self) -> bool:
        """Whether the critic has a meaningful value for a dead mech: not if it sees that mech's observation alone, all zeros."""
        return False

    def init(self, key: Key[Array, ""]) -> Params:
        """Return fresh parameters."""
        observation = self.features.split(jnp.zeros((1, 1, self.features.size), jnp.float32))
        inputs = self.initial_carry(1, 1), observation, jnp.zeros((1, 1), bool)
        return self.module.init(key, *inputs, method=_one_decision)["params"]

    def apply(
        self, params: Params, carry: Any, observation: Observation, reset: Bool[Array, "arenas mechs"]
    ) -> tuple[Any, Any, Float32[Array, "arenas mechs"]]:
        """Run one decision. Return the memory after it, the distribution of actions and the value."""
        made: Any = self.module.apply({"params": params}, carry, observation, reset, method=_one_decision)
        return made

    def unroll(
        self, params: Params, carry: Any, observation: Observation, reset: Bool[Array, "time arenas mechs"]
    ) -> tuple[Any, Float32[Array, "time arenas mechs"]]:
        """Run a stored sequence from its first memory, with only `step` in a scan."""
        _, y = self._remember(params, carry, observation, reset)
        made: Any = self.module.apply({"params": params}, y, method="heads")
        return made

    def final_carry(
        self, params: Params, carry: Any, observation: Observation, reset: Bool[Array, "time arenas mechs"]
    ) -> Any:
        """Return the memory after a stored sequence."""
        return self._remember(params, carry, observation, reset)[0]

    def clip_params(self, params: Params) -> Params:
        """Return the parameters unchanged."""
        return params

    def _remember(self, params: Params, carry: Any, observation: Observation, reset: Array) -> tuple[Any, Any]:
        x = self.module.apply({"params": params}, observation, method="encode")

        def step(carry: Any, now: tuple[Any, Array]) -> tuple[Any, Any]:
            return self.module.apply({"params": params}, carry, *now, method="step")

        return jax.lax.scan(step, carry, (x, reset))


def _one_decision(module: Any, carry: Any, observation: Observation, reset: Array) -> tuple[Any, Any, Array]:
    carry, y = module.step(carry, module.encode(observation), reset)
    distribution, value = module.heads(y)
    return carry, distribution, value
