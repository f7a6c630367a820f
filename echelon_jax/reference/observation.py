"""What every mech sees after a decision step: one float32 vector each, and the contact slots behind it.

Source: docs/spec/environment.md 2.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.reference.damage import painted_by_pack_of
from echelon_jax.reference.rewards import Zone, tonnage_in_zone
from echelon_jax.reference.state import Battle, Mech, Projectile
from echelon_jax.reference.vec import Vec, clip, distance, div, dot, f32, norm, sub, wrap_angle
from echelon_jax.reference.weapons import sensors
from echelon_jax.reference.world import VoxelWorld, smoke_clear
from echelon_jax.rules import constants as c
from echelon_jax.rules import materials as m
from echelon_jax.rules.mechs import BLUE, HEAVY, LIGHT, MEDIUM, PACK_SIZE, RED, SCOUT
from echelon_jax.rules.weapons import GAUSS, LASER, MISSILE, PAINTER, WEAPONS

SLOTS = 5
CONTACT_SIZE = 25
LOCAL_SIDE = 11
TELEMETRY_SIDE = 16
SCALAR_SIZE = 39  # entries about the mech itself (docs/spec/environment.md 2.12)
RESERVED_FRIENDS = 3
RADAR_RANGE = 14.0
HOT_CONTACT = 0.80
CRITICAL_HEAT = 0.85
TARGETED_RANGE = 8.0
MUFFLED = 0.20  # sound without line of sight
QUARTER_TURN = 1.570796  # not pi/2
CLOSEST, BIGGEST, MOST_DAMAGED = range(3)
SIZE_RANK = {HEAVY: 3, MEDIUM: 2, LIGHT: 1, SCOUT: 1}


@dataclasses.dataclass
class Scene:
    """Everything that an observation pass reads; the maps are those of the reset and never refreshed (E4)."""

    config: EnvConfig
    battle: Battle
    zone: Zone
    occupancy: np.ndarray  # bool [Y, X], see `occupancy_map`
    telemetry: np.ndarray  # float32 [256], see `telemetry_map`
    scores: list[float]
    messages: list[list[float]]
    sort_mode: list[int]
    hostile_only: list[bool]


# ---- maps, computed once at reset -----------------------------------------------------------------------------------


def _walls(world: VoxelWorld) -> np.ndarray:
    """Voxels that the maps show: SOLID and SOLID_DEBRIS only (E5)."""
    return np.isin(world.material, (m.SOLID, m.SOLID_DEBRIS))


def occupancy_map(world: VoxelWorld, clearance_z: int) -> np.ndarray:
    """bool [Y, X]: a wall in the lowest `clearance_z` levels of the column (docs/spec/environment.md 2.8)."""
    return np.any(_walls(world)[: max(1, clearance_z)], axis=0)


def telemetry_map(world: VoxelWorld) -> np.ndarray:
    """float32 [256]: a wall at any height in each of 16 x 16 blocks of columns, rows along y.

    Source: docs/spec/environment.md 2.9.
    """
    columns = np.any(_walls(world), axis=0)
    size_y, size_x = columns.shape
    rows = [k * size_y // TELEMETRY_SIDE for k in range(TELEMETRY_SIDE + 1)]
    cols = [k * size_x // TELEMETRY_SIDE for k in range(TELEMETRY_SIDE + 1)]
    return np.array(
        [
            columns[rows[r] : rows[r + 1], cols[k] : cols[k + 1]].any()
            for r in range(TELEMETRY_SIDE)
            for k in range(TELEMETRY_SIDE)
        ],
        np.float32,
    )


# ---- one pass over all viewers --------------------------------------------------------------------------------------


class SightCache:
    """LOS and smoke tests, once per unordered pair; the ray runs from whoever asked first.

    Source: docs/spec/environment.md 2.3.
    """

    def __init__(self, battle: Battle) -> None:
        self._battle = battle
        self._los: dict[tuple[int, int], bool] = {}
        self._smoke: dict[tuple[int, int], bool] = {}

    def los(self, a: Mech, b: Mech) -> bool:
        """Terrain and smoke."""
        key = (min(a.index, b.index), max(a.index, b.index))
        if key not in self._los:
            self._los[key] = self._battle.has_los(a.pos, b.pos)
        return self._los[key]

    def smoke(self, a: Mech, b: Mech) -> bool:
        """Smoke alone."""
        key = (min(a.index, b.index), max(a.index, b.index))
        if key not in self._smoke:
            self._smoke[key] = smoke_clear(self._battle.clouds, a.pos, b.pos)
        return self._smoke[key]


def observation_size(config: EnvConfig) -> int:
    """Return the entries of an observation (docs/spec/environment.md 2): contacts, messages, maps, sound, hull, the mech itself."""
    return CONTACT_SIZE * SLOTS + PACK_SIZE * config.comm_dim + LOCAL_SIDE**2 + TELEMETRY_SIDE**2 + 4 + 4 + SCALAR_SIZE


def observe(scene: Scene) -> tuple[np.ndarray, list[list[int]], list[int]]:
    """Observations float32 [N, O], contact slots (mech indices, -1 empty), and the viewers with a non-finite entry.

    A pure function of the scene; entries that are not finite become 0 (docs/spec/environment.md 2.1).
    """
    mechs = scene.battle.mechs
    sight = SightCache(scene.battle)
    rows = np.zeros((len(mechs), observation_size(scene.config)), np.float32)
    slots = [[-1] * SLOTS for _ in mechs]
    bad = []
    for viewer in mechs:
        if not viewer.alive:  # dead: all zeros, slots emptied
            continue
        quality = viewer_sensors(mechs, viewer)
        chosen = choose_contacts(scene, viewer, quality[0], sight)
        for i, other in enumerate(chosen):
            slots[viewer.index][i] = other.index
        entries: list[float] = []
        for other in chosen:
            entries += contact_row(scene, viewer, other)
        entries += [0.0] * (CONTACT_SIZE * (SLOTS - len(chosen)))
        entries += message_block(scene, viewer)
        entries += local_map(scene, viewer)
        entries += [float(v) for v in scene.telemetry]
        entries += sound(scene.battle, viewer, sight)
        # the hull, one-hot (docs/spec/environment.md 2.11)
        entries += [float(viewer.class_id == k) for k in (SCOUT, LIGHT, MEDIUM, HEAVY)]
        entries += scalars(scene, viewer, quality)
        row = np.array(entries, np.float32)
        if not np.isfinite(row).all():
            bad.append(viewer.index)
            row[~np.isfinite(row)] = 0.0
        rows[viewer.index] = row
    return rows, slots, bad


def viewer_sensors(mechs: list[Mech], viewer: Mech) -> tuple[float, float, float]:
    """(quality, jam, eccm) of a viewer; the worst quality while dead or shut down (docs/spec/environment.md 2.2)."""
    if not viewer.alive or viewer.shutdown:
        return c.SENSOR_QUALITY_MIN, 0.0, 0.0
    return sensors(mechs, viewer)


# ---- contacts (docs/spec/environment.md 2.4 to 2.6) ------------------------------------------------------------------


def visible(scene: Scene, viewer: Mech, other: Mech, quality: float, sight: SightCache) -> bool:
    """Whether a living mech is a contact (docs/spec/environment.md 2.4)."""
    if scene.config.observation_mode == "full":
        return True
    if painted_by_pack_of(scene.battle.mechs, other, viewer) and quality >= c.PAINT_LOCK_QUALITY:  # 1
        return True
    if distance(other.pos, viewer.pos) <= RADAR_RANGE * quality:  # 2
        return True
    if other.team != viewer.team:
        if other.heat / max(1.0, other.spec.heat_cap) > HOT_CONTACT and sight.smoke(viewer, other):  # 3
            return True
        if (other.ecm_on or other.eccm_on) and sight.smoke(viewer, other):  # 4
            return True
    return sight.los(viewer, other)  # 5


def sort_key(viewer: Mech, other: Mech, mode: int) -> tuple[float, ...]:
    """Ascending rank of a contact in a sort mode (docs/spec/environment.md 2.5); equal keys keep roster order."""
    away = distance(other.pos, viewer.pos)
    if mode == BIGGEST:
        return -SIZE_RANK[other.class_id], away
    if mode == MOST_DAMAGED:
        return clip(other.hp / max(1.0, other.spec.hp), 0.0, 1.0), away
    return (away,)


def choose_contacts(scene: Scene, viewer: Mech, quality: float, sight: SightCache) -> list[Mech]:
    """The contacts in their slots, packed from slot 0 (docs/spec/environment.md 2.5)."""
    mode = scene.sort_mode[viewer.index]
    seen = [o for o in scene.battle.mechs if o.alive and o is not viewer and visible(scene, viewer, o, quality, sight)]
    seen.sort(key=lambda other: sort_key(viewer, other, mode))  # stable
    hostiles = [o for o in seen if o.team != viewer.team]
    if scene.hostile_only[viewer.index]:
        return hostiles[:SLOTS]
    friends = [o for o in seen if o.team == viewer.team]
    reserved = friends[:RESERVED_FRIENDS]
    fill = hostiles + friends[RESERVED_FRIENDS:]  # the reserved hostile place comes first here anyway
    return (reserved + fill)[:SLOTS]


def contact_row(scene: Scene, viewer: Mech, other: Mech) -> list[float]:
    """The 25 entries of one contact (docs/spec/environment.md 2.6)."""
    largest = float(max(scene.battle.world.size))
    offset, drift = sub(other.pos, viewer.pos), sub(other.vel, viewer.vel)
    away, speed = norm(offset), norm(other.vel)
    scaled, hostile = div(offset, largest), other.team != viewer.team

    level = math.hypot(scaled[0] * largest, scaled[1] * largest)  # float64; the height below is float32
    pitch = 0.0
    if level > 0.1:
        flight = level / WEAPONS[GAUSS].speed
        drop = 0.5 * scene.config.gravity * (flight * flight)
        rise = f32(f32(scaled[2] * largest) + f32(drop))
        pitch = clip(math.atan2(rise, level) / (math.pi / 4), -1.0, 1.0)
    closing = clip(f32(-dot(drift, offset) / away) / 10.0, -1.0, 1.0) if away > 0.1 else 0.0
    crossing = 0.0
    if away > 0.1 and speed > 0.5:
        crossing = 1.0 - abs(dot(div(offset, away), div(other.vel, speed)))
    return [
        *scaled,  # 0-2
        *div(drift, 10.0),  # 3-5
        math.sin(other.yaw),  # 6
        math.cos(other.yaw),  # 7
        clip(other.hp / max(1.0, other.spec.hp), 0.0, 1.0),  # 8
        clip(other.heat / max(1.0, other.spec.heat_cap), 0.0, 2.0),  # 9
        clip(other.stability / c.MAX_STABILITY, 0.0, 1.0),  # 10
        float(other.fallen),  # 11
        float(other.legged),  # 12
        float(not hostile),  # 13
        float(hostile),  # 14
        0.0,  # 15: neutral does not occur
        *(float(other.class_id == k) for k in (SCOUT, LIGHT, MEDIUM, HEAVY)),  # 16-19
        float(painted_by_pack_of(scene.battle.mechs, other, viewer)),  # 20
        1.0,  # 21: slot used
        pitch,  # 22
        closing,  # 23
        crossing,  # 24
    ]


# ---- messages, local map, sound -------------------------------------------------------------------------------------


def message_block(scene: Scene, viewer: Mech) -> list[float]:
    """The stored messages of the viewer's pack by pack row, its own included (docs/spec/environment.md 2.7)."""
    first = viewer.index - viewer.pack_row
    return [value for i in range(first, first + PACK_SIZE) for value in scene.messages[i]]


def local_map(scene: Scene, viewer: Mech) -> list[float]:
    """11 x 11 samples around the viewer in its body frame; outside the map reads 1 (docs/spec/environment.md 2.8)."""
    size_x, size_y, _ = scene.battle.world.size
    cos, sin = math.cos(viewer.yaw), math.sin(viewer.yaw)
    reach = LOCAL_SIDE // 2
    entries = []
    for a in range(-reach, reach + 1):  # forward
        for b in range(-reach, reach + 1):  # lateral, + to the left
            x = int(viewer.pos[0] + cos * a - sin * b)  # toward zero, not floor (E6)
            y = int(viewer.pos[1] + sin * a + cos * b)
            outside = not (0 <= x < size_x and 0 <= y < size_y)
            entries.append(1.0 if outside or scene.occupancy[y, x] else 0.0)
    return entries


def sound(battle: Battle, viewer: Mech, sight: SightCache) -> list[float]:
    """Loudness by quadrant: front left, front right, rear left, rear right, of friends and foes alike.

    Source: docs/spec/environment.md 2.10.
    """
    quadrants = [0.0] * 4
    for other in battle.mechs:
        if other is viewer or not other.alive or other.noise_level <= 0:
            continue
        offset = sub(other.pos, viewer.pos)
        loudness = other.noise_level / (1.0 + dot(offset, offset))
        if not sight.los(viewer, other):
            loudness *= MUFFLED
        bearing = wrap_angle(math.atan2(offset[1], offset[0]) - viewer.yaw)
        if bearing >= 0:
            quadrant = 0 if bearing < QUARTER_TURN else 2
        else:
            quadrant = 1 if bearing > -QUARTER_TURN else 3
        quadrants[quadrant] = f32(quadrants[quadrant] + f32(loudness))
    return [f32(math.log1p(q)) / 5.0 for q in quadrants]


# ---- scalars (docs/spec/environment.md 2.12) -------------------------------------------------------------------------


def targeted(battle: Battle, viewer: Mech) -> bool:
    """Some living enemy within 8 sees the viewer; the ray runs from the enemy, without the cache."""
    return any(
        e.alive
        and e.team != viewer.team
        and distance(e.pos, viewer.pos) <= TARGETED_RANGE
        and battle.has_los(e.pos, viewer.pos)
        for e in battle.mechs
    )


def missile_incoming(shots: list[Projectile], viewer: Mech) -> bool:
    """A homing missile in flight has the viewer as its target."""
    return any(shot.weapon == MISSILE and shot.target == viewer.index for shot in shots)


def scalars(scene: Scene, viewer: Mech, quality: tuple[float, float, float]) -> list[float]:
    """The last 39 entries."""
    battle, zone = scene.battle, scene.zone
    spec, active = viewer.spec, not viewer.shutdown
    cap = max(1.0, spec.heat_cap)
    width = float(max(1, max(battle.world.size[:2])))
    cos, sin = math.cos(viewer.yaw), math.sin(viewer.yaw)
    blow: Vec = viewer.last_damage_dir or (0.0, 0.0, 0.0)
    tonnes = tonnage_in_zone(battle.mechs, zone)
    mine, theirs = tonnes[viewer.team], tonnes[RED if viewer.team == BLUE else BLUE]
    win = scene.config.score_to_win
    mode = scene.sort_mode[viewer.index]
    return [
        float(targeted(battle, viewer)),  # 550
        float(viewer.was_hit),
        float(viewer.painted_remaining > 0),
        float(viewer.shutdown),
        float(viewer.heat / cap > CRITICAL_HEAT),
        clip(viewer.hp / max(1.0, spec.hp), 0.0, 1.0),  # 555
        clip(viewer.heat / cap, 0.0, 2.0),
        clip((spec.heat_cap - viewer.heat) / cap, 0.0, 1.0),
        clip(1.0 - viewer.stability / c.MAX_STABILITY, 0.0, 1.0),
        blow[0] * cos + blow[1] * sin,
        -blow[0] * sin + blow[1] * cos,  # 560
        blow[2],
        float(missile_incoming(battle.projectiles, viewer)),
        clip(quality[0] / c.SENSOR_QUALITY_MAX, 0.0, 1.0),
        quality[1],
        float(viewer.ecm_on and active),  # 565
        float(viewer.eccm_on and active),
        clip(viewer.suppressed_time / c.SUPPRESSION_DURATION, 0.0, 1.0),
        clip(viewer.ams_cooldown / c.AMS_COOLDOWN, 0.0, 1.0),
        *(div(viewer.vel, 10.0) if active else (0.0, 0.0, 0.0)),  # 569-571
        clip(viewer.laser_cooldown / WEAPONS[LASER].cooldown, 0.0, 1.0),
        clip(viewer.missile_cooldown / WEAPONS[MISSILE].cooldown, 0.0, 1.0),
        clip(viewer.kinetic_cooldown / WEAPONS[GAUSS].cooldown, 0.0, 1.0),
        clip(viewer.painter_cooldown / WEAPONS[PAINTER].cooldown, 0.0, 1.0),  # 575
        float(zone.holds(viewer)),
        f32(f32(f32(zone.x) - viewer.pos[0]) / width),
        f32(f32(f32(zone.y) - viewer.pos[1]) / width),
        -viewer.pos[2] / width,
        clip(zone.radius / width, 0.0, 1.0),  # 580
        (mine - theirs) / (mine + theirs) if mine + theirs > 0 else 0.0,
        clip(scene.scores[viewer.team] / win, 0.0, 1.0),
        clip(scene.scores[RED if viewer.team == BLUE else BLUE] / win, 0.0, 1.0),
        clip(battle.time_s / scene.config.max_episode_seconds, 0.0, 1.0),
        *(float(mode == k) for k in (CLOSEST, BIGGEST, MOST_DAMAGED)),  # 585-587
        float(scene.hostile_only[viewer.index]),
    ]
