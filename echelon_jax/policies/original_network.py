"""The `original` network: the layers of the original's ActorCriticLSTM, the same for all mechs.

Source: docs/spec/learner.md 2.

The network is written in Flax linen, where it is a plain function of its parameters, which `lax.scan`, `grad` and donation
take as they are. NNX modules would have to be split and merged around every transform.

The telemetry block of an observation is the same for all mechs of an arena. So its product with the first kernel is taken
once per arena and added to the product of each mech's own entries. The sum equals one product with the whole observation,
and the parameter tree holds one whole kernel, as the original's does.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.policies.dense import product
from echelon_jax.policies.distributions import LOG_STD_RANGE, SquashedGaussian
from echelon_jax.policies.features import Features, Observation
from echelon_jax.policies.lstm import lstm_sequence, lstm_step
from echelon_jax.policies.network import Carry, Params


def _uniform(bound: float) -> nn.initializers.Initializer:
    def init(key: Any, shape: Any, dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class ActorCriticLSTM(nn.Module):
    """Linear, tanh, linear, tanh, LSTM; mean, value and a state-independent log-std on top.

    Source: docs/spec/learner.md 2.1 to 2.3.

    `lstm_kernel` is [hidden + lstm, 4 lstm]: rows of the input, then of the hidden state; columns in torch's gate order
    i, f, g, o. `lstm_bias` is the sum of torch's two bias vectors.
    """

    features: Features
    action_size: int
    hidden: int
    lstm: int
    forget_bias: float | None
    initial_log_std: float

    def setup(self) -> None:
        """Declare the parameters with torch's default initialisation (docs/spec/learner.md 2.2)."""
        size, hidden, lstm = self.features.size, self.hidden, self.lstm
        first, second, recurrent = (1.0 / math.sqrt(n) for n in (size, hidden, lstm))

        def lstm_bias(key: Any, shape: Any) -> Array:
            bias = jax.random.uniform(key, (2, *shape), jnp.float32, -recurrent, recurrent).sum(0)
            return bias if self.forget_bias is None else bias.at[lstm : 2 * lstm].set(self.forget_bias)

        self.kernel_0 = self.param("encoder_0_kernel", _uniform(first), (size, hidden))
        self.bias_0 = self.param("encoder_0_bias", _uniform(first), (hidden,))
        self.kernel_1 = self.param("encoder_1_kernel", _uniform(second), (hidden, hidden))
        self.bias_1 = self.param("encoder_1_bias", _uniform(second), (hidden,))
        self.kernel_lstm = self.param("lstm_kernel", _uniform(recurrent), (hidden + lstm, 4 * lstm))
        self.bias_lstm = self.param("lstm_bias", lstm_bias, (4 * lstm,))
        self.kernel_mean = self.param("mean_kernel", nn.initializers.orthogonal(0.01), (lstm, self.action_size))
        self.bias_mean = self.param("mean_bias", nn.initializers.zeros, (self.action_size,))
        self.kernel_value = self.param("value_kernel", nn.initializers.orthogonal(1.0), (lstm, 1))
        self.bias_value = self.param("value_bias", nn.initializers.zeros, (1,))
        self.raw_log_std = self.param("log_std", nn.initializers.constant(self.initial_log_std), (self.action_size,))

    def encode(self, observation: Observation) -> Float32[Array, "*batch arenas mechs hidden"]:
        """Return the input of the LSTM."""
        own = product(observation.own, self.features.own_of(self.kernel_0, 0))
        arena = product(observation.shared.astype(jnp.float32), self.features.shared_of(self.kernel_0, 0)) + self.bias_0
        x = jnp.tanh(own + arena[..., None, :])
        return jnp.tanh(product(x, self.kernel_1) + self.bias_1)

    def cell(self, carry: Carry, x: Float32[Array, "arenas mechs hidden"], reset: Bool[Array, "arenas mechs"]) -> Carry:
        """Return the memory after reading x; where `reset` it starts from zeros (docs/spec/learner.md 2.3)."""
        return lstm_step(self.kernel_lstm, self.bias_lstm, carry, x, reset)

    def memory(
        self, carry: Carry, x: Float32[Array, "time arenas mechs hidden"], reset: Bool[Array, "time arenas mechs"]
    ) -> tuple[Carry, Float32[Array, "time arenas mechs lstm"]]:
        """Return the memory after a stored sequence, and the hidden state of every step."""
        return lstm_sequence(self.kernel_lstm, self.bias_lstm, carry, x, reset)

    def heads(self, y: Float32[Array, "*batch lstm"]) -> tuple[SquashedGaussian, Float32[Array, "*batch"]]:
        """Return the distribution of actions and the value (in units of the return statistics)."""
        log_std = jnp.clip(self.raw_log_std, *LOG_STD_RANGE)
        both = product(y, jnp.concatenate([self.kernel_mean, self.kernel_value], -1))
        mean, value = jnp.split(both, [self.action_size], -1)
        return SquashedGaussian(mean + self.bias_mean, log_std), value[..., 0] + self.bias_value[0]

    def everything(
        self, carry: Carry, observation: Observation, reset: Bool[Array, "arenas mechs"]
    ) -> tuple[Carry, SquashedGaussian, Float32[Array, "arenas mechs"]]:
        """Run one step of all layers."""
        carry = self.cell(carry, self.encode(observation), reset)
        distribution, value = self.heads(carry.h)
        return carry, distribution, value


@dataclasses.dataclass(frozen=True)
class OriginalNetwork:
    """The network as plain functions of `params`; frozen and hashable.

    Attributes:
        features: how to read an observation.
        action_size: components of an action.
        hidden, lstm: widths of the encoder and of the memory.
        forget_bias: bias of the forget gate at initialisation; None for torch's default (T21).
        initial_log_std: log of the spread at initialisation; the original's is 0, at which actions are nearly uniform.
    """

    features: Features
    action_size: int
    hidden: int = 128
    lstm: int = 128
    forget_bias: float | None = 1.0
    initial_log_std: float = 0.0

    @property
    def head_names(self) -> tuple[str, ...]:
        """The one head."""
        return ("action",)

    @property
    def entropy_weights(self) -> tuple[float, ...]:
        """Weight of the one head's entropy in the loss."""
        return (1.0,)

    @property
    def entropy_units(self) -> tuple[float, ...]:
        """The one head sums the entropies of all components."""
        return (float(self.action_size),)

    @property
    def values_the_dead(self) -> bool:
        """Whether the critic has a meaningful value for a dead mech. It has not, because it sees only that mech's own zeros."""
        return False

    @property
    def module(self) -> ActorCriticLSTM:
        """The linen module."""
        widths = self.hidden, self.lstm
        return ActorCriticLSTM(self.features, self.action_size, *widths, self.forget_bias, self.initial_log_std)

    def init(self, key: Key[Array, ""]) -> Params:
        """Return fresh parameters."""
        observation = Observation(
            jnp.zeros((1, 1, self.features.own_size), jnp.float32), jnp.zeros((1, self.features.shared_size), jnp.uint8)
        )
        carry = self.initial_carry(1, 1)
        variables = self.module.init(key, carry, observation, jnp.zeros((1, 1), bool), method="everything")
        return variables["params"]

    def initial_carry(self, arenas: int, mechs: int) -> Carry:
        """Return the memory at the start of an episode: zeros."""
        shape = (arenas, mechs, self.lstm)
        return Carry(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))

    def apply(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "arenas mechs"]
    ) -> tuple[Carry, SquashedGaussian, Float32[Array, "arenas mechs"]]:
        """Run one decision. `reset` is the previous done: it is true where an episode began with this observation."""
        return self._call("everything", params, carry, observation, reset)

    def _call(self, method: str, params: Params, *inputs: Any) -> Any:
        return self.module.apply({"params": params}, *inputs, method=method)

    def unroll(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "time arenas mechs"]
    ) -> tuple[SquashedGaussian, Float32[Array, "time arenas mechs"]]:
        """Run a stored sequence from its first memory. It gives what `apply` gives step by step, with only the LSTM in a scan."""
        x = self._call("encode", params, observation)
        return self._call("heads", params, self._call("memory", params, carry, x, reset)[1])

    def final_carry(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "time arenas mechs"]
    ) -> Carry:
        """Return the memory after a stored sequence."""
        x = self._call("encode", params, observation)
        return self._call("memory", params, carry, x, reset)[0]

    def clip_params(self, params: Params) -> Params:
        """Return the parameters with log-std clipped to its range. Outside the range it would have no gradient and stay there."""
        return {**params, "log_std": jnp.clip(params["log_std"], *LOG_STD_RANGE)}
