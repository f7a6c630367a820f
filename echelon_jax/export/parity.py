"""Comparison of an exported policy with the JAX policy, head by head, on real observations with the memory carried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.export.modern import head_columns
from echelon_jax.export.weights import clip_of
from echelon_jax.policies.distributions import SquashedGaussian
from echelon_jax.policies.factored import Factored
from echelon_jax.policies.features import read
from echelon_jax.policies.modern_network import ModernNetwork
from echelon_jax.policies.network import Carry
from echelon_jax.policies.precision import products_in
from echelon_jax.reference.environment import ReferenceEnv
from echelon_jax.runs.policy import Policy

TOLERANCE = 1e-5  # float32
VALUE = "value"  # one number per mech; all other heads are rows of numbers
Heads = dict[str, np.ndarray]  # by name: a network's outputs, value, h, c and, where a raw action was given, log_prob
Network = Callable[[Any, Any, Any, Any], Sequence[Any]]  # (observation, h, c, done) -> outputs by name's order


def head_names(policy: Policy) -> tuple[str, ...]:
    """Return the names of what a network returns, in order; h and c come last."""
    outputs = ("output", "log_std", "action_mask") if isinstance(policy.network, ModernNetwork) else ("mean", "log_std")
    return (*outputs, "value", "h", "c")


class Play(NamedTuple):
    """Observations of games one after another; `rows` is `mechs` (original network) or `teams mechs` (modern).

    Attributes:
        observation: float32 [time, *rows, obs].
        done: bool [time, *rows], an episode boundary lies before this observation.
        alive: bool [time, *rows].
    """

    observation: np.ndarray
    done: np.ndarray
    alive: np.ndarray


def jax_steps(policy: Policy, observation: np.ndarray, done: np.ndarray, raw_action: np.ndarray | None = None) -> Heads:
    """Return the heads of the JAX network over a sequence; the memory starts from zeros and is carried.

    Original network: [time, rows, obs], each row read as an arena of one mech, so that the shared telemetry of a row is its
    own, as any other program reads it. Modern network: [time, mechs, obs] of one team or [time, teams, mechs, obs]. (In an
    arena the dead, who see zeros, are given their team's planes; nobody uses what they decide.)
    Computes in the dtype of `observation`; float64 needs `jax.enable_x64`.
    """
    network: Any = policy.network
    dtype, rows = observation.dtype, done.shape[1:]
    if isinstance(network, ModernNetwork):
        arenas = rows if len(rows) == 2 else (1, *rows)
    else:
        arenas = (*rows, 1)
    carry = Carry(*(jnp.zeros((*arenas, network.lstm), dtype) for _ in range(2)))
    seen, resets = (x.reshape(len(x), *arenas, *x.shape[1 + len(rows) :]) for x in (observation, done))
    made = _scan(network, clip_of(policy))(
        policy.params, policy.observation_moments, carry, jnp.asarray(seen), jnp.asarray(resets)
    )
    found = [np.asarray(head).reshape(*done.shape, *head.shape[3:]) for head in made]
    heads = dict(zip(head_names(policy), found, strict=True))
    if raw_action is not None:
        heads["log_prob"] = np.asarray(_log_prob(network, heads, jnp.asarray(raw_action)))
    return _numbers(heads)


def raw_heads(distribution: Any) -> tuple[Any, ...]:
    """Return the parts of a distribution as the torch module returns them."""
    if isinstance(distribution, Factored):
        outputs, log_stds = distribution.outputs, distribution.log_stds
        names = distribution.heads.names
        ordered = ([part[name] for name in names if name in part] for part in (outputs, log_stds))
        return (*(jnp.concatenate(part, -1) for part in ordered), distribution.action_mask)
    return distribution.mean, jnp.broadcast_to(distribution.log_std, distribution.mean.shape)


@lru_cache(maxsize=8)
def _scan(network: Any, clip: float | None) -> Callable[..., Any]:
    """The compiled sequence of a network."""

    def scan(params: Any, moments: Any, carry: Carry, seen: Any, resets: Any) -> Any:
        def step(carry: Carry, now: Any) -> Any:
            now, reset = now
            observation = read(network.features, moments, clip, now)
            with products_in("float32"):
                carry, distribution, value = network.apply(params, carry, observation, reset)
            return carry, (*raw_heads(distribution), value, carry.h, carry.c)

        return jax.lax.scan(step, carry, (seen, resets))[1]

    return jax.jit(scan)


def factored_of(network: ModernNetwork, heads: Heads) -> Factored:
    """Return the distribution of these outputs."""
    log_stds = {name: jnp.asarray(heads["log_std"][..., run]) for name, run in head_columns(network.heads).items()}
    outputs = {head.name: jnp.asarray(heads["output"][..., head.action_mask]) for head in network.heads.table}
    return Factored(network.heads, outputs, log_stds, jnp.asarray(heads["action_mask"]) > 0.5)


def _log_prob(network: Any, heads: Heads, raw_action: Any) -> Any:
    if isinstance(network, ModernNetwork):
        return _factored_log_prob(factored_of(network, heads), raw_action)
    return SquashedGaussian(jnp.asarray(heads["mean"]), jnp.asarray(heads["log_std"])).action_log_prob(raw_action)


@jax.jit
def _factored_log_prob(distribution: Factored, raw_action: Any) -> Any:
    return distribution.head_action_log_prob(raw_action)


def _numbers(heads: Heads) -> Heads:
    """The heads with action masks as 0 and 1, to be compared like the rest."""
    return {name: head.astype(np.float32) if head.dtype == bool else head for name, head in heads.items()}


def torch_steps(module: Any, observation: np.ndarray, done: np.ndarray, raw_action: np.ndarray | None = None) -> Heads:
    """Return the heads of a torch policy over the same sequence, in the module's dtype and on its device."""
    import torch

    like = module.observation_shift

    def tensor(array: np.ndarray) -> Any:
        return torch.as_tensor(np.array(array), dtype=like.dtype, device=like.device)

    h, c = module.initial_state(*done.shape[1:])
    density = getattr(module, "head_action_log_prob", module.log_prob_of)
    rows: list[list[np.ndarray]] = []
    with torch.no_grad():
        for t in range(len(observation)):
            *heads, value, h, c = module(tensor(observation[t]), h, c, tensor(done[t]))
            extra = [] if raw_action is None else [density(heads, tensor(raw_action[t]))]
            rows.append([head.cpu().numpy() for head in (*heads, value, h, c, *extra)])
    names = (*module.head_outputs, "value", "h", "c", "log_prob")
    return _numbers({name: np.stack([row[i] for row in rows]) for i, name in enumerate(names[: len(rows[0])])})


def numpy_steps(
    network: Network, policy: Policy, observation: np.ndarray, done: np.ndarray, names: Sequence[str] | None = None
) -> Heads:
    """Return the heads of any network of numpy arrays over the same sequence (an ONNX session, say); float32.

    `names` are those of its outputs, h and c last; by default those of the JAX network.
    """
    h = c = np.zeros((*done.shape[1:], policy.config.lstm), np.float32)
    rows = []
    for t in range(len(observation)):
        heads = network(observation[t].astype(np.float32), h, c, done[t])
        *_, h, c = heads
        rows.append(heads)
    names = names or head_names(policy)
    return _numbers({name: np.stack([row[i] for row in rows]) for i, name in enumerate(names)})


def by_head(policy: Policy, heads: Heads) -> Heads:
    """Return the heads with each action head of a modern network under its own name; others as they are."""
    network = policy.network
    if not isinstance(network, ModernNetwork):
        return heads
    out = {name: head for name, head in heads.items() if name not in ("output", "log_std", "log_prob")}
    spreads = head_columns(network.heads)
    for i, head in enumerate(network.heads.table):
        out[head.name] = heads["output"][..., head.action_mask]
        if head.name in spreads:
            out[f"{head.name} log_std"] = heads["log_std"][..., spreads[head.name]]
        if "log_prob" in heads:
            out[f"{head.name} log_prob"] = heads["log_prob"][..., i]
    return out


def differences(ours: Heads, theirs: Heads, rows: np.ndarray | None = None) -> dict[str, float]:
    """Return the largest difference per head, relative to the largest number of a head's row where that is above 1.

    The numbers of a row are sums of the same inputs, so rounding is as large in the small ones as in the large: a target's
    logit of 0.5 beside one of 30 is known no better than the 30.

    `rows`, bool [time, *rows], are those that are compared; None for all. Infinite where a head is missing or a number is
    not finite.
    """
    out = {}
    for name, expected in ours.items():
        got = theirs.get(name)
        if got is None or got.shape != expected.shape:
            out[name] = np.inf
            continue
        if rows is not None:
            got, expected = got[rows], expected[rows]
        size = np.abs(expected) if name == VALUE else np.abs(expected).max(-1, keepdims=True, initial=0.0)
        worst = float((np.abs(got - expected) / np.maximum(1.0, size)).max())
        out[name] = worst if np.isfinite(worst) else np.inf
    return out


def check_sequence(policy: Policy, steps: int, seed: int = 0) -> Play:
    """Return a sequence for a parity check: real observations of the policy's game, by teams for the modern network."""
    config = policy.env_config
    play = random_games(config, steps, seed)
    if not isinstance(policy.network, ModernNetwork):
        return play
    return Play(*(x.reshape(len(x), 2, config.team_size, *x.shape[2:]) for x in play))


def random_games(env_config: EnvConfig, steps: int, seed: int = 0) -> Play:
    """Return observations of games in the reference environment under random actions, one game after another."""
    rng = np.random.default_rng(seed)
    env = ReferenceEnv(env_config)
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
        step = env.step(rng.uniform(-1.0, 1.0, (len(step.observation), action_layout(env_config).size)))
        over = step.episode_over
    return Play(np.stack(seen), np.stack(boundaries), np.stack(living))
