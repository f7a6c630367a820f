"""Explosions: splash on mechs in grid order with wrecks rising in between, then voxel damage.

Source: docs/spec/rules.md 6.8.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules.mechs import roster
from echelon_jax.sim.effects import count_splash
from echelon_jax.sim.geometry import direction_if_far, dot3, grid_rank, length3
from echelon_jax.sim.grid import damage_cells
from echelon_jax.sim.queues import compact
from echelon_jax.sim.rays import walk
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Grid, SimState
from echelon_jax.sim.wrecks import WRECKS_PER_ROUND, next_wrecks, place_wrecks

ARENAS_PER_ROUND = 16
MAX_SPLASH_RADIUS = 2.5
_SPLASH_CELLS = 6  # floor(e - 2.5) .. ceil(e + 2.5) - 1


class Blast(flax.struct.PyTreeNode):
    """At most one explosion per arena."""

    active: Bool[Array, " arenas"]
    point: Float32[Array, "arenas 3"]
    weapon: Int32[Array, " arenas"]
    shooter: Int32[Array, " arenas"]
    spared: Int32[Array, " arenas"]  # the mech that was hit directly, -1 for none


def splash_mechs(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    blast: Blast,
    dead: Bool[Array, "arenas mechs"],
    draws: Float32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """Place the wrecks of the `dead`, then hurt the mechs around each blast in grid order.

    Source: docs/spec/rules.md 6.8 step 1.

    Within an arena: all targets up to and including the first one that dies are served together (their damage commutes), its
    wreck is placed, and the rest are looked at again through the new grid.
    """
    arenas, n = dead.shape
    chunk = min(arenas, ARENAS_PER_ROUND)
    radius = rules.splash_radius[blast.weapon]
    m, team = state.mechs, jnp.asarray(roster(config.num_packs).team)
    offset = m.position - blast.point[:, None]
    in_reach = length3(offset) <= radius[:, None]
    pending = blast.active[:, None] & in_reach & m.alive & (jnp.arange(n) != blast.spared[:, None])

    def more(carry: tuple[SimState, Array, Array]) -> Bool[Array, ""]:
        return (carry[1] | carry[2]).any()

    def one_round(carry: tuple[SimState, Array, Array]) -> tuple[SimState, Array, Array]:
        state, dead, pending = carry
        queue, _ = compact((dead | pending).any(-1), chunk)
        safe = jnp.minimum(queue, arenas - 1)
        real = queue < arenas
        # One wreck per arena first; its arena's splash waits for the next round.
        mech, wreck, others = next_wrecks(dead, state.mechs.alive, queue)
        grid = place_wrecks(config, rules, state.grid, state.mechs, others, queue, mech, wreck, draws)
        dead = dead.at[queue, mech].set(False, mode="drop")

        m, tally = state.mechs, state.tally
        position, point = m.position[safe], blast.point[safe]
        weapon, shooter = blast.weapon[safe], blast.shooter[safe]
        waiting = pending[safe] & (real & ~wreck)[:, None]
        ray = walk(
            config,
            grid.opaque,
            jnp.repeat(safe, n),
            jnp.repeat(point, n, axis=0),
            position.reshape(-1, 3),
            waiting.reshape(-1),
            include_end=False,
        )
        reached = waiting & ~ray.blocked.reshape(chunk, n)
        damage = rules.damage[weapon] * rules.splash_scale[weapon]
        shove = rules.stability_damage[weapon] * rules.splash_scale[weapon]
        dies = reached & (m.hp[safe] - damage[:, None] <= 0)
        rank = grid_rank(position, m.stamp[safe])
        last = jnp.min(jnp.where(dies, rank, n), -1)
        served = waiting & (rank <= last[:, None])
        hit = served & reached
        dies = dies & served
        direction, far = direction_if_far(point[:, None] - position)

        row = jnp.where(real, queue, arenas)
        hit_damage = jnp.where(hit, damage[:, None], 0.0)
        dealt, kills = damage * hit.sum(-1), dies.sum(-1, dtype=jnp.int32)
        own = team[shooter][:, None] == team
        friendly, friendly_kills = damage * (hit & own).sum(-1), (dies & own).sum(-1, dtype=jnp.int32)
        if config.own_team_counts_against:
            dealt, kills = damage * (hit & ~own).sum(-1), kills - friendly_kills
        set_direction = hit & far
        mechs = m.replace(
            hp=m.hp.at[row].add(-hit_damage, mode="drop"),
            stability=m.stability.at[row].set(
                jnp.where(hit, jnp.maximum(0.0, m.stability[safe] - shove[:, None]), m.stability[safe]), mode="drop"
            ),
            alive=m.alive.at[row].set(m.alive[safe] & ~dies, mode="drop"),
        )
        tally = tally.replace(
            took_damage=tally.took_damage.at[row].add(hit_damage, mode="drop"),
            dealt_damage=tally.dealt_damage.at[row, shooter].add(dealt, mode="drop"),
            kills=tally.kills.at[row, shooter].add(kills, mode="drop"),
            friendly_damage=tally.friendly_damage.at[row, shooter].add(friendly, mode="drop"),
            friendly_kills=tally.friendly_kills.at[row, shooter].add(friendly_kills, mode="drop"),
            died=tally.died.at[row].set(tally.died[safe] | dies, mode="drop"),
            was_hit=tally.was_hit.at[row].set(tally.was_hit[safe] | hit, mode="drop"),
            damage_direction=tally.damage_direction.at[row].set(
                jnp.where(set_direction[..., None], direction, tally.damage_direction[safe]), mode="drop"
            ),
            has_damage_direction=tally.has_damage_direction.at[row].set(
                tally.has_damage_direction[safe] | set_direction, mode="drop"
            ),
            projectile_hits=tally.projectile_hits.at[row, shooter].add(hit.sum(-1, dtype=jnp.int32), mode="drop"),
        )
        tally = count_splash(config.num_packs, tally, m, row, shooter, damage, hit, dies)
        dead = dead.at[row].set(dead[safe] | dies, mode="drop")
        pending = pending.at[row].set(pending[safe] & ~served, mode="drop")
        return state.replace(mechs=mechs, tally=tally, grid=grid), dead, pending

    state, _, _ = jax.lax.while_loop(more, one_round, (state, dead, pending))
    return state


def blast_voxels(config: EnvConfig, rules: SimRules, grid: Grid, blast: Blast) -> Grid:
    """Damage every cell whose centre lies within the splash radius (docs/spec/rules.md 6.8 step 2)."""
    arenas = blast.active.shape[0]
    chunk = min(arenas, WRECKS_PER_ROUND)
    edge = np.arange(_SPLASH_CELLS)
    offsets = jnp.asarray(np.stack(np.meshgrid(edge, edge, edge, indexing="ij"), -1).reshape(-1, 3), jnp.int32)

    def more(carry: tuple[Grid, Array]) -> Bool[Array, ""]:
        return carry[1].any()

    def one_round(carry: tuple[Grid, Array]) -> tuple[Grid, Array]:
        grid, left = carry
        queue, _ = compact(left, chunk)
        safe = jnp.minimum(queue, arenas - 1)
        weapon, point = blast.weapon[safe], blast.point[safe]
        radius = rules.splash_radius[weapon]
        lo = jnp.floor(point - radius[:, None]).astype(jnp.int32)
        hi = jnp.ceil(point + radius[:, None]).astype(jnp.int32)
        cell = lo[:, None] + offsets
        from_centre = (cell.astype(jnp.float32) + 0.5) - point[:, None]
        within = jnp.sqrt(dot3(from_centre, from_centre)) <= radius[:, None]
        wanted = within & (cell < hi[:, None]).all(-1) & (queue < arenas)[:, None]
        amount = rules.damage[weapon] * rules.splash_scale[weapon]
        shape = (chunk * len(offsets),)
        grid = damage_cells(
            config,
            grid,
            jnp.repeat(safe, len(offsets)),
            cell.reshape(-1, 3),
            jnp.broadcast_to(amount[:, None], wanted.shape).reshape(shape),
            wanted.reshape(shape),
        )
        return grid, left.at[queue].set(False, mode="drop")

    return jax.lax.while_loop(more, one_round, (grid, blast.active))[0]


def explode(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    blast: Blast,
    dead: Bool[Array, "arenas mechs"],
    draws: Float32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """At most one explosion per arena, in full; `dead` are mechs just killed whose wrecks rise first (Q13).

    Source: docs/spec/rules.md 6.8.

    `draws` are the wreck rolls under fair_order.
    """
    state = splash_mechs(config, rules, state, blast, dead, draws)
    explosions = state.tally.explosions.at[jnp.arange(dead.shape[0]), blast.shooter].add(blast.active.astype(jnp.int32))
    grid = blast_voxels(config, rules, state.grid, blast)
    return state.replace(grid=grid, tally=state.tally.replace(explosions=explosions))
