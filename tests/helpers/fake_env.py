"""A tiny environment with the real interface, for tests of the learner: remember a sign that is shown once.

Every mech sees +1 or -1 at its episode's first decision only, and earns its first action component times that sign at every
decision. Mechs die and episodes are decided at given rates; time is up after `MAX_STEPS`.
"""

from __future__ import annotations

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.state import REWARD_COMPONENTS, STATISTICS, Info, Step

MAX_STEPS = 6
CONFIG = EnvConfig.original(comm_dim=0)


@flax.struct.dataclass
class FakeParams:
    death_rate: jax.Array
    decided_rate: jax.Array
    reward_scale: jax.Array


def fake_params(death_rate=0.0, decided_rate=0.0, reward_scale=1.0):
    return FakeParams(*(jnp.asarray(x, jnp.float32) for x in (death_rate, decided_rate, reward_scale)))


@flax.struct.dataclass
class FakeState:
    step_count: jax.Array  # [arenas]
    sign: jax.Array  # [arenas, mechs]
    alive: jax.Array  # [arenas, mechs]
    telemetry: jax.Array  # [arenas, 256]
    score: jax.Array  # [arenas, 2]


@dataclasses.dataclass(frozen=True)
class FakeEnv:
    config: EnvConfig = CONFIG

    def _fresh(self, keys):
        def one(key):
            sign_key, map_key = jax.random.split(key)
            sign = jax.random.rademacher(sign_key, (self.config.num_mechs,), jnp.float32)
            return sign, jax.random.bernoulli(map_key, 0.5, (256,)).astype(jnp.uint8)

        sign, telemetry = jax.vmap(one)(keys)
        arenas = sign.shape[0]
        return FakeState(
            jnp.zeros(arenas, jnp.int32), sign, jnp.ones(sign.shape, bool), telemetry, jnp.zeros((arenas, 2))
        )

    def _observe(self, state):
        layout = observation_layout(self.config)
        arenas, mechs = state.sign.shape
        shown = jnp.where(state.step_count[:, None] == 0, state.sign, 0.0)
        obs = jnp.zeros((arenas, mechs, layout.size), jnp.float32)
        obs = obs.at[..., layout["contact_0/offset"].offset].set(shown)
        obs = obs.at[..., layout["contact_0/used"].offset].set(1.0)  # for networks that look only at used slots
        obs = obs.at[..., layout["own/time"].offset].set(state.step_count[:, None] / MAX_STEPS)
        obs = obs.at[..., layout["telemetry"].slice].set(state.telemetry[:, None].astype(jnp.float32))
        return jnp.where(state.alive[..., None], obs, 0.0)

    def _step(self, state, observation, reward, terminated, truncated, over, winner):
        arenas, mechs = reward.shape
        components = jnp.zeros((arenas, mechs, len(REWARD_COMPONENTS))).at[..., 1].set(reward)
        statistics = (
            jnp.zeros((arenas, len(STATISTICS), 2))
            .at[:, STATISTICS.index("damage")]
            .set(jnp.stack([state.step_count * 2.0, state.step_count * 3.0], -1))
        )
        info = Info(
            reward_components=components,
            alive=state.alive,
            in_zone=state.alive & (state.sign > 0),
            zone_control=jnp.zeros(arenas),
            score=state.score,
            team_hp=jnp.zeros((arenas, 2)),
            statistics=statistics,
            step_count=state.step_count,
            reason=jnp.where(over, jnp.where(truncated.any(-1), 3, 1), 0),
            winner=winner,
            lost_shots=jnp.zeros(arenas, jnp.int32),
            lost_clouds=jnp.zeros(arenas, jnp.int32),
        )
        return Step(observation, reward, terminated, truncated, over, observation, info)

    def reset_batch(self, keys, params):
        state = self._fresh(keys)
        zero, no = jnp.zeros(state.sign.shape), jnp.zeros(state.sign.shape, bool)
        arenas = state.sign.shape[0]
        blank = jnp.zeros(arenas, bool), jnp.zeros(arenas, jnp.int32)
        return state, self._step(state, self._observe(state), zero, no, no, *blank)

    def step_batch(self, keys, state, actions, params):
        team = self.config.team_size
        three = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
        death = jax.vmap(lambda key: jax.random.uniform(key, (2 * team,)))(three[:, 0]) < params.death_rate
        outcome = jax.vmap(lambda key: jax.random.uniform(key))(three[:, 1]) < params.decided_rate
        reward = jnp.where(state.alive, actions[..., 0] * state.sign * params.reward_scale, 0.0)
        alive = state.alive & ~death
        gain = jnp.stack([reward[:, :team].mean(-1), reward[:, team:].mean(-1)], -1)
        state = state.replace(step_count=state.step_count + 1, alive=alive, score=state.score + jnp.maximum(gain, 0.0))
        blue, red = alive[:, :team].any(-1), alive[:, team:].any(-1)
        decided = outcome | ~blue | ~red
        time_up = ~decided & (state.step_count >= MAX_STEPS)
        over = decided | time_up
        terminated = ~alive | decided[:, None]
        truncated = time_up[:, None] & alive
        winner = jnp.where(state.score[:, 0] > state.score[:, 1], 0, 1)
        final = self._observe(state)
        step = self._step(state, final, reward, terminated, truncated, over, winner)

        fresh = self._fresh(three[:, 2])

        def pick(new, old):
            return jnp.where(over.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        state = jax.tree.map(pick, fresh, state)
        return state, step.replace(observation=pick(self._observe(fresh), final), final_observation=final)


@dataclasses.dataclass(frozen=True)
class CountingAgent:
    """Acts by its place in the roster and counts the decisions of each arena's episode in its memory."""

    config: EnvConfig = CONFIG

    def init(self, params, state):
        return jnp.zeros(state.step_count.shape, jnp.int32)

    def act(self, params, agent_params, agent_state, state, keys):
        shape = (keys.shape[0], self.config.num_mechs, action_layout(self.config).size)
        return agent_state + 1, jnp.broadcast_to(0.01 * jnp.arange(shape[1], dtype=jnp.float32)[:, None], shape)

    def reset_where(self, agent_state, fresh_state, mask):
        return jnp.where(mask, 0, agent_state)
