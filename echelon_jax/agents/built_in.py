"""The scripted and the random opponent as one agent, so that one compiled program plays against either."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.agents.base import AgentParams
from echelon_jax.agents.random import RandomAgent
from echelon_jax.agents.scripted import Scripted, ScriptedState
from echelon_jax.env.state import EnvParams, EnvState


class BuiltInParams(AgentParams):
    """The numbers of the scripted opponent, and whether the random one plays instead."""

    random: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class BuiltIn(Scripted):
    """The scripted opponent. Random actions replace its own where its BuiltInParams say so."""

    params_per_arena: ClassVar[bool] = False

    def act(
        self,
        params: EnvParams,
        agent_params: AgentParams,
        agent_state: ScriptedState,
        state: EnvState,
        keys: Key[Array, " arenas"],
    ) -> tuple[ScriptedState, Float32[Array, "arenas mechs actions"]]:
        """Return the memory and the actions of all mechs; they are those of the opponent that the BuiltInParams name."""
        assert isinstance(agent_params, BuiltInParams)
        memory, scripted = super().act(params, agent_params, agent_state, state, keys)
        _, drawn = RandomAgent(self.config).act(params, agent_params, (), state, keys)
        return memory, jnp.where(agent_params.random, drawn, scripted)
