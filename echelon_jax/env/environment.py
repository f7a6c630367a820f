"""The environment: worlds in, observations, rewards and flags out, for many arenas or one.

Source: docs/spec/environment.md 3.1, 5.2.

Every function is pure and may be jitted with the environment as a constant. A step never resets; `AutoReset` does.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.config import EnvConfig
from echelon_jax.env import checks
from echelon_jax.env.actions import Decision, broadcast, sanitise
from echelon_jax.env.bank import make_bank, replace_rows
from echelon_jax.env.beginning import Maps, bank_maps, fresh_state
from echelon_jax.env.buffers import unshared
from echelon_jax.env.episode import add_score, episode_outcome, flags, team_hp, zone_distance, zone_tick
from echelon_jax.env.interfaces import action_layout, actions_of, observation_layout, observation_of, observe, reward_of
from echelon_jax.env.layout import Layout
from echelon_jax.env.reward_terms import check_term_weights, term_rewards, terms_of
from echelon_jax.env.rewards import Transition
from echelon_jax.env.spaces import Box, box_of
from echelon_jax.env.state import (
    REWARD_COMPONENTS,
    Bank,
    EnvParams,
    EnvState,
    Info,
    Step,
)
from echelon_jax.env.statistics import step_statistics
from echelon_jax.native.call import simulate_natively
from echelon_jax.native.choice import chosen_kernels
from echelon_jax.sim.ewar import shutdown
from echelon_jax.sim.noise import Noise, sample_noise
from echelon_jax.sim.rules import SimRules, check_rules, sim_rules
from echelon_jax.sim.state import SimState
from echelon_jax.sim.step import simulate
from echelon_jax.sim.widths import LoopWidths
from echelon_jax.worldgen.bank import WorldArrays

Tree = TypeVar("Tree")


def select_arenas(mask: Bool[Array, " arenas"], old: Tree, new: Tree) -> Tree:
    """`old` in the arenas of `mask`, `new` elsewhere; for small arrays only, never for a grid."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, old, new)


@dataclasses.dataclass(frozen=True)
class Echelon:
    """The game as functions of arrays; frozen and hashable, so it can be a static argument of a jit.

    Attributes:
        config: sizes, clock and switches.
        widths: of the loops of a step, which change its speed and not its result; without them those of the backend.
        kernels: what runs the simulation, `xla` or `native` (docs/kernels.md); without it what the environment variable
            ECHELON_KERNELS says, else `xla`.

    Example:
        >>> env = Echelon(EnvConfig.original(size_x=40, size_y=40))
        >>> params = env.params(env.make_bank(generate_worlds(env.config, range(8))))
        >>> state, step = env.reset(jax.random.key(0), params)
        >>> state, step = env.step(jax.random.key(1), state, jnp.zeros((10, 26)), params)
    """

    config: EnvConfig
    widths: LoopWidths | None = None
    kernels: str | None = None

    def __post_init__(self) -> None:
        chosen_kernels(self.kernels)

    # Layouts and bounds.

    def observation_layout(self) -> Layout:
        """Table of every entry of a mech's observation."""
        return observation_layout(self.config)

    def action_layout(self) -> Layout:
        """Table of every component of a mech's action."""
        return action_layout(self.config)

    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest value of every observation entry, float32 [obs]; infinite where the game does not clip."""
        return self.observation_layout().bounds

    def observation_space(self, params: EnvParams | None = None) -> Box:
        """Space of one mech's observation; `params` changes nothing and is there because gymnax has it."""
        return box_of(self.observation_layout())

    def action_space(self, params: EnvParams | None = None) -> Box:
        """Space of one mech's action; `params` changes nothing and is there because gymnax has it."""
        return box_of(self.action_layout())

    # Parameters and worlds.

    def default_rewards(self, gamma: float = 0.99) -> Any:
        """The default weights of the configured reward; `gamma` is the learner's discount."""
        return reward_of(self.config).default_weights(self.config, gamma)

    def _weights(self, weights: Any) -> Any:
        kind = reward_of(self.config).weights_type
        if not isinstance(weights, kind):
            raise ValueError(
                f"rewards must be {kind.__name__} for reward {self.config.reward!r}, got {type(weights).__name__}"
            )
        return weights

    def params(
        self,
        bank: Bank,
        rules: SimRules | None = None,
        rewards: Any = None,
        term_weights: Float32[Array, " terms"] | None = None,
    ) -> EnvParams:
        """What a step reads besides the state: the bank, and rules and reward weights (the defaults without them).

        `term_weights` are those of `config.reward_terms`, in order; without them the numbers in that text.

        Raises:
            ValueError: if the bank was made for other sizes or teams, the weights are not of the configured reward, or a
                number of the rules is beyond what a step can do.
        """
        c = self.config
        if rules is not None:
            check_rules(rules)
        weights = self._weights(self.default_rewards() if rewards is None else rewards)
        expected = {
            "material": c.size_x * c.size_y * c.size_z,
            "collides": c.size_x * c.size_y,
            "yaw": c.num_mechs,
        }
        for name, size in expected.items():
            found = getattr(bank, name).shape[1]
            if found != size:
                raise ValueError(
                    f"bank must be made for this configuration: {name} must have {size} entries a world, got {found}"
                )
        if bank.observation.shape[1:] != (c.num_mechs, observation_layout(c).size):
            raise ValueError(
                "bank must be made for this configuration: observation must be "
                f"[{c.num_mechs}, {observation_layout(c).size}] a world, got {bank.observation.shape[1:]}"
            )
        return EnvParams(
            rules=sim_rules(c) if rules is None else rules,
            rewards=weights,
            bank=bank,
            term_weights=check_term_weights(c, term_weights),
        )

    def make_bank(self, worlds: WorldArrays, rules: SimRules | None = None) -> Bank:
        """Upload worlds, with what a reset to each shows; observed in chunks, so that one compile serves any number."""
        return make_bank(self.config, worlds, sim_rules(self.config) if rules is None else rules)

    def replace_worlds(self, bank: Bank, start: int, worlds: WorldArrays, rules: SimRules | None = None) -> Bank:
        """The bank with rows from `start` on replaced by new worlds; the old bank's memory is reused (donated).

        Raises:
            ValueError: if the rows do not lie within the bank.
        """
        count, size = len(worlds.seed), bank.seed.shape[0]
        if not 0 <= start <= size - count:
            raise ValueError(
                f"start must be from 0 to {size - count} for {count} worlds in a bank of {size}, got {start}"
            )
        return replace_rows(bank, self.make_bank(worlds, rules), jnp.int32(start))

    # A batch of arenas.

    def draw_worlds(self, params: EnvParams, keys: Key[Array, " arenas"]) -> Int32[Array, " arenas"]:
        """A world of the bank for each arena, uniform; arena i depends on key i alone."""
        count = params.bank.seed.shape[0]
        return jax.vmap(lambda key: jax.random.randint(key, (), 0, count, jnp.int32))(keys)

    def fresh_state(self, params: EnvParams, worlds: Int32[Array, " arenas"], maps: Maps) -> EnvState:
        """The start of an episode in the given worlds, on `maps` that hold (or will hold) theirs."""
        bank = params.bank
        return fresh_state(
            self.config,
            params.rules,
            maps,
            bank.zone[worlds],
            bank.position[worlds],
            bank.yaw[worlds],
            bank.seed[worlds],
            bank.contact_slots[worlds],
            None if bank.known is None else bank.known[worlds],
        )

    def reset_batch(
        self, keys: Key[Array, " arenas"], params: EnvParams, world_index: Int32[Array, " arenas"] | None = None
    ) -> tuple[EnvState, Step]:
        """Begin an episode in every arena, in worlds drawn from the keys or in the given rows of the bank."""
        size, count = params.bank.seed.shape[0], checks.check_keys(keys)
        drawn = self.draw_worlds(params, keys) if world_index is None else None
        worlds = checks.check_world_index(world_index, count, size) if drawn is None else drawn
        maps = Maps(*(rows[worlds] for rows in bank_maps(params.bank)))
        state = self.fresh_state(params, worlds, maps)
        observation = params.bank.observation[worlds]
        if drawn is None:
            observation = checks.mark_unknown_worlds(observation, worlds, size)
        arenas, n = state.sim.mechs.alive.shape
        none = jnp.zeros((arenas, n, len(REWARD_COMPONENTS)), jnp.float32)
        step = self._step(params, state, observation, none)
        if self.config.reward_terms:
            terms = jnp.zeros((arenas, n, len(terms_of(self.config))), jnp.float32)
            step = step.replace(info=step.info.replace(term_rewards=terms))
        return unshared((state, step), (params, keys))

    def step_batch(
        self,
        keys: Key[Array, " arenas"],
        state: EnvState,
        actions: Float32[Array, "arenas mechs actions"],
        params: EnvParams,
    ) -> tuple[EnvState, Step]:
        """One decision step of every arena, noise from its key. A finished arena stays as it is and rewards nothing."""
        checks.check_keys(keys, state.episode_over.shape[0])
        return self.step_batch_with_noise(sample_noise(self.config, keys), state, actions, params)

    def step_batch_with_noise(
        self,
        noise: Noise,
        state: EnvState,
        actions: Float32[Array, "arenas mechs actions"],
        params: EnvParams,
    ) -> tuple[EnvState, Step]:
        """One decision step of every arena with given draws, in the order of docs/spec/environment.md 3.1."""
        config, rules, layout = self.config, params.rules, self.action_layout()
        over = state.episode_over
        checks.check_actions(config, layout, actions, over.shape[0])

        # Actions.
        clean, bad_actions = sanitise(config, layout, actions)
        decision = actions_of(config).decide(config, state, clean)
        was_alive = state.sim.mechs.alive
        distance_before = zone_distance(state.arena_map, state.sim.mechs.position)

        sim = self._simulated(rules, state, decision, noise)
        mechs = sim.mechs

        # Messages, zone, end of the episode, rewards.
        zone = zone_tick(rules, mechs, state.arena_map, config.zone_on_the_ground)
        score, carry = add_score(config, state.score, state.score_carry, zone.tick)
        step_count = state.step_count + 1
        outcome = episode_outcome(config, mechs, score, carry, step_count)
        fallen, legged, hot = mechs.fallen > 0, mechs.leg_hp <= 0, shutdown(rules, mechs)
        gained = reward_of(config).rewards(
            config,
            self._weights(params.rewards),
            Transition(
                tally=sim.tally,
                zone=zone,
                outcome=outcome,
                was_alive=was_alive,
                alive=mechs.alive,
                distance_before=distance_before,
                distance_after=zone_distance(state.arena_map, mechs.position),
                radius=state.arena_map.zone[:, 2],
                shut_down=mechs.alive & hot & ~state.was_shutdown,
            ),
        )
        advanced = state.replace(
            sim=None,
            messages=broadcast(config, layout, mechs.alive, clean),
            sort_mode=decision.sort_mode,
            hostile_only=decision.hostile_only,
            score=score,
            score_carry=carry,
            step_count=step_count,
            was_fallen=fallen,
            was_legged=legged,
            was_shutdown=hot,
            episode_over=outcome.reason > 0,
            reason=outcome.reason,
            winner=outcome.winner,
        )
        if state.memory is not None:
            advanced = advanced.replace(
                memory=observation_of(config).later_memory(state.memory, state.sim.mechs.yaw, mechs.yaw)
            )
        kept = select_arenas(over, state.replace(sim=None, arena_map=None), advanced.replace(arena_map=None))
        result = kept.replace(sim=sim, arena_map=state.arena_map)

        # Observations and statistics.
        seen = observe(config, rules, result, self.widths)
        counted = step_statistics(sim.tally, state, fallen, legged, hot, bad_actions, seen.bad)
        result = result.replace(
            contact_slots=seen.contact_slots,
            memory=seen.memory,
            statistics=state.statistics + jnp.where(over[:, None, None], 0.0, counted),
        )
        components = jnp.where(over[:, None, None], 0.0, gained.components)
        step = self._step(params, result, seen.observation, components)
        paid, terms = jnp.where(over[:, None], 0.0, gained.total), None
        if config.reward_terms:
            terms = term_rewards(config, params.term_weights, state, result, sim.tally)
            terms = jnp.where(over[:, None, None], 0.0, terms)
            paid = paid + terms.sum(-1)
        return unshared((result, step.replace(reward=paid, info=step.info.replace(term_rewards=terms))))

    def _simulated(self, rules: SimRules, state: EnvState, decision: Decision, noise: Noise) -> SimState:
        """The simulation after a decision; a finished arena stays as it is."""
        config, sim, over = self.config, state.sim, state.episode_over
        if chosen_kernels(self.kernels) == "native":
            mechs = select_arenas(over, sim.mechs, decision.mechs)
            return simulate_natively(config, rules, sim.replace(mechs=mechs), decision.commands, noise, over)
        # In a finished arena everything is dead to the simulation, so that its grid is not edited; the rest is put back.
        before = sim.replace(
            mechs=decision.mechs.replace(alive=sim.mechs.alive & ~over[:, None]),
            projectiles=sim.projectiles.replace(alive=sim.projectiles.alive & ~over[:, None]),
        )
        after = simulate(config, rules, before, decision.commands, noise, self.widths)
        return select_arenas(over, sim.replace(grid=None), after.replace(grid=None)).replace(grid=after.grid)

    def _step(self, params: EnvParams, state: EnvState, observation: Array, components: Array) -> Step:
        """The result of a step that led to `state`; the reward is zero until it is filled in."""
        mechs = state.sim.mechs
        zone = zone_tick(params.rules, mechs, state.arena_map, self.config.zone_on_the_ground)
        terminated, truncated = flags(mechs.alive, state.reason)
        return Step(
            observation=observation,
            reward=jnp.zeros(mechs.alive.shape, jnp.float32),
            terminated=terminated,
            truncated=truncated,
            episode_over=state.episode_over,
            final_observation=observation,
            info=Info(
                reward_components=components,
                alive=mechs.alive,
                in_zone=zone.inside,
                zone_control=zone.tick[:, 0] - zone.tick[:, 1],
                score=state.score + state.score_carry,
                team_hp=team_hp(mechs),
                statistics=state.statistics,
                step_count=state.step_count,
                reason=state.reason,
                winner=state.winner,
                lost_shots=state.sim.lost_shots,
                lost_clouds=state.sim.lost_clouds,
            ),
        )

    # One arena: a batch of one without its leading axis.

    def reset(
        self, key: Key[Array, ""], params: EnvParams, world_index: Int32[Array, ""] | int | None = None
    ) -> tuple[EnvState, Step]:
        """Begin an episode in one arena, in a world drawn from the key or in the given row of the bank."""
        worlds = None if world_index is None else checks.one_row(world_index)
        return alone(self.reset_batch(key[None], params, worlds))

    def step(
        self, key: Key[Array, ""], state: EnvState, actions: Float32[Array, "mechs actions"], params: EnvParams
    ) -> tuple[EnvState, Step]:
        """One decision step of one arena with noise from the key."""
        return alone(self.step_batch(key[None], batch_of_one(state), jnp.asarray(actions)[None], params))

    def step_with_noise(
        self, noise: Noise, state: EnvState, actions: Float32[Array, "mechs actions"], params: EnvParams
    ) -> tuple[EnvState, Step]:
        """One decision step of one arena with given draws (a `Noise` without its leading axis)."""
        return alone(
            self.step_batch_with_noise(batch_of_one(noise), batch_of_one(state), jnp.asarray(actions)[None], params)
        )


def batch_of_one(tree: Tree) -> Tree:
    """A tree of one arena as a batch of one."""
    return jax.tree.map(lambda leaf: leaf[None], tree)


def alone(tree: Any) -> Any:
    """The one arena of a batch of one."""
    return jax.tree.map(lambda leaf: leaf[0], tree)
