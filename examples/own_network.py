"""A network of one's own: GRU instead of LSTM, trained for two updates on a small map.

    python examples/own_network.py

The same network on the command line, from a directory in which this file lies:

    echelon train --preset smoke --rules original --network own_network:gru_network
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

import echelon_jax
from echelon_jax import EnvConfig, TrainConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.policies.distributions import SquashedGaussian
from echelon_jax.policies.features import Features, Observation, features_of
from echelon_jax.policies.network import RecurrentNetwork


class GruModule(nn.Module):
    """A dense layer, a GRU, and a Gaussian head beside the value."""

    action_size: int
    width: int

    def setup(self) -> None:
        """Declare the layers."""
        self.encoder = nn.Dense(self.width)
        self.gru = nn.GRUCell(self.width)
        self.mean = nn.Dense(self.action_size, kernel_init=nn.initializers.orthogonal(0.01))
        self.value = nn.Dense(1)
        self.log_std = self.param("log_std", nn.initializers.zeros, (self.action_size,))

    def encode(self, observation: Observation) -> jax.Array:
        """What needs no memory: a mech's own entries. This network does not look at the map of the whole arena."""
        return nn.tanh(self.encoder(observation.own))

    def step(self, carry: jax.Array, x: jax.Array, reset: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One decision of the GRU; the memory is empty where an episode has just begun."""
        return self.gru(jnp.where(reset[..., None], 0.0, carry), x)

    def heads(self, y: jax.Array) -> tuple[SquashedGaussian, jax.Array]:
        """The distribution of actions, and the value."""
        return SquashedGaussian(self.mean(y), self.log_std), self.value(y)[..., 0]


@dataclasses.dataclass(frozen=True)
class GruNetwork(RecurrentNetwork):
    """The module as a network of this package; everything else is `RecurrentNetwork`."""

    features: Features
    action_size: int
    width: int = 32

    @property
    def module(self) -> GruModule:
        """The linen module."""
        return GruModule(self.action_size, self.width)

    def initial_carry(self, arenas: int, mechs: int) -> Any:
        """An empty memory."""
        return jnp.zeros((arenas, mechs, self.width), jnp.float32)


def gru_network(config: TrainConfig, env_config: EnvConfig) -> GruNetwork:
    """The network for a run; `--network own_network:gru_network` calls this."""
    return GruNetwork(features_of(env_config), action_layout(env_config).size, width=config.hidden)


def main() -> None:
    """Train for some updates and print the win rate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--name", default="5v5-28", help="environment, see echelon_jax.make")
    parser.add_argument("--updates", type=int, default=2)
    flags = parser.parse_args()
    env, params = echelon_jax.make(flags.name, rules="original", worlds=2)
    config = TrainConfig.smoke(arenas=4, rollout_steps=8, updates=flags.updates, opponent="random")
    train = echelon_jax.make_train(env, config, network=gru_network)
    state = train.init(jax.random.key(0), params)
    for update in range(flags.updates):
        state, metrics = train.run_updates(state, params)
        loss = float(metrics.update.loss.mean())
        print(f"update {update + 1}: loss {loss:.3f}, decisions of living mechs {int(metrics.rollout.decisions.sum())}")
    layers = ", ".join(sorted(state.params))
    print(f"layers: {layers}")


if __name__ == "__main__":
    main()
