"""Small policies and leagues for the tests of the arena."""

import jax
import jax.numpy as jnp

from echelon_jax.arena.league import League
from echelon_jax.arena.records import Pairing
from echelon_jax.config import EnvConfig
from echelon_jax.policies.normalize import empty_moments
from echelon_jax.policies.registry import make_network
from echelon_jax.runs.checkpoint import Policy
from echelon_jax.training.config import TrainConfig

GAME = EnvConfig.original(size_x=20, size_y=20, max_episode_seconds=5.0)


def small_policy(seed: int = 0, game: EnvConfig = GAME, width: int = 8) -> Policy:
    """An untrained policy; the seed tells one from another."""
    config = TrainConfig(network="original", hidden=width, lstm=width, normalize_observations=False)
    network = make_network(config, game)
    moments = jax.tree.map(jnp.asarray, empty_moments(network.features.own_size))
    return Policy(network, network.init(jax.random.key(seed)), moments, config, game, update=seed, extra={})


def agents(league: League, *names: str) -> list[str]:
    """Add agents and return their ids."""
    return [league.add(name).id for name in names]


def won(a: str, b: str, wins: int = 10, losses: int = 0) -> Pairing:
    return Pairing(a, b, wins, 0, losses)
