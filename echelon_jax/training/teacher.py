"""A teacher: an agent whose actions the learner imitates for a while, in the states that the learner itself reaches.

The loss gets a term, the teacher's weight times minus the log-prob of the teacher's action. The weight falls to 0 over the first
updates, and PPO goes on alone. Nobody plays the teacher's actions, so the learner is taught in its own states.

Sources: S. Ross and others, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online Learning" (DAgger,
2011); S. Schmitt and others, "Kickstarting Deep Reinforcement Learning" (2018).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.agents.base import Agent, AgentParams, ObservingAgent, let_act
from echelon_jax.agents.registry import make_agent
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import actions_of
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.policies.heads import heads_of
from echelon_jax.policies.network import Network, Teachable
from echelon_jax.rules.mechs import SCOUT, roster
from echelon_jax.training.config import LEAGUE, SELF, TrainConfig

# A policy reaches full throttle only at an infinite raw action, so the learner imitates nearly full throttle.
LARGEST = 0.95


@dataclasses.dataclass(frozen=True)
class Teacher:
    """An agent that says what it would do in the learner's place.

    Attributes:
        config: the game.
        agent, params: who teaches.
        network: turns its actions into raw actions.
        skip: whether the agent is left alone once it does not teach any more. A GPU's host must be asked for that.
    """

    config: EnvConfig
    agent: Agent | ObservingAgent
    params: AgentParams
    network: Teachable
    skip: bool

    @functools.cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """[actions] which entries mean their value, and which ones the learner imitates.

        Of the entries that do not mean their value only the sign counts, or which of them is largest. Messages, the order of
        contacts and who is shown are for learners: an agent reads the state and has no opinion on them. Nor has it one on a
        target that changes nothing.
        """
        actions = actions_of(self.config)
        layout, heads = actions.layout(self.config), heads_of(self.config)
        graded, taught = np.zeros(layout.size, bool), np.ones(layout.size, bool)
        for piece in actions.pieces(self.config):
            entry = layout[piece.entry].slice
            if piece.kind == "tanh":
                entry = slice(entry.start, entry.start + heads[piece.head].size)
                graded[entry] = True
            idle = piece.head in ("message", "sort") or piece.entry == "hostile_only"
            taught[entry] = not (idle or (piece.head == "target" and not self.config.honour_focus))
        return graded, taught

    def init(self, env_params: EnvParams, state: EnvState) -> Any:
        """Return the teacher's memory at the start of an episode."""
        return self.agent.init(env_params, state)

    def advise(
        self,
        env_params: EnvParams,
        teacher_state: Any,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        keys: Key[Array, " arenas"],
        teaches: Bool[Array, ""],
    ) -> tuple[Any, Float32[Array, "arenas mechs raw"]]:
        """Return the teacher's memory and the raw actions of what it would do for every mech; zeros once it does not teach."""
        scout = jnp.asarray(np.asarray(roster(self.config.num_packs).mech_class) == SCOUT)

        def act() -> tuple[Any, Array]:
            memory, actions = let_act(self.agent, env_params, self.params, teacher_state, state, observation, keys)
            graded, taught = self._entries
            signs = jnp.where(actions > 0, actions, -1.0)
            clear = jnp.where(jnp.asarray(graded), jnp.clip(actions, -LARGEST, LARGEST), signs)
            return memory, self.network.raw_of(clear, jnp.broadcast_to(scout, actions.shape[:-1]), taught)

        if not self.skip:
            return act()
        made = jax.eval_shape(act)[1]
        return jax.lax.cond(teaches, act, lambda: (teacher_state, jnp.zeros(made.shape, made.dtype)))


def check_agents(config: TrainConfig, env_config: EnvConfig) -> None:
    """Make the opponent and the teacher of a run and drop them again.

    Raises:
        ValueError: one of them cannot be made; the sentence begins with the field.
    """
    for field in ("opponent", "teacher"):
        name = getattr(config, field)
        if name and name not in (LEAGUE, SELF):
            try:
                make_agent(name, env_config, alone=True)
            except ValueError as error:
                raise ValueError(f"{field} {name!r} cannot be made: {error}") from error


def make_teacher(name: str, config: EnvConfig, network: Network, skip: bool) -> Teacher | None:
    """Return the teacher of a name, None for no name.

    Raises:
        ValueError: an unknown agent, or a network that cannot turn actions into raw actions.
    """
    if not name:
        return None
    if not isinstance(network, Teachable):
        raise ValueError("teacher needs a network with raw_of (policies/network.py), and this network has none")
    agent, params = make_agent(name, config, alone=True)
    return Teacher(config, agent, params, network, skip)
