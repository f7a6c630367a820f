"""The interface of opponents: a vectorised function with a small memory that acts for every mech of a batch of arenas."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import flax.struct
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.env.state import EnvParams, EnvState


class AgentParams(flax.struct.PyTreeNode):
    """Numbers of an opponent that may change without compiling again. An agent ignores those that it does not use."""

    fire_probability: Float32[Array, ""]  # chance that wanted fire is not suppressed, 0 to 1


@runtime_checkable
class Agent(Protocol):
    """The interface of every opponent.

    Arenas are the leading axis of everything. The caller keeps the rows of the side that the agent plays, so that one
    function serves both sides.

    An agent whose class says `params_per_arena = True` also takes parameters with one number per arena, so that several of its
    kind can play in one call (`training.league`).
    """

    def init(self, params: EnvParams, state: EnvState) -> Any:
        """Return the agent's memory at the start of an episode; a pytree whose leaves lead with `arenas`."""
        ...

    def act(
        self,
        params: EnvParams,
        agent_params: AgentParams,
        agent_state: Any,
        state: EnvState,
        keys: Key[Array, " arenas"],
    ) -> tuple[Any, Float32[Array, "arenas mechs actions"]]:
        """Return the memory after acting and the actions of all mechs, in [-1, 1]; arena i depends on key i alone."""
        ...

    def reset_where(self, agent_state: Any, fresh_state: EnvState, mask: Bool[Array, " arenas"]) -> Any:
        """Return the memory, replaced by a fresh one in the arenas of `mask`, whose episode has just begun in `fresh_state`."""
        ...


@runtime_checkable
class ObservingAgent(Protocol):
    """An opponent that reads what the mechs observe, such as a trained policy: an Agent with `act_on` instead of `act`."""

    def init(self, params: EnvParams, state: EnvState) -> Any:
        """Return the memory at the start of an episode, as `Agent.init` does."""
        ...

    def act_on(
        self,
        params: EnvParams,
        agent_params: AgentParams,
        agent_state: Any,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        keys: Key[Array, " arenas"],
    ) -> tuple[Any, Float32[Array, "arenas mechs actions"]]:
        """Return what `Agent.act` returns, from the raw observations of all mechs as well."""
        ...

    def reset_where(self, agent_state: Any, fresh_state: EnvState, mask: Bool[Array, " arenas"]) -> Any:
        """Return the memory with a fresh one where an episode has just begun, as `Agent.reset_where` does."""
        ...


@runtime_checkable
class Members(Protocol):
    """What an opponent made of several members tells besides: who plays where."""

    @property
    def members(self) -> int:
        """How many members there are."""
        ...

    def playing(self, agent_state: Any) -> Int32[Array, " arenas"]:
        """Return the member that plays each arena's episode, -1 where none is drawn yet."""
        ...


def let_act(
    agent: Agent | ObservingAgent,
    params: EnvParams,
    agent_params: AgentParams,
    agent_state: Any,
    state: EnvState,
    observation: Float32[Array, "arenas mechs obs"],
    keys: Key[Array, " arenas"],
) -> tuple[Any, Float32[Array, "arenas mechs actions"]]:
    """Let an opponent act for all mechs; one that observes is given the observations."""
    if isinstance(agent, ObservingAgent):
        return agent.act_on(params, agent_params, agent_state, state, observation, keys)
    return agent.act(params, agent_params, agent_state, state, keys)
