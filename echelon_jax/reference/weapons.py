"""The firing phase of one mech: laser and flamer, missile, kinetics, painter, smoke (docs/spec/rules.md 5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from echelon_jax.reference.damage import (
    leg_line,
    paint_bonus,
    painted_by_pack_of,
    rear_multiplier,
    record_direction,
    record_effect,
)
from echelon_jax.reference.noise import Noise
from echelon_jax.reference.state import Battle, Mech, Projectile
from echelon_jax.reference.status import kill_if_dead
from echelon_jax.reference.vec import Vec, add, clip, distance, div, dot, f32, flat, lift, mul, norm, sub
from echelon_jax.rules import constants as c
from echelon_jax.rules.weapons import (
    BALLISTIC,
    HITSCAN,
    MISSILE,
    PAINTER,
    SMOKE,
    TRIGGERS,
    WEAPON_NAMES,
    WEAPONS,
    Timer,
)

HEAT_TRANSFER = {weapon: WEAPONS[weapon].heat_transfer for weapon in HITSCAN}
# The attribute of a mech that holds a timer.
TIMERS = {
    Timer.LASER: "laser_cooldown",
    Timer.TUBE: "missile_cooldown",
    Timer.KINETIC: "kinetic_cooldown",
    Timer.PAINTER: "painter_cooldown",
}


def fire(battle: Battle, mech: Mech, action: list[float], noise: Noise) -> None:
    """All five routines of one living mech, in their order; each tests shutdown anew (docs/spec/rules.md 9.3)."""
    lasers(battle, mech, action, noise)
    missile(battle, mech, action)
    kinetic(battle, mech, action)
    painter(battle, mech, action)
    smoke(battle, mech, action)


def pulled(mech: Mech, weapon: int, action: list[float]) -> bool:
    """Whether the mech carries this weapon and its trigger is pressed (docs/spec/rules.md 5.2)."""
    trigger = TRIGGERS[weapon].get(mech.class_id)
    return trigger is not None and action[trigger] > 0


# ---- aiming (docs/spec/rules.md 5.4) ---------------------------------------------------------------------------------


def valid_focus(battle: Battle, shooter: Mech) -> Mech | None:
    """The focus target if it is alive and hostile now (docs/spec/rules.md 5.3)."""
    if shooter.focus_target is None:
        return None
    target = battle.mechs[shooter.focus_target]
    return target if target.alive and target.team != shooter.team else None


def enemies_in_range(battle: Battle, shooter: Mech, reach: float) -> list[Mech]:
    """Living enemies within range by 3-D centre distance, in grid order around the shooter (docs/spec/rules.md 2.6)."""
    mechs = [battle.mechs[i] for i in battle.grid.near(shooter.pos, reach)]
    return [o for o in mechs if o.alive and o.team != shooter.team and distance(o.pos, shooter.pos) <= reach]


def yaw_error(shooter: Mech, offset: Vec) -> float:
    """E(yaw, offset): horizontal angle between facing and offset; elevation is unrestricted."""
    level = flat(offset)
    length = norm(level)
    if length <= 1e-6:
        return 0.0
    return math.acos(clip(dot(shooter.facing, div(level, length)), -1.0, 1.0))


def in_arc(shooter: Mech, target: Mech, arc_deg: float) -> bool:
    """The arc test: yaw error at most half the arc."""
    return yaw_error(shooter, sub(target.pos, shooter.pos)) <= math.radians(arc_deg / 2)


def nearest_candidate(
    battle: Battle, shooter: Mech, reach: float, gate: Callable[[Mech, float], Any], focus_in_range: bool = True
) -> tuple[Mech, Any] | None:
    """The nearest-candidate rule: the target and the result of its gate, or nothing.

    A valid focus comes first, but any strictly closer candidate replaces it (Q2), unless honour_focus is on.
    With `focus_in_range` False only the gate decides about the focus.
    """
    best: tuple[Mech, Any] | None = None
    best_distance = math.inf
    focus = valid_focus(battle, shooter)
    if focus is not None:
        away = distance(focus.pos, shooter.pos)
        passed = gate(focus, away) if not focus_in_range or away <= reach else None
        if passed:
            best, best_distance = (focus, passed), away
            if battle.config.honour_focus:
                return best
    for enemy in enemies_in_range(battle, shooter, reach):
        if best is not None and enemy is focus:
            continue
        away = distance(enemy.pos, shooter.pos)
        if best is None or away < best_distance:
            passed = gate(enemy, away)
            if passed:
                best, best_distance = (enemy, passed), away
    return best


# ---- hitscan (docs/spec/rules.md 5.7) --------------------------------------------------------------------------------


def lasers(battle: Battle, mech: Mech, action: list[float], noise: Noise) -> None:
    """Laser, flamer and other hitscan weapons. Fallen mechs fire (Q15); shutdown is not tested again in between (Q16)."""
    if mech.shutdown:
        return
    for weapon_id in HITSCAN:
        timer = TIMERS[WEAPONS[weapon_id].timer]
        ready = pulled(mech, weapon_id, action) and getattr(mech, timer) <= 0
        if ready and hitscan(battle, mech, weapon_id, noise):
            setattr(mech, timer, WEAPONS[weapon_id].cooldown)


def hitscan(battle: Battle, mech: Mech, weapon_id: int, noise: Noise) -> bool:
    """One shot of a hitscan weapon; False and no cost without a target."""
    weapon = WEAPONS[weapon_id]

    def gate(target: Mech, away: float) -> bool:
        return in_arc(mech, target, weapon.arc_deg) and battle.has_los(mech.pos, target.pos)

    choice = nearest_candidate(battle, mech, weapon.range, gate)  # 1
    if choice is None:
        return False
    target = choice[0]
    mech.heat += weapon.heat  # 2; the cooldown is the caller's
    multiplier, crit = rear_multiplier(target, mech.pos)  # 3
    damage, assist = paint_bonus(battle.mechs, target, weapon.damage * multiplier, mech)
    half_z = target.half[2]  # 4
    jitter = -half_z + 2.0 * half_z * noise.hit_height(mech.index, weapon_id)
    leg_hit = f32(target.pos[2] + f32(0.5 * jitter)) < f32(leg_line(target))
    if leg_hit:  # 5
        target.leg_hp -= damage
        damage *= c.LEG_HIT_BODY_MULTIPLIER
    record_effect(mech, target, damage)
    target.hp -= damage  # 6
    target.heat += HEAT_TRANSFER[weapon_id]
    target.was_hit = True
    mech.dealt_damage += damage
    target.took_damage += damage
    record_direction(target, mech.pos)  # 7
    battle.events.append(  # 8
        {
            "type": "laser_hit",
            "weapon": weapon.name,
            "shooter": mech.id,
            "target": target.id,
            "pos": list(target.pos),
            "damage": damage,
            "is_crit": crit,
            "is_leg_hit": leg_hit,
            "is_painted": target.painted_remaining > 0,
        }
    )
    if assist is not None:
        battle.events.append(assist)
    kill_if_dead(battle, target, mech)
    return True


# ---- missile (docs/spec/rules.md 5.8) --------------------------------------------------------------------------------


def missile_lock(battle: Battle, shooter: Mech, target: Mech, away: float) -> str | None:
    """ "paint", "los" or no lock."""
    if (
        away <= WEAPONS[MISSILE].range
        and painted_by_pack_of(battle.mechs, target, shooter)
        and sensors(battle.mechs, shooter)[0] >= c.PAINT_LOCK_QUALITY
    ):
        return "paint"
    if away <= c.ONBOARD_LOCK_RANGE and battle.has_los(shooter.pos, target.pos):
        return "los"
    return None


def missile(battle: Battle, mech: Mech, action: list[float]) -> None:
    """Launch a missile at the nearest candidate with a lock; nothing without one. Fallen mechs may."""
    if not pulled(mech, MISSILE, action) or mech.shutdown or mech.missile_cooldown > 0:
        return
    weapon = WEAPONS[MISSILE]

    def gate(target: Mech, away: float) -> str | None:
        return missile_lock(battle, mech, target, away) if in_arc(mech, target, weapon.arc_deg) else None

    choice = nearest_candidate(battle, mech, weapon.range, gate, focus_in_range=False)
    if choice is None:
        return
    target, lock = choice
    mech.missile_cooldown, mech.tube_was_smoke = weapon.cooldown, False
    mech.heat += weapon.heat
    # Spawn (docs/spec/rules.md 6.1): aimed from the shooter's centre, tilted upward.
    offset = sub(target.pos, mech.pos)
    tilted = lift(div(offset, norm(offset) + 1e-6), c.MISSILE_VERTICAL_COMPONENT)
    start = lift(mech.pos, f32(mech.half[2] + c.MISSILE_SPAWN_OFFSET))
    velocity = mul(div(tilted, norm(tilted)), weapon.speed)
    battle.projectiles.append(Projectile(MISSILE, mech.index, target.index, start, velocity))
    battle.events.append(
        {
            "type": "missile_launch",
            "weapon": weapon.name,
            "lock": lock,
            "shooter": mech.id,
            "target": target.id,
            "pos": list(start),
        }
    )


# ---- gauss and autocannon (docs/spec/rules.md 5.9) -------------------------------------------------------------------


def kinetic(battle: Battle, mech: Mech, action: list[float]) -> None:
    """Fire the ballistic weapon, with or without a target. Only these weapons cannot fire from a fallen mech."""
    weapon_id = next((w for w in BALLISTIC if pulled(mech, w, action)), None)
    if weapon_id is None or mech.shutdown or mech.fallen or mech.kinetic_cooldown > 0:
        return
    weapon = WEAPONS[weapon_id]
    target = kinetic_target(battle, mech, weapon.range)
    start = lift(mech.pos, f32(c.BARREL_HEIGHT_FRACTION * mech.half[2]))
    velocity = mul(mech.facing, weapon.speed)
    if target is not None:
        offset = sub(target.pos, start)
        away = norm(offset)
        if away > 1e-6:
            if weapon.falls:  # aim above by the drop on the way
                flight = away / weapon.speed
                offset = lift(offset, 0.5 * battle.config.gravity * flight * flight)
                velocity = mul(div(offset, norm(offset) + 1e-6), weapon.speed)
            else:
                velocity = mul(div(offset, away), weapon.speed)
    mech.kinetic_cooldown = weapon.cooldown
    mech.heat += weapon.heat
    battle.projectiles.append(Projectile(weapon_id, mech.index, None, start, velocity))
    battle.events.append({"type": "kinetic_fire", "weapon": weapon.name, "shooter": mech.id, "pos": list(start)})


def kinetic_target(battle: Battle, mech: Mech, reach: float) -> Mech | None:
    """The target of a kinetic weapon, within a narrow cone that is wider for the focus; sight and arc do not matter (Q17)."""
    best, best_distance = None, reach
    focus = valid_focus(battle, mech)
    if focus is not None:
        offset = sub(focus.pos, mech.pos)
        if norm(offset) <= reach and yaw_error(mech, offset) < c.KINETIC_FOCUS_CONE:
            best, best_distance = focus, norm(offset)
            if battle.config.honour_focus:
                return focus
    for enemy in enemies_in_range(battle, mech, reach):
        if enemy is focus:
            continue
        offset = sub(enemy.pos, mech.pos)
        if norm(offset) < best_distance and yaw_error(mech, offset) < c.KINETIC_CONE:
            best, best_distance = enemy, norm(offset)
    return best


# ---- painter and smoke (docs/spec/rules.md 5.10, 5.11) ---------------------------------------------------------------


def painter(battle: Battle, mech: Mech, action: list[float]) -> None:
    """Paint the nearest candidate, overwriting any earlier painter (Q39)."""
    if not pulled(mech, PAINTER, action) or mech.shutdown or mech.painter_cooldown > 0:
        return
    weapon = WEAPONS[PAINTER]

    def gate(target: Mech, away: float) -> bool:
        return in_arc(mech, target, weapon.arc_deg) and battle.has_los(mech.pos, target.pos)

    choice = nearest_candidate(battle, mech, weapon.range, gate)
    if choice is None:
        return
    target = choice[0]
    mech.painter_cooldown = weapon.cooldown
    mech.heat += weapon.heat
    target.painted_remaining = c.PAINT_DURATION
    target.last_painter = mech.index
    battle.events.append(
        {"type": "paint", "weapon": weapon.name, "shooter": mech.id, "target": target.id, "pos": list(target.pos)}
    )


def smoke(battle: Battle, mech: Mech, action: list[float]) -> None:
    """Fire a smoke shell, level, towards the focus if it is within reach, else straight ahead; always fires."""
    if not pulled(mech, SMOKE, action) or mech.shutdown or mech.missile_cooldown > 0:
        return
    weapon = WEAPONS[SMOKE]
    direction = mech.facing
    if mech.focus_target is not None and battle.mechs[mech.focus_target].alive:
        offset = sub(battle.mechs[mech.focus_target].pos, mech.pos)
        level = flat(offset)
        if norm(offset) <= weapon.range and norm(level) > 1e-6:
            direction = div(level, norm(level))
    mech.missile_cooldown, mech.tube_was_smoke = weapon.cooldown, True
    mech.heat += weapon.heat
    start = add(mech.pos, (0.0, 0.0, mech.half[2]))
    battle.projectiles.append(Projectile(SMOKE, mech.index, None, start, mul(direction, weapon.speed)))
    battle.events.append(
        {"type": "smoke_launch", "weapon": WEAPON_NAMES[SMOKE], "shooter": mech.id, "pos": list(start)}
    )


# ---- electronic warfare (docs/spec/rules.md 5.12) --------------------------------------------------------------------


def sensors(mechs: list[Mech], viewer: Mech) -> tuple[float, float, float]:
    """(quality, jam, eccm) of a viewer that is alive and not shut down; its own ECCM does not count (E14)."""
    jam = eccm = 0.0
    for other in mechs:
        if other is viewer or not other.alive or other.shutdown or not (other.ecm_on or other.eccm_on):
            continue
        away = distance(other.pos, viewer.pos)
        if away > c.EWAR_RADIUS:
            continue
        strength = max(0.0, 1.0 - away / c.EWAR_RADIUS)
        if other.ecm_on and other.team != viewer.team:
            jam = max(jam, strength)
        if other.eccm_on and other.team == viewer.team:
            eccm = max(eccm, strength)
    quality = clip(1.0 - c.ECM_WEIGHT * jam + c.ECCM_WEIGHT * eccm, c.SENSOR_QUALITY_MIN, c.SENSOR_QUALITY_MAX)
    return quality, jam, eccm
