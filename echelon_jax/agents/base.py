"""The interface of opponents: a vectorised function with a small memory that acts for every mech of a batch of arenas."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import flax.struct
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.env.state import EnvParams, EnvState


class AgentParams(flax.struct.PyTreeNode):
    """Numbers of an opponent that may change without compiling again. An agent ignores those that it does not use."""

    fire_probability: Float32[Array, ""]  # chance that wanted fire is not suppressed, 0 to 1


@runtime_checkable
class Agent(Protocol):
    """The interface of every opponent.

    Arenas are the leading axis of everything. The caller keeps the rows of the side that the agent plays, so that one
    function serves both sides.
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
