"""Games between two players, on the same maps from both sides, ended where the environment ends them (T2, T20).

players = PolicyPlayer.of(load_policy(path)), AgentPlayer(Scripted(env.config), AgentParams(fire_probability))
games = jax.jit(lambda key: play(env, env_params, *players, pairs=32, key=key))(key)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.agents.base import Agent, AgentParams
from echelon_jax.env.state import REASONS, STATISTICS, EnvParams, EnvState, Step
from echelon_jax.learn.networks import OriginalNetwork, Params
from echelon_jax.learn.normalize import Moments
from echelon_jax.learn.rollout import BatchEnv, read
from echelon_jax.learn.sides import all_rows, learner_first, learner_rows, opponent_rows

if TYPE_CHECKING:
    from echelon_jax.learn.checkpoint import Policy


class Player(Protocol):
    """Whoever can play a side. It acts for all mechs; the game keeps the rows of its side."""

    def init(self, params: EnvParams, state: EnvState) -> Any:
        """Return the memory at the start of a game."""
        ...

    def act(
        self,
        params: EnvParams,
        memory: Any,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        key: Key[Array, ""],
    ) -> tuple[Any, Float32[Array, "arenas mechs actions"]]:
        """Return the memory after acting, and actions in [-1, 1]."""
        ...


@flax.struct.dataclass
class AgentPlayer:
    """A scripted or random opponent as a player."""

    agent: Agent = flax.struct.field(pytree_node=False)
    agent_params: AgentParams

    def init(self, params: EnvParams, state: EnvState) -> Any:
        """Return the agent's memory."""
        return self.agent.init(params, state)

    def act(
        self,
        params: EnvParams,
        memory: Any,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        key: Key[Array, ""],
    ) -> tuple[Any, Float32[Array, "arenas mechs actions"]]:
        """Act from the state."""
        keys = jax.random.split(key, observation.shape[0])
        return self.agent.act(params, self.agent_params, memory, state, keys)


@flax.struct.dataclass
class PolicyPlayer:
    """A trained policy as a player; `sample` false takes the mean of its distribution (the original always samples)."""

    network: OriginalNetwork = flax.struct.field(pytree_node=False)
    params: Params
    moments: Moments
    clip: float | None = flax.struct.field(pytree_node=False, default=None)
    sample: bool = flax.struct.field(pytree_node=False, default=True)

    @classmethod
    def of(cls, policy: Policy, sample: bool = True) -> PolicyPlayer:
        """Return the player of a loaded policy."""
        clip = policy.config.observation_clip or None
        return cls(policy.network, policy.params, policy.observation_moments, clip, sample)

    def init(self, params: EnvParams, state: EnvState) -> Any:
        """Return no memory yet; its shape is read off the first observation."""
        return None

    def act(
        self,
        params: EnvParams,
        memory: Any,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        key: Key[Array, ""],
    ) -> tuple[Any, Float32[Array, "arenas mechs actions"]]:
        """Act from the observation."""
        seen = read(self.network.features, self.moments, self.clip, observation)
        shape = observation.shape[:2]
        carry = self.network.initial_carry(*shape) if memory is None else memory
        carry, distribution, _ = self.network.apply(self.params, carry, seen, jnp.zeros(shape, bool))
        u = distribution.sample(key) if self.sample else distribution.mean
        return carry, distribution.action(u)


@flax.struct.dataclass
class Games:
    """The outcome of every game. Games 2 i and 2 i + 1 share a map; the first player is blue in even games."""

    over: Bool[Array, " games"]
    won: Bool[Array, " games"]  # by the first player
    lost: Bool[Array, " games"]
    reason: Int32[Array, " games"]  # index into REASONS
    length: Int32[Array, " games"]  # decisions
    zone_seconds: Float32[Array, "games 2"]  # (first, second) player
    team_hp: Float32[Array, "games 2"]
    statistics: Float32[Array, "games statistics 2"]
    episode_return: Float32[Array, "games 2"]  # sum over the team


def play(env: BatchEnv, params: EnvParams, first: Player, second: Player, pairs: int, key: Key[Array, ""]) -> Games:
    """Play `2 pairs` games side by side to their ends. `env` must not reset arenas by itself: `Echelon`, not `AutoReset`."""
    games = 2 * pairs
    reset_key, play_key = jax.random.split(key)
    state, step = env.reset_batch(params, jnp.repeat(jax.random.split(reset_key, pairs), 2))

    def result(step: Step, episode_return: Array) -> Games:
        info, side = step.info, jnp.arange(games, dtype=jnp.int32) % 2
        return Games(
            over=step.episode_over,
            won=step.episode_over & (info.winner == side),
            lost=step.episode_over & (info.winner == 1 - side),
            reason=info.reason,
            length=info.step_count,
            zone_seconds=learner_first(info.score),
            team_hp=learner_first(info.team_hp),
            statistics=learner_first(info.statistics),
            episode_return=episode_return,
        )

    def decide(t: Array, state: Any, observation: Array, memories: Any) -> tuple[Any, Step, Any]:
        keys = jax.random.split(jax.random.fold_in(play_key, t), 3)
        ours, our_actions = first.act(params, memories[0], state, observation, keys[0])
        theirs, their_actions = second.act(params, memories[1], state, observation, keys[1])
        actions = all_rows(learner_rows(our_actions), opponent_rows(their_actions))
        state, step = env.step_batch(params, jax.random.split(keys[2], games), state, actions)
        return state, step, (ours, theirs)

    def advance(loop: Any) -> Any:
        t, state, observation, memories, so_far = loop
        state, step, memories = decide(t, state, observation, memories)
        sums = jnp.stack([learner_rows(step.reward).sum(-1), opponent_rows(step.reward).sum(-1)], -1)
        # The first end of a game is its result; what its arena does afterwards is ignored.
        now = result(step, so_far.episode_return + sums)
        so_far = jax.tree.map(
            lambda old, new: jnp.where(so_far.over.reshape(-1, *(1,) * (old.ndim - 1)), old, new), so_far, now
        )
        return t + 1, state, step.observation, memories, so_far

    def going_on(loop: Any) -> Array:
        return (loop[0] < env.config.max_steps) & ~loop[4].over.all()

    # Memories get their shape at the first decision, so that one stands outside the loop.
    memories = first.init(params, state), second.init(params, state)
    nothing = result(step, jnp.zeros((games, 2), jnp.float32))
    start = advance((jnp.zeros((), jnp.int32), state, step.observation, memories, nothing))
    return jax.lax.while_loop(going_on, advance, start)[4]


def wilson_interval(wins: float, games: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a win rate, (0, 1) for no games; z = 1.96 covers 95 %."""
    if games == 0:
        return 0.0, 1.0
    rate, spread = wins / games, z * z / games
    centre = rate + spread / 2
    half = z * math.sqrt(rate * (1 - rate) / games + spread / (4 * games))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


def summarize_games(games: Games) -> dict[str, Any]:
    """Return the table of a match as plain numbers; a draw counts as half a win in `score`, not in `win_rate`."""
    host = jax.tree.map(np.asarray, games)
    count = len(host.over)
    wins, losses = int(host.won.sum()), int(host.lost.sum())
    low, high = wilson_interval(wins, count)
    zone = host.zone_seconds.sum(0)
    out: dict[str, Any] = {
        "games": count,
        "wins": wins,
        "losses": losses,
        "draws": count - wins - losses,
        "win_rate": wins / count,
        "win_rate_low": low,
        "win_rate_high": high,
        "score": (wins + 0.5 * (count - wins - losses)) / count,
        "win_rate_as_blue": float(host.won[0::2].mean()),
        "win_rate_as_red": float(host.won[1::2].mean()),
        "length": float(host.length.mean()),
        "zone_share": float(zone[0] / zone.sum()) if zone.sum() > 0 else None,
        "return": float(host.episode_return[:, 0].mean()),
        "hp_margin": float((host.team_hp[:, 0] - host.team_hp[:, 1]).mean()),
    }
    for i, reason in enumerate(REASONS[1:], start=1):
        out[f"ended_by/{reason}"] = float((host.reason == i).mean())
    for i, name in enumerate(STATISTICS):
        for side, label in enumerate(("first", "second")):
            out[f"{name}_{label}"] = float(host.statistics[:, i, side].mean())
    return out
