"""What a replay needs of one arena of a batch: a small row per decision, gathered inside any compiled loop.

The map is not gathered: it follows from the seed of the world, the actions and the keys by simulating again.
"""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
from jaxtyping import Array, Bool, Float32, Int32, Key, UInt32

from echelon_jax.env.state import EnvState


class SmallState(flax.struct.PyTreeNode):
    """Everything of a state but its maps and the observation's memory; with or without a leading axis."""

    mechs: Any  # sim.state.Mechs
    projectiles: Any  # sim.state.Projectiles
    smoke: Any  # sim.state.Smoke
    tally: Any  # sim.state.Tally
    tick: Int32[Array, ""]
    score: Float32[Array, " 2"]
    score_carry: Float32[Array, " 2"]
    step_count: Int32[Array, ""]
    episode_over: Bool[Array, ""]
    reason: Int32[Array, ""]
    winner: Int32[Array, ""]


class Trace(flax.struct.PyTreeNode):
    """One decision of one arena; a scan stacks them along a leading axis.

    `observation`, `value` and `probability` are what the mechs saw, their critics said and their policies' heads thought of each
    choice before acting; None where nobody asked for them.
    """

    running: Bool[Array, ""]  # the game had not ended before this decision
    ends: Bool[Array, ""]  # it ends with it
    seed: Int32[Array, ""]  # of the world
    before: SmallState
    actions: Float32[Array, "mechs actions"]
    key: UInt32[Array, " 2"]  # threefry words of the decision's key
    rewards: Float32[Array, "mechs components"]  # of the decision
    observation: Float32[Array, "mechs obs"] | None = None
    value: Float32[Array, " mechs"] | None = None
    probability: Float32[Array, "mechs choices"] | None = None


def small_state(state: EnvState, arena: Int32[Array, ""] | int) -> SmallState:
    """Return one arena's row of everything small."""

    def row(x: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(x, arena, 0, keepdims=False)

    sim = state.sim
    kept = SmallState(
        mechs=sim.mechs,
        projectiles=sim.projectiles,
        smoke=sim.smoke,
        tally=sim.tally,
        tick=sim.tick,
        score=state.score,
        score_carry=state.score_carry,
        step_count=state.step_count,
        episode_over=state.episode_over,
        reason=state.reason,
        winner=state.winner,
    )
    return jax.tree.map(row, kept)


def trace_of(
    arena: Int32[Array, ""] | int,
    before: EnvState,
    actions: Float32[Array, "arenas mechs actions"],
    keys: Key[Array, " arenas"],
    ends: Bool[Array, " arenas"],
    rewards: Float32[Array, "arenas mechs components"],
    observation: Float32[Array, "arenas mechs obs"] | None = None,
    value: Float32[Array, "arenas mechs"] | None = None,
    probability: Float32[Array, "arenas mechs choices"] | None = None,
) -> Trace:
    """Return what one decision of one arena leaves for a replay.

    Args:
        arena: its row; traced, so that another one needs no new program.
        before, actions, keys: what `step_batch` was called with, with or without AutoReset.
        ends, rewards: `episode_over` and `info.reward_components` of the step it returned.
        observation, value, probability: shown and thought before acting, where the replay should hold them.
    """

    def row(x: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(x, arena, 0, keepdims=False)

    return Trace(
        running=~row(before.episode_over),
        ends=row(ends),
        seed=row(before.arena_map.seed),
        before=small_state(before, arena),
        actions=row(actions),
        key=jax.random.key_data(row(keys)),
        rewards=row(rewards),
        observation=None if observation is None else row(observation),
        value=None if value is None else row(value),
        probability=None if probability is None else row(probability),
    )


def with_small_state(state: EnvState, small: SmallState) -> EnvState:
    """Return a state of one arena per row of `small`, with `state`'s maps and memory."""
    sim = state.sim.replace(
        mechs=small.mechs,
        projectiles=small.projectiles,
        smoke=small.smoke,
        tally=small.tally,
        tick=small.tick,
    )
    return state.replace(
        sim=sim,
        score=small.score,
        score_carry=small.score_carry,
        step_count=small.step_count,
        episode_over=small.episode_over,
        reason=small.reason,
        winner=small.winner,
    )
