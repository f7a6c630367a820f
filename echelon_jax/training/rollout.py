"""A rollout: T decisions of the learner in B arenas against an opponent, or against itself, all on the device."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.agents.base import Agent, AgentParams, Members, ObservingAgent, let_act
from echelon_jax.config import EnvConfig
from echelon_jax.env.reward_terms import term_names
from echelon_jax.env.state import EnvParams, EnvState, Step
from echelon_jax.policies.features import Features, Observation, read
from echelon_jax.policies.network import Carry, Network, Params
from echelon_jax.policies.normalize import Moments, batch_moments, empty_moments, merge
from echelon_jax.training.league.state import count_playing
from echelon_jax.training.metrics import RolloutSums, add_step, no_sums
from echelon_jax.training.sides import all_rows, of_other_side, of_own_side, opponent_rows, seat_rows, to_seats
from echelon_jax.training.teacher import Teacher


@runtime_checkable
class BatchEnv(Protocol):
    """An environment that resets its ended arenas by itself, such as `AutoReset(Echelon(config))`."""

    @property
    def config(self) -> EnvConfig:
        """The sizes of an arena."""
        ...

    def reset_batch(self, keys: Key[Array, " arenas"], params: EnvParams) -> tuple[Any, Step]:
        """Return fresh arenas."""
        ...

    def step_batch(
        self,
        keys: Key[Array, " arenas"],
        state: Any,
        actions: Float32[Array, "arenas mechs actions"],
        params: EnvParams,
    ) -> tuple[Any, Step]:
        """Step all arenas and reset those that ended."""
        ...


class RunnerState(flax.struct.PyTreeNode):
    """What the learner's mechs and their opponents carry from one decision to the next, across rollouts."""

    env_state: EnvState
    observation: Float32[Array, "arenas mechs obs"]  # of all mechs, raw
    carry: Carry  # of the learner's mechs
    reset: Bool[Array, "seats team"]  # the previous done
    alive: Bool[Array, "seats team"]
    opponent_state: Any
    episode_return: Float32[Array, " arenas"]  # so far, summed over the mechs of the learner's own side
    teacher_state: Any = ()  # the teacher's memory, where there is a teacher


class Rollout(flax.struct.PyTreeNode):
    """T decisions of the learner's mechs, [time, seats, team]; arenas in order (`sides`), mechs in roster order of their side."""

    observation: Observation  # normalised
    reset: Bool[Array, "time seats team"]
    alive: Bool[Array, "time seats team"]  # at the decision
    raw_action: Float32[Array, "time seats team raw"]
    log_prob: Float32[Array, "time seats team heads"]
    value: Float32[Array, "time seats team"]  # in the critic's units
    reward: Float32[Array, "time seats team"]  # the dead may be paid too
    terminated: Bool[Array, "time seats team"]
    truncated: Bool[Array, "time seats team"]
    over: Bool[Array, "time seats"]  # the episode ended with this decision
    final_value: Float32[Array, "time seats team"]  # critic's units; meaningful where truncated
    teacher_action: Float32[Array, "time seats team raw"] | None = None  # what the teacher would have done


def begin(
    env: BatchEnv,
    opponent: Agent | ObservingAgent | None,
    network: Network,
    env_params: EnvParams,
    arenas: int,
    key: Key[Array, ""],
    teacher: Teacher | None = None,
) -> RunnerState:
    """Return actors at the first decision of fresh arenas. Without an opponent the learner plays both sides."""
    env_state, step = env.reset_batch(jax.random.split(key, arenas), env_params)
    team, seats = env.config.team_size, 2 * arenas if opponent is None else arenas
    return RunnerState(
        env_state=env_state,
        observation=step.observation,
        carry=network.initial_carry(seats, team),
        reset=jnp.zeros((seats, team), bool),
        alive=jnp.ones((seats, team), bool),
        opponent_state=() if opponent is None else opponent.init(env_params, env_state),
        episode_return=jnp.zeros(arenas, jnp.float32),
        teacher_state=() if teacher is None else teacher.init(env_params, env_state),
    )


def collect(
    env: BatchEnv,
    opponent: Agent | ObservingAgent | None,
    network: Network,
    features: Features,
    clip: float | None,
    env_params: EnvParams,
    opponent_params: AgentParams,
    params: Params,
    moments: Moments,
    runner_state: RunnerState,
    key: Key[Array, ""],
    steps: int,
    chunks: int = 1,
    teacher: Teacher | None = None,
    teaches: Bool[Array, ""] | None = None,
) -> tuple[RunnerState, Rollout, Carry, Float32[Array, "seats team"], RolloutSums, Moments]:
    """Play `steps` decisions. Without an opponent the learner plays both sides, and only its own one counts in the metrics.

    `moments` normalise the observations and stay as they are. A teacher says what it would do, while `teaches`.

    Returns:
        The runner state after the last decision; the rollout; the memory before each of the `chunks` equal parts,
        [chunks, seats, team, lstm]; the value of the observation after the last decision, in the critic's units; the sums of
        the metrics; the moments of the raw observations of the learner's living mechs.
    """
    arenas, both = runner_state.episode_return.shape[0], opponent is None

    def decide(state: tuple[RunnerState, RolloutSums, Moments], step_key: Array) -> tuple[Any, Rollout]:
        runner_state, sums, seen = state
        action_key, opponent_key, env_key = jax.random.split(step_key, 3)

        # The learner acts.
        raw = seat_rows(runner_state.observation, both)
        seen = merge(seen, batch_moments(features.own_of(raw), runner_state.alive))
        observation = read(features, moments, clip, raw)
        carry, distribution, value = network.apply(params, runner_state.carry, observation, runner_state.reset)
        raw_action = distribution.sample(action_key)

        # The opponent acts for everybody; only its own side is kept.
        own = distribution.action(raw_action)
        if opponent is None:
            opponent_state, theirs = (), of_other_side(own)
        else:
            opponent_state, of_all = let_act(
                opponent,
                env_params,
                opponent_params,
                runner_state.opponent_state,
                runner_state.env_state,
                runner_state.observation,
                jax.random.split(opponent_key, arenas),
            )
            theirs = opponent_rows(of_all)
        actions = all_rows(of_own_side(own, both), theirs)

        # The teacher says what it would do here; nobody does it.
        teacher_state, advice = runner_state.teacher_state, None
        if teacher is not None:
            teacher_state, of_all = teacher.advise(
                env_params,
                runner_state.teacher_state,
                runner_state.env_state,
                runner_state.observation,
                jax.random.split(jax.random.fold_in(opponent_key, 1), arenas),
                jnp.asarray(True) if teaches is None else teaches,
            )
            advice = seat_rows(of_all, both)

        # The world moves on; ended arenas start again.
        env_state, step = env.step_batch(jax.random.split(env_key, arenas), runner_state.env_state, actions, env_params)
        terminated, truncated = seat_rows(step.terminated, both), seat_rows(step.truncated, both)
        alive = runner_state.alive
        reward = seat_rows(step.reward, both)
        total_return = runner_state.episode_return + of_own_side(jnp.where(alive, reward, 0.0).sum(-1), both)

        # Time ran out somewhere, which is rare: what was the last state worth, under the memory after the decision?
        def value_at_end() -> Float32[Array, "seats team"]:
            final = read(features, moments, clip, seat_rows(step.final_observation, both))
            return network.apply(params, carry, final, jnp.zeros_like(terminated))[2]

        cut = truncated & ~terminated & alive
        final_value = jax.lax.cond(cut.any(), value_at_end, lambda: jnp.zeros_like(value))

        over, seat_over = step.episode_over, to_seats(step.episode_over, both)
        after = RunnerState(
            env_state=env_state,
            observation=step.observation,
            carry=carry,
            reset=terminated | truncated | seat_over[:, None],
            alive=seat_over[:, None] | seat_rows(step.info.alive, both),
            opponent_state=() if opponent is None else opponent.reset_where(opponent_state, env_state, over),
            episode_return=jnp.where(over, 0.0, total_return),
            teacher_state=() if teacher is None else teacher.agent.reset_where(teacher_state, env_state, over),
        )
        out = Rollout(
            observation=observation,
            reset=runner_state.reset,
            alive=alive,
            raw_action=raw_action,
            log_prob=distribution.head_log_prob(raw_action),
            value=value,
            reward=reward,
            terminated=terminated,
            truncated=truncated & ~terminated,
            over=seat_over,
            final_value=final_value,
            teacher_action=advice,
        )
        member = opponent.playing(opponent_state) if isinstance(opponent, Members) else None
        return (after, add_step(sums, step, of_own_side(alive, both), total_return, member), seen), out

    def part(state: tuple[RunnerState, RolloutSums, Moments], keys: Array) -> tuple[Any, tuple[Carry, Rollout]]:
        first = state[0].carry
        state, out = jax.lax.scan(decide, state, keys)
        return state, (first, out)

    members = opponent.members if isinstance(opponent, Members) else 0
    start = (runner_state, no_sums(len(term_names(env.config)), members), empty_moments(features.own_size))
    keys = jax.random.split(key, steps).reshape(chunks, steps // chunks)
    if chunks == 1:  # a scan of one turn would stack the whole rollout once more
        (runner_state, sums, seen), (carry, rollout) = part(start, keys[0])
        carries = jax.tree.map(lambda x: x[None], carry)
    else:
        (runner_state, sums, seen), (carries, rollout) = jax.lax.scan(part, start, keys)
        rollout = jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), rollout)
    if isinstance(opponent, Members) and sums.league is not None:
        sums = sums.replace(league=count_playing(sums.league, opponent.playing(runner_state.opponent_state)))
    behind = read(features, moments, clip, seat_rows(runner_state.observation, both))
    _, _, last_value = network.apply(params, runner_state.carry, behind, runner_state.reset)
    return runner_state, rollout, carries, last_value, sums, seen
