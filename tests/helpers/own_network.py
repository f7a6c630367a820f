"""A network of a user's own for tests: a dense layer before and behind a GRU."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from flax import linen as nn

from echelon_jax.env.interfaces import action_layout
from echelon_jax.policies.distributions import SquashedGaussian
from echelon_jax.policies.features import Features, features_of
from echelon_jax.policies.network import RecurrentNetwork


class Layers(nn.Module):
    action_size: int
    width: int

    def setup(self):
        self.into = nn.Dense(self.width)
        self.gru = nn.GRUCell(self.width)
        self.out = nn.Dense(self.action_size)
        self.value = nn.Dense(1)
        self.log_std = self.param("log_std", nn.initializers.zeros, (self.action_size,))

    def encode(self, observation):
        return nn.tanh(self.into(observation.own))

    def step(self, carry, x, reset):
        return self.gru(jnp.where(reset[..., None], 0.0, carry), x)

    def heads(self, y):
        return SquashedGaussian(0.1 * self.out(y), self.log_std), self.value(y)[..., 0]


@dataclasses.dataclass(frozen=True)
class Small(RecurrentNetwork):
    features: Features
    action_size: int
    width: int = 16

    @property
    def module(self):
        return Layers(self.action_size, self.width)

    def initial_carry(self, arenas, mechs):
        return jnp.zeros((arenas, mechs, self.width), jnp.float32)


def small(config, env_config):
    return Small(features_of(env_config), action_layout(env_config).size)


def no_network(config, env_config):
    """What is no network."""
    return env_config


class Mutable(Small):
    """A network that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]
