"""Evaluation games: two players on the same maps from both sides, each game to its end (D1, D2, D9).

Arenas 2k and 2k + 1 play world k; player A is blue in the first and red in the second. The environment says when a game is
over; the flags of single mechs are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax import compiling
from echelon_jax.env.environment import Echelon
from echelon_jax.env.state import REASONS, STATISTICS, EnvParams, EnvState
from echelon_jax.env.trace import Trace, trace_of
from echelon_jax.evaluation.behaviour import BehaviourSums, count_behaviour, no_behaviour
from echelon_jax.evaluation.behaviour_numbers import Behaviour, behaviour_of
from echelon_jax.evaluation.players import Player, policy_outputs
from echelon_jax.evaluation.recording import Expected, Frame, Recorder, frame_of
from echelon_jax.intervals import paired_score, wilson
from echelon_jax.training.sides import all_rows, learner_first, learner_rows, opponent_rows
from echelon_jax.worldgen.bank import WorldArrays

STEPS_PER_CALL = 16


class Games(NamedTuple):
    """Finished games, one row each, from player A's point of view; numpy.

    Attributes:
        result: 1 win, 0 draw, -1 loss.
        reason: index into REASONS.
        length: decision steps.
        zone_seconds, team_hp: [games, 2], of A and B at the end.
        returns: [games, 2], sum of rewards over the game, averaged over the mechs of A and of B.
        statistics: [games, len(STATISTICS), 2], of A and B.
        lost: shots and clouds that found no slot.
        behaviour: the behaviour of both players.
    """

    result: np.ndarray
    reason: np.ndarray
    length: np.ndarray
    zone_seconds: np.ndarray
    team_hp: np.ndarray
    returns: np.ndarray
    statistics: np.ndarray
    lost: np.ndarray
    behaviour: Behaviour


class _Board(flax.struct.PyTreeNode):
    state: EnvState
    observation: Float32[Array, "arenas mechs obs"]
    returns: Float32[Array, "arenas mechs"]
    behaviour: BehaviourSums
    memory_a: Any
    memory_b: Any


class _Seen(flax.struct.PyTreeNode):
    """What a call records of its steps: the watched arena, and player A's critic."""

    frame: Frame
    trace: Trace
    expected: Expected


@lru_cache(maxsize=16)
def make_match(
    env: Echelon, a: Player, b: Player
) -> tuple[Callable[..., _Board], Callable[..., tuple[_Board, Array, _Seen]]]:
    """Return (begin, advance), compiled once per pair of players. `begin` starts paired games; `advance` plays some steps."""
    team = env.config.team_size

    def begin(env_params: EnvParams, key: Key[Array, ""]) -> _Board:
        worlds = env_params.bank.seed.shape[0]
        index = jnp.repeat(jnp.arange(worlds, dtype=jnp.int32), 2)
        state, step = env.reset_batch(jax.random.split(key, 2 * worlds), env_params, index)
        memories = a.init(env_params, state, team), b.init(env_params, state, team)
        none = no_behaviour(env.config, state)
        return _Board(state, step.observation, jnp.zeros_like(step.reward), none, *memories)

    def decide(
        env_params: EnvParams, numbers_a: Any, numbers_b: Any, watched: Array, board: _Board, key: Array
    ) -> tuple[_Board, _Seen]:
        key_a, key_b, key_env = jax.random.split(key, 3)
        memory_a, ours = a.act(
            numbers_a, env_params, board.memory_a, board.state, board.observation, learner_rows, key_a
        )
        memory_b, theirs = b.act(
            numbers_b, env_params, board.memory_b, board.state, board.observation, opponent_rows, key_b
        )
        keys = jax.random.split(key_env, board.observation.shape[0])
        actions, before = all_rows(ours, theirs), board.state
        state, step = env.step_batch(keys, before, actions, env_params)

        # How it was played.
        behaviour, sight, fired = count_behaviour(env.config, env_params, board.behaviour, before, actions, state, step)
        alive = learner_rows(before.sim.mechs.alive & ~before.episode_over[:, None])
        values, probabilities = policy_outputs((memory_a, memory_b), *alive.shape)
        ends, components = step.episode_over, step.info.reward_components
        outputs = all_rows(*values), None if probabilities is None else all_rows(*probabilities)
        seen = _Seen(
            frame=frame_of(env.config, env_params.rules.heat_cap, before, state, sight, fired, watched),
            trace=trace_of(watched, before, actions, keys, ends, components, board.observation, *outputs),
            expected=Expected(value=values[0], reward=learner_rows(step.reward), alive=alive),
        )
        returns = board.returns + step.reward
        return _Board(state, step.observation, returns, behaviour, memory_a, memory_b), seen

    def advance(
        env_params: EnvParams,
        numbers_a: Any,
        numbers_b: Any,
        board: _Board,
        key: Key[Array, ""],
        start: Array,
        watched: Array,
    ) -> tuple[_Board, Bool[Array, " arenas"], _Seen]:
        keys = jax.vmap(lambda i: jax.random.fold_in(key, start + i))(jnp.arange(STEPS_PER_CALL))
        board, seen = jax.lax.scan(lambda s, k: decide(env_params, numbers_a, numbers_b, watched, s, k), board, keys)
        return board, board.state.episode_over, seen

    quick, thorough = compiling.for_short_runs(), compiling.for_long_runs()
    return jax.jit(begin, compiler_options=quick), jax.jit(advance, donate_argnums=3, compiler_options=thorough)


def play(
    env: Echelon,
    worlds: WorldArrays,
    a: tuple[Player, Any],
    b: tuple[Player, Any],
    key: Key[Array, ""],
    arenas: int = 128,
    progress: Callable[[int, int], None] | None = None,
    record: Recorder | None = None,
    rewards: Any = None,
) -> Games:
    """Play two games per world to their end, one from each side.

    Args:
        worlds: the maps, from `worldgen.bank.generate_worlds`.
        a, b: players with their numbers.
        arenas: games side by side (even); more games are played in rounds of this many.
        progress: called with (games finished, games in all).
        record: receives the frames of a game and the critic's values.
        rewards: the reward weights of the returns; None for the environment's defaults.

    Raises:
        ValueError: if `arenas` is odd.
    """
    if arenas < 2 or arenas % 2:
        raise ValueError(f"arenas must be an even number from 2, got {arenas}")
    count = len(worlds.seed)
    width = min(arenas // 2, count)
    begin, advance = make_match(env, a[0], b[0])
    parts: list[Games] = []
    for start in range(0, count, width):
        rows = np.minimum(np.arange(start, start + width), count - 1)
        env_params = env.params(env.make_bank(WorldArrays(*(field[rows] for field in worlds))), rewards=rewards)
        round_key = jax.random.fold_in(key, start)
        board = begin(env_params, round_key)
        watches = record is not None and record.game is not None and 0 <= record.game - 2 * start < 2 * width
        watched = record.game - 2 * start if record is not None and record.game is not None and watches else 0
        if record is not None:
            record.begin_round()
        for step in range(0, env.config.max_steps, STEPS_PER_CALL):
            board, over, seen = advance(env_params, a[1], b[1], board, round_key, jnp.int32(step), jnp.int32(watched))
            if record is not None:
                record.take(seen.frame, seen.trace, seen.expected, watches)
            done = int(np.asarray(over).sum())
            if progress is not None:
                progress(min(2 * start + done, 2 * count), 2 * count)
            if done == 2 * width:
                break
        games = _finished(board.state, board.returns, board.behaviour)
        real = 2 * min(width, count - start)
        parts.append(jax.tree.map(lambda field: field[:real], games))  # noqa: B023
    return jax.tree.map(lambda *fields: np.concatenate(fields), *parts)


def _finished(state: EnvState, returns: Float32[Array, "arenas mechs"], behaviour: BehaviourSums) -> Games:
    over = np.asarray(state.episode_over)
    if not over.all():
        raise RuntimeError(f"{int((~over).sum())} games did not end within the step limit")
    side = np.arange(len(over)) % 2  # A's side: winner 0 is blue, 1 red, 2 a draw
    winner = np.asarray(state.winner)
    mechs = state.sim.mechs
    living = jnp.where(mechs.alive, jnp.maximum(mechs.hp, 0.0), 0.0)
    team_hp = living.reshape(len(over), 2, -1).sum(-1)
    return Games(
        result=np.where(winner == 2, 0, np.where(winner == side, 1, -1)),
        reason=np.asarray(state.reason),
        length=np.asarray(state.step_count),
        zone_seconds=np.asarray(learner_first(state.score + state.score_carry), np.float64),
        team_hp=np.asarray(learner_first(team_hp), np.float64),
        returns=np.asarray(learner_first(returns.reshape(len(over), 2, -1).mean(-1)), np.float64),
        statistics=np.asarray(learner_first(state.statistics), np.float64),
        lost=np.asarray(state.sim.lost_shots + state.sim.lost_clouds),
        behaviour=behaviour_of(behaviour),
    )


def summarize_games(games: Games) -> dict[str, float | int]:
    """Return named numbers of a set of games for player A ("own") and B ("other"): rates from 0 to 1, the rest per game."""
    count = len(games.result)
    wins = int((games.result == 1).sum())
    low, high = wilson(wins, count)
    score, score_low, score_high = paired_score(games.result)
    zone = games.zone_seconds.sum(0)
    out: dict[str, float | int] = {
        "games": count,
        "wins": wins,
        "draws": int((games.result == 0).sum()),
        "losses": int((games.result == -1).sum()),
        "win_rate": wins / count,
        "win_rate_low": low,
        "win_rate_high": high,
        "score": score,
        "score_low": score_low,
        "score_high": score_high,
        "win_rate_as_blue": float((games.result[0::2] == 1).mean()),
        "win_rate_as_red": float((games.result[1::2] == 1).mean()),
        "zone_share": float(zone[0] / zone.sum()) if zone.sum() > 0 else 0.5,
        "length_steps": float(games.length.mean()),
        "lost_shots_and_clouds": int(games.lost.sum()),
    }
    for i, reason in enumerate(REASONS[1:], start=1):
        out[f"ended_by_{reason}"] = float((games.reason == i).mean())
    for column, whose in enumerate(("own", "other")):
        out[f"zone_seconds_{whose}"] = float(games.zone_seconds[:, column].mean())
        out[f"return_{whose}"] = float(games.returns[:, column].mean())
        out[f"team_hp_{whose}"] = float(games.team_hp[:, column].mean())
        for row, name in enumerate(STATISTICS):
            out[f"{name}_{whose}"] = float(games.statistics[:, row, column].mean())
    return out
