"""The modern observation, mech by mech (differences.md; docs/rules.md has the table of its entries).

Everything is in the mech's own frame: forward, left, up. Every other mech has a slot of its own for the whole episode. In
partial mode a slot shows where the mech was last seen, which `ObservationMemory` remembers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.reference.modern.maps import (
    LOCAL_SIDE,
    MAP_SIDE,
    Surroundings,
    bin_of,
    local_planes,
    marked_bins,
    marks_around,
    team_planes,
)
from echelon_jax.reference.observation import (
    MUFFLED,
    RADAR_RANGE,
    SLOTS,
    Scene,
    SightCache,
    choose_contacts,
    message_block,
    viewer_sensors,
    visible,
)
from echelon_jax.reference.rewards import tonnage_in_zone, zone_tick
from echelon_jax.reference.state import Mech, Projectile
from echelon_jax.reference.vec import Vec, clip, distance, wrap_angle
from echelon_jax.reference.world import VoxelWorld
from echelon_jax.rules import constants as c
from echelon_jax.rules import materials as m
from echelon_jax.rules.mechs import MECH_CLASSES, PACK_SIZE
from echelon_jax.rules.timers import decrements
from echelon_jax.rules.weapons import (
    BALLISTIC,
    MAX_AIMED_RANGE,
    MISSILE,
    PROJECTILES,
    SEEKING,
    SMOKE,
    TOP_SHOT_SPEED,
    TRIGGERS,
    WEAPONS,
    Timer,
    timed_weapon,
)

SIGHT_RANGE = MAX_AIMED_RANGE  # voxels up to which sight is looked at for its own sake
AIRBORNE = 0.25  # voxels over the ground
SHOTS, CLOUDS = 4, 2  # most urgent shots and nearest clouds shown
SHOT_KINDS = PROJECTILES
RECEDES, HARMLESS, HOMES = 100.0, 200.0, -1000.0  # what makes a shot less or more urgent than its distance
NEAR = 8.0  # voxels at which nearness is a half
SPEED, SHOT_SPEED, AGE = 10.0, TOP_SHOT_SPEED, 10.0  # voxels/s, voxels/s, s
TINY = 1e-6
DEEDS = ("laser_hit", "missile_launch", "kinetic_fire", "smoke_launch", "paint")  # what a mech is told that it did

PLACED, SEEN, SHOT, CLOUD = 14, 17, 10 + len(SHOT_KINDS), 6  # entries of a slot


@dataclasses.dataclass
class ObservationMemory:
    """The memory of the observation: each mech's last turn, and in partial mode where it last saw the others.

    Attributes:
        turn: radians to the left during the last decision, per mech.
        age: [viewer][other] decisions since it was seen, -1 never; None in full mode.
        last_seen: [viewer][other] where that was; None in full mode.
    """

    turn: list[float]
    age: list[list[int]] | None = None
    last_seen: list[list[Vec]] | None = None

    @classmethod
    def fresh(cls, config: EnvConfig) -> ObservationMemory:
        """Return a memory in which nobody has seen anybody."""
        n = config.num_mechs
        if config.observation_mode == "full":
            return cls([0.0] * n)
        return cls([0.0] * n, [[-1] * n for _ in range(n)], [[(0.0, 0.0, 0.0)] * n for _ in range(n)])

    def older(self, yaw_before: Sequence[float], mechs: Sequence[Mech]) -> None:
        """Make the memory one decision older."""
        self.turn = [wrap_angle(mech.yaw - before) for before, mech in zip(yaw_before, mechs, strict=True)]
        if self.age is not None:
            self.age = [[age + 1 if age >= 0 else -1 for age in row] for row in self.age]

    def refresh(self, viewer: Mech, other: Mech) -> None:
        """Note that the viewer sees the other now."""
        if self.age is not None and self.last_seen is not None:
            self.age[viewer.index][other.index] = 0
            self.last_seen[viewer.index][other.index] = other.pos


class Frame:
    """The axes of a mech."""

    def __init__(self, mech: Mech) -> None:
        self.cos, self.sin = math.cos(mech.yaw), math.sin(mech.yaw)

    def turn(self, x: float, y: float) -> tuple[float, float]:
        """Parts forward and to the left of a vector of the map."""
        return x * self.cos + y * self.sin, y * self.cos - x * self.sin


def direction(x: float, y: float, length: float) -> tuple[float, float]:
    """Cosine and sine of a bearing; straight above counts as straight ahead."""
    return (x / length, y / length) if length > TINY else (1.0, 0.0)


def share(seconds: float, duration: float, dt: float) -> float:
    """The share that is left of a timer that was set to `duration`: whole substeps over whole substeps."""
    return decrements(seconds, dt) / max(decrements(duration, dt), 1)


def _part(value: float, full: float) -> float:
    return value / max(1.0, full)


# ---- one pass over all viewers --------------------------------------------------------------------------------------


@dataclasses.dataclass
class View:
    """One mech's view of the others: who is seen now, and to whom the line of sight is clear within `SIGHT_RANGE`."""

    seen: set[int]
    clear: set[int]
    quality: tuple[float, float, float]


def observe_modern(
    scene: Scene, memory: ObservationMemory, deeds: Sequence[set[str]]
) -> tuple[np.ndarray, list[list[int]], list[int]]:
    """Observations float32 [N, O], contact slots (-1 but for the original's actions), viewers with a non-finite entry.

    Refreshes `memory` with what is seen now, which does not change the observation.

    Args:
        deeds: which of `DEEDS` each mech did during the last decision.
    """
    config, battle = scene.config, scene.battle
    mechs = battle.mechs
    sight = SightCache(battle)
    views = look_around(scene, sight)
    for viewer in mechs:
        for index in views[viewer.index].seen:
            memory.refresh(viewer, mechs[index])
    shared, around = team_planes(battle.world, scene.zone, mechs), Surroundings(battle.world)
    rows = np.zeros((len(mechs), observation_size(config)), np.float32)
    slots = [[-1] * SLOTS for _ in mechs]
    bad = []
    for viewer in mechs:
        if not viewer.alive:
            continue
        view = views[viewer.index]
        vector, planes = one_view(scene, memory, viewer, view, deeds[viewer.index])
        planes = local_planes(around, viewer) + planes
        row = np.array(vector, np.float32)
        if not np.isfinite(row).all():
            bad.append(viewer.index)
            row[~np.isfinite(row)] = 0.0
        low, high = vector_bounds(config)
        row = np.clip(row, low, high)
        rows[viewer.index] = np.concatenate([row, np.array(planes + shared[viewer.team], np.float32)])
        if config.actions == "original":
            chosen = choose_contacts(scene, viewer, view.quality[0], sight)
            slots[viewer.index] = ([other.index for other in chosen] + [-1] * SLOTS)[:SLOTS]
    return rows, slots, bad


def look_around(scene: Scene, sight: SightCache) -> list[View]:
    """Return who sees whom. A ray runs from the earlier mech of the roster if that mech needs it, else from the later one."""
    mechs = scene.battle.mechs
    views = []
    for viewer in mechs:
        quality = viewer_sensors(mechs, viewer)
        view = View(set(), set(), quality)
        for other in mechs:
            if other is viewer or not (viewer.alive and other.alive):
                continue
            if distance(other.pos, viewer.pos) <= SIGHT_RANGE and sight.los(viewer, other):
                view.clear.add(other.index)
            if other.index in view.clear or visible(scene, viewer, other, quality[0], sight):
                view.seen.add(other.index)
        views.append(view)
    return views


def one_view(
    scene: Scene, memory: ObservationMemory, viewer: Mech, view: View, deeds: set[str]
) -> tuple[list[float], list[float]]:
    """The vector of one mech, and the planes of mechs: around it, itself on the map, hostiles on the map."""
    config, battle = scene.config, scene.battle
    frame = Frame(viewer)
    others = [o for o in battle.mechs if o.team == viewer.team and o is not viewer]
    others += [o for o in battle.mechs if o.team != viewer.team]
    vector = itself(scene, memory, viewer, view, deeds, frame)
    marks: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    bins = []
    for other in others:
        place, age = other.pos, 0
        known = other.index in view.seen
        if memory.age is not None and memory.last_seen is not None:
            age = memory.age[viewer.index][other.index]
            place, known = memory.last_seen[viewer.index][other.index], age >= 0 and other.alive
        vector += slot(scene, viewer, view, frame, other, place, age) if known else [0.0] * (PLACED + SEEN)
        if known:
            hostile = other.team != viewer.team
            marks[hostile].append(frame.turn(place[0] - viewer.pos[0], place[1] - viewer.pos[1]))
            if hostile:
                bins.append(bin_of(battle.world, place))
    vector += shots(scene, viewer, view, frame)
    vector += clouds(scene, viewer, frame)
    vector += sound(scene, viewer, view, frame)
    vector += message_block(scene, viewer) if config.comm_dim else []
    vector += teams(scene, viewer)
    planes = marks_around(*marks)
    planes += marked_bins([bin_of(battle.world, viewer.pos)]) + marked_bins(bins)
    return vector, planes


# ---- the mech itself ------------------------------------------------------------------------------------------------


def ground_below(world: VoxelWorld, mech: Mech) -> float:
    """Height of the highest voxel top under the mech's box that is not above its feet; 0 is the bottom of the map."""
    size_x, size_y, size_z = world.size
    low, high = mech.low, mech.high
    level = math.floor(mech.pos[2] - mech.half[2] + AIRBORNE)
    rows = slice(max(0, math.floor(low[1])), min(size_y, math.ceil(high[1])))
    columns = slice(max(0, math.floor(low[0])), min(size_x, math.ceil(high[0])))
    solid = np.asarray(m.COLLIDES[world.material[:, rows, columns]].any((1, 2)))
    under = [z + 1 for z in range(max(0, min(level, size_z))) if solid[z]]
    return float(under[-1]) if under else 0.0


def itself(
    scene: Scene, memory: ObservationMemory, viewer: Mech, view: View, deeds: set[str], frame: Frame
) -> list[float]:
    """The mech itself: condition, limits, weapons, the last hit, its deeds, and where the zone is."""
    config, world, zone = scene.config, scene.battle.world, scene.zone
    spec, dt = viewer.spec, config.dt
    size_z = world.size[2]
    along = math.hypot(config.size_x, config.size_y)
    feet = viewer.pos[2] - viewer.half[2]
    height = max(feet - ground_below(world, viewer), 0.0)
    ahead, left = frame.turn(viewer.vel[0], viewer.vel[1])
    blow = viewer.last_damage_dir or (0.0, 0.0, 0.0)
    blow_ahead, blow_left = frame.turn(blow[0], blow[1])
    to_zone = frame.turn(zone.x - viewer.pos[0], zone.y - viewer.pos[1])
    away = zone.distance(viewer)
    tube = share(viewer.missile_cooldown, WEAPONS[SMOKE if viewer.tube_was_smoke else MISSILE].cooldown, dt)

    def cooldown(left: float, timer: Timer) -> float:
        return share(left, WEAPONS[timed_weapon(viewer.class_id, timer)].cooldown, dt)

    return [
        1.0,  # alive
        *(float(viewer.pack_row == row) for row in range(PACK_SIZE)),
        clip(_part(viewer.hp, spec.hp), 0.0, 1.0),
        clip(_part(viewer.leg_hp, spec.leg_hp), 0.0, 1.0),
        clip(_part(viewer.heat, spec.heat_cap), 0.0, 2.0),
        viewer.stability / c.MAX_STABILITY,
        float(viewer.fallen),
        share(viewer.fallen_time, c.FALLEN_DURATION, dt),
        float(viewer.legged),
        float(viewer.shutdown),
        float(height > AIRBORNE),
        height / size_z,
        feet / size_z,
        ahead / SPEED,
        left / SPEED,
        viewer.vel[2] / SPEED,
        memory.turn[viewer.index] / max(spec.max_yaw_rate * config.decision_seconds, TINY),
        spec.max_speed / 10.0,
        spec.max_yaw_rate / 2.0,
        spec.max_jet_accel / 20.0,
        spec.hp / 200.0,
        spec.heat_cap / 130.0,
        spec.tonnage / 100.0,
        cooldown(viewer.laser_cooldown, Timer.LASER),
        0.0 if viewer.tube_was_smoke else tube,
        tube if viewer.tube_was_smoke else 0.0,
        cooldown(viewer.kinetic_cooldown, Timer.KINETIC),
        cooldown(viewer.painter_cooldown, Timer.PAINTER),
        share(viewer.ams_cooldown, c.AMS_COOLDOWN, dt),
        share(viewer.painted_remaining, c.PAINT_DURATION, dt),
        share(viewer.suppressed_time, c.SUPPRESSION_DURATION, dt),
        view.quality[0] / c.SENSOR_QUALITY_MAX,
        view.quality[1],
        float(viewer.ecm_on and not viewer.shutdown),
        float(viewer.eccm_on and not viewer.shutdown),
        float(viewer.was_hit),
        clip(_part(viewer.took_damage, spec.hp), 0.0, 1.0),
        blow_ahead,
        blow_left,
        blow[2],
        float(any(shot.weapon == MISSILE and shot.target == viewer.index for shot in scene.battle.projectiles)),
        float(viewer.focus_target is not None),
        *(float(deed in deeds) for deed in DEEDS),
        frame.cos,
        frame.sin,
        to_zone[0] / along,
        to_zone[1] / along,
        *direction(*to_zone, away),
        (zone.radius - away) / 20.0,
        zone.radius / 12.0,
        float(zone.holds(viewer)),
    ]


# ---- slots ----------------------------------------------------------------------------------------------------------


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


def _offset(scene: Scene, viewer: Mech, frame: Frame, place: Vec) -> tuple[Vec, list[float]]:
    """The offset of a place on the map's axes, and its first entries: forward, left, up, nearness."""
    dx, dy, dz = (a - b for a, b in zip(place, viewer.pos, strict=True))
    forward, left = frame.turn(dx, dy)
    along = math.hypot(scene.config.size_x, scene.config.size_y)
    away = math.sqrt(dx * dx + dy * dy + dz * dz)
    return (dx, dy, dz), [forward / along, left / along, dz / scene.battle.world.size[2], NEAR / (NEAR + away)]


def slot(scene: Scene, viewer: Mech, view: View, frame: Frame, other: Mech, place: Vec, age: int) -> list[float]:
    """The slot of one other mech that is known to be at `place`, seen `age` decisions ago."""
    (dx, dy, dz), entries = _offset(scene, viewer, frame, place)
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
        clip(_part(other.hp, other.spec.hp), 0.0, 1.0),
        clip(_part(other.heat, other.spec.heat_cap), 0.0, 2.0),
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


# ---- sound and teams ------------------------------------------------------------------------------------------------


def sound(scene: Scene, viewer: Mech, view: View, frame: Frame) -> list[float]:
    """Loudness by quadrant, friends then hostiles, as L / (1 + L); cover takes four fifths, within the range of sight."""
    quadrants = [0.0] * 8
    for other in scene.battle.mechs:
        if other is viewer or not other.alive or other.noise_level <= 0:
            continue
        away = distance(other.pos, viewer.pos)
        loudness = other.noise_level / (1.0 + away * away)
        if away <= SIGHT_RANGE and other.index not in view.clear:
            loudness *= MUFFLED
        ahead, left = frame.turn(other.pos[0] - viewer.pos[0], other.pos[1] - viewer.pos[1])
        quadrants[4 * (other.team != viewer.team) + 2 * (ahead < 0) + (left < 0)] += loudness
    return [loud / (1.0 + loud) for loud in quadrants]


def teams(scene: Scene, viewer: Mech) -> list[float]:
    """Scores, ticks, tonnage in the zone and living mechs of the own and the other team, and the time."""
    config, mechs = scene.config, scene.battle.mechs
    own, enemy = viewer.team, 1 - viewer.team
    tonnes = tonnage_in_zone(mechs, scene.zone)
    ticks = zone_tick(*tonnes)
    weight = [sum(mech.spec.tonnage for mech in mechs if mech.team == team) for team in range(2)]
    living = [sum(mech.alive for mech in mechs if mech.team == team) for team in range(2)]
    entries = []
    for team in (own, enemy):
        entries.append(
            (
                scene.scores[team] / config.score_to_win,
                ticks[team],
                tonnes[team] / weight[team],
                living[team] / config.team_size,
            )
        )
    pairs = [value for pair in zip(*entries, strict=True) for value in pair]
    return [*pairs, scene.battle.tick * config.dt / config.max_episode_seconds]


# ---- bounds ---------------------------------------------------------------------------------------------------------

_FLAG, _SIGNED, _TWICE, _WIDE = (0.0, 1.0), (-1.0, 1.0), (0.0, 2.0), (-2.0, 2.0)
# Bounds of the mech itself, of a slot, of a shot and of a cloud, entry by entry as they are made above.
_SELF = (
    [_FLAG] * 8 + [_TWICE] + [_FLAG] * 8 + [_WIDE] * 3 + [_SIGNED] + [_FLAG] * 3 + [_TWICE] * 3 + [_FLAG] * 14
    + [_SIGNED] * 3 + [_FLAG] * 7 + [_SIGNED] * 7 + [_FLAG] * 2
)  # fmt: skip
_SLOT = (
    [_FLAG] * 2 + [_SIGNED] * 3 + [_FLAG] + [_SIGNED] * 3 + [_FLAG] * 5
    + [_SIGNED] * 3 + [_WIDE] * 3 + [_FLAG] + [_TWICE] + [_FLAG] * 9
)  # fmt: skip
_SHOT = [_FLAG] + [_SIGNED] * 3 + [_FLAG] + [_SIGNED] * 3 + [_FLAG] * (len(SHOT_KINDS) + 2)
_CLOUD = [_FLAG] + [_SIGNED] * 3 + [_FLAG] * 2


def observation_size(config: EnvConfig) -> int:
    """Return the entries of an observation: the vector, six local planes, two planes of its own and four that a team shares."""
    return len(vector_bounds(config)[0]) + 6 * LOCAL_SIDE**2 + 6 * MAP_SIDE**2


def vector_bounds(config: EnvConfig) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest value of every entry before the planes; what lies beyond is clipped."""
    rows = _SELF + _SLOT * (config.num_mechs - 1) + _SHOT * SHOTS + _CLOUD * CLOUDS + [_FLAG] * 8
    rows = rows + [_SIGNED] * (PACK_SIZE * config.comm_dim) + [_FLAG] * 9
    table = np.array(rows, np.float32)
    return table[:, 0], table[:, 1]
