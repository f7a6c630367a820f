"""The modern observation, mech by mech (differences.md; docs/rules.md has the table of its entries).

Everything is in the mech's own frame: forward, left, up. Every other mech has a slot of its own for the whole episode. In
partial mode a slot shows where the mech was last seen, which `ObservationMemory` remembers.
"""

from __future__ import annotations

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
from echelon_jax.reference.modern.memory import ObservationMemory
from echelon_jax.reference.modern.slots import CLOUDS, PLACED, SEEN, SHOT_KINDS, SHOTS, clouds, shots, slot
from echelon_jax.reference.modern.view import SIGHT_RANGE, SPEED, TINY, Frame, View, direction, part, share
from echelon_jax.reference.observation import (
    MUFFLED,
    SLOTS,
    Scene,
    SightCache,
    choose_contacts,
    message_block,
    viewer_sensors,
    visible,
)
from echelon_jax.reference.rewards import tonnage_in_zone, zone_tick
from echelon_jax.reference.state import Mech
from echelon_jax.reference.vec import clip, distance
from echelon_jax.reference.world import VoxelWorld
from echelon_jax.rules import constants as c
from echelon_jax.rules import materials as m
from echelon_jax.rules.mechs import PACK_SIZE
from echelon_jax.rules.weapons import (
    MISSILE,
    SMOKE,
    WEAPONS,
    Timer,
    timed_weapon,
)

AIRBORNE = 0.25  # voxels over the ground
DEEDS = ("laser_hit", "missile_launch", "kinetic_fire", "smoke_launch", "paint")  # what a mech is told that it did


# ---- one pass over all viewers --------------------------------------------------------------------------------------


def observe_modern(
    scene: Scene, memory: ObservationMemory, deeds: Sequence[set[str]], points_at_contacts: bool
) -> tuple[np.ndarray, list[list[int]], list[int]]:
    """Observations float32 [N, O], contact slots (-1 but for the original's actions), viewers with a non-finite entry.

    Refreshes `memory` with what is seen now, which does not change the observation.

    Args:
        deeds: which of `DEEDS` each mech did during the last decision.
        points_at_contacts: whether the actions choose among contact slots, as the original's do.
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
        if points_at_contacts:
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
        position, age = other.pos, 0
        known = other.index in view.seen
        if memory.age is not None and memory.last_seen is not None:
            age = memory.age[viewer.index][other.index]
            position, known = memory.last_seen[viewer.index][other.index], age >= 0 and other.alive
        vector += slot(scene, viewer, view, frame, other, position, age) if known else [0.0] * (PLACED + SEEN)
        if known:
            hostile = other.team != viewer.team
            marks[hostile].append(frame.turn(position[0] - viewer.pos[0], position[1] - viewer.pos[1]))
            if hostile:
                bins.append(bin_of(battle.world, position))
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
        clip(part(viewer.hp, spec.hp), 0.0, 1.0),
        clip(part(viewer.leg_hp, spec.leg_hp), 0.0, 1.0),
        clip(part(viewer.heat, spec.heat_cap), 0.0, 2.0),
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
        clip(part(viewer.took_damage, spec.hp), 0.0, 1.0),
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
