"""Fused training: rollout, advantages and update as one compiled program, which reuses the memory of its input state.

    train = make_train(AutoReset(Echelon(env_config)), train_config)
    state = train.init(jax.random.key(train_config.seed), env_params)
    for _ in range(train_config.updates // train_config.updates_per_call):
        state, metrics = train.run_updates(state, env_params)      # the old state is consumed

Nothing crosses to the host inside a call; `env_params` (rule numbers, rewards, worlds) may change between calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax import compiling
from echelon_jax.agents.base import Agent, AgentParams, ObservingAgent
from echelon_jax.agents.registry import make_agent
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import reward_of
from echelon_jax.env.state import EnvParams
from echelon_jax.policies.features import Features, Observation
from echelon_jax.policies.network import Network, Params
from echelon_jax.policies.normalize import (
    Moments,
    batch_moments,
    empty_moments,
    merge,
    return_deviation,
    to_reward_units,
    to_value_units,
)
from echelon_jax.policies.precision import products_in
from echelon_jax.policies.registry import NetworkFactory, given_network
from echelon_jax.training import averaging, guard, ppo
from echelon_jax.training.advantages import generalized_advantages
from echelon_jax.training.config import LEAGUE, SELF, TrainConfig
from echelon_jax.training.devices import (
    COPIED,
    SPLIT,
    Across,
    allowed_devices,
    copied_to,
    device_mesh,
    on_each_device,
    split_over,
)
from echelon_jax.training.diagnostics import dead_units
from echelon_jax.training.league import state as league_state
from echelon_jax.training.league.agent import LeagueAgent
from echelon_jax.training.league.state import FrozenPolicy, LeagueState
from echelon_jax.training.metrics import Metrics
from echelon_jax.training.rollout import BatchEnv, RunnerState, begin, collect
from echelon_jax.training.teacher import make_teacher

_ROLLOUT = ("reward", "log_prob", "value", "advantage", "target")  # what the guard looks at besides observations


class LinearSchedule(flax.struct.PyTreeNode):
    """A linear schedule over updates. It is traced, so a change does not compile again."""

    start: Float32[Array, ""]
    end: Float32[Array, ""]
    updates: Float32[Array, ""]  # 0: at the end from the start

    def at(self, update: Int32[Array, ""]) -> Float32[Array, ""]:
        """Return the value before an update, counted from 0."""
        done = jnp.where(self.updates > 0, update / jnp.maximum(self.updates, 1.0), 1.0)
        return self.start + jnp.clip(done, 0.0, 1.0) * (self.end - self.start)


def share_after_death(config: TrainConfig, update: Int32[Array, ""]) -> Float32[Array, ""]:
    """Return the share of the result after its own death that a mech answers for; updates count from 0."""
    ramp = LinearSchedule(jnp.float32(0.0), jnp.float32(config.after_death), jnp.float32(config.after_death_ramp))
    since = update - config.after_death_start
    return jnp.where(since >= 0, ramp.at(since), 0.0)


class TrainState(flax.struct.PyTreeNode):
    """Everything that a run needs to go on. A checkpoint holds exactly this."""

    params: Params
    optimizer: Any
    observation_moments: Moments  # of a mech's own entries
    return_moments: Moments
    runner_state: RunnerState
    opponent_fire: LinearSchedule
    key: Key[Array, ""]  # of the run; every draw is folded from it and the update number
    update: Int32[Array, ""]  # updates done
    guard: guard.GuardState
    league: LeagueState | None = None  # with the opponent "league"
    average: Params | None = None  # of `params` over the updates, with `average_decay`

    @property
    def playing(self) -> Params:
        """The parameters of the policy that the run makes: the average, or the learner's own where there is none."""
        return self.params if self.average is None else self.average


@dataclasses.dataclass(frozen=True)
class Train:
    """A compiled trainer.

    Attributes:
        config, env_config: what it was made for.
        network, features: the policy and how it reads observations.
        init: (key, env_params) -> TrainState, compiled.
        shapes: env_params -> the shapes and dtypes of a TrainState. `jax.eval_shape(init, ...)` fails with several devices.
        run_updates: (TrainState, env_params) -> (TrainState, Metrics stacked over `updates_per_call`), compiled; consumes
            the state that it is given.
        update: one update as a plain function, for tests and for larger programs.
        place: (TrainState, env_params) -> the same on the devices of the run, as `run_updates` needs them. `init` places its
            state; a restored state or new worlds must be placed. With one device nothing changes.
        guard_names: names of what the guard can find.
        members: names of the opponent's members, for a league.
    """

    config: TrainConfig
    env_config: EnvConfig
    network: Network
    features: Features
    init: Callable[[Key[Array, ""], EnvParams], TrainState]
    shapes: Callable[[EnvParams], TrainState]
    run_updates: Callable[[TrainState, EnvParams], tuple[TrainState, Metrics]]
    update: Callable[[TrainState, EnvParams], tuple[TrainState, Metrics]]
    place: Callable[[TrainState, EnvParams], tuple[TrainState, EnvParams]]
    guard_names: guard.Names
    members: tuple[str, ...] = ()


def given_opponent(given: Agent | Callable[[EnvConfig], Agent], env_config: EnvConfig) -> Agent:
    """Return an opponent that a caller hands over: itself, or what a class or another callable makes.

    Raises:
        ValueError: it is no opponent.
    """
    made = given(env_config) if isinstance(given, type) or (not isinstance(given, Agent) and callable(given)) else given
    if not isinstance(made, Agent):
        raise ValueError(
            "opponent must have init, act and reset_where (agents/base.py) or be a callable that makes such a one from the "
            f"EnvConfig, got {type(made).__name__}"
        )
    return made


def make_train(
    env: BatchEnv,
    config: TrainConfig,
    opponent: Agent | Callable[[EnvConfig], Agent] | None = None,
    network: Network | NetworkFactory | None = None,
) -> Train:
    """Return the trainer of an auto-resetting environment.

    Args:
        env: the environment, such as `AutoReset(Echelon(env_config))`.
        config: the training configuration.
        opponent: replaces the opponent that `config` names: an Agent, or a callable (env_config) that makes one.
        network: replaces the network that `config` names: a Network, or a callable (config, env_config) that makes one.
            Checkpoints store the configuration, so name the network by its import path there if it is to be found again.

    Raises:
        ValueError: if a field of `config` is not allowed, there are fewer devices than it asks for, or `network` or `opponent`
            is none.
    """
    config.validate()
    env_config = env.config
    devices = config.devices or allowed_devices(len(jax.devices()), config.arenas, config.shares)
    across = Across(devices)
    mesh = None if devices == 1 else device_mesh(devices)
    actor_critic = given_network(network, config, env_config)
    features = actor_critic.features
    league: LeagueAgent | None = None
    agent: Agent | ObservingAgent | None
    if opponent is None and config.opponent == LEAGUE:
        agent = league = LeagueAgent(
            env_config, actor_critic, config.observation_clip or None, config.league_slots, config.league_names
        )
        opponent_numbers = AgentParams(fire_probability=jnp.float32(1.0))
    elif opponent is None and config.opponent == SELF:
        agent, opponent_numbers = None, AgentParams(fire_probability=jnp.float32(1.0))
    elif opponent is None:
        agent, opponent_numbers = make_agent(config.opponent, env_config, alone=True)
    else:
        agent = given_opponent(opponent, env_config)
        opponent_numbers = AgentParams(fire_probability=jnp.float32(1.0))
    teacher = make_teacher(config.teacher, env_config, actor_critic, skip=config.ppo.skip)
    optimizer = ppo.make_optimizer(config.max_grad_norm)
    clip = config.observation_clip or None
    # The modern reward pays the game's result when time runs out as well; a value on top of it would pay twice.
    paid_at_time_up = reward_of(env_config).pays_at_time_up
    # It pays the dead their share of the result too. With a critic that knows what a dead mech's team is worth, a death can pass
    # that on to the decisions before it; otherwise a mech answers for nothing after its death.
    through_death = paid_at_time_up and actor_critic.values_the_dead and config.after_death > 0

    def init(key: Key[Array, ""], env_params: EnvParams) -> TrainState:
        params_key, env_key, run_key = jax.random.split(key, 3)
        params = actor_critic.init(params_key)
        ramp = (config.fire_start, config.fire_end, config.fire_ramp)
        return TrainState(
            params=params,
            optimizer=optimizer.init(params),
            observation_moments=empty_moments(features.own_size),
            return_moments=empty_moments(),
            runner_state=begin(env, agent, actor_critic, env_params, config.arenas, env_key, teacher),
            opponent_fire=LinearSchedule(*(jnp.asarray(x, jnp.float32) for x in ramp)),
            key=run_key,
            update=jnp.zeros((), jnp.int32),
            guard=guard.begin(params, empty_moments(features.own_size), empty_moments()),
            league=None
            if league is None
            else league_state.begin(params, empty_moments(features.own_size), league.slots, len(league.names)),
            average=averaging.begin(params, config.average_decay),
        )

    teaching = optax.linear_schedule(
        config.teacher_weight if teacher else 0.0, config.teacher_end if teacher else 0.0, config.teacher_updates
    )
    rate_end = config.learning_rate_end if config.anneal else 1.0
    rate = optax.linear_schedule(config.learning_rate, rate_end * config.learning_rate, config.updates)
    entropy = optax.linear_schedule(
        config.entropy_coefficient, config.entropy_end * config.entropy_coefficient, config.updates
    )

    def schedule(update: Int32[Array, ""], lowered: Float32[Array, ""]) -> ppo.UpdateSchedule:
        return ppo.UpdateSchedule(
            learning_rate=jnp.asarray(lowered * rate(update), jnp.float32),
            entropy_coefficient=jnp.asarray(entropy(update), jnp.float32),
            teacher_weight=jnp.asarray(teaching(update), jnp.float32),
            led=led(update),
        )

    def led(update: Int32[Array, ""]) -> Bool[Array, ""]:
        """Whether a teacher still leads the policy: its weight is yet to fall."""
        return jnp.asarray(teaching(update) > config.teacher_end)

    head_units = jnp.asarray(actor_critic.entropy_units, jnp.float32)

    def watch(
        state: TrainState, learnt: guard.Learner, metrics: ppo.UpdateMetrics, batch: ppo.Batch, reward: Array
    ) -> tuple[guard.Learner, guard.GuardState, guard.Report]:
        """Return the learner to go on with, the guard's memory and its report."""
        if not config.guard:
            return learnt, state.guard, guard.all_well(state.guard)
        numbers = (reward, batch.log_prob, batch.value, batch.advantage, batch.target)
        counts = (
            batch.policy_mask,
            batch.policy_mask[..., None],
            batch.value_mask,
            batch.policy_mask,
            batch.value_mask,
        )
        read = {k: jnp.where(m, x, 0.0) for k, x, m in zip(_ROLLOUT, numbers, counts, strict=True)}
        finding = guard.inspect_update(
            config.guard_config,
            state.guard,
            metrics,
            learnt.params,
            batch.observation,
            read,
            head_units,
            across,
            led(state.update),
        )
        before = guard.Learner(state.params, state.optimizer, state.observation_moments, state.return_moments)
        fresh = optimizer.init(state.params)
        return guard.settle(config.guard_config, state.guard, finding, before, learnt, fresh, branch=config.ppo.skip)

    def update(state: TrainState, env_params: EnvParams) -> tuple[TrainState, Metrics]:
        rollout_key, update_key = jax.random.split(jax.random.fold_in(state.key, state.update))
        opponent_params = opponent_numbers.replace(fire_probability=state.opponent_fire.at(state.update))
        if league is not None and state.league is not None:
            current = FrozenPolicy(state.params, state.observation_moments)
            opponent_params = league.numbers(
                config.league_draw_config, state.league, current, opponent_params.fire_probability
            )

        # Rollout; parameters and normaliser stay as they are throughout.
        runner_state, rollout, carries, last_value, sums, seen = collect(
            env,
            agent,
            actor_critic,
            features,
            clip,
            env_params,
            opponent_params,
            state.params,
            state.observation_moments,
            state.runner_state,
            across.own_key(rollout_key),
            config.rollout_steps,
            config.chunks,
            teacher,
            teaching(state.update) > 0,
        )

        sums = across.total(sums)

        # Advantages, in reward units.
        value = to_reward_units(state.return_moments, rollout.value)
        ended = rollout.terminated | rollout.truncated if paid_at_time_up else rollout.terminated
        if through_death:
            ended = jnp.broadcast_to(rollout.over[..., None], ended.shape)
        value_mask = jnp.ones_like(rollout.alive) if through_death else rollout.alive
        died = rollout.alive & rollout.terminated & ~rollout.over[..., None]
        continuation = jnp.where(died, share_after_death(config, state.update), 1.0) if through_death else None
        advantage, returns = generalized_advantages(
            reward=rollout.reward,
            value=value,
            terminated=ended,
            truncated=jnp.zeros_like(rollout.truncated) if paid_at_time_up else rollout.truncated,
            alive=value_mask,
            final_value=to_reward_units(state.return_moments, rollout.final_value),
            last_value=to_reward_units(state.return_moments, last_value),
            gamma=config.gamma,
            lam=config.gae_lambda,
            continuation=continuation,
        )

        # The critic's units, then the update.
        return_moments = merge(
            state.return_moments, across.moments(batch_moments(returns, value_mask)), config.return_ema_decay
        )
        batch = ppo.Batch(
            observation=rollout.observation,
            reset=rollout.reset,
            policy_mask=rollout.alive,
            value_mask=value_mask,
            raw_action=rollout.raw_action,
            log_prob=rollout.log_prob,
            value=rollout.value,
            advantage=advantage,
            target=to_value_units(return_moments, returns),
            teacher_action=rollout.teacher_action,
        )
        params, optimizer_state, update_metrics = ppo.update(
            actor_critic,
            config.ppo,
            optimizer,
            schedule(state.update, guard.rate(config.guard_config, state.guard)),
            state.params,
            state.optimizer,
            carries,
            batch,
            update_key,
            across,
        )

        # What was seen counts from the next rollout on.
        moments = state.observation_moments
        learnt = guard.Learner(
            params=params,
            optimizer=optimizer_state,
            observation_moments=merge(moments, across.moments(seen), config.observation_ema_decay)
            if config.normalize_observations
            else moments,
            return_moments=return_moments,
        )
        learner, guarded, report = watch(state, learnt, update_metrics, batch, rollout.reward)
        after = TrainState(
            params=learner.params,
            optimizer=learner.optimizer,
            observation_moments=learner.observation_moments,
            return_moments=learner.return_moments,
            runner_state=runner_state.replace(carry=guard.finite_or_zero(runner_state.carry))
            if config.guard
            else runner_state,
            opponent_fire=state.opponent_fire,
            key=state.key,
            update=state.update + 1,
            guard=guarded,
            league=None
            if state.league is None or sums.league is None
            else league_state.after_update(state.league, sums.league, config.league_decay),
            average=averaging.follow(state.average, learner.params, config.average_decay),
        )
        metrics = Metrics(
            rollout=sums,
            update=update_metrics,
            fire_probability=opponent_params.fire_probability,
            value_mean=across.mean(value, rollout.alive),
            return_deviation=return_deviation(return_moments),
            dead_units=dead_units(actor_critic, state.params, rollout.observation, rollout.alive, across),
            guard=report,
        )
        return after, metrics

    def precise_update(state: TrainState, env_params: EnvParams) -> tuple[TrainState, Metrics]:
        with products_in(config.matmul_precision):
            return update(state, env_params)

    def run_updates(state: TrainState, env_params: EnvParams) -> tuple[TrainState, Metrics]:
        return jax.lax.scan(lambda s, _: precise_update(s, env_params), state, None, config.updates_per_call)

    def place(state: TrainState, env_params: EnvParams) -> tuple[TrainState, EnvParams]:
        if mesh is None:
            return state, env_params
        arenas = split_over(mesh, state.runner_state)
        learner = copied_to(mesh, state.replace(runner_state=None))  # type: ignore[attr-defined]
        return learner.replace(runner_state=arenas), copied_to(mesh, env_params)

    def on_every_device(function: Callable[..., Any]) -> Callable[..., Any]:
        specs: dict[str, Any] = dict.fromkeys(TrainState.__dataclass_fields__, COPIED) | {"runner_state": SPLIT}
        return function if mesh is None else on_each_device(mesh, function, TrainState(**specs))

    compiled_init = jax.jit(init, compiler_options=compiling.for_short_runs())

    def placed_init(key: Key[Array, ""], env_params: EnvParams) -> TrainState:
        return place(compiled_init(key, env_params), env_params)[0]

    def shapes(env_params: EnvParams) -> TrainState:
        return jax.eval_shape(init, jax.eval_shape(lambda: jax.random.key(0)), env_params)

    return Train(
        config=config,
        env_config=env_config,
        network=actor_critic,
        features=features,
        init=compiled_init if mesh is None else placed_init,
        shapes=shapes,
        run_updates=jax.jit(
            on_every_device(run_updates), donate_argnums=0, compiler_options=compiling.for_training(config.env_steps)
        ),
        update=on_every_device(precise_update),
        place=place,
        guard_names=guard.names_of(
            jax.eval_shape(actor_critic.init, jax.random.key(0)),
            tuple(Observation.__dataclass_fields__),
            _ROLLOUT,
            actor_critic.head_names,
        ),
        members=() if league is None else league.labels,
    )
