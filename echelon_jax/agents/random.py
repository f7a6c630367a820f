"""The opponent that draws every component of every action uniformly from [-1, 1]."""

from __future__ import annotations

import dataclasses

import jax
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.agents.base import AgentParams
from echelon_jax.config import EnvConfig
from echelon_jax.draws import in_a_row
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.state import EnvParams, EnvState


@dataclasses.dataclass(frozen=True)
class RandomAgent:
    """Uniform random actions; no memory, no parameters."""

    config: EnvConfig

    def init(self, params: EnvParams, state: EnvState) -> tuple[()]:
        """Return the empty memory."""
        return ()

    def act(
        self,
        params: EnvParams,
        agent_params: AgentParams,
        agent_state: tuple[()],
        state: EnvState,
        keys: Key[Array, " arenas"],
    ) -> tuple[tuple[()], Float32[Array, "arenas mechs actions"]]:
        """Return the empty memory and uniform actions in [-1, 1)."""
        shape = (self.config.num_mechs, action_layout(self.config).size)
        actions = jax.vmap(lambda key: in_a_row(jax.random.uniform, key, shape, -1.0, 1.0))(keys)
        return agent_state, actions

    def reset_where(self, agent_state: tuple[()], fresh_state: EnvState, mask: Bool[Array, " arenas"]) -> tuple[()]:
        """Return the empty memory."""
        return agent_state
