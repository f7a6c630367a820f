"""Slots of the modern observation: another mech, a shot or a cloud, as the viewer sees it."""

from __future__ import annotations

import math

from echelon_jax.reference.modern.view import AGE, NEAR, SHOT_SPEED, SPEED, TINY, Frame, View, direction, part, share
from echelon_jax.reference.observation import (
    RADAR_RANGE,
    Scene,
)
from echelon_jax.reference.state import Mech, Projectile
from echelon_jax.reference.vec import Vec, clip
from echelon_jax.rules import constants as c
from echelon_jax.rules.mechs import MECH_CLASSES
from echelon_jax.rules.weapons import (
    BALLISTIC,
    MISSILE,
    PROJECTILES,
    SEEKING,
    SMOKE,
    TRIGGERS,
    WEAPONS,
)

SHOTS, CLOUDS = 4, 2  # most urgent shots and nearest clouds shown
SHOT_KINDS = PROJECTILES
RECEDES, HARMLESS, HOMES = 100.0, 200.0, -1000.0  # what makes a shot less or more urgent than its distance

PLACED, SEEN, SHOT, CLOUD = 14, 17, 10 + len(SHOT_KINDS), 6  # entries of a slot


def painted_by(scene: Scene, target: Mech, viewer: Mech) -> bool:
    """Whether a mech of the viewer's pack has painted the target."""
    if target.painted_remaining <= 0 or target.last_painter is None:
        return False
    return scene.battle.mechs[target.last_painter].same_pack(viewer)


def reaches(shooter: Mech, away: float, bearing: float, clear: bool, locked: bool) -> bool:
    """Whether a fitted weapon of a mech has its target in range, arc and sight (docs/spec/rules.md 5.7 to 5.10).

    Args:
        bearing: cosine of the target's bearing.
        locked: the target is painted by the shooter's pack.
    """

    def fitted(weapon: int) -> bool:
        return shooter.class_id in TRIGGERS[weapon]

    def in_arc(weapon: int) -> bool:
        return bearing >= math.cos(math.radians(WEAPONS[weapon].arc_deg / 2))

    for weapon in SEEKING:
        if fitted(weapon) and clear and away <= WEAPONS[weapon].range and in_arc(weapon):
            return True
    for weapon in BALLISTIC:
        in_cone = away < WEAPONS[weapon].range and bearing > math.cos(c.KINETIC_CONE)
        if fitted(weapon) and clear and not shooter.fallen and in_cone:
            return True
    lock = (clear and away <= c.ONBOARD_LOCK_RANGE) or (locked and away <= WEAPONS[MISSILE].range)
    return fitted(MISSILE) and lock and in_arc(MISSILE)


def _offset(scene: Scene, viewer: Mech, frame: Frame, position: Vec) -> tuple[Vec, list[float]]:
    """The offset of a place on the map's axes, and its first entries: forward, left, up, nearness."""
    dx, dy, dz = (a - b for a, b in zip(position, viewer.pos, strict=True))
    forward, left = frame.turn(dx, dy)
    along = math.hypot(scene.config.size_x, scene.config.size_y)
    away = math.sqrt(dx * dx + dy * dy + dz * dz)
    return (dx, dy, dz), [forward / along, left / along, dz / scene.battle.world.size[2], NEAR / (NEAR + away)]


def slot(scene: Scene, viewer: Mech, view: View, frame: Frame, other: Mech, position: Vec, age: int) -> list[float]:
    """The slot of one other mech that is known to be at `place`, seen `age` decisions ago."""
    (dx, dy, dz), entries = _offset(scene, viewer, frame, position)
    level = math.hypot(dx, dy)
    away = math.sqrt(level * level + dz * dz)
    bearing, side = direction(*frame.turn(dx, dy), level)
    shown = [
        1.0,
        age * scene.config.decision_seconds / AGE,
        *entries,
        bearing,
        side,
        dz / max(away, TINY),
        *(float(other.class_id == k) for k in range(len(MECH_CLASSES))),
        float(viewer.focus_target == other.index),
    ]
    assert len(shown) == PLACED
    if other.index not in view.seen:
        return shown + [0.0] * SEEN
    facing = math.cos(other.yaw), math.sin(other.yaw)
    aim, _ = direction(-(dx * facing[0] + dy * facing[1]), 0.0, level)
    ahead, left = frame.turn(other.vel[0], other.vel[1])
    clear, hostile = other.index in view.clear, other.team != viewer.team
    ours = painted_by(scene, other, viewer)
    aims = hostile and not other.shutdown and reaches(other, away, aim, clear, painted_by(scene, viewer, other))
    reached = hostile and not viewer.shutdown and reaches(viewer, away, bearing, clear, ours)
    return [
        *shown,
        *frame.turn(*facing),
        aim,
        ahead / SPEED,
        left / SPEED,
        other.vel[2] / SPEED,
        clip(part(other.hp, other.spec.hp), 0.0, 1.0),
        clip(part(other.heat, other.spec.heat_cap), 0.0, 2.0),
        other.stability / c.MAX_STABILITY,
        float(other.fallen),
        float(other.legged),
        float(other.shutdown),
        float(ours),
        float(aims),
        float(reached),
        float(clear),
        float(scene.zone.holds(other)),
    ]


def shots(scene: Scene, viewer: Mech, view: View, frame: Frame) -> list[float]:
    """The most urgent projectiles: those that home on the mech, then the near ones that come nearer; smoke last."""
    battle = scene.battle

    def homes(shot: Projectile) -> bool:
        return shot.weapon == MISSILE and shot.target == viewer.index

    def urgency(shot: Projectile) -> float:
        offset = [a - b for a, b in zip(shot.pos, viewer.pos, strict=True)]
        recedes = sum(d * v for d, v in zip(offset, shot.vel, strict=True)) >= 0
        key = math.hypot(*offset) + (RECEDES if recedes else 0.0)
        return key + (HARMLESS if shot.weapon == SMOKE else 0.0) + (HOMES if homes(shot) else 0.0)

    radar = RADAR_RANGE * view.quality[0] if scene.config.observation_mode != "full" else math.inf
    known = [shot for shot in battle.projectiles if homes(shot) or math.dist(shot.pos, viewer.pos) <= radar]
    entries: list[float] = []
    for shot in sorted(known, key=urgency)[:SHOTS]:
        _, offset = _offset(scene, viewer, frame, shot.pos)
        ahead, left = frame.turn(shot.vel[0], shot.vel[1])
        entries += [
            1.0,
            *offset,
            ahead / SHOT_SPEED,
            left / SHOT_SPEED,
            shot.vel[2] / SHOT_SPEED,
            *(float(shot.weapon == kind) for kind in SHOT_KINDS),
            float(battle.mechs[shot.shooter].team != viewer.team),
            float(homes(shot)),
        ]
    return entries + [0.0] * (SHOT * SHOTS - len(entries))


def clouds(scene: Scene, viewer: Mech, frame: Frame) -> list[float]:
    """The nearest smoke clouds, of those at one place the youngest first; everybody sees them."""
    dt = scene.config.dt
    entries: list[float] = []
    nearest = sorted(scene.battle.clouds, key=lambda cloud: (math.dist(cloud.pos, viewer.pos), -cloud.life))
    for cloud in nearest[:CLOUDS]:
        _, offset = _offset(scene, viewer, frame, cloud.pos)
        entries += [1.0, *offset, share(cloud.life, c.SMOKE_CLOUD_LIFE, dt)]
    return entries + [0.0] * (CLOUD * CLOUDS - len(entries))
