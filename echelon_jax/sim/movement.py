"""Movement: rotation, velocity and collisions of the living mechs in their shuffled order (docs/spec/rules.md 7)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.materials import WATER
from echelon_jax.sim.ewar import shutdown
from echelon_jax.sim.geometry import length3
from echelon_jax.sim.grid import levels_hit, levels_under
from echelon_jax.sim.queues import at
from echelon_jax.sim.rules import MAX_BOX_COLUMNS, SimRules
from echelon_jax.sim.state import Commands, Mechs, SimState
from echelon_jax.sim.upkeep import foot_material
from echelon_jax.sim.widths import LoopWidths


def steer(
    config: EnvConfig, rules: SimRules, mechs: Mechs, commands: Commands, in_water: Bool[Array, "arenas mechs"]
) -> tuple[Float32[Array, "arenas mechs"], Float32[Array, "arenas mechs 3"]]:
    """New yaw and the velocity before collisions. Depends on each mech's own state alone.

    Source: docs/spec/rules.md 7.1 to 7.3.
    """
    dt = config.dt
    fallen, off = mechs.fallen > 0, shutdown(rules, mechs)
    throttle = jnp.where(fallen[..., None], 0.0, commands.throttle)
    legged = mechs.leg_hp <= 0

    turned = mechs.yaw + throttle[..., 3] * rules.max_yaw_rate * dt
    turned = turned - 2.0 * jnp.pi * jnp.floor((turned + jnp.pi) / (2.0 * jnp.pi))
    yaw = jnp.where(fallen | off, mechs.yaw, turned)

    forward, strafe = throttle[..., 0], throttle[..., 1]
    overdrive = jnp.maximum(jnp.sqrt(forward * forward + strafe * strafe), 1.0)
    forward, strafe = forward / overdrive, strafe / overdrive
    speed = rules.max_speed * jnp.where(legged, k.LEGGED_SPEED_MULTIPLIER, 1.0)
    speed = speed * jnp.where(in_water, k.WATER_SPEED_MULTIPLIER, 1.0)
    cos, sin = jnp.cos(yaw), jnp.sin(yaw)
    jet = throttle[..., 2] * rules.max_jet_accel * jnp.where(legged, k.LEGGED_JET_MULTIPLIER, 1.0)

    vx, vy, vz = (mechs.velocity[..., axis] for axis in range(3))
    vx = jnp.where(off, vx, (cos * forward - sin * strafe) * speed)
    vy = jnp.where(off, vy, (sin * forward + cos * strafe) * speed)
    vz = vz + (jnp.where(off, 0.0, jet) - rules.gravity) * dt
    return yaw, jnp.stack([vx, vy, vz], -1) * k.VELOCITY_DAMPING


def move(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    commands: Commands,
    order: Int32[Array, "arenas mechs"],
    widths: LoopWidths,
) -> SimState:
    """One movement phase: every living mech, in `order`, tries x, then y, then z.

    Later mechs meet earlier ones where they now are (S6).
    """
    mechs, words, dt = state.mechs, state.grid.collides, config.dt
    arenas, n = mechs.alive.shape
    alive = mechs.alive
    in_water = foot_material(config, rules, state.grid, mechs) == WATER
    yaw, velocity = steer(config, rules, mechs, commands, in_water)
    yaw = jnp.where(alive, yaw, mechs.yaw)
    row = jnp.arange(arenas, dtype=jnp.int32)
    half_x, half_y, half_z = (rules.half[:, axis] for axis in range(3))
    map_x, map_y, map_z = float(config.size_x), float(config.size_y), float(config.size_z)

    def one_mech(carry: tuple[Array, ...], mech: Int32[Array, " arenas"]) -> tuple[tuple[Array, ...], None]:
        px, py, pz, vx, vy, vz, insertion_index, next_insertion_index = carry
        old_x, old_y, z = at(px, mech), at(py, mech), at(pz, mech)
        ux, uy, uz = at(vx, mech), at(vy, mech), at(vz, mech)
        x, y = old_x, old_y
        hx, hy, hz = half_x[mech], half_y[mech], half_z[mech]
        active = at(alive, mech)
        me = jnp.arange(n) == mech[:, None]
        other = alive & ~me
        lo_x, hi_x, lo_y, hi_y, lo_z, hi_z = (
            px - half_x,
            px + half_x,
            py - half_y,
            py + half_y,
            pz - half_z,
            pz + half_z,
        )

        def columns(x: Array, y: Array) -> tuple[Array, Array]:
            """What a box at (x, y) could meet: its column words, and the mechs that overlap it seen from above."""
            word = levels_under(config, words, row, (x - hx, y - hy), (x + hx, y + hy), MAX_BOX_COLUMNS)
            over = (
                other
                & ((x - hx)[:, None] < hi_x)
                & ((x + hx)[:, None] > lo_x)
                & ((y - hy)[:, None] < hi_y)
                & ((y + hy)[:, None] > lo_y)
            )
            return word, over

        def blocked(meets: tuple[Array, Array], z: Array) -> Array:
            word, over = meets
            lo, hi = z - hz, z + hz
            return levels_hit(config, word, lo, hi) | (over & (lo[:, None] < hi_z) & (hi[:, None] > lo_z)).any(-1)

        def cut(value: Array, half: Array, edge: float) -> Array:
            """A coordinate the mech heads for, cut at the edge before it is tested where the switch says so (Q4)."""
            return jnp.clip(value, half, edge - half) if config.clamp_before_collision else value

        def fits(z: Array) -> Array | bool:
            """There is room for a step up below the top of the map."""
            return z + k.STEP_UP_HEIGHT + hz <= map_z if config.ceiling else True

        may_step = jnp.abs(uz) < k.STEP_UP_SPEED_GATE
        here = columns(x, y)

        def advance(there: tuple[Array, Array], here: tuple[Array, Array], z: Array) -> tuple[Array, Array, tuple]:
            """Forward, else one step up, else stopped: whether it moved, its height, and what is around it then.

            Only the end point is looked at.
            """
            free, up = ~blocked(there, z), may_step & fits(z) & ~blocked(there, z + k.STEP_UP_HEIGHT)
            moved = free | up
            z = jnp.where(~free & up, z + k.STEP_UP_HEIGHT, z)
            return moved, z, (jnp.where(moved, there[0], here[0]), jnp.where(moved[:, None], there[1], here[1]))

        next_x = cut(x + ux * dt, hx, map_x)
        moved, z, here = advance(columns(next_x, y), here, z)
        x, ux = jnp.where(moved, next_x, x), jnp.where(moved, ux, 0.0)
        next_y = cut(y + uy * dt, hy, map_y)
        moved, z, here = advance(columns(x, next_y), here, z)
        y, uy = jnp.where(moved, next_y, y), jnp.where(moved, uy, 0.0)

        free = ~blocked(here, z + uz * dt)
        if config.ceiling:  # the top stops a climb; who is above it already may fall
            free = free & ((uz <= 0) | (z + uz * dt + hz <= map_z))
        z, uz = jnp.where(free, z + uz * dt, z), jnp.where(free, uz, 0.0)

        # In the original the clamp comes only after all three axes (Q4).
        x = jnp.clip(x, hx, map_x - hx)
        y = jnp.clip(y, hy, map_y - hy)
        z = jnp.maximum(z, hz)

        changed = active & (
            ((x / k.GRID_CELL).astype(jnp.int32) != (old_x / k.GRID_CELL).astype(jnp.int32))
            | ((y / k.GRID_CELL).astype(jnp.int32) != (old_y / k.GRID_CELL).astype(jnp.int32))
        )
        mine = me & active[:, None]

        def put(array: Array, value: Array) -> Array:
            return jnp.where(mine, value[:, None], array)

        insertion_index = jnp.where(me & changed[:, None], next_insertion_index[:, None], insertion_index)
        return (
            put(px, x),
            put(py, y),
            put(pz, z),
            put(vx, ux),
            put(vy, uy),
            put(vz, uz),
            insertion_index,
            next_insertion_index + changed.astype(jnp.int32),
        ), None

    p = mechs.position
    start = (
        *(p[..., axis] for axis in range(3)),
        *(velocity[..., axis] for axis in range(3)),
        mechs.insertion_index,
        state.next_insertion_index,
    )
    (px, py, pz, vx, vy, vz, insertion_index, next_insertion_index), _ = jax.lax.scan(
        one_mech, start, order.T, unroll=min(n, widths.move_unroll)
    )
    moved_velocity = jnp.where(alive[..., None], jnp.stack([vx, vy, vz], -1), mechs.velocity)
    loudness = jnp.where(mechs.fallen > 0, 0.0, length3(moved_velocity) * rules.loudness_factor)
    return state.replace(
        mechs=mechs.replace(
            position=jnp.stack([px, py, pz], -1),
            velocity=moved_velocity,
            yaw=yaw,
            loudness=jnp.where(alive, loudness, mechs.loudness),
            insertion_index=insertion_index,
        ),
        next_insertion_index=next_insertion_index,
    )
