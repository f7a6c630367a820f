"""The league as one opponent: every arena draws a member for each episode and keeps it, with a memory of that member's own.

Members are the current policy, the frozen policies in slots, and agents by name. The policies act on blocks of arenas
(`blocks`). Agents of one class whose numbers may differ from arena to arena, such as the skill levels, act in
one call too.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.agents.base import Agent, AgentParams
from echelon_jax.agents.registry import make_agent
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.policies.acting import decide
from echelon_jax.policies.network import Network
from echelon_jax.sim.widths import loop_widths
from echelon_jax.training.league.blocks import block_size, into_blocks, run_blocks
from echelon_jax.training.league.draw import DrawConfig, weights
from echelon_jax.training.league.state import FrozenPolicy, LeagueState, drawable
from echelon_jax.training.sides import all_rows, opponent_rows

DRAW_STREAM, POLICY_STREAM, AGENT_STREAM = 0, 1, 2  # folded into an arena's key


class LeagueNumbers(AgentParams):
    """What the league plays with for one rollout."""

    log_weights: Float32[Array, " members"]  # of the draw
    policies: FrozenPolicy  # leaves lead with 1 + slots; the current policy comes first


class LeagueMemory(flax.struct.PyTreeNode):
    """What the opponent of each arena carries from one decision to the next."""

    begun: Bool[Array, " arenas"]  # whether the member of this episode is drawn
    member: Int32[Array, " arenas"]
    carry: Any  # of the policy that plays; leaves lead with [arenas, team]
    agents: tuple[Any, ...]  # of each group of agents; only that of the group that plays counts


class AgentGroup(NamedTuple):
    """Members that act in one call.

    Attributes:
        agent: acts for all of them.
        numbers: its parameters; leaves lead with the group's members.
        first: the first member's number; the others follow.
        size: number of members.
    """

    agent: Agent
    numbers: Any
    first: int
    size: int


@dataclasses.dataclass(frozen=True)
class LeagueAgent:
    """The league; follows `agents.base.ObservingAgent` and `agents.base.Members`.

    Attributes:
        config: the game.
        network: of all policies.
        clip: limit of normalised features, None for no limit.
        slots: number of frozen policies.
        names: agents by their name, each once.
        size: arenas of a block; 0 chooses it.
    """

    config: EnvConfig
    network: Network
    clip: float | None
    slots: int
    names: tuple[str, ...]
    size: int = 0

    @property
    def members(self) -> int:
        """Number of members."""
        return 1 + self.slots + len(self.names)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The agents' names in the order of their members: those that act in one call follow each other."""
        made = {name: make_agent(name, self.config, alone=True).agent for name in self.names}
        kinds = list(dict.fromkeys(made.values()))
        return tuple(sorted(self.names, key=lambda name: kinds.index(made[name])))

    @property
    def labels(self) -> tuple[str, ...]:
        """The members' names in metrics."""
        return ("current", *(f"slot{i}" for i in range(1, self.slots + 1)), *self.order)

    def groups(self) -> list[AgentGroup]:
        """Return the agents in groups that act in one call."""
        first, out = 1 + self.slots, list[AgentGroup]()
        for name in self.order:
            made = make_agent(name, self.config, alone=True)
            numbers = jax.tree.map(lambda x: jnp.asarray(x)[None], made.params)
            together = getattr(made.agent, "params_per_arena", False)
            if together and out and out[-1].agent == made.agent and type(out[-1].numbers) is type(numbers):
                last = out.pop()
                numbers = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), last.numbers, numbers)
                out.append(AgentGroup(made.agent, numbers, last.first, last.size + 1))
            else:
                out.append(AgentGroup(made.agent, numbers, first, 1))
            first += 1
        return out

    def numbers(
        self, draw: DrawConfig, state: LeagueState, current: FrozenPolicy, fire_probability: Float32[Array, ""]
    ) -> LeagueNumbers:
        """Return what a rollout is played with.

        Args:
            draw: how members are drawn.
            state: the league.
            current: the learner as it is.
            fire_probability: factor of the agents' own.
        """
        probabilities = weights(draw, state.counts, state.ratings, drawable(state))
        return LeagueNumbers(
            fire_probability=fire_probability,
            log_weights=jnp.where(
                probabilities > 0, jnp.log(jnp.where(probabilities > 0, probabilities, 1.0)), -jnp.inf
            ),
            policies=jax.tree.map(lambda own, slots: jnp.concatenate([own[None], slots]), current, state.slots),
        )

    def init(self, params: EnvParams, state: EnvState) -> LeagueMemory:
        """Return the memory of arenas that have drawn nobody yet."""
        arenas = state.step_count.shape[0]
        return LeagueMemory(
            begun=jnp.zeros(arenas, bool),
            member=jnp.zeros(arenas, jnp.int32),
            carry=self.network.initial_carry(arenas, self.config.team_size),
            agents=tuple(group.agent.init(params, state) for group in self.groups()),
        )

    def reset_where(
        self, agent_state: LeagueMemory, fresh_state: EnvState, mask: Bool[Array, " arenas"]
    ) -> LeagueMemory:
        """Return the memory, emptied where an episode has just begun; its member is drawn at the first decision."""
        arenas = mask.shape[0]
        empty = self.network.initial_carry(arenas, self.config.team_size)
        return LeagueMemory(
            begun=agent_state.begun & ~mask,
            member=agent_state.member,
            carry=jax.tree.map(lambda new, old: _where(mask, new, old), empty, agent_state.carry),
            agents=tuple(
                group.agent.reset_where(memory, fresh_state, mask)
                for group, memory in zip(self.groups(), agent_state.agents, strict=True)
            ),
        )

    def playing(self, agent_state: LeagueMemory) -> Int32[Array, " arenas"]:
        """Return the member that plays each arena's episode, -1 where none is drawn yet."""
        return jnp.where(agent_state.begun, agent_state.member, -1)

    def act_on(
        self,
        params: EnvParams,
        agent_params: AgentParams,
        agent_state: LeagueMemory,
        state: EnvState,
        observation: Float32[Array, "arenas mechs obs"],
        keys: Key[Array, " arenas"],
    ) -> tuple[LeagueMemory, Float32[Array, "arenas mechs actions"]]:
        """Return the memory after acting and the actions; those of the learner's mechs are zero. Arena i draws from key i alone."""

        assert isinstance(agent_params, LeagueNumbers)
        log_weights = agent_params.log_weights

        def stream(number: int) -> Key[Array, " arenas"]:
            return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)

        drawn = jax.vmap(lambda key: jax.random.categorical(key, log_weights))(stream(DRAW_STREAM))
        member = jnp.where(agent_state.begun, agent_state.member, drawn.astype(jnp.int32))
        carry, theirs = self._policies(agent_params, agent_state.carry, member, observation, stream(POLICY_STREAM))
        memories = []
        for number, (group, memory) in enumerate(zip(self.groups(), agent_state.agents, strict=True)):
            within = member - group.first
            chosen = (within >= 0) & (within < group.size)
            index = jnp.clip(within, 0, group.size - 1)
            own = jax.tree.map(lambda x: x[index] if group.size > 1 else x[0], group.numbers)  # noqa: B023
            own = own.replace(fire_probability=agent_params.fire_probability * own.fire_probability)
            after, actions = group.agent.act(params, own, memory, state, stream(AGENT_STREAM + number))
            memories.append(after)
            theirs = _where(chosen, opponent_rows(actions), theirs)
        after = LeagueMemory(jnp.ones_like(agent_state.begun), member, carry, tuple(memories))
        return after, all_rows(jnp.zeros_like(theirs), theirs)

    def _policies(
        self,
        numbers: LeagueNumbers,
        carry: Any,
        member: Int32[Array, " arenas"],
        observation: Float32[Array, "arenas mechs obs"],
        keys: Key[Array, " arenas"],
    ) -> tuple[Any, Float32[Array, "arenas team actions"]]:
        """The memory and the actions of the opponent's mechs in arenas that a policy plays; zero actions elsewhere."""
        arenas, team = member.shape[0], self.config.team_size
        own = opponent_rows(observation)
        never = jnp.zeros((1, team), bool)

        def arena(policy: FrozenPolicy, carry: Any, seen: Array, key: Array) -> tuple[Any, Array]:
            """One arena, whatever the axes of the network's distribution are."""
            before = jax.tree.map(lambda x: x[None], carry)
            action, after, _ = decide(
                self.network, self.clip, False, policy.params, policy.moments, before, seen[None], never, key
            )
            return jax.tree.map(lambda x: x[0], after), action[0]

        groups = 1 + self.slots
        blocks = into_blocks(member, groups, self.size or block_size(arenas, groups))
        inputs = jax.tree.map(blocks.gather, carry), blocks.gather(own), blocks.gather(keys)
        on_gpu = loop_widths(arenas).fixed_rounds  # there every block in turn would be a round of launches
        after, actions = run_blocks(
            lambda policy, block: jax.vmap(arena, in_axes=(None, 0, 0, 0))(policy, *block),
            numbers.policies,
            blocks,
            inputs,
            in_turn=not on_gpu,
        )
        nothing = jnp.zeros((arenas, team, action_layout(self.config).size), jnp.float32)
        return jax.tree.map(blocks.scatter, after, carry), blocks.scatter(actions, nothing)


def _where(mask: Bool[Array, " arenas"], new: Array, old: Array) -> Array:
    return jnp.where(mask.reshape(-1, *(1,) * (old.ndim - 1)), new, old)
