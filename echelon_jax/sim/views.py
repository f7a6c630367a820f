"""What the mechs see of each other while they fire, and the wrecks that can change it (docs/spec/rules.md 5.4, 9.3).

Nobody moves in this phase, so distances and bearings hold for all of it. Lines of sight hold until a mech dies: its wreck can
only close a view. Either all views that may be asked for are looked at beforehand, and after a kill those of its arena again
(narrow loops, for a CPU); or each turn looks anew for the one mech that fires (no loop at all, for a GPU).
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.weapons import MISSILE, SEEKING, WEAPONS, Timer
from echelon_jax.sim.ewar import shutdown
from echelon_jax.sim.geometry import grid_rank, team_masks
from echelon_jax.sim.queues import at, pick_rows
from echelon_jax.sim.rays import pair_sight, sight, smoke_clear
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Grid, Mechs, Smoke
from echelon_jax.sim.widths import LoopWidths
from echelon_jax.sim.wrecks import next_buried, next_wrecks, place_wrecks

# The counters of the timers.
TIMER_FIELDS = {timer: f"{timer.value}_cooldown" for timer in Timer}


class Geometry(flax.struct.PyTreeNode):
    """Pairwise facts that hold for the whole phase, shooter first."""

    distance: Float32[Array, "arenas mechs mechs"]
    bearing: Float32[Array, "arenas mechs mechs"]  # cosine of the yaw error (docs/spec/rules.md 5.4)
    rank: Int32[Array, "arenas mechs"]  # index in grid order


def geometry_of(mechs: Mechs) -> Geometry:
    """Distances, bearings and grid order of all mechs where they stand."""
    p = mechs.position
    dx, dy, dz = (p[:, None, :, axis] - p[:, :, None, axis] for axis in range(3))
    flat2 = dx * dx + dy * dy
    flat = jnp.sqrt(flat2)
    along = jnp.cos(mechs.yaw)[:, :, None] * dx + jnp.sin(mechs.yaw)[:, :, None] * dy
    bearing = jnp.where(flat <= 1e-6, 1.0, along / jnp.maximum(flat, 1e-6))
    return Geometry(jnp.sqrt(flat2 + dz * dz), bearing, grid_rank(p, mechs.insertion_index))


def wanted_views(
    config: EnvConfig, rules: SimRules, mechs: Mechs, fires: dict[int, Array], geometry: Geometry
) -> Bool[Array, "arenas mechs mechs"]:
    """Pairs whose line of sight this phase may ask for: trigger pressed, weapon ready, target in range and arc."""
    enemies, _ = team_masks(config.num_packs)
    wanted = jnp.zeros(geometry.distance.shape, bool)
    for weapon in (*SEEKING, MISSILE):
        cooldown = getattr(mechs, TIMER_FIELDS[WEAPONS[weapon].timer])
        reach = k.ONBOARD_LOCK_RANGE if weapon == MISSILE else rules.range[weapon]
        shooter = fires[weapon] & (cooldown <= 0)
        wanted = wanted | (
            shooter[:, :, None] & (geometry.distance <= reach) & (geometry.bearing >= rules.arc_cosine[weapon])
        )
    able = mechs.alive & ~shutdown(rules, mechs)
    return wanted & able[:, :, None] & mechs.alive[:, None, :] & jnp.asarray(enemies)


def bury_and_look_again(
    config: EnvConfig,
    rules: SimRules,
    grid: Grid,
    mechs: Mechs,
    view: Bool[Array, "arenas mechs mechs"],
    dead: Bool[Array, "arenas mechs"],
    widths: LoopWidths,
    rolls: Float32[Array, "arenas mechs"] | None,
) -> tuple[Grid, Bool[Array, "arenas mechs mechs"]]:
    """Place the wrecks of the dead and re-test the clear views of their arenas; nothing is done where nobody died."""

    def more(carry: tuple[Grid, Array, Array]) -> Bool[Array, ""]:
        return carry[2].any()

    def one_round(carry: tuple[Grid, Array, Array]) -> tuple[Grid, Array, Array]:
        grid, view, left = carry
        rows = pick_rows(left.any(-1), widths.wrecks)
        mech, wanted, others = next_wrecks(left, mechs.alive, rows)
        grid = place_wrecks(config, rules, grid, mechs, others, rows.arena, mech, wanted, rolls)
        again = rows.take(view) & wanted[:, None, None]
        chunk = 8 * widths.wrecks
        clear = pair_sight(
            config, grid.opaque, rows.take(mechs.position), again, arena=rows.arena, chunk=chunk, widths=widths
        )
        return grid, rows.put(view, clear), next_buried(left, rows, mech)

    grid, view, _ = jax.lax.while_loop(more, one_round, (grid, view, dead))
    return grid, view


def bury_target(
    config: EnvConfig,
    rules: SimRules,
    grid: Grid,
    mechs: Mechs,
    target: Int32[Array, " arenas"],
    killed: Bool[Array, " arenas"],
    rolls: Float32[Array, "arenas mechs"] | None,
) -> Grid:
    """Place the wreck of the one mech that a single shot can have killed in each arena."""
    arena = jnp.arange(target.shape[0], dtype=jnp.int32)
    return place_wrecks(config, rules, grid, mechs, mechs.alive, arena, target, killed, rolls)


def smoke_free(
    position: Float32[Array, "arenas mechs 3"], smoke: Smoke, wanted: Bool[Array, "arenas mechs mechs"]
) -> Bool[Array, "arenas mechs mechs"]:
    """The wanted views that no cloud closes."""
    arenas, n = position.shape[:2]
    item = jnp.arange(arenas * n * n, dtype=jnp.int32)
    row, pair = item // (n * n), item % (n * n)
    where = position.reshape(-1, 3)
    start, end = where[row * n + pair // n], where[row * n + pair % n]
    return smoke_clear(smoke.position[row], smoke.life[row], start, end).reshape(wanted.shape) & wanted


def views_of(
    config: EnvConfig,
    opaque: UInt32[Array, "arenas columns"],
    position: Float32[Array, "arenas mechs 3"],
    wanted: Bool[Array, "arenas mechs mechs"],
    viewer: Int32[Array, "#arenas viewers"],
    reach: float,
    widths: LoopWidths,
) -> Bool[Array, "arenas viewers mechs"]:
    """Which enemies some mechs see now, all rays walked together; the same viewers in every arena, or its own in each.

    `wanted` pairs are at most `reach` apart.
    """
    arenas, n = position.shape[:2]
    half = config.team_size
    enemies = jnp.asarray(team_masks(config.num_packs)[0])
    first = jnp.where(viewer < half, half, 0)[..., None]
    target = first + jnp.arange(half, dtype=jnp.int32)  # the enemies of a mech are neighbours in the roster
    shape = (arenas, viewer.shape[1], half)
    viewer_of, target = (jnp.broadcast_to(mech, shape) for mech in (viewer[..., None], target))
    needed = at(wanted.reshape(arenas, n * n), viewer_of * n + target)
    arena = jnp.broadcast_to(jnp.arange(arenas, dtype=jnp.int32)[:, None, None], shape)
    clear = sight(
        config,
        opaque,
        arena.reshape(-1),
        at(position, viewer_of).reshape(-1, 3),
        at(position, target).reshape(-1, 3),
        needed.reshape(-1),
        widths,
        reach=reach,
    )
    clear = clear.reshape(shape) & needed
    both_teams = jnp.broadcast_to(clear[:, :, None], (arenas, shape[1], 2, half)).reshape(arenas, shape[1], n)
    return both_teams & enemies[viewer]
