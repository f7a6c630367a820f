"""Flight of projectiles: what each one would do in this substep, given the state as it is.

Source: docs/spec/rules.md 6.2 to 6.6.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, UInt8

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import FALLING, MISSILE, SMOKE
from echelon_jax.sim.geometry import dot3, length3
from echelon_jax.sim.grid import levels_hit, levels_under
from echelon_jax.sim.queues import at
from echelon_jax.sim.rays import walk
from echelon_jax.sim.rules import SimRules, one_of
from echelon_jax.sim.slots import slots
from echelon_jax.sim.state import Projectiles, SimState
from echelon_jax.sim.widths import LoopWidths


class Onward(flax.struct.PyTreeNode):
    """Where a walk that was cut short goes on: the cell, and the ray parameters of the next borders."""

    cell: Int32[Array, "*batch 3"]
    tau: Float32[Array, "*batch 3"]


class Shots(flax.struct.PyTreeNode):
    """Projectiles that are evaluated together: a few picked from each arena, or all slots of each."""

    slot: Int32[Array, "arenas selected"]
    valid: Bool[Array, "arenas selected"]  # a pending projectile
    rank: Int32[Array, "arenas selected"]  # index in the processing order
    weapon: Int32[Array, "arenas selected"]
    shooter: Int32[Array, "arenas selected"]
    target: Int32[Array, "arenas selected"]
    position: Float32[Array, "arenas selected 3"]
    velocity: Float32[Array, "arenas selected 3"]
    age: Int32[Array, "arenas selected"]
    rolled: UInt8[Array, "arenas selected"]
    rolls: Float32[Array, "arenas selected packs"]  # AMS draws of the heavies of the target's team


class Flight(flax.struct.PyTreeNode):
    """Outcome of one update of some projectiles. Exactly one of ended, intercepted, impact, or none (it flies on) holds."""

    ended: Bool[Array, "arenas selected"]  # gone without effect: too old, or outside the map
    intercepted: Bool[Array, "arenas selected"]
    impact: Bool[Array, "arenas selected"]
    defender: Int32[Array, "arenas selected"]  # mech that intercepts
    direct: Bool[Array, "arenas selected"]  # impact on a mech
    victim: Int32[Array, "arenas selected"]  # that mech
    struck: Bool[Array, "arenas selected"]  # impact on a known cell
    cell: Int32[Array, "arenas selected 3"]
    point: Float32[Array, "arenas selected 3"]  # impact point
    position: Float32[Array, "arenas selected 3"]  # after the update
    velocity: Float32[Array, "arenas selected 3"]
    age: Int32[Array, "arenas selected"]
    weapon: Int32[Array, "arenas selected"]
    shooter: Int32[Array, "arenas selected"]
    slot: Int32[Array, "arenas selected"]
    rolled: UInt8[Array, "arenas selected"]
    unfinished: Bool[Array, "arenas selected"]  # its way was cut short and has to go on before anything is known of it
    way: Onward


def ranks(pending: Bool[Array, "arenas slots"], order: Int32[Array, "arenas slots"]) -> Int32[Array, "arenas slots"]:
    """Place of each pending projectile in the processing order of its arena, 0 for the first."""
    before = pending[:, None, :] & (order[:, None, :] < order[:, :, None])
    return before.sum(-1, dtype=jnp.int32)


def all_shots(
    config: EnvConfig,
    projectiles: Projectiles,
    pending: Bool[Array, "arenas slots"],
    rank: Int32[Array, "arenas slots"],
    rolls: Float32[Array, "arenas heavies rings packs"],
) -> Shots:
    """Every slot of every arena, in slot order."""
    table, p, shape = slots(config), projectiles, pending.shape
    return Shots(
        slot=jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32), shape),
        valid=pending,
        rank=rank,
        weapon=p.weapon,
        shooter=jnp.broadcast_to(jnp.asarray(table.mech), shape),
        target=p.target,
        position=p.position,
        velocity=p.velocity,
        age=p.age,
        rolled=p.rolled,
        rolls=rolls[:, np.maximum(table.heavy_of[table.mech], 0), table.ring],
    )


def first_shots(
    config: EnvConfig,
    projectiles: Projectiles,
    pending: Bool[Array, "arenas slots"],
    rolls: Float32[Array, "arenas heavies rings packs"],
    number: int,
) -> Shots:
    """The first `number` pending projectiles of each arena in processing order."""
    table, p = slots(config), projectiles
    rank = jnp.arange(number, dtype=jnp.int32)
    chosen = pending[:, :, None] & (ranks(pending, p.order)[:, :, None] == rank)
    slot = jnp.argmax(chosen, axis=1).astype(jnp.int32)
    shooter = jnp.asarray(table.mech)[slot]
    launcher = jnp.maximum(jnp.asarray(table.heavy_of)[shooter], 0)
    return Shots(
        slot=slot,
        valid=chosen.any(1),
        rank=jnp.broadcast_to(rank, slot.shape),
        weapon=at(p.weapon, slot),
        shooter=shooter,
        target=at(p.target, slot),
        position=at(p.position, slot),
        velocity=at(p.velocity, slot),
        age=at(p.age, slot),
        rolled=at(p.rolled, slot),
        rolls=at(
            rolls.reshape(rolls.shape[0], -1, rolls.shape[-1]),
            launcher * table.max_ring + jnp.asarray(table.ring)[slot],
        ),
    )


def _intercept(
    config: EnvConfig, rules: SimRules, state: SimState, shots: Shots, missile: Bool[Array, "arenas selected"]
) -> tuple[Bool[Array, "arenas selected"], Int32[Array, "arenas selected"], UInt8[Array, "arenas selected"]]:
    """AMS (docs/spec/rules.md 6.2 step 2): the first ready heavy of the target's team within range whose roll succeeds.

    It rolls in every substep (Q14); under ams_one_roll once per missile. Returns also who has rolled by now, a bit per pack.
    """
    m, table, packs = state.mechs, slots(config), config.num_packs
    stopped = jnp.zeros(missile.shape, bool)
    defender = jnp.zeros(missile.shape, jnp.int32)
    rolled = shots.rolled
    for pack in range(packs):
        heavy = jnp.where(shots.target >= config.team_size, table.heavy[packs + pack], table.heavy[pack])
        heavy = heavy.astype(jnp.int32)
        ready = at(m.alive, heavy) & (at(m.heat, heavy) <= rules.heat_cap[heavy]) & (at(m.ams_cooldown, heavy) <= 0)
        near = length3(at(m.position, heavy) - shots.position) <= k.AMS_RANGE
        tries = missile & ready & near
        if config.ams_one_roll:
            bit = jnp.uint8(1 << pack)
            tries = tries & ((rolled & bit) == 0)
            rolled = jnp.where(tries, rolled | bit, rolled)
        hit = tries & (shots.rolls[..., pack] < k.AMS_PROBABILITY)
        defender = jnp.where(hit & ~stopped, heavy, defender)
        stopped = stopped | hit
    return stopped, defender, rolled


def _guide(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    weapon: Int32[Array, "arenas selected"],
    target: Int32[Array, "arenas selected"],
    position: Float32[Array, "arenas selected 3"],
    velocity: Float32[Array, "arenas selected 3"],
) -> Float32[Array, "arenas selected 3"]:
    """Guidance: missiles turn to their living target, gauss slugs fall, the rest fly straight.

    Source: docs/spec/rules.md 6.2 step 3.
    """
    aim = jnp.maximum(target, 0)
    to_target = at(state.mechs.position, aim) - position
    distance = length3(to_target)
    homing = (weapon == MISSILE) & (target >= 0) & at(state.mechs.alive, aim) & (distance > 0.1)
    speed = rules.speed[MISSILE]
    gain = k.HOMING_GAIN * config.dt
    wanted = (1.0 - gain) * velocity + gain * (speed * to_target / jnp.maximum(distance, 0.1)[..., None])
    wanted = speed * wanted / (length3(wanted) + 1e-6)[..., None]
    falling = velocity[..., 2] - jnp.where(one_of(weapon, FALLING), rules.gravity * config.dt, 0.0)
    return jnp.where(homing[..., None], wanted, jnp.stack([velocity[..., 0], velocity[..., 1], falling], -1))


def point_before_cell(
    start: Float32[Array, "*batch 3"], end: Float32[Array, "*batch 3"], cell: Int32[Array, "*batch 3"]
) -> Float32[Array, "*batch 3"]:
    """The impact point just in front of a struck cell (docs/spec/rules.md 6.6)."""
    d = end - start
    entry = jnp.zeros(start.shape[:-1], jnp.float32)
    for axis in range(3):
        da = d[..., axis]
        face = cell[..., axis].astype(jnp.float32) + jnp.where(da < 0, 1.0, 0.0)
        t = (face - start[..., axis]) / jnp.where(jnp.abs(da) > 1e-9, da, 1.0)
        entry = jnp.maximum(entry, jnp.where(jnp.abs(da) > 1e-9, t, 0.0))
    return start + jnp.clip(entry - 1e-4, 0.0, 1.0)[..., None] * d


def fly(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    shots: Shots,
    widths: LoopWidths,
    cut_short: tuple[Bool[Array, "arenas selected"], Onward] | None = None,
) -> Flight:
    """One update of some projectiles up to, not including, the effects of an impact.

    Args:
        cut_short: at most one projectile of each arena that goes on with an earlier walk, and where; the walks of this call
            then take one turn of their loop and may be `unfinished`. Without it every walk comes to its end.
    """
    m = state.mechs
    arenas, chosen = shots.valid.shape
    row = jnp.arange(arenas, dtype=jnp.int32)[:, None]
    weapon, shooter, target, position = shots.weapon, shots.shooter, shots.target, shots.position
    age = shots.age + 1
    ended = shots.valid & (age > rules.moves[weapon])
    flying = shots.valid & ~ended
    missile = flying & (weapon == MISSILE) & (target >= 0)
    intercepted, defender, rolled = _intercept(config, rules, state, shots, missile)
    flying = flying & ~intercepted

    velocity = _guide(config, rules, state, weapon, target, position, shots.velocity)
    step = velocity * config.dt
    ahead = position + step
    length2 = dot3(step, step)

    # Mech sweep (6.4): closest approach of the step to each enemy's centre; smallest parameter, then roster order.
    team = jnp.asarray(roster(config.num_packs).team)
    enemy = m.alive[:, None, :] & (team != team[shooter][..., None]) & (length2 > 1e-12)[..., None]
    to_mech = m.position[:, None] - position[:, :, None]
    t = jnp.clip(dot3(to_mech, step[:, :, None]) / jnp.maximum(length2, 1e-12)[..., None], 0.0, 1.0)
    miss = to_mech - t[..., None] * step[:, :, None]
    touched = enemy & (dot3(miss, miss) <= rules.hit_radius * rules.hit_radius)
    t = jnp.where(touched, t, jnp.inf)
    victim = jnp.argmin(t, -1).astype(jnp.int32)
    candidate = touched.any(-1)
    first_t = jnp.where(candidate, jnp.min(t, -1), 0.0)
    closest = position + first_t[..., None] * step

    # Terrain (6.5).
    end = jnp.where(candidate[..., None], closest, ahead)
    flat = (arenas * chosen,)
    arena = jnp.broadcast_to(row, (arenas, chosen)).reshape(flat)
    onward = None
    if cut_short is not None:
        again, way = cut_short
        cell, tau = (jnp.broadcast_to(part[:, None], (arenas, chosen, 3)) for part in (way.cell, way.tau))
        onward = again.reshape(flat), cell.reshape(-1, 3), tau.reshape(-1, 3)
    ray = walk(
        config,
        state.grid.opaque,
        arena,
        position.reshape(-1, 3),
        end.reshape(-1, 3),
        flying.reshape(flat),
        include_end=True,
        widths=widths,
        most_steps=None if cut_short is None else widths.walk_steps,
        onward=onward,
    )
    blocked, struck = ray.blocked.reshape((arenas, chosen)), ray.struck.reshape((arenas, chosen))
    cell = ray.cell.reshape(arenas, chosen, 3)
    box = ahead.reshape(-1, 3)
    lo, hi = box - k.PROJECTILE_BOX_HALF, box + k.PROJECTILE_BOX_HALF
    word = levels_under(config, state.grid.collides, arena, (lo[:, 0], lo[:, 1]), (hi[:, 0], hi[:, 1]), 2)
    in_wall = levels_hit(config, word, lo[:, 2], hi[:, 2]).reshape((arenas, chosen))
    direct = flying & candidate & ~blocked
    impact = flying & (candidate | blocked | in_wall)
    struck = flying & blocked & struck
    point = jnp.where(struck[..., None], point_before_cell(position, end, cell), ahead)
    point = jnp.where(direct[..., None], closest, point)
    if config.shots_end_at_border:  # a mech or a cell on the way comes first
        size = jnp.array([config.size_x, config.size_y, config.size_z], jnp.float32)
        outside = (ahead[..., :2] < 0).any(-1) | (ahead >= size).any(-1)
        leaves = flying & outside & ~direct & ~struck
        ended, impact = ended | leaves, impact & ~leaves
    if config.smoke_opens:  # the end of a shell's flight is an impact where it is, on nothing
        opens = shots.valid & ~flying & (weapon == SMOKE)
        ended, impact = ended & ~opens, impact | opens
        point = jnp.where(opens[..., None], position, point)
    return Flight(
        ended=ended,
        intercepted=intercepted,
        impact=impact,
        defender=defender,
        direct=direct,
        victim=victim,
        struck=struck,
        cell=cell,
        point=point,
        position=ahead,
        velocity=velocity,
        age=age,
        weapon=weapon,
        shooter=shooter,
        slot=shots.slot,
        rolled=rolled,
        unfinished=ray.unfinished.reshape((arenas, chosen)),
        way=Onward(cell=cell, tau=ray.tau.reshape(arenas, chosen, 3)),
    )
