"""Projectiles in flight: guidance, sweep, terrain, impacts and explosions (docs/spec/rules.md 6)."""

from __future__ import annotations

import math

from echelon_jax.reference.damage import leg_line, paint_bonus, rear_multiplier, record_direction, record_effect
from echelon_jax.reference.noise import Noise
from echelon_jax.reference.state import Battle, Event, Mech, Projectile
from echelon_jax.reference.status import kill_if_dead, without_credit
from echelon_jax.reference.vec import Cell, Vec, add, clip, distance, div, dot, f32, lift, mul, norm, sub, vec
from echelon_jax.reference.world import SmokeCloud
from echelon_jax.rules import constants as c
from echelon_jax.rules.mechs import HEAVY
from echelon_jax.rules.weapons import MISSILE, PROJECTILES, SMOKE, WEAPONS

# Seconds in flight: range over speed (docs/spec/rules.md 6.1).
LIFETIMES = {weapon: WEAPONS[weapon].range / WEAPONS[weapon].speed for weapon in PROJECTILES}


def update_projectiles(battle: Battle, noise: Noise) -> None:
    """Phase 4 of a substep: each projectile completely, in list order."""
    shots, battle.projectiles = battle.projectiles, []
    for shot in shots:
        if update(battle, shot, noise):
            battle.projectiles.append(shot)


def update(battle: Battle, shot: Projectile, noise: Noise) -> bool:
    """Move one projectile by a substep; whether it flies on."""
    dt = battle.config.dt
    shot.age += dt  # step 1 (docs/spec/rules.md 6.2): an expired shot vanishes without a trace (Q31)
    if shot.age > LIFETIMES[shot.weapon]:
        if battle.config.smoke_opens and shot.weapon == SMOKE:
            open_cloud(battle, shot.pos)
        return False
    if intercepted(battle, shot, noise):  # step 2
        return False
    guide(battle, shot)  # step 3
    segment = mul(shot.vel, dt)  # step 4: motion segment (docs/spec/rules.md 6.3)
    end = add(shot.pos, segment)
    victim, closest = sweep(battle, shot, segment)  # step 5: mech sweep (docs/spec/rules.md 6.4)

    # Step 6 (docs/spec/rules.md 6.5): terrain.
    world, size = battle.world, battle.world.size
    outside = min(end[0], end[1]) < 0 or any(v >= n for v, n in zip(end, size, strict=True))
    ends_there = battle.config.shots_end_at_border and outside
    if victim is not None:
        blocked, cell = world.ray(shot.pos, closest, include_end=True)
        if blocked:
            if cell is None and ends_there:
                return False
            impact = before_cell(shot.pos, closest, cell) if cell is not None else end
            victim = None
        else:
            impact = closest
    else:
        blocked, cell = world.ray(shot.pos, end, include_end=True)
        if cell is None and ends_there:  # a mech or a cell on the way comes first, what is near the end does not
            return False
        half = vec((c.PROJECTILE_BOX_HALF,) * 3)
        if not blocked and not world.box_hits(sub(end, half), add(end, half)):
            shot.pos = end
            return True
        impact = before_cell(shot.pos, end, cell) if cell is not None else end
    strike(battle, shot, victim, cell, impact)  # step 7: effects of the impact (docs/spec/rules.md 6.7)
    return False


def intercepted(battle: Battle, shot: Projectile, noise: Noise) -> bool:
    """AMS: each ready heavy of the target's team rolls in every substep with the missile in reach.

    Source: docs/spec/rules.md 6.2 step 2.

    Under ams_one_roll once for each missile.
    """
    if shot.target is None:
        return False
    team = battle.mechs[shot.target].team
    for defender in battle.mechs:
        ready = defender.alive and not defender.shutdown and defender.ams_cooldown <= 0
        if defender.team != team or defender.class_id != HEAVY or not ready:
            continue
        if distance(defender.pos, shot.pos) > c.AMS_RANGE:
            continue
        if battle.config.ams_one_roll:
            if defender.index in shot.rolled:
                continue
            shot.rolled |= {defender.index}
        if noise.ams(shot.shooter, shot, defender.index) < c.AMS_PROBABILITY:
            defender.ams_cooldown = c.AMS_COOLDOWN
            battle.events.append(
                {
                    "type": "ams_intercept",
                    "weapon": "ams",
                    "defender": defender.id,
                    "shooter": battle.mechs[shot.shooter].id,
                    "target": battle.mechs[shot.target].id,
                    "pos": list(shot.pos),
                }
            )
            return True
    return False


def guide(battle: Battle, shot: Projectile) -> None:
    """Guidance: missiles home on a living target, gauss slugs fall, the rest fly straight.

    Source: docs/spec/rules.md 6.2 step 3.
    """
    dt = battle.config.dt
    if shot.weapon == MISSILE and shot.target is not None and battle.mechs[shot.target].alive:
        offset = sub(battle.mechs[shot.target].pos, shot.pos)
        away = norm(offset)
        if away > f32(0.1):
            speed = WEAPONS[MISSILE].speed
            wanted = mul(div(offset, away), speed)
            turn = c.HOMING_GAIN * dt
            mixed = add(mul(shot.vel, 1.0 - turn), mul(wanted, turn))
            shot.vel = mul(div(mixed, norm(mixed) + 1e-6), speed)
    elif WEAPONS[shot.weapon].falls:
        shot.vel = lift(shot.vel, -battle.config.gravity * dt)


def sweep(battle: Battle, shot: Projectile, segment: Vec) -> tuple[Mech | None, Vec]:
    """The enemy of the shooter's team that the segment passes, and the point closest to it (docs/spec/rules.md 6.4).

    Own team is transparent (Q26); the smallest parameter wins, on ties the first in roster order.
    """
    best: Mech | None = None
    best_t, best_point = math.inf, shot.pos
    length_squared = dot(segment, segment)
    if length_squared <= 1e-12:
        return None, shot.pos
    for mech in battle.mechs:
        if not mech.alive or mech.team == battle.mechs[shot.shooter].team:
            continue
        radius = max(mech.half)
        t = clip(f32(dot(sub(mech.pos, shot.pos), segment) / length_squared), 0.0, 1.0)
        point = add(shot.pos, mul(segment, t))
        off = sub(mech.pos, point)
        if dot(off, off) <= radius * radius and t < best_t:
            best, best_t, best_point = mech, t, point
    return best, best_point


def before_cell(start: Vec, end: Vec, cell: Cell) -> Vec:
    """The point of the segment just in front of a cell, computed in float64 (docs/spec/rules.md 6.6)."""
    d = [e - s for s, e in zip(start, end, strict=True)]
    if d[0] * d[0] + d[1] * d[1] + d[2] * d[2] <= 1e-18:
        return start
    t = 0.0
    for s, step, i in zip(start, d, cell, strict=True):
        if abs(step) > 1e-18:
            t = max(t, ((i if step > 0 else i + 1) - s) / step)
    t = clip(t - 1e-4, 0.0, 1.0)
    return f32(start[0] + t * d[0]), f32(start[1] + t * d[1]), f32(start[2] + t * d[2])


def strike(battle: Battle, shot: Projectile, victim: Mech | None, cell: Cell | None, impact: Vec) -> None:
    """Step 7: the effects of an impact, in their order (docs/spec/rules.md 6.7)."""
    weapon = WEAPONS[shot.weapon]
    if cell is not None:
        battle.world.damage(cell, weapon.damage, battle.config.true_voxel_hp)  # 1
    if victim is not None and not (battle.config.smoke_opens and shot.weapon == SMOKE):
        direct_hit(battle, shot, victim, impact)  # 2
    centre = victim.pos if victim is not None else impact
    if shot.weapon == SMOKE:  # 3
        open_cloud(battle, centre)
    elif weapon.splash_radius > 0:  # 4
        explode(battle, shot, centre, victim)


def open_cloud(battle: Battle, centre: Vec) -> None:
    """A new smoke cloud (docs/spec/rules.md 6.7 step 3)."""
    battle.clouds.append(SmokeCloud(centre, c.SMOKE_CLOUD_RADIUS, c.SMOKE_CLOUD_LIFE))
    battle.events.append({"type": "smoke_cloud", "pos": list(centre), "radius": c.SMOKE_CLOUD_RADIUS})


def direct_hit(battle: Battle, shot: Projectile, victim: Mech, impact: Vec) -> None:
    """A direct hit (docs/spec/rules.md 6.7 step 2); smoke shells too, with damage 0 (Q19), unless smoke_opens is on."""
    weapon = WEAPONS[shot.weapon]
    shooter = battle.mechs[shot.shooter]
    multiplier, crit = rear_multiplier(victim, sub(victim.pos, shot.vel))  # 1: judged by the direction of flight
    damage = weapon.damage * multiplier  # 2: legs come before paint (Q18)
    leg_hit = impact[2] < leg_line(victim)
    if leg_hit:
        victim.leg_hp -= damage
        damage *= c.LEG_HIT_BODY_MULTIPLIER
    damage, assist = paint_bonus(battle.mechs, victim, damage, shooter)  # 3
    stability = weapon.stability_damage * multiplier
    record_effect(shooter, victim, damage)
    victim.hp -= damage  # 4
    victim.stability = max(0.0, victim.stability - stability)
    if weapon.suppresses:
        victim.suppressed_time = max(victim.suppressed_time, c.SUPPRESSION_DURATION)
    victim.was_hit = True
    victim.took_damage += damage
    record_direction(victim, shooter.pos)  # 5: from where the shooter is now
    shooter.dealt_damage += damage  # 6
    battle.events.append(
        {
            "type": "projectile_hit",
            "weapon": weapon.name,
            "shooter": shooter.id,
            "target": victim.id,
            "pos": list(impact),
            "damage": damage,
            "stability": stability,
            "is_crit": crit,
            "is_leg_hit": leg_hit,
            "is_painted": victim.painted_remaining > 0,
        }
    )
    if assist is not None:
        battle.events.append(assist)
    kill_if_dead(battle, victim, shooter)


def explode(battle: Battle, shot: Projectile, centre: Vec, direct: Mech | None) -> None:
    """An explosion (docs/spec/rules.md 6.8): mechs in grid order, own team and shooter too (Q11), then voxels."""
    weapon = WEAPONS[shot.weapon]
    shooter = battle.mechs[shot.shooter]
    radius = weapon.splash_radius
    damage = weapon.damage * weapon.splash_scale
    stability = weapon.stability_damage * weapon.splash_scale
    for index in battle.grid.near(centre, radius):  # 1
        mech = battle.mechs[index]
        if not mech.alive or mech is direct or distance(mech.pos, centre) > radius:
            continue
        if not battle.world.terrain_los(centre, mech.pos):
            continue
        record_effect(shooter, mech, damage)
        mech.hp -= damage
        mech.stability = max(0.0, mech.stability - stability)
        mech.was_hit = True
        mech.took_damage += damage
        record_direction(mech, centre)
        event: Event = {
            "type": "projectile_hit",
            "weapon": weapon.name,
            "shooter": shooter.id,
            "target": mech.id,
            "pos": list(centre),
            "damage": damage,
            "stability": stability,
            "is_crit": False,
        }
        battle.events.append(event)
        if mech.team == shooter.team:
            shooter.friendly_damage += damage
        if without_credit(battle, shooter, mech):
            event["credited"] = False
        else:
            shooter.dealt_damage += damage
        kill_if_dead(battle, mech, shooter)
    for cell in cells_within(battle, centre, radius):  # 2
        battle.world.damage(cell, damage, battle.config.true_voxel_hp)
    battle.events.append(  # 3
        {"type": "explosion", "weapon": weapon.name, "pos": list(centre), "radius": radius, "shooter": shooter.id}
    )


def cells_within(battle: Battle, centre: Vec, radius: float) -> list[Cell]:
    """Cells of the grid whose centre is within the radius (docs/spec/rules.md 6.8 step 2)."""
    ranges = [
        range(max(0, math.floor(f32(v - f32(radius)))), min(n, math.ceil(f32(v + f32(radius)))))
        for v, n in zip(centre, battle.world.size, strict=True)
    ]
    return [
        (x, y, z)
        for z in ranges[2]
        for y in ranges[1]
        for x in ranges[0]
        if distance((x + 0.5, y + 0.5, z + 0.5), centre) <= f32(radius)
    ]
