"""Explosions: splash on mechs in grid order with wrecks rising in between, then voxel damage.

Source: docs/spec/rules.md 6.8.
"""

from __future__ import annotations

import math

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import MAX_SPLASH_RADIUS
from echelon_jax.sim.effects import count_splash
from echelon_jax.sim.geometry import direction_if_far, dot3, grid_rank, length3
from echelon_jax.sim.grid import damage_cells
from echelon_jax.sim.queues import pick_rows
from echelon_jax.sim.rays import steps_within, walk
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Grid, SimState
from echelon_jax.sim.widths import LoopWidths
from echelon_jax.sim.wrecks import next_buried, next_wrecks, place_wrecks

_SPLASH_CELLS = math.ceil(2 * MAX_SPLASH_RADIUS) + 1  # along one axis: floor(e - 2.5) .. ceil(e + 2.5) - 1


class Blast(flax.struct.PyTreeNode):
    """At most one explosion per arena."""

    active: Bool[Array, " arenas"]
    point: Float32[Array, "arenas 3"]
    weapon: Int32[Array, " arenas"]
    shooter: Int32[Array, " arenas"]
    spared: Int32[Array, " arenas"]  # the mech that was hit directly, -1 for none


class Splash(flax.struct.PyTreeNode):
    """What an explosion per arena still has to do to mechs: wrecks to place, then targets to look at."""

    dead: Bool[Array, "arenas mechs"]  # killed, without a wreck yet
    pending: Bool[Array, "arenas mechs"]  # within reach, not looked at yet

    def busy(self) -> Bool[Array, " arenas"]:
        """Arenas where something is left."""
        return (self.dead | self.pending).any(-1)


def in_reach(rules: SimRules, state: SimState, blast: Blast) -> Bool[Array, "arenas mechs"]:
    """Living mechs within the splash radius, without the one that was hit directly."""
    radius = rules.splash_radius[blast.weapon]
    near = length3(state.mechs.position - blast.point[:, None]) <= radius[:, None]
    spared = jnp.arange(near.shape[1]) == blast.spared[:, None]
    return blast.active[:, None] & near & state.mechs.alive & ~spared


def splash_round(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    blast: Blast,
    splash: Splash,
    widths: LoopWidths,
    rolls: Float32[Array, "arenas mechs"] | None = None,
) -> tuple[SimState, Splash]:
    """Hurt mechs around each blast in grid order until one dies (docs/spec/rules.md 6.8 step 1).

    In up to `widths.blasts` arenas: a wreck that is due is placed; all targets up to and including the first one that dies are
    served together (their damage commutes). Its wreck and the rest are left for the next round, which looks through the new
    grid.
    """
    n = splash.dead.shape[1]
    team = jnp.asarray(roster(config.num_packs).team)
    rows = pick_rows(splash.busy(), widths.blasts)
    mech, wreck, others = next_wrecks(splash.dead, state.mechs.alive, rows)
    grid = place_wrecks(config, rules, state.grid, state.mechs, others, rows.arena, mech, wreck, rolls)
    dead = next_buried(splash.dead, rows, mech)

    m, tally, take, put = state.mechs, state.tally, rows.take, rows.put
    position, point = take(m.position), take(blast.point)
    weapon, shooter = take(blast.weapon), take(blast.shooter)
    # Only one wreck is due at a time: the direct hit's, then that of the one mech that died last.
    waiting = take(splash.pending) & rows.real[:, None]
    ray = walk(
        config,
        grid.opaque,
        jnp.repeat(rows.arena, n),
        jnp.repeat(point, n, axis=0),
        position.reshape(-1, 3),
        waiting.reshape(-1),
        include_end=False,
        widths=widths,
        most_steps=steps_within(MAX_SPLASH_RADIUS),
    )
    # A walk that is still under way after so many steps has skipped its goal, and never reaches it (Q9).
    reached = waiting & ~(ray.blocked | ray.unfinished).reshape(waiting.shape)
    damage = rules.damage[weapon] * rules.splash_scale[weapon]
    shove = rules.stability_damage[weapon] * rules.splash_scale[weapon]
    dies = reached & (take(m.hp) - damage[:, None] <= 0)
    rank = grid_rank(position, take(m.insertion_index))
    last = jnp.min(jnp.where(dies, rank, n), -1)
    served = waiting & (rank <= last[:, None])
    hit = served & reached
    dies = dies & served
    direction, far = direction_if_far(point[:, None] - position)
    set_direction = hit & far

    hit_damage = jnp.where(hit, damage[:, None], 0.0)
    hits, kills = hit.sum(-1, dtype=jnp.int32), dies.sum(-1, dtype=jnp.int32)
    own = team[shooter][:, None] == team
    friendly, friendly_kills = damage * (hit & own).sum(-1), (dies & own).sum(-1, dtype=jnp.int32)
    if config.own_team_counts_against:
        dealt, kills = damage * (hit & ~own).sum(-1), kills - friendly_kills
    else:
        dealt = damage * hits
    shaken = jnp.where(hit, jnp.maximum(0.0, take(m.stability) - shove[:, None]), take(m.stability))
    mechs = m.replace(
        hp=put(m.hp, take(m.hp) - hit_damage),
        stability=put(m.stability, shaken),
        alive=put(m.alive, take(m.alive) & ~dies),
    )
    tally = tally.replace(
        took_damage=put(tally.took_damage, take(tally.took_damage) + hit_damage),
        dealt_damage=rows.add(tally.dealt_damage, shooter, dealt),
        kills=rows.add(tally.kills, shooter, kills),
        friendly_damage=rows.add(tally.friendly_damage, shooter, friendly),
        friendly_kills=rows.add(tally.friendly_kills, shooter, friendly_kills),
        died=put(tally.died, take(tally.died) | dies),
        was_hit=put(tally.was_hit, take(tally.was_hit) | hit),
        damage_direction=put(
            tally.damage_direction, jnp.where(set_direction[..., None], direction, take(tally.damage_direction))
        ),
        has_damage_direction=put(tally.has_damage_direction, take(tally.has_damage_direction) | set_direction),
        projectile_hits=rows.add(tally.projectile_hits, shooter, hits),
    )
    tally = count_splash(config.num_packs, tally, m, rows, shooter, damage, hit, dies)
    return (
        state.replace(mechs=mechs, tally=tally, grid=grid),
        Splash(dead=put(dead, take(dead) | dies), pending=put(splash.pending, take(splash.pending) & ~served)),
    )


def blast_voxels(
    config: EnvConfig, rules: SimRules, grid: Grid, blast: Blast, widths: LoopWidths
) -> tuple[Grid, Bool[Array, " arenas"]]:
    """Damage every cell whose centre lies within the splash radius (docs/spec/rules.md 6.8 step 2).

    Returns also the arenas whose turn has not come: none, but under `fixed_rounds` all beyond the first `widths.wrecks`.
    """
    edge = np.arange(_SPLASH_CELLS)
    offsets = jnp.asarray(np.stack(np.meshgrid(edge, edge, edge, indexing="ij"), -1).reshape(-1, 3), jnp.int32)

    def more(carry: tuple[Grid, Array]) -> Bool[Array, ""]:
        return carry[1].any()

    def one_round(carry: tuple[Grid, Array]) -> tuple[Grid, Array]:
        grid, left = carry
        rows = pick_rows(left, widths.wrecks)
        weapon, point = rows.take(blast.weapon), rows.take(blast.point)
        radius = rules.splash_radius[weapon]
        lo = jnp.floor(point - radius[:, None]).astype(jnp.int32)
        hi = jnp.ceil(point + radius[:, None]).astype(jnp.int32)
        cell = lo[:, None] + offsets
        from_centre = (cell.astype(jnp.float32) + 0.5) - point[:, None]
        within = jnp.sqrt(dot3(from_centre, from_centre)) <= radius[:, None]
        wanted = within & (cell < hi[:, None]).all(-1) & rows.real[:, None]
        amount = rules.damage[weapon] * rules.splash_scale[weapon]
        shape = (wanted.size,)
        grid = damage_cells(
            config,
            grid,
            jnp.repeat(rows.arena, len(offsets)),
            cell.reshape(-1, 3),
            jnp.broadcast_to(amount[:, None], wanted.shape).reshape(shape),
            wanted.reshape(shape),
        )
        return grid, rows.put(left, jnp.zeros_like(rows.real))

    if widths.fixed_rounds:
        return one_round((grid, blast.active))
    return jax.lax.while_loop(more, one_round, (grid, blast.active))


def finish(
    config: EnvConfig, rules: SimRules, state: SimState, blast: Blast, done: Bool[Array, " arenas"], widths: LoopWidths
) -> tuple[SimState, Bool[Array, " arenas"]]:
    """The end of the explosions that are `done` with mechs: their voxels, and their count.

    Returns also the arenas of which the end is still to come, as `blast_voxels` does.
    """
    ending = blast.active & done
    grid, left = blast_voxels(config, rules, state.grid, blast.replace(active=ending), widths)
    arena = jnp.arange(done.shape[0], dtype=jnp.int32)
    explosions = state.tally.explosions.at[arena, blast.shooter].add((ending & ~left).astype(jnp.int32))
    return state.replace(grid=grid, tally=state.tally.replace(explosions=explosions)), left


def explode(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    blast: Blast,
    dead: Bool[Array, "arenas mechs"],
    widths: LoopWidths,
    rolls: Float32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """At most one explosion per arena, in full; `dead` is the mech just killed, whose wreck rises first (Q13).

    Source: docs/spec/rules.md 6.8.

    `rolls` are those of the wrecks, where they are drawn.
    """

    def more(carry: tuple[SimState, Splash]) -> Bool[Array, ""]:
        return carry[1].busy().any()

    def one_round(carry: tuple[SimState, Splash]) -> tuple[SimState, Splash]:
        state, splash = carry
        return splash_round(config, rules, state, blast, splash, widths, rolls)

    start = Splash(dead=dead, pending=in_reach(rules, state, blast))
    state, _ = jax.lax.while_loop(more, one_round, (state, start))
    return finish(config, rules, state, blast, blast.active, widths)[0]
