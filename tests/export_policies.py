"""Policies with random numbers, and sequences of real observations, for the tests of the exporters."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.learn.checkpoint import Policy
from echelon_jax.learn.config import TrainConfig
from echelon_jax.learn.features import Features, features_of
from echelon_jax.learn.networks import OriginalNetwork
from echelon_jax.learn.normalize import Moments, empty_moments

ENV = EnvConfig.original()
STEPS = 240
TINY = Features(11, 3, 4, (True, False, True, *(False,) * 4, True, True, False, True))


def random_policy(seed=0, hidden=128, lstm=128, features=None, actions=26, normalise=True, **config):
    """A policy far from its initialisation: every number drawn, biases and log-std too."""
    features = features_of(ENV) if features is None else features
    network = OriginalNetwork(features, actions, hidden, lstm, forget_bias=1.0)
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    params = {}
    for name, leaf in shapes.items():
        width = leaf.shape[0] if leaf.ndim == 2 else 16
        params[name] = jnp.asarray(rng.normal(size=leaf.shape) / np.sqrt(width), jnp.float32)
    moments = empty_moments(features.own_size)
    if normalise:
        moments = Moments(
            jnp.asarray(rng.normal(size=features.own_size) * 0.4, jnp.float32),
            jnp.asarray(rng.uniform(0.0, 0.5, features.own_size) ** 2, jnp.float32),
            jnp.float32(1000.0),
        )
    config = TrainConfig(network="original", hidden=hidden, lstm=lstm, normalize_observations=normalise, **config)
    return Policy(network, params, moments, config, ENV, 12, {"who": "a test"})


def real_sequence(rows, steps=STEPS, data=Path(__file__).parent / "data" / "episodes" / "match_40_1.npz"):
    """Recorded observations [steps, rows, obs] and the boundaries [steps, rows], at other times in every tenth row."""
    with np.load(data) as file:
        seen = file["obs"]
        assert json.loads(bytes(file["meta"]))["env_config"]["comm_dim"] == ENV.comm_dim
    length, mechs, _ = seen.shape
    time = (np.arange(steps)[:, None] + 9 * (np.arange(rows) // mechs)[None]) % length
    return seen[time, np.arange(rows)[None] % mechs], time == 0


def tiny_sequence(rows, steps, seed):
    """Random observations of TINY with zeros and ones in the shared block, and random boundaries."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(steps, rows, TINY.size)).astype(np.float32)
    seen[..., 3:7] = rng.integers(0, 2, (steps, rows, 4))
    return seen, rng.random((steps, rows)) < 0.2


def wide(policy):
    """The same policy with every number in float64; only inside `jax.enable_x64`."""
    doubled = jax.tree.map(
        lambda x: jnp.asarray(np.asarray(x, np.float64)), (policy.params, policy.observation_moments)
    )
    return Policy(policy.network, *doubled, policy.config, policy.env_config, policy.update, policy.extra)
