"""The game as a JaxMARL `MultiAgentEnv`: agents for one team against a chosen opponent, or for both teams.

    env = make("Echelon-v1", opponent="scripted:easy", discrete=True)
    observations, state = env.reset(key)
    observations, state, rewards, dones, infos = env.step(key, state, actions)

A step that ends an episode begins the next one, as everywhere in JaxMARL. `jax.vmap` over arenas runs the program of a batch.
Needs the extra `jaxmarl`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxmarl.environments import spaces
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxtyping import Array, Key

from echelon_jax.compat.batching import one_of_many
from echelon_jax.compat.choices import action_table
from echelon_jax.compat.team import TeamGame, TeamParams, TeamState, TeamStep, make_team_game
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.rules.mechs import CLASS_NAMES, roster

Named = dict[str, Any]


class EchelonMARL(MultiAgentEnv):
    """The game for JaxMARL's learners.

    Attributes:
        agents: names such as blue_0, in roster order.

    Args:
        game, params: as `team.make_team_game` returns them, with automatic reset.
        final_observation: whether infos hold the last observation of an episode that ended. JaxMARL's baselines need it off:
            they take every info for one number for each agent.
    """

    def __init__(self, game: TeamGame, params: TeamParams, final_observation: bool = False) -> None:
        self.game, self.params, self.final_observation = game, params, final_observation
        config = self.game.config
        super().__init__(num_agents=len(self.game.agents))
        self.agents = list(self.game.agents)
        low, high = observation_layout(config).bounds
        act_low, act_high = action_layout(config).bounds
        seen = spaces.Box(low, high, low.shape)
        acted = (
            spaces.Discrete(len(action_table(config)))
            if self.game.discrete
            else spaces.Box(act_low, act_high, act_low.shape)
        )
        self.observation_spaces = dict.fromkeys(self.agents, seen)
        self.action_spaces = dict.fromkeys(self.agents, acted)

    @property
    def name(self) -> str:
        """A name for logs."""
        return "Echelon"

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """The agents of each mech class."""
        classes = roster(self.game.config.num_packs).mech_class[self.game.rows]
        named = [(CLASS_NAMES[kind], agent) for kind, agent in zip(classes, self.agents, strict=True)]
        return {kind: [agent for of, agent in named if of == kind] for kind in CLASS_NAMES}

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: Key[Array, ""]) -> tuple[Named, TeamState]:
        """Begin an episode; return observations and state."""
        state, step = one_of_many(lambda keys, params: self.game.reset_batch(keys, params))(_typed(key), self.params)
        return self._named(step.observation), state

    @partial(jax.jit, static_argnums=0)
    def step(
        self, key: Key[Array, ""], state: TeamState, actions: Named, reset_state: None = None
    ) -> tuple[Named, TeamState, Named, Named, Named]:
        """Advance by one decision and begin the next episode where one has ended.

        Args:
            key: of the decision's draws, and of the world of a new episode.
            state: of the arena.
            actions: one for each agent; those of the dead change nothing.
            reset_state: must be None: a new episode begins in a world of the bank.

        Returns:
            Observations, state, rewards, dones (with `__all__`) and infos: `truncated`, `won` and, if asked for,
            `final_observation`, for each agent in the order of `agents`.

        Raises:
            ValueError: a reset_state.
        """
        if reset_state is not None:
            raise ValueError("reset_state must be None: a new episode begins in a world of the bank")

        def batched(arenas: Any, params: Any) -> tuple[TeamState, TeamStep]:
            keys, states, played = arenas
            return self.game.step_batch(keys, states, played, params)

        played = jnp.stack([actions[agent] for agent in self.agents])
        state, step = one_of_many(batched)((_typed(key), state, played), self.params)
        over = step.episode_over
        dones = {**self._named(step.terminated | step.truncated), "__all__": over}
        infos = {"truncated": step.truncated, "won": jnp.broadcast_to(step.won, step.alive.shape)}
        if self.final_observation:
            infos["final_observation"] = step.final_observation
        return self._named(step.observation), state, self._named(step.reward), dones, infos

    def step_env(
        self, key: Key[Array, ""], state: TeamState, actions: Named
    ) -> tuple[Named, TeamState, Named, Named, Named]:
        """The same as `step`: the game resets itself, which copies one world instead of choosing between two states."""
        return self.step(key, state, actions)

    def get_obs(self, state: TeamState) -> Named:
        """Return the observations of a state."""
        return self._named(state.observation[self.game.rows])

    def get_avail_actions(self, state: TeamState) -> Named:
        """Return which choices each agent has, bool [choices]: all while its mech lives, only to wait after that.

        Raises:
            ValueError: the environment was not made with `discrete=True`.
        """
        if not self.game.discrete:
            raise ValueError("discrete must be true for an environment that is asked for its available actions")
        return self._named(self.game.available(state))

    def _named(self, rows: Array) -> Named:
        return {agent: rows[i] for i, agent in enumerate(self.agents)}


def _typed(key: Array) -> Array:
    """Return a typed key; JaxMARL's learners hand over raw ones as well."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def make(
    name: str = "Echelon-v1", opponent: Any = "scripted", final_observation: bool = False, **options: Any
) -> EchelonMARL:
    """Return the environment of a name.

    Args:
        name: an environment of `echelon_jax.make`.
        opponent: who plays the other team; None makes agents for both teams.
        final_observation: as for `EchelonMARL`.
        options: `side`, `discrete`, `worlds`, `seed`, `rules`, and fields of EnvConfig. Most of JaxMARL's baselines need
            `discrete=True`.

    Raises:
        ValueError: a name, an option or an opponent that is not allowed.
    """
    return EchelonMARL(*make_team_game(name, opponent=opponent, **options), final_observation)
