"""Policies with random numbers, and sequences of real observations, for the tests of the exporters.

Recording the modern game's observations anew, after a change of their layout:

    PYTHONPATH=tests python tests/helpers/export_policies.py
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.policies.features import Features, features_of
from echelon_jax.policies.normalize import Moments, empty_moments
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.policies.registry import make_network
from echelon_jax.runs.checkpoint import layout_hash
from echelon_jax.runs.policy import Policy
from echelon_jax.training.config import TrainConfig

ENV = EnvConfig.original()
MODERN = EnvConfig.revised(size_x=28, size_y=28, comm_dim=8)  # with messages, which are off by default
RECORDED = Path(__file__).parents[1] / "data" / "modern_observations.npz"
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


def random_modern(seed=0, env=MODERN, hidden=16, lstm=16, **config):
    """A policy with the modern network, every number drawn; `config` are further fields of its TrainConfig."""
    config = TrainConfig(network="modern", hidden=hidden, lstm=lstm, **config)
    network = make_network(config, env)
    rng = np.random.default_rng(seed)

    def drawn(path, leaf):
        kind = path[-1].key
        if kind == "scale":
            return jnp.asarray(rng.uniform(0.5, 1.5, leaf.shape), jnp.float32)
        fan = leaf.shape[-2] if kind.endswith("kernel") else 16
        # Spreads as training keeps them: at e^-5 a rounding of the mean is a hundred times that in a density.
        gain = 0.4 if path[0].key == "head_layer" else 1.0
        return jnp.asarray(rng.normal(size=leaf.shape) * gain / np.sqrt(fan), jnp.float32)

    shapes = jax.eval_shape(network.init, jax.random.key(0))
    size = network.features.own_size
    moments = Moments(
        jnp.asarray(rng.normal(size=size) * 0.4, jnp.float32),
        jnp.asarray(rng.uniform(0.0, 0.5, size) ** 2, jnp.float32),
        jnp.float32(1000.0),
    )
    params = jax.tree_util.tree_map_with_path(drawn, shapes)
    return Policy(network, params, moments, config, env, 12, {"who": "a test"})


def modern_sequence(teams, steps=STEPS, mechs=5):
    """Recorded observations [steps, teams, mechs, obs] of the modern game, boundaries, and who lives.

    Every second team is red; pairs of teams are at other times of the recording, so that they begin anew at other steps.
    """
    with np.load(RECORDED) as file:
        seen, over = file["observation"], file["over"]
        assert str(file["layout"]) == layout_hash(MODERN), (
            "record again: PYTHONPATH=tests python tests/helpers/export_policies.py"
        )
    time = (np.arange(steps)[:, None] + 31 * (np.arange(teams) // 2)[None]) % len(seen)
    done = np.repeat(((time == 0) | over[time])[..., None], mechs, 2)
    rows = 5 * (np.arange(teams) % 2)[:, None] + np.arange(mechs)
    seen = seen[time[..., None], rows[None]]
    return seen, done, seen[..., observation_layout(MODERN)["self/alive"].offset] > 0


def real_sequence(rows, steps=STEPS, data=Path(__file__).parents[1] / "data" / "episodes" / "match_40_1.npz"):
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


def record_modern(path, steps=STEPS, seed=3):
    """Play the scripted agent against itself in the JAX environment and keep what all mechs see; one arena after another."""
    from echelon_jax.agents.base import AgentParams
    from echelon_jax.agents.scripted import Scripted
    from echelon_jax.env.autoreset import AutoReset
    from echelon_jax.env.environment import Echelon
    from echelon_jax.worldgen.bank import generate_worlds

    env = Echelon(MODERN)
    params = env.params(env.make_bank(generate_worlds(MODERN, np.arange(seed, seed + 4))))
    env, agent = AutoReset(env), Scripted(MODERN)

    def play(key):
        state, first = env.reset_batch(key[None], params)

        def step(carry, key):
            state, memory, now, over = carry
            memory = agent.reset_where(memory, state, over)
            keys = jax.random.split(key)
            memory, action = agent.act(params, AgentParams(jnp.float32(0.5)), memory, state, keys[:1])
            # Some wild actions, for heat and falls.
            wild = jax.random.uniform(keys[1], action.shape, minval=-1.0)
            action = jnp.where(jax.random.uniform(keys[0], action.shape) < 0.2, wild, action)
            state, made = env.step_batch(keys[:1], state, action, params)
            return (state, memory, made.observation, made.episode_over), (now[0], over[0])

        over = jnp.ones(1, bool)
        start = (state, agent.init(params, state), first.observation, over)
        return jax.lax.scan(step, start, jax.random.split(key, steps))[1]

    seen, over = jax.jit(play)(jax.random.key(seed))
    np.savez_compressed(path, observation=np.asarray(seen), over=np.asarray(over), layout=layout_hash(MODERN))


if __name__ == "__main__":
    record_modern(RECORDED)
