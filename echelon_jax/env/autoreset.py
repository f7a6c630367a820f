"""An environment that begins a new episode where one has ended, and keeps the last observation of the ended one."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.config import EnvConfig
from echelon_jax.env.beginning import Maps, bank_maps, state_maps
from echelon_jax.env.buffers import unshared
from echelon_jax.env.environment import Echelon, alone, batch_of_one, select_arenas
from echelon_jax.env.spaces import Box
from echelon_jax.env.state import EnvParams, EnvState, Step
from echelon_jax.sim.queues import compact
from echelon_jax.sim.widths import loop_widths

RESET_STREAM = 0x5EED  # folded into an arena's key; far from the small numbers that splitting a key uses


def write_rows(
    into: tuple[Array, ...],
    source: tuple[Array, ...],
    arena: Bool[Array, " arenas"],
    row: Int32[Array, " arenas"],
    chunk: int,
) -> tuple[Array, ...]:
    """Copy source[row[i]] over into[i] for the arenas i of the mask, in place, `chunk` arenas at a time.

    Large arrays are written through an index: a `where` over the batch would copy all of them at every step. A chunk of at least
    the number of arenas takes one pass without a queue, in which the other arenas are dropped.
    """
    arenas = arena.shape[0]
    if chunk >= arenas > 1:
        item = jnp.where(arena, jnp.arange(arenas, dtype=jnp.int32), arenas)
        return tuple(target.at[item].set(rows[row], mode="drop") for target, rows in zip(into, source, strict=True))
    chunk = min(chunk, arenas)
    queue, count = compact(arena, -(-arenas // chunk) * chunk)

    def more(carry: tuple[Array, tuple[Array, ...]]) -> Array:
        return carry[0] < count

    def write_one(carry: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
        done, arrays = carry
        item = queue[done]
        arrays = tuple(
            jax.lax.dynamic_update_slice_in_dim(target, jax.lax.dynamic_slice_in_dim(rows, row[item], 1, 0), item, 0)
            for target, rows in zip(arrays, source, strict=True)
        )
        return done + 1, arrays

    def write_chunk(carry: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
        done, arrays = carry
        item = jax.lax.dynamic_slice(queue, (done,), (chunk,))  # one past the last arena where nothing is left: dropped
        fresh = row[jnp.minimum(item, arenas - 1)]
        arrays = tuple(
            target.at[item].set(rows[fresh], mode="drop") for target, rows in zip(arrays, source, strict=True)
        )
        return done + chunk, arrays

    return jax.lax.while_loop(more, write_one if chunk == 1 else write_chunk, (jnp.int32(0), into))[1]


@dataclasses.dataclass(frozen=True)
class AutoReset:
    """The same batch interface as the environment, for endless play.

    After a step that ends an episode the state is the start of a new one, in a world drawn from the arena's key, and
    `observation` is what that shows. `final_observation`, reward, flags and info are those of the episode that ended, so
    that a truncated episode can bootstrap from the state it ended in.

    Attributes:
        env: the environment, whose `widths` say how many arenas are reset at a time.
    """

    env: Echelon

    @property
    def config(self) -> EnvConfig:
        """The configuration of the environment."""
        return self.env.config

    def observation_space(self, params: EnvParams | None = None) -> Box:
        """Space of one mech's observation."""
        return self.env.observation_space(params)

    def action_space(self, params: EnvParams | None = None) -> Box:
        """Space of one mech's action."""
        return self.env.action_space(params)

    def reset(
        self, key: Key[Array, ""], params: EnvParams, world_index: Int32[Array, ""] | int | None = None
    ) -> tuple[EnvState, Step]:
        """Begin an episode in one arena."""
        return self.env.reset(key, params, world_index)

    def step(
        self, key: Key[Array, ""], state: EnvState, actions: Float32[Array, "mechs actions"], params: EnvParams
    ) -> tuple[EnvState, Step]:
        """One decision step of one arena, then a reset if it ended the episode."""
        return alone(self.step_batch(key[None], batch_of_one(state), jnp.asarray(actions)[None], params))

    def reset_batch(
        self, keys: Key[Array, " arenas"], params: EnvParams, world_index: Int32[Array, " arenas"] | None = None
    ) -> tuple[EnvState, Step]:
        """Begin an episode in every arena."""
        return self.env.reset_batch(keys, params, world_index)

    def step_batch(
        self,
        keys: Key[Array, " arenas"],
        state: EnvState,
        actions: Float32[Array, "arenas mechs actions"],
        params: EnvParams,
    ) -> tuple[EnvState, Step]:
        """One decision step of every arena, then a reset of those whose episode it ended."""
        # Behind the barrier the ended episode is read no more, so that a new one is written over it without a copy.
        state, step = jax.lax.optimization_barrier(self.env.step_batch(keys, state, actions, params))
        over = step.episode_over
        worlds = self.env.draw_worlds(params, jax.vmap(lambda key: jax.random.fold_in(key, RESET_STREAM))(keys))
        *written, observation = write_rows(
            (*state_maps(state), step.observation),
            (*bank_maps(params.bank), params.bank.observation),
            over,
            worlds,
            (self.env.widths or loop_widths(over.shape[0])).resets,
        )
        maps = Maps(*written)
        fresh = self.env.fresh_state(params, worlds, maps)

        def without_maps(full: EnvState) -> EnvState:
            arena_map = full.arena_map.replace(occupancy=None, telemetry=None)
            return full.replace(sim=full.sim.replace(grid=None), arena_map=arena_map)

        small = select_arenas(over, without_maps(fresh), without_maps(state))
        state = small.replace(
            sim=small.sim.replace(grid=fresh.sim.grid),
            arena_map=small.arena_map.replace(occupancy=maps.occupancy, telemetry=maps.telemetry),
        )
        return unshared((state, step.replace(observation=observation)))
