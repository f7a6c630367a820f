"""A teacher: an agent whose actions the learner imitates for a while, in the states that the learner itself reaches.

The loss gets a term, the teacher's weight times minus the log-prob of the teacher's action. The weight falls to `teacher_end`
over the first updates. Nobody plays the teacher's actions, so the learner is taught in its own states.

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
from echelon_jax.policies.features import Features
from echelon_jax.policies.heads import heads_of
from echelon_jax.policies.network import Network
from echelon_jax.policies.registry import make_network
from echelon_jax.rules.mechs import SCOUT, roster
from echelon_jax.training.config import LEAGUE, SELF, TrainConfig

# A policy reaches full throttle only at an infinite raw action, so the learner imitates nearly full throttle.
LARGEST = 0.95


def raw_action_of(
    features: Features,
    action: Float32[Array, "*batch actions"],
    scout: Bool[Array, "*batch"],
    taught: Bool[np.ndarray, " actions"],
) -> Float32[Array, "*batch raw"]:
    """Return the raw action that means the same to the environment; components that follow from no entry in `taught` are NaN.

    With heads it is theirs (`Heads.from_action`). Without them it is the number before the squash, infinite for 1 and -1.

    Args:
        features: how the learner reads an observation.
        action: of the environment, in [-1, 1].
        scout: which mechs are scouts.
        taught: which entries of the action are to be imitated.
    """
    if features.heads is None:
        return jnp.where(jnp.asarray(taught), jnp.arctanh(action), jnp.nan)
    known = jnp.asarray(features.heads.taught_components(taught))
    return jnp.where(known, features.heads.from_action(action, scout), jnp.nan)


@dataclasses.dataclass(frozen=True)
class Teacher:
    """An agent that says what it would do in the learner's place.

    Attributes:
        config: the game.
        agent, params: who teaches.
        features: how the learner reads an observation; its heads say what a raw action is.
        skip: whether the agent is left alone once it does not teach any more. A GPU's host must be asked for that.
    """

    config: EnvConfig
    agent: Agent | ObservingAgent
    params: AgentParams
    features: Features
    skip: bool

    @functools.cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """[actions] which entries are read by their value, and which entries the learner imitates.

        The others are read by their sign, or by which of them is largest. The learner does not imitate messages, the order of
        contacts and the filter of contacts, because an agent reads the state instead of an observation. Nor does it imitate
        targets under rules that ignore them.
        """
        actions = actions_of(self.config)
        layout, heads = actions.layout(self.config), heads_of(self.config)
        graded, taught = np.zeros(layout.size, bool), np.ones(layout.size, bool)
        for piece in actions.pieces(self.config):
            entry = layout[piece.entry].slice
            if piece.kind == "tanh":
                entry = slice(entry.start, entry.start + heads[piece.head].size)
                graded[entry] = True
            ignored = piece.head in ("message", "sort") or piece.entry == "hostile_only"
            taught[entry] = not (ignored or (piece.head == "target" and not self.config.honour_focus))
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

        @jax.jit  # traced once, though its shape is asked for first
        def act() -> tuple[Any, Array]:
            memory, actions = let_act(self.agent, env_params, self.params, teacher_state, state, observation, keys)
            graded, taught = self._entries
            signs = jnp.where(actions > 0, actions, -1.0)
            clear = jnp.where(jnp.asarray(graded), jnp.clip(actions, -LARGEST, LARGEST), signs)
            return memory, raw_action_of(self.features, clear, jnp.broadcast_to(scout, actions.shape[:-1]), taught)

        if not self.skip:
            return act()
        made = jax.eval_shape(act)[1]
        return jax.lax.cond(teaches, act, lambda: (teacher_state, jnp.zeros(made.shape, made.dtype)))


def check_agents(config: TrainConfig, env_config: EnvConfig) -> None:
    """Make the opponent and the teacher of a run and drop them again, so that a mistake is found before anything is compiled.

    Raises:
        ValueError: one of them cannot be made, or the network cannot be taught; the sentence begins with the field.
    """
    for field in ("opponent", "teacher"):
        name = getattr(config, field)
        if name and name not in (LEAGUE, SELF):
            try:
                make_agent(name, env_config, alone=True)
            except ValueError as error:
                raise ValueError(f"{field} {name!r} cannot be made: {error}") from error
    make_teacher(config.teacher, env_config, make_network(config, env_config), skip=True)


def make_teacher(name: str, config: EnvConfig, network: Network, skip: bool) -> Teacher | None:
    """Return the teacher of a name, None for no name.

    Raises:
        ValueError: an unknown agent, or a network whose distribution cannot say how likely a teacher's action is.
    """
    if not name:
        return None
    if not hasattr(_distribution_of(network), "imitation_log_prob"):
        raise ValueError(
            "teacher must be empty for a network whose distribution has no imitation_log_prob (policies/factored.py has one)"
        )
    agent, params = make_agent(name, config, alone=True)
    return Teacher(config, agent, params, network.features, skip)


def _distribution_of(network: Network) -> Any:
    """The distribution that a network makes, shapes only."""

    def act() -> Any:
        observation = network.features.split(jnp.zeros((1, 1, network.features.size), jnp.float32))
        params, carry = network.init(jax.random.key(0)), network.initial_carry(1, 1)
        return network.apply(params, carry, observation, jnp.zeros((1, 1), bool))[1]

    return jax.eval_shape(act)
