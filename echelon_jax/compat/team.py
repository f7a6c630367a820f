"""One team of the game against a chosen opponent, or both teams, as pure functions of a batch of arenas.

The adaptors to gymnasium, JaxMARL, gymnax and dm_env are thin layers over these functions.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.api import make
from echelon_jax.compat.choices import WAIT, action_table
from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon, alone, batch_of_one, select_arenas
from echelon_jax.env.episode import ELIMINATION, TIME_UP, ZONE_CONTROL
from echelon_jax.env.state import EnvParams, EnvState, Info
from echelon_jax.evaluation.matches import opponent_player
from echelon_jax.evaluation.players import AgentPlayer
from echelon_jax.rules.mechs import TEAM_NAMES, roster
from echelon_jax.runs.policy import Policy

OPPONENT_STREAM = 0x0BB0  # folded into an arena's key; far from the small numbers that splitting a key uses


class TeamParams(flax.struct.PyTreeNode):
    """What a step reads besides the state: the game's parameters, and the numbers of the opponent (None without one)."""

    env: EnvParams
    opponent: Any = None


class TeamState(flax.struct.PyTreeNode):
    """What an arena carries: the game, and what the opponent remembers and saw last."""

    env: EnvState
    memory: Any
    observation: Float32[Array, "arenas mechs obs"]


class TeamStep(flax.struct.PyTreeNode):
    """The result of a decision for the mechs that are played.

    Attributes:
        observation: after an automatic reset the new episode's.
        final_observation: of the state in which the step ended, before any reset.
        terminated: the mech is dead, or the game was decided.
        truncated: time is up for a living mech.
        decided: the episode ended by zone or elimination.
        time_up: the episode ended because time was up.
        won: the played team has won with this step; with both teams played, blue has.
    """

    observation: Float32[Array, "arenas played obs"]
    final_observation: Float32[Array, "arenas played obs"]
    reward: Float32[Array, "arenas played"]
    terminated: Bool[Array, "arenas played"]
    truncated: Bool[Array, "arenas played"]
    alive: Bool[Array, "arenas played"]
    episode_over: Bool[Array, " arenas"]
    decided: Bool[Array, " arenas"]
    time_up: Bool[Array, " arenas"]
    won: Bool[Array, " arenas"]
    info: Info


@dataclasses.dataclass(frozen=True)
class TeamGame:
    """The game for the mechs of one team, or of both; frozen and hashable, so it can be a static argument of a jit.

    Attributes:
        env: an environment with or without automatic reset.
        opponent: who plays the other team (a player of `evaluation.players`); None: both teams are played.
        side: the played team, 0 for blue and 1 for red.
        discrete: actions are numbers of the rows of `choices.action_table`.
        auto_reset: whether the environment resets an arena in the step that ends its episode.
    """

    env: AutoReset | Echelon
    opponent: Any = None
    side: int = 0
    discrete: bool = False
    auto_reset: bool = True

    @property
    def config(self) -> EnvConfig:
        """The configuration of the game."""
        return self.env.config

    @property
    def rows(self) -> slice:
        """The played mechs in the roster."""
        team = self.config.team_size
        return slice(0, 2 * team) if self.opponent is None else slice(self.side * team, (self.side + 1) * team)

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the played mechs in the order of the arrays, such as blue_0."""
        return roster(self.config.num_packs).ids[self.rows]

    def reset_batch(self, keys: Key[Array, " arenas"], params: TeamParams) -> tuple[TeamState, TeamStep]:
        """Begin an episode in every arena, in worlds drawn from the keys."""
        state, step = self.env.reset_batch(keys, params.env)
        memory = self._first_memory(params, state)
        return TeamState(env=state, memory=memory, observation=jnp.copy(step.observation)), self._result(step)

    def step_batch(
        self,
        keys: Key[Array, " arenas"],
        state: TeamState,
        actions: Float32[Array, "arenas played actions"] | Int32[Array, "arenas played"],
        params: TeamParams,
    ) -> tuple[TeamState, TeamStep]:
        """One decision of every arena; the opponent acts on the same state. Arena i depends on key i alone."""
        ours, memory = self.to_action(actions), state.memory
        if self.opponent is None:
            everybody = ours
        else:
            memory, theirs = self._opponent(keys, state, params)
            everybody = theirs.at[:, self.rows].set(ours)
        after, step = self.env.step_batch(keys, state.env, everybody, params.env)
        if self.auto_reset and self.opponent is not None:
            memory = select_arenas(step.episode_over, self._first_memory(params, after), memory)
        return TeamState(env=after, memory=memory, observation=step.observation), self._result(step)

    # One arena: a batch of one without its leading axis.

    def reset(self, key: Key[Array, ""], params: TeamParams) -> tuple[TeamState, TeamStep]:
        """Begin an episode in one arena."""
        return alone(self.reset_batch(key[None], params))

    def step(
        self, key: Key[Array, ""], state: TeamState, actions: Array, params: TeamParams
    ) -> tuple[TeamState, TeamStep]:
        """One decision of one arena."""
        return alone(self.step_batch(key[None], batch_of_one(state), jnp.asarray(actions)[None], params))

    def to_action(self, actions: Array) -> Float32[Array, "*batch actions"]:
        """Return the environment's actions: the rows of the table that discrete actions name, or the actions as they are."""
        if not self.discrete:
            return jnp.asarray(actions, jnp.float32)
        return jnp.asarray(action_table(self.config))[jnp.asarray(actions)]

    def available(self, state: TeamState) -> Bool[Array, "*arenas played choices"]:
        """Return which choices the played mechs have: all of them while they live, only to wait once they are dead."""
        living = state.observation[..., self.rows, :].any(-1)  # the dead see zeros (docs/spec/environment.md 2.1)
        waiting = np.arange(len(action_table(self.config))) == WAIT
        return living[..., None] | waiting

    def _first_memory(self, params: TeamParams, state: EnvState) -> Any:
        if self.opponent is None:
            return None
        return self.opponent.init(params.env, state, self.config.team_size)

    def _opponent(self, keys: Array, state: TeamState, params: TeamParams) -> tuple[Any, Array]:
        """The opponent's memory after acting, and actions of all mechs, of which the rows of its own side count."""
        team = self.config.team_size
        theirs = slice((1 - self.side) * team, (2 - self.side) * team)
        keys = jax.vmap(lambda key: jax.random.fold_in(key, OPPONENT_STREAM))(keys)
        if isinstance(self.opponent, AgentPlayer):
            return self.opponent.agent.act(params.env, params.opponent, state.memory, state.env, keys)

        # A policy draws with one key for all its arenas, so each arena is handed over alone, with its own key.
        def act(key: Array, memory: Any, observation: Array) -> tuple[Any, Array]:
            memory, actions = self.opponent.act(
                params.opponent,
                params.env,
                batch_of_one(memory),
                None,
                observation[None],
                lambda rows: rows[:, theirs],
                key,
            )
            return alone((memory, actions))

        memory, actions = jax.vmap(act)(keys, state.memory, state.observation)
        return memory, jnp.concatenate([actions, actions], axis=1)  # the own side's rows are overwritten

    def _result(self, step: Any) -> TeamStep:
        rows, info = self.rows, step.info
        return TeamStep(
            observation=step.observation[:, rows],
            final_observation=step.final_observation[:, rows],
            reward=step.reward[:, rows],
            terminated=step.terminated[:, rows],
            truncated=step.truncated[:, rows],
            alive=info.alive[:, rows],
            episode_over=step.episode_over,
            decided=step.episode_over & ((info.reason == ZONE_CONTROL) | (info.reason == ELIMINATION)),
            time_up=step.episode_over & (info.reason == TIME_UP),
            won=step.episode_over & (info.winner == (0 if self.opponent is None else self.side)),
            info=info,
        )


def make_team_game(
    name: str,
    *,
    opponent: str | Policy | None = "scripted",
    side: str = "blue",
    discrete: bool = False,
    auto_reset: bool = True,
    worlds: int = 16,
    seed: int = 0,
    **options: Any,
) -> tuple[TeamGame, TeamParams]:
    """Return the game of a name for one team, and its parameters.

    Args:
        name: an environment of `echelon_jax.make`.
        opponent: a name that `agents.registry` knows, the path of a run, a loaded policy; None to play both teams.
        side: `blue` or `red`, the team that is played; without an opponent it has no meaning.
        discrete: choose among the rows of `choices.action_table` instead of handing over numbers.
        auto_reset, worlds, seed, options: as for `echelon_jax.make`.

    Raises:
        ValueError: a name, an option or an opponent that is not allowed.
        CheckpointError: the opponent's checkpoint cannot be used.
    """
    if side not in TEAM_NAMES:
        raise ValueError(f"side must be one of {', '.join(TEAM_NAMES)}, got {side!r}")
    given: dict[str, Any] = {"worlds": worlds, "seed": seed, "auto_reset": auto_reset, **options}
    env, params = make(name, **given)
    if opponent is None:
        return TeamGame(env, None, 0, discrete, auto_reset), TeamParams(params)
    player, numbers = opponent_player(opponent, env.config)
    return TeamGame(env, player, TEAM_NAMES.index(side), discrete, auto_reset), TeamParams(params, numbers)
