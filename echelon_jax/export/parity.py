"""Does an exported policy act as the JAX policy does? Real observations, memory carried, every head compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.config import SWITCHES, EnvConfig
from echelon_jax.export.weights import clip_of, original_network
from echelon_jax.learn.checkpoint import Policy
from echelon_jax.learn.networks import Carry, OriginalNetwork
from echelon_jax.learn.rollout import read
from echelon_jax.reference.environment import ReferenceEnv

HEADS = ("mean", "log_std", "value", "h", "c")
TOLERANCE = 1e-5  # float32
Heads = dict[str, np.ndarray]  # HEADS and, where a sample was given, log_prob; each [time, rows, ...]
# (observation [rows, obs], h, c, done) -> mean, log-std, value, h, c; numpy or torch on both sides
Network = Callable[[Any, Any, Any, Any], Sequence[Any]]


class Play(NamedTuple):
    """Observations of games one after another.

    Attributes:
        observation: float32 [time, mechs, obs].
        done: bool [time, mechs], an episode boundary lies before this observation.
        alive: bool [time, mechs].
    """

    observation: np.ndarray
    done: np.ndarray
    alive: np.ndarray


def jax_steps(policy: Policy, observation: np.ndarray, done: np.ndarray, sample: np.ndarray | None = None) -> Heads:
    """Return the heads of the JAX network over a sequence [time, rows, obs], memory carried from zeros.

    Each row is read as an arena of one mech, so that the shared telemetry of a row is its own, as any other program reads
    it. (In the arena the dead, who see zeros, are given their team's telemetry; nobody uses what they decide.)
    Computes in the dtype of `observation`; float64 needs `jax.enable_x64`.
    """
    network, dtype = original_network(policy), observation.dtype
    carry = Carry(*(jnp.zeros((observation.shape[1], 1, network.lstm), dtype) for _ in range(2)))
    inputs = (carry, jnp.asarray(observation), jnp.asarray(done))
    made = _scan(network, clip_of(policy))(policy.params, policy.observation_moments, *inputs)
    heads = dict(zip(HEADS, (np.asarray(head)[:, :, 0] for head in made), strict=True))
    if sample is not None:
        heads["log_prob"] = np.asarray(_log_prob(heads["mean"], heads["log_std"], sample))
    return heads


@lru_cache(maxsize=8)
def _scan(network: OriginalNetwork, clip: float | None) -> Callable[..., Any]:
    """The compiled sequence of a network."""

    def scan(params: Any, moments: Any, carry: Carry, seen: Any, resets: Any) -> Any:
        def step(carry: Carry, now: Any) -> Any:
            now, reset = now
            now = read(network.features, moments, clip, now[:, None])
            carry, distribution, value = network.apply(params, carry, now, reset[:, None])
            log_std = jnp.broadcast_to(distribution.log_std, distribution.mean.shape)
            return carry, (distribution.mean, log_std, value, carry.h, carry.c)

        return jax.lax.scan(step, carry, (seen, resets))[1]

    return jax.jit(scan)


def _log_prob(mean: np.ndarray, log_std: np.ndarray, sample: np.ndarray) -> Any:
    from echelon_jax.learn.distributions import SquashedGaussian

    return SquashedGaussian(jnp.asarray(mean), jnp.asarray(log_std)).log_prob(jnp.asarray(sample))


def torch_steps(module: Any, observation: np.ndarray, done: np.ndarray, sample: np.ndarray | None = None) -> Heads:
    """Return the heads of a torch policy over the same sequence, in the module's dtype and on its device."""
    import torch

    from echelon_jax.export.torch_policy import log_prob

    like = module.actor_logstd

    def tensor(array: np.ndarray) -> Any:
        return torch.as_tensor(np.array(array), dtype=like.dtype, device=like.device)

    h, c = module.initial_state(observation.shape[1])
    rows: list[list[np.ndarray]] = []
    with torch.no_grad():
        for t in range(len(observation)):
            heads = module(tensor(observation[t]), h, c, tensor(done[t]))
            h, c = heads[3:]
            extra = [] if sample is None else [log_prob(heads[0], heads[1], tensor(sample[t]))]
            rows.append([head.cpu().numpy() for head in (*heads, *extra)])
    names = HEADS if sample is None else (*HEADS, "log_prob")
    return {name: np.stack([row[i] for row in rows]) for i, name in enumerate(names)}


def numpy_steps(network: Network, lstm: int, observation: np.ndarray, done: np.ndarray) -> Heads:
    """Return the heads of any network of numpy arrays over the same sequence (an ONNX session, say); float32."""
    h = c = np.zeros((observation.shape[1], lstm), np.float32)
    rows = []
    for t in range(len(observation)):
        heads = network(observation[t].astype(np.float32), h, c, done[t])
        h, c = heads[3:]
        rows.append(heads)
    return {name: np.stack([row[i] for row in rows]) for i, name in enumerate(HEADS)}


def differences(ours: Heads, theirs: Heads) -> dict[str, float]:
    """Return the largest difference per head, absolute for numbers up to 1 and relative to `ours` above.

    Infinite where a head is missing or a number is not finite.
    """
    out = {}
    for name, expected in ours.items():
        got = theirs.get(name)
        if got is None or got.shape != expected.shape:
            out[name] = np.inf
            continue
        worst = float((np.abs(got - expected) / np.maximum(1.0, np.abs(expected))).max())
        out[name] = worst if np.isfinite(worst) else np.inf
    return out


def letter(env_config: EnvConfig) -> EnvConfig:
    """Return a configuration with the original's rules, observation, actions and reward: what the reference plays."""
    kept = {f.name: getattr(env_config, f.name) for f in dataclasses.fields(env_config)}
    for name in (*SWITCHES, "observation", "actions", "reward"):
        del kept[name]
    return EnvConfig.original(**kept)


def check_sequence(policy: Policy, steps: int, seed: int = 0) -> Play:
    """Return a sequence for a parity check: real observations where the reference makes them, else random ones."""
    if policy.env_config.observation == "original":
        return random_games(policy.env_config, steps, seed)
    features, rows = policy.network.features, policy.env_config.num_mechs
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(steps, rows, features.size)).astype(np.float32)
    shared = slice(features.shared_start, features.shared_start + features.shared_size)
    seen[..., shared] = seen[..., shared] > 0
    done = np.arange(steps)[:, None] % 20 == np.zeros((1, rows), int)
    return Play(seen, done, np.ones(done.shape, bool))


def random_games(env_config: EnvConfig, steps: int, seed: int = 0) -> Play:
    """Return observations of games in the reference environment under random actions, one game after another."""
    rng = np.random.default_rng(seed)
    env = ReferenceEnv(letter(env_config))
    seen, boundaries, living = [], [], []
    over, number = True, seed
    for _ in range(steps):
        begins = over
        if over:
            step = env.reset(number)
            number += 1
        seen.append(step.observation)
        boundaries.append(np.full(len(step.observation), begins))
        living.append(step.info["alive"])
        step = env.step(rng.uniform(-1.0, 1.0, (len(step.observation), env_config.action_size)))
        over = step.episode_over
    return Play(np.stack(seen), np.stack(boundaries), np.stack(living))
