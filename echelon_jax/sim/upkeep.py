"""Upkeep: timers, heat, hazards, stability of every living mech at the start of a substep.

Source: docs/spec/rules.md 8.1 to 8.4.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.materials import DEBRIS_FIELD, LAVA, WATER
from echelon_jax.sim.geometry import length3
from echelon_jax.sim.grid import material_at
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Commands, Grid, Mechs, SimState
from echelon_jax.sim.widths import LoopWidths
from echelon_jax.sim.wrecks import bury


def foot_material(config: EnvConfig, rules: SimRules, grid: Grid, mechs: Mechs) -> Int32[Array, "arenas mechs"]:
    """Material of the cell under the centre of each mech's feet (docs/spec/rules.md 8.2)."""
    p = mechs.position
    cell = jnp.stack([p[..., 0], p[..., 1], p[..., 2] - rules.half[:, 2]], -1).astype(jnp.int32)
    return material_at(config, grid, cell)


def upkeep(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    commands: Commands,
    widths: LoopWidths,
    wreck: Float32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """One upkeep phase. Mechs are independent here, except that simultaneous deaths leave wrecks in roster order (S1).

    `wreck` are the wreck rolls where they are known beforehand.
    """
    m, dt = state.mechs, config.dt
    alive = m.alive

    def count_down(timer: Int32[Array, "arenas mechs"]) -> Int32[Array, "arenas mechs"]:
        return jnp.where(alive, jnp.maximum(timer - 1, 0), timer)

    # Timers (8.4), all but the fall, which has its own rule below.
    suppressed = count_down(m.suppressed)

    # Heat of EWAR, then hazards (8.1, 8.2).
    heat = m.heat
    ewar = jnp.where(m.ecm_on, k.ECM_HEAT * dt, 0.0) + jnp.where(m.eccm_on, k.ECCM_HEAT * dt, 0.0)
    heat = heat + jnp.where(heat > rules.heat_cap, 0.0, ewar)
    foot = foot_material(config, rules, state.grid, m)
    lava, debris, water = foot == LAVA, foot == DEBRIS_FIELD, foot == WATER
    heat = heat + jnp.where(lava, k.LAVA_HEAT * dt, 0.0) + jnp.where(debris, k.DEBRIS_HEAT * dt, 0.0)
    heat = jnp.where(water, jnp.maximum(0.0, heat - k.WATER_COOLING * dt), heat)
    burn = jnp.where(
        alive, jnp.where(lava, k.LAVA_DAMAGE * dt, 0.0) + jnp.where(debris, k.DEBRIS_DAMAGE * dt, 0.0), 0.0
    )
    burn = burn.astype(jnp.float32)
    hp = m.hp - burn
    dead = alive & (hp <= 0) & (burn > 0)

    # Falling, standing up, regaining stability (8.3).
    legged = m.leg_hp <= 0
    fallen = jnp.where(m.fallen > 0, m.fallen - 1, 0)
    stands_up = (m.fallen > 0) & (fallen == 0)
    falls = (m.fallen == 0) & (m.stability <= 0)
    penalty = (
        jnp.where(legged, k.LEGGED_REGEN_PENALTY, 0.0)
        + jnp.where(length3(m.velocity) > k.MOVING_SPEED_THRESHOLD, k.MOVING_REGEN_PENALTY, 0.0)
        + jnp.where(suppressed > 0, k.SUPPRESSED_REGEN_PENALTY, 0.0)
    )
    regen = k.STABILITY_REGEN * dt * jnp.maximum(k.MIN_REGEN_FACTOR, 1.0 - penalty)
    cap = jnp.where(legged, k.MAX_STABILITY * k.LEGGED_STABILITY_MULTIPLIER, k.MAX_STABILITY)
    stability = jnp.where(
        m.fallen > 0,
        jnp.where(stands_up, k.STAND_UP_FRACTION * k.MAX_STABILITY, m.stability),
        jnp.where(falls, m.stability, jnp.minimum(cap, m.stability + regen)),
    ).astype(jnp.float32)
    fallen = jnp.where(falls, rules.fallen_substeps, fallen)
    velocity = jnp.where((alive & falls)[..., None], 0.0, m.velocity)

    # Venting, then dissipation (8.1 c, d).
    cooling: Float32[Array, " mechs"] = rules.heat_dissipation * dt
    vents = commands.vent & (heat <= rules.heat_cap)
    heat = jnp.where(vents, jnp.maximum(0.0, heat - k.VENT_MULTIPLIER * cooling), heat)
    heat = jnp.maximum(0.0, heat - cooling)

    mechs = m.replace(
        heat=jnp.where(alive, heat, m.heat),
        hp=hp,
        stability=jnp.where(alive, stability, m.stability),
        fallen=jnp.where(alive, fallen, m.fallen),
        velocity=velocity,
        suppressed=suppressed,
        ams_cooldown=count_down(m.ams_cooldown),
        laser_cooldown=count_down(m.laser_cooldown),
        tube_cooldown=count_down(m.tube_cooldown),
        kinetic_cooldown=count_down(m.kinetic_cooldown),
        painter_cooldown=count_down(m.painter_cooldown),
        painted=count_down(m.painted),
        alive=alive & ~dead,
    )
    tally = state.tally.replace(took_damage=state.tally.took_damage + burn, died=state.tally.died | dead)
    return state.replace(mechs=mechs, tally=tally, grid=bury(config, rules, state.grid, mechs, dead, widths, wreck))
