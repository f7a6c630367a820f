"""Players of evaluation games: an agent (scripted, random) or a trained network, behind one interface."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Key

from echelon_jax.agents.base import Agent, AgentParams
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.policies.acting import outlook
from echelon_jax.policies.factored import Factored
from echelon_jax.policies.network import Network, Params
from echelon_jax.policies.normalize import Moments

Rows = Callable[[Array], Array]


@runtime_checkable
class Player(Protocol):
    """One side of a game. It acts for the mechs that `rows` selects. It is hashable; its arrays are in `numbers`."""

    def __hash__(self) -> int:
        """Equal players share a compiled match."""
        ...

    def init(self, env_params: EnvParams, state: EnvState, team: int) -> Any:
        """Return its memory at the start of a game."""
        ...

    def act(
        self,
        numbers: Any,
        env_params: EnvParams,
        memory: Any,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        rows: Rows,
        key: Key[Array, ""],
    ) -> tuple[Any, Float32[Array, "arenas team actions"]]:
        """Return the memory after acting and the actions of its own mechs."""
        ...


@dataclasses.dataclass(frozen=True)
class AgentPlayer:
    """A scripted or random agent as a player; `numbers` are its AgentParams."""

    agent: Agent

    def init(self, env_params: EnvParams, state: EnvState, team: int) -> Any:
        """Return the agent's own memory."""
        return self.agent.init(env_params, state)

    def act(
        self,
        numbers: AgentParams,
        env_params: EnvParams,
        memory: Any,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        rows: Rows,
        key: Key[Array, ""],
    ) -> tuple[Any, Float32[Array, "arenas team actions"]]:
        """Let the agent act for everybody and keep the rows of its side."""
        keys = jax.random.split(key, observation.shape[0])
        memory, actions = self.agent.act(env_params, numbers, memory, state, keys)
        return memory, rows(actions)


class PolicyMemory(flax.struct.PyTreeNode):
    """The memory of a policy, and what it made of the last decision.

    Attributes:
        value: of its critic, in the critic's units.
        probabilities: of its heads' choices (`Heads.choices`); None for a policy without such heads.
    """

    carry: Any
    value: Float32[Array, "arenas team"]
    probabilities: Float32[Array, "arenas team choices"] | None = None


class PolicyNumbers(flax.struct.PyTreeNode):
    """The arrays of a trained policy: network parameters and the moments that normalise its observations."""

    params: Params
    moments: Moments


@dataclasses.dataclass(frozen=True)
class PolicyPlayer:
    """A network as a player; `numbers` are its PolicyNumbers.

    Attributes:
        clip: limit of normalised features, None for no limit.
        deterministic: take the most likely raw action instead of a drawn one.
    """

    network: Network
    clip: float | None = None
    deterministic: bool = False

    def init(self, env_params: EnvParams, state: EnvState, team: int) -> Any:
        """Return an empty memory."""
        arenas, heads = state.step_count.shape[0], self.network.features.heads
        return PolicyMemory(
            carry=self.network.initial_carry(arenas, team),
            value=jnp.zeros((arenas, team), jnp.float32),
            probabilities=None if heads is None else jnp.zeros((arenas, team, len(heads.choices)), jnp.float32),
        )

    def act(
        self,
        numbers: PolicyNumbers,
        env_params: EnvParams,
        memory: Any,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        rows: Rows,
        key: Key[Array, ""],
    ) -> tuple[Any, Float32[Array, "arenas team actions"]]:
        """Run the network on its own side's observations."""
        own = rows(observation)
        never = jnp.zeros(own.shape[:2], bool)
        distribution, carry, value = outlook(
            self.network, self.clip, numbers.params, numbers.moments, memory.carry, own, never
        )
        raw_action = distribution.mode() if self.deterministic else distribution.sample(key)
        probabilities = distribution.probabilities() if isinstance(distribution, Factored) else None
        return PolicyMemory(carry, value, probabilities), distribution.action(raw_action)


def policy_outputs(
    memories: tuple[Any, Any], arenas: int, team: int
) -> tuple[Float32[Array, "2 arenas team"], Float32[Array, "2 arenas team choices"] | None]:
    """Return values and probabilities that two players' memories hold, zeros for a player without; None if neither has any."""
    policies = [m if isinstance(m, PolicyMemory) else None for m in memories]
    nothing = jnp.zeros((arenas, team), jnp.float32)
    values = jnp.stack([nothing if m is None else m.value for m in policies])
    known = [m.probabilities for m in policies if m is not None and m.probabilities is not None]
    if not known:
        return values, None
    zeros = jnp.zeros_like(known[0])
    own = [zeros if m is None or m.probabilities is None else m.probabilities for m in policies]
    return values, jnp.stack(own)
