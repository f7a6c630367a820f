"""The programs that are compiled for a GPU: the environment's step, the policy's decision, that of a league of policies,
the learner's update, the fused training call.

The only place of this package that knows the trainer's modules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.shapes import abstract_bank, tree_bytes
from echelon_jax.env.state import EnvParams
from echelon_jax.policies.features import read
from echelon_jax.policies.normalize import empty_moments
from echelon_jax.policies.precision import products_in
from echelon_jax.policies.registry import make_network
from echelon_jax.sim.rules import sim_rules
from echelon_jax.training import ppo
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.league.agent import LeagueAgent
from echelon_jax.training.league.state import FrozenPolicy, begin
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.training.trainer import make_train

NAMES = ("env", "policy", "league", "update", "train")
BANK = 64  # worlds that the environment alone draws from


@dataclasses.dataclass(frozen=True)
class Program:
    """A program to compile, from shapes alone.

    Attributes:
        function: compiled by `jax.jit` already.
        arguments: shapes and dtypes.
        decisions: decision steps of every arena that one launch takes.
        facts: what a report should say of it.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    decisions: int
    facts: dict[str, Any]


def env_program(config: EnvConfig, arenas: int) -> Program:
    """The step of an auto-resetting environment under given actions; the state is donated."""
    env = Echelon(config)
    params = EnvParams(rules=sim_rules(config), rewards=env.default_rewards(), bank=abstract_bank(config, BANK))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), arenas))
    state, _ = jax.eval_shape(env.reset_batch, keys, params)
    actions = jax.ShapeDtypeStruct((arenas, config.num_mechs, action_layout(config).size), jnp.float32)
    step = jax.jit(AutoReset(env).step_batch, donate_argnums=1)
    return Program(step, (keys, state, actions, params), 1, {"state_bytes_per_arena": tree_bytes(state) / arenas})


def policy_program(config: EnvConfig, train: TrainConfig) -> Program:
    """One decision of the learner's mechs: normalise, encode, remember, sample, value."""
    network = make_network(train, config)
    moments = empty_moments(network.features.own_size)

    def decide(params: Any, carry: Any, raw: Any, reset: Any, key: Any) -> Any:
        observation = read(network.features, moments, train.observation_clip or None, raw)
        with products_in(train.matmul_precision):
            carry, distribution, value = network.apply(params, carry, observation, reset)
        return carry, value, distribution.sample(key)

    arenas, team = train.arenas, config.team_size
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(network.init, key)
    arguments = (
        params,
        jax.eval_shape(lambda: network.initial_carry(arenas, team)),
        jax.ShapeDtypeStruct((arenas, team, observation_layout(config).size), jnp.float32),
        jax.ShapeDtypeStruct((arenas, team), jnp.bool_),
        key,
    )
    return Program(jax.jit(decide), arguments, 1, {"parameters": sum(x.size for x in jax.tree.leaves(params))})


def league_program(config: EnvConfig, train: TrainConfig) -> Program:
    """One decision of a league's policies for the opponent's mechs, each arena by the member that it has drawn."""
    clip = train.observation_clip or None
    network, arenas = make_network(train, config), train.arenas
    agent = LeagueAgent(config, network, clip, train.league_slots, ())
    env = Echelon(config)
    params = EnvParams(rules=sim_rules(config), rewards=env.default_rewards(), bank=abstract_bank(config, BANK))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), arenas))
    state, step = jax.eval_shape(env.reset_batch, keys, params)

    def numbers() -> Any:
        own, moments = network.init(jax.random.key(0)), empty_moments(network.features.own_size)
        league = begin(own, moments, train.league_slots, 0)
        return agent.numbers(train.league_draw_config, league, FrozenPolicy(own, moments), jnp.float32(1.0))

    def decide(numbers: Any, memory: Any, state: Any, observation: Any, keys: Any) -> Any:
        return agent.act_on(params, numbers, memory, state, observation, keys)

    memory = jax.eval_shape(agent.init, params, state)
    arguments = jax.eval_shape(numbers), memory, state, step.observation, keys
    return Program(jax.jit(decide), arguments, 1, {"policies": 1 + train.league_slots})


def update_program(config: EnvConfig, train: TrainConfig) -> Program:
    """The learner's update alone: all epochs and minibatches on a stored rollout."""
    network, optimizer = make_network(train, config), ppo.make_optimizer(train.max_grad_norm)
    arenas, team, clip = train.arenas, config.team_size, train.observation_clip or None
    moments = empty_moments(network.features.own_size)

    def act(params: Any, carry: Any, raw: Any, reset: Any, key: Any) -> Any:
        observation = read(network.features, moments, clip, raw)
        _, distribution, value = network.apply(params, carry, observation, reset)
        raw_action = distribution.sample(key)
        return observation, raw_action, distribution.head_log_prob(raw_action), value

    def update(params: Any, state: Any, carries: Any, batch: Any, key: Any) -> Any:
        schedule = ppo.UpdateSchedule(jnp.float32(train.learning_rate), jnp.float32(train.entropy_coefficient))
        with products_in(train.matmul_precision):
            return ppo.update(network, train.ppo, optimizer, schedule, params, state, carries, batch, key)

    def stacked(tree: Any, times: int) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((times, *leaf.shape), leaf.dtype), tree)

    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(network.init, key)
    carry = jax.eval_shape(lambda: network.initial_carry(arenas, team))
    raw = jax.ShapeDtypeStruct((arenas, team, observation_layout(config).size), jnp.float32)
    flag, number = (jax.ShapeDtypeStruct((arenas, team), dtype) for dtype in (jnp.bool_, jnp.float32))
    observation, raw_action, log_prob, value = jax.eval_shape(act, params, carry, raw, flag, key)
    rows = {"observation": observation, "raw_action": raw_action, "log_prob": log_prob, "value": value}
    rows |= dict.fromkeys(("reset", "policy_mask", "value_mask"), flag) | dict.fromkeys(("advantage", "target"), number)
    batch = ppo.Batch(**stacked(rows, train.rollout_steps))
    arguments = (params, jax.eval_shape(optimizer.init, params), stacked(carry, train.chunks), batch, key)
    facts = {name: getattr(train, name) for name in ("rollout_steps", "epochs", "minibatches", "network")}
    return Program(jax.jit(update, donate_argnums=(0, 1)), arguments, train.rollout_steps, facts)


def train_program(config: EnvConfig, train: TrainConfig) -> Program:
    """The fused call: rollouts against the opponent, advantages, updates."""
    # The program is compiled for one GPU, whatever devices the compiling process has.
    trainer = make_train(AutoReset(Echelon(config)), dataclasses.replace(train, devices=1))
    bank = abstract_bank(config, train.bank_size)
    params = EnvParams(rules=sim_rules(config), rewards=reward_weights(train, config), bank=bank)
    state = trainer.shapes(params)
    facts = {
        "rollout_steps": train.rollout_steps,
        "updates_per_call": train.updates_per_call,
        "epochs": train.epochs,
        "minibatches": train.minibatches,
        "network": train.network,
        "bank_bytes": tree_bytes(params.bank),
        "state_bytes": tree_bytes(state),
    }
    return Program(trainer.run_updates, (state, params), train.rollout_steps * train.updates_per_call, facts)


def make_program(name: str, config: EnvConfig, arenas: int, overrides: dict[str, Any]) -> Program:
    """Return a program by its name, at so many arenas; `overrides` are fields of the training preset `gpu`.

    Raises:
        ValueError: for another name, or a field out of range.
    """
    if name not in NAMES:
        raise ValueError(f"program must be one of {', '.join(NAMES)}, got {name!r}")
    if name == "env":
        return env_program(config, arenas)
    train = TrainConfig.gpu(arenas=arenas, **overrides).validate()
    makers = {"policy": policy_program, "league": league_program, "update": update_program, "train": train_program}
    return makers[name](config, train)
