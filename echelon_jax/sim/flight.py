"""Flight of projectiles: what each one would do in this substep, given the state as it is.

Source: docs/spec/rules.md 6.2 to 6.6.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, UInt8

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import GAUSS, MISSILE, SMOKE
from echelon_jax.sim.geometry import dot3, length3
from echelon_jax.sim.grid import levels_hit, levels_under
from echelon_jax.sim.rays import walk
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.slots import slots
from echelon_jax.sim.state import SimState


class Flight(flax.struct.PyTreeNode):
    """Outcome of one update of selected projectiles. Exactly one of ended, intercepted, impact, or none (it flies on) holds."""

    slot: Int32[Array, "arenas selected"]
    valid: Bool[Array, "arenas selected"]
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
    rolled: UInt8[Array, "arenas selected"]


def earliest(
    pending: Bool[Array, "arenas slots"], order: Int32[Array, "arenas slots"], number: int
) -> tuple[Int32[Array, "arenas selected"], Bool[Array, "arenas selected"]]:
    """Slots of the first `number` pending projectiles of each arena in processing order, and which of them exist."""
    before = pending[:, None, :] & (order[:, None, :] < order[:, :, None])
    rank = before.sum(-1, dtype=jnp.int32)
    chosen = pending[:, :, None] & (rank[:, :, None] == jnp.arange(number, dtype=jnp.int32))
    slot = jnp.argmax(chosen, axis=1).astype(jnp.int32)
    return slot, chosen.any(1)


def _intercept(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    slot: Int32[Array, "arenas selected"],
    target: Int32[Array, "arenas selected"],
    missile: Bool[Array, "arenas selected"],
    position: Float32[Array, "arenas selected 3"],
    rolls: Float32[Array, "arenas heavies rings packs"],
) -> tuple[Bool[Array, "arenas selected"], Int32[Array, "arenas selected"], UInt8[Array, "arenas selected"]]:
    """AMS (docs/spec/rules.md 6.2 step 2): the first ready heavy of the target's team within range whose roll succeeds.

    It rolls in every substep (Q14); under ams_one_roll once per missile. Returns also who has rolled by now, a bit per pack.
    """
    m, table, packs = state.mechs, slots(config), config.num_packs
    row = jnp.arange(slot.shape[0], dtype=jnp.int32)[:, None]
    shooter = jnp.asarray(table.mech)[slot]
    launcher = jnp.maximum(jnp.asarray(table.heavy_of)[shooter], 0)
    ring = jnp.asarray(table.ring)[slot]
    stopped = jnp.zeros(slot.shape, bool)
    defender = jnp.zeros(slot.shape, jnp.int32)
    rolled = state.projectiles.rolled[row, slot]
    for pack in range(packs):
        heavy = jnp.where(target >= config.team_size, table.heavy[packs + pack], table.heavy[pack]).astype(jnp.int32)
        ready = m.alive[row, heavy] & (m.heat[row, heavy] <= rules.heat_cap[heavy]) & (m.ams_cooldown[row, heavy] <= 0)
        near = length3(m.position[row, heavy] - position) <= k.AMS_RANGE
        tries = missile & ready & near
        if config.ams_one_roll:
            bit = jnp.uint8(1 << pack)
            tries = tries & ((rolled & bit) == 0)
            rolled = jnp.where(tries, rolled | bit, rolled)
        hit = tries & (rolls[row, launcher, ring, pack] < k.AMS_PROBABILITY)
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
    row = jnp.arange(weapon.shape[0], dtype=jnp.int32)[:, None]
    aim = jnp.maximum(target, 0)
    to_target = state.mechs.position[row, aim] - position
    distance = length3(to_target)
    homing = (weapon == MISSILE) & (target >= 0) & state.mechs.alive[row, aim] & (distance > 0.1)
    speed = rules.speed[MISSILE]
    gain = k.HOMING_GAIN * config.dt
    wanted = (1.0 - gain) * velocity + gain * (speed * to_target / jnp.maximum(distance, 0.1)[..., None])
    wanted = speed * wanted / (length3(wanted) + 1e-6)[..., None]
    falling = velocity[..., 2] - jnp.where(weapon == GAUSS, rules.gravity * config.dt, 0.0)
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
    slot: Int32[Array, "arenas selected"],
    valid: Bool[Array, "arenas selected"],
    rolls: Float32[Array, "arenas heavies rings packs"],
) -> Flight:
    """One update of the selected projectiles up to, not including, the effects of an impact."""
    m, p = state.mechs, state.projectiles
    arenas, chosen = slot.shape
    row = jnp.arange(arenas, dtype=jnp.int32)[:, None]
    table = slots(config)
    shooter = jnp.asarray(table.mech)[slot]
    weapon, target, position = p.weapon[row, slot], p.target[row, slot], p.position[row, slot]
    age = p.age[row, slot] + 1
    ended = valid & (age > rules.moves[weapon])
    flying = valid & ~ended
    missile = flying & (weapon == MISSILE) & (target >= 0)
    intercepted, defender, rolled = _intercept(config, rules, state, slot, target, missile, position, rolls)
    flying = flying & ~intercepted

    velocity = _guide(config, rules, state, weapon, target, position, p.velocity[row, slot])
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
    arena = jnp.broadcast_to(row, slot.shape).reshape(flat)
    ray = walk(
        config,
        state.grid.opaque,
        arena,
        position.reshape(-1, 3),
        end.reshape(-1, 3),
        flying.reshape(flat),
        include_end=True,
    )
    blocked, struck = ray.blocked.reshape(slot.shape), ray.struck.reshape(slot.shape)
    cell = ray.cell.reshape(*slot.shape, 3)
    box = ahead.reshape(-1, 3)
    lo, hi = box - k.PROJECTILE_BOX_HALF, box + k.PROJECTILE_BOX_HALF
    word = levels_under(config, state.grid.collides, arena, (lo[:, 0], lo[:, 1]), (hi[:, 0], hi[:, 1]), 2)
    in_wall = levels_hit(config, word, lo[:, 2], hi[:, 2]).reshape(slot.shape)
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
        opens = valid & ~flying & (weapon == SMOKE)
        ended, impact = ended & ~opens, impact | opens
        point = jnp.where(opens[..., None], position, point)
    return Flight(
        slot=slot,
        valid=valid,
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
        rolled=rolled,
    )
