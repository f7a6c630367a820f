"""The modern observation: everything a mech can know, in its own frame, bounded, every other mech in a slot of its own.

A pure function of the state. In partial mode the state keeps where each viewer last saw each other mech (`Recall`); a
mech out of sight is shown there, with the age of the sighting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env import contacts, maps_modern
from echelon_jax.env.episode import Zone, zone_distance, zone_tick
from echelon_jax.env.layout import CONTACTS
from echelon_jax.env.layout_modern import (
    CLOUD,
    CLOUDS,
    LOCAL_PLANES,
    PLACED,
    SEEN,
    SELF,
    SHOT,
    SHOT_KINDS,
    SHOTS,
    TEAM,
    observation_layout,
    slot_mechs,
    vector_size,
)
from echelon_jax.env.observations import SOUND_THROUGH_COVER, Observed, messages, smoke_between, terrain_between
from echelon_jax.env.state import EnvState, Recall
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import CLASS_NAMES, HEAVY, LIGHT, MEDIUM, PACK_SIZE, roster
from echelon_jax.rules.weapons import AUTOCANNON, FLAMER, GAUSS, LASER, MISSILE, PAINTER, SMOKE, TRIGGERS
from echelon_jax.sim import ewar
from echelon_jax.sim.grid import levels_under, mask_below
from echelon_jax.sim.rules import MAX_BOX_COLUMNS, SimRules
from echelon_jax.sim.slots import slots

T = TypeVar("T")
AGE_SCALE = 10.0  # seconds
NEAR = 8.0  # voxels at which nearness is a half
SPEED, SHOT_SPEED = 10.0, 40.0  # voxels per second
AIRBORNE = 0.25  # voxels over the ground; a standing mech hovers less
ZONE_DEPTH, ZONE_RADIUS = 20.0, 12.0  # voxels
_HULL_SCALE = {
    "top_speed": 10.0,
    "top_turn_rate": 2.0,
    "jets": 20.0,
    "full_hp": 200.0,
    "heat_cap": 130.0,
    "tonnage": 100.0,
}
_KINETIC = {HEAVY: GAUSS, MEDIUM: AUTOCANNON, LIGHT: FLAMER}
_TINY = 1e-6
# What makes a projectile less urgent than its distance: it recedes, it is only smoke. One that homes on the mech comes first.
_RECEDES, _HARMLESS, _HOMES = 100.0, 200.0, -1000.0


class Frame(NamedTuple):
    """The axes of every mech: cosine and sine of its yaw."""

    cosine: Float32[Array, "arenas mechs"]
    sine: Float32[Array, "arenas mechs"]

    def turn(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Parts forward and to the left of map vectors, [arenas, mechs] or with one more axis."""
        c, s = self.cosine, self.sine
        if x.ndim == c.ndim + 1:
            c, s = c[..., None], s[..., None]
        return x * c + y * s, y * c - x * s


class Others(NamedTuple):
    """The slots of other mechs, and what the planes need of them."""

    rows: Float32[Array, "arenas mechs rows"]
    known: Bool[Array, "arenas mechs slots"]
    forward: Float32[Array, "arenas mechs slots"]
    left: Float32[Array, "arenas mechs slots"]
    place: Float32[Array, "arenas mechs slots 3"]


def diagonal(config: EnvConfig) -> float:
    """Length in voxels of the map's diagonal seen from above, the unit of horizontal offsets."""
    return float(np.hypot(config.size_x, config.size_y))


def first_recall(
    config: EnvConfig, position: Float32[Array, "arenas mechs 3"], known: Bool[Array, "arenas mechs mechs"] | None
) -> Recall:
    """What mechs remember at the start of an episode: those of `known` (None: nobody) where they stand."""
    arenas, n = position.shape[:2]
    turn = jnp.zeros((arenas, n), jnp.float32)
    if config.observation_mode == "full":
        return Recall(turn=turn, age=None, place=None)
    seen = jnp.zeros((arenas, n, n), bool) if known is None else known
    place = jnp.where(seen[..., None], position[:, None, :, :], 0.0)
    return Recall(turn=turn, age=jnp.where(seen, 0, -1).astype(jnp.int32), place=place)


def older(recall: Recall, before: Float32[Array, "arenas mechs"], after: Float32[Array, "arenas mechs"]) -> Recall:
    """The memory one decision later, in which yaws changed from `before` to `after`; the next observation refreshes it."""
    turn = jnp.mod(after - before + np.pi, 2.0 * np.pi) - np.pi
    age = None if recall.age is None else jnp.where(recall.age >= 0, recall.age + 1, -1)
    return recall.replace(turn=turn, age=age)  # type: ignore[attr-defined]


def _columns(parts: dict[str, Array], table: tuple, shape: tuple[int, ...]) -> Float32[Array, "*batch entries"]:
    """The parts in the order of their table, beside each other."""
    return jnp.concatenate([parts[name].reshape(*shape, size).astype(jnp.float32) for name, size, *_ in table], -1)


def _nearness(distance: Array) -> Array:
    return NEAR / (NEAR + distance)


def _direction(x: Array, y: Array, length: Array) -> tuple[Array, Array]:
    """Cosine and sine of a bearing; straight above counts as straight ahead."""
    apart = length > _TINY
    scale = 1.0 / jnp.where(apart, length, 1.0)
    return jnp.where(apart, x * scale, 1.0), jnp.where(apart, y * scale, 0.0)


def _reaches(
    rules: SimRules,
    mech_class: np.ndarray,
    distance: Float32[Array, "arenas mechs slots"],
    bearing: Float32[Array, "arenas mechs slots"],
    clear: Bool[Array, "arenas mechs slots"],
    locked: Bool[Array, "arenas mechs slots"],
    upright: Bool[Array, "arenas mechs #slots"],
) -> Bool[Array, "arenas mechs slots"]:
    """Whether a fitted weapon of a mech of `mech_class` has its target in range, arc and sight (simulation spec 5.7 to 5.10).

    Kinetic weapons count where they would be aimed at it; a missile needs sight on board or a painted lock. Heat, cooldowns
    and the quality of sensors are not looked at.
    """
    near = jnp.zeros(distance.shape, bool)
    for weapon in (LASER, FLAMER, PAINTER):
        fitted = jnp.asarray(np.isin(mech_class, list(TRIGGERS[weapon])))
        near = near | (fitted & clear & (distance <= rules.range[weapon]) & (bearing >= rules.arc_cosine[weapon]))
    for weapon in (GAUSS, AUTOCANNON):
        fitted = jnp.asarray(np.isin(mech_class, list(TRIGGERS[weapon])))
        in_cone = (distance < rules.range[weapon]) & (bearing > np.float32(np.cos(k.KINETIC_CONE)))
        near = near | (fitted & clear & upright & in_cone)
    lock = (clear & (distance <= k.ONBOARD_LOCK_RANGE)) | (locked & (distance <= rules.range[MISSILE]))
    heavy = jnp.asarray(np.isin(mech_class, list(TRIGGERS[MISSILE])))
    return near | (heavy & lock & (bearing >= rules.arc_cosine[MISSILE]))


def others(
    config: EnvConfig,
    rules: SimRules,
    state: EnvState,
    frame: Frame,
    visible: Bool[Array, "arenas mechs mechs"],
    clear: Bool[Array, "arenas mechs mechs"],
    inside: Bool[Array, "arenas mechs"],
) -> Others:
    """One row per other mech, in the order of `slot_mechs`; zeros where it is dead or was never seen."""
    who, index = roster(config.num_packs), slot_mechs(config)
    mechs = state.sim.mechs
    arenas, n = mechs.yaw.shape
    count = n - 1
    team = who.team
    hostile = jnp.asarray(team[index] != team[:, None])
    off = ewar.shutdown(rules, mechs)
    painter = contacts.painting_pack(config, state)
    table = jnp.stack(
        [
            *(mechs.position[..., axis] for axis in range(3)),
            *(mechs.velocity[..., axis] for axis in range(3)),
            frame.cosine,
            frame.sine,
            contacts.fraction(mechs.hp, rules.max_hp),
            contacts.fraction(mechs.heat, rules.heat_cap, contacts.HEAT_CEILING),
            mechs.stability * np.float32(1.0 / k.MAX_STABILITY),
            (mechs.fallen > 0).astype(jnp.float32),
            (mechs.leg_hp <= 0).astype(jnp.float32),
            off.astype(jnp.float32),
            inside.astype(jnp.float32),
            painter.astype(jnp.float32),
        ],
        -1,
    )
    arena = jnp.arange(arenas, dtype=jnp.int32)[:, None, None]
    row = table.reshape(arenas * n, -1).at[arena * n + index].get(mode="promise_in_bounds")
    pair = arena * (n * n) + np.arange(n, dtype=np.int32)[:, None] * n + index

    def of_pairs(values: Array) -> Array:
        return values.reshape(arenas * n * n, *values.shape[3:]).at[pair].get(mode="promise_in_bounds")

    seen_now, sight = of_pairs(visible), of_pairs(clear)
    x, y, z, vx, vy, vz, cosine, sine, hp, heat, stability, fallen, legged, stopped, in_zone, paint = (
        row[..., i] for i in range(row.shape[-1])
    )
    if state.recall is not None and state.recall.age is not None:
        age = of_pairs(state.recall.age)
        remembered = of_pairs(state.recall.place)
        living = jnp.broadcast_to(mechs.alive[:, None, :], (arenas, n, n))
        known = (age >= 0) & of_pairs(living) & mechs.alive[..., None]
        x, y, z = (remembered[..., axis] for axis in range(3))
        seconds = jnp.where(known, age, 0).astype(jnp.float32) * np.float32(config.decision_seconds / AGE_SCALE)
    else:
        known, seconds = seen_now, jnp.zeros((arenas, n, count), jnp.float32)

    dx, dy, dz = (there - mechs.position[..., axis, None] for axis, there in enumerate((x, y, z)))
    forward, left = frame.turn(dx, dy)
    flat2 = dx * dx + dy * dy
    flat, distance = jnp.sqrt(flat2), jnp.sqrt(flat2 + dz * dz)
    bearing, side = _direction(forward, left, flat)
    along, up = np.float32(1.0 / diagonal(config)), np.float32(1.0 / config.size_z)
    focused = jnp.asarray(index) == mechs.focus[..., None]
    placed = {
        "known": known,
        "age": seconds,
        "offset_forward": forward * along,
        "offset_left": left * along,
        "offset_up": dz * up,
        "nearness": _nearness(distance),
        "bearing_cosine": bearing,
        "bearing_sine": side,
        "elevation": dz / jnp.maximum(distance, _TINY),
        "hull": jnp.broadcast_to(
            np.eye(len(CLASS_NAMES), dtype=np.float32)[who.mech_class[index]], (arenas, n, count, 4)
        ),
        "focused": focused,
    }

    facing_cosine, facing_sine = frame.turn(cosine, sine)
    aim, _ = _direction(-(dx * cosine + dy * sine), jnp.zeros_like(dx), flat)
    ahead, aside = frame.turn(vx, vy)
    pack = contacts.pack_ids(config)
    mine = painter.astype(jnp.float32)[..., None] == jnp.asarray(
        pack[index], jnp.float32
    )  # painted by the other's pack
    ours = paint == jnp.asarray(pack, jnp.float32)[:, None]
    own_class = np.broadcast_to(who.mech_class[:, None], index.shape)
    up_there, up_here = fallen == 0, (mechs.fallen == 0)[..., None]
    aims = _reaches(rules, who.mech_class[index], distance, aim, sight, mine, up_there) & hostile & (stopped == 0)
    reached = _reaches(rules, own_class, distance, bearing, sight, ours, up_here) & hostile & ~off[..., None]
    seen = {
        "facing_cosine": facing_cosine,
        "facing_sine": facing_sine,
        "aim_cosine": aim,
        "velocity_forward": ahead * (1.0 / SPEED),
        "velocity_left": aside * (1.0 / SPEED),
        "velocity_up": vz * (1.0 / SPEED),
        "hp": hp,
        "heat": heat,
        "stability": stability,
        "fallen": fallen,
        "legged": legged,
        "shutdown": stopped,
        "painted": ours,
        "aims": aims,
        "reached": reached,
        "line_of_sight": sight,
        "in_zone": in_zone,
    }
    shape = (arenas, n, count)
    shown = jnp.where(known[..., None], _columns(placed, PLACED, shape), 0.0)
    live = jnp.where(seen_now[..., None], _columns(seen, SEEN, shape), 0.0)
    rows = jnp.concatenate([shown, live], -1).reshape(arenas, n, -1)
    return Others(rows, known, forward, left, jnp.stack([x, y, z], -1))


def _nearest(key: Float32[Array, "arenas mechs items"], count: int) -> tuple[Array, Array]:
    """Index of the `count` smallest keys, the first on ties, and whether there was one (a key that is not infinite)."""
    index, found = [], []
    numbers = jnp.arange(key.shape[-1], dtype=jnp.int32)
    for _ in range(count):
        least = key.min(-1)
        first = jnp.where(key == least[..., None], numbers, key.shape[-1]).min(-1)
        index.append(first)
        found.append(jnp.isfinite(least))
        key = jnp.where(numbers == first[..., None], jnp.inf, key)
    return jnp.stack(index, -1), jnp.stack(found, -1)


def _offsets(position: Array, mechs_position: Array) -> list[Array]:
    """[arenas, mechs, items] offsets along x, y and z of things from mechs."""
    return [position[:, None, :, axis] - mechs_position[:, :, None, axis] for axis in range(3)]


def _relative(
    config: EnvConfig, frame: Frame, offset: tuple[Array, Array, Array]
) -> dict[str, Float32[Array, "arenas mechs items"]]:
    dx, dy, dz = offset
    forward, left = frame.turn(dx, dy)
    along = np.float32(1.0 / diagonal(config))
    return {
        "offset_forward": forward * along,
        "offset_left": left * along,
        "offset_up": dz * np.float32(1.0 / config.size_z),
        "nearness": _nearness(jnp.sqrt(dx * dx + dy * dy + dz * dz)),
    }


def projectiles(
    config: EnvConfig, state: EnvState, frame: Frame, radar: Float32[Array, "arenas mechs"]
) -> tuple[Float32[Array, "arenas mechs rows"], Bool[Array, "arenas mechs"]]:
    """The most urgent projectiles, and whether one homes on the mech.

    Order: those that home on it, then by distance, those that come nearer before those that do not, smoke last. In partial
    mode a projectile beyond `radar` voxels is not known unless it homes on the mech.
    """
    shots, mechs = state.sim.projectiles, state.sim.mechs
    arenas, n = mechs.alive.shape
    count = shots.alive.shape[1]
    dx, dy, dz = _offsets(shots.position, mechs.position)
    distance = jnp.sqrt(dx * dx + dy * dy + dz * dz)
    vx, vy, vz = (shots.velocity[:, None, :, axis] for axis in range(3))
    recedes = dx * vx + dy * vy + dz * vz >= 0
    aimed = jnp.where(shots.alive & (shots.weapon == MISSILE), shots.target, -1)
    homes = aimed[:, None, :] == jnp.arange(n, dtype=jnp.int32)[:, None]
    key = distance + jnp.where(recedes, _RECEDES, 0.0)
    key = key + jnp.where((shots.weapon == SMOKE)[:, None, :], _HARMLESS, 0.0) + jnp.where(homes, _HOMES, 0.0)
    known = shots.alive[:, None, :]
    if config.observation_mode != "full":
        known = known & (homes | (distance <= radar[..., None]))
    index, found = _nearest(jnp.where(known, key, jnp.inf), SHOTS)

    table = jnp.stack(
        [
            *(shots.position[..., axis] for axis in range(3)),
            *(shots.velocity[..., axis] for axis in range(3)),
            shots.weapon.astype(jnp.float32),
            jnp.broadcast_to(roster(config.num_packs).team[slots(config).mech].astype(np.float32), (arenas, count)),
            aimed.astype(jnp.float32),
        ],
        -1,
    )
    arena = jnp.arange(arenas, dtype=jnp.int32)[:, None, None]
    safe = jnp.minimum(index, count - 1)
    row = table.reshape(arenas * count, -1).at[arena * count + safe].get(mode="promise_in_bounds")
    x, y, z, ux, uy, uz, weapon, team, aim = (row[..., i] for i in range(row.shape[-1]))
    px, py, pz = (mechs.position[..., axis, None] for axis in range(3))
    ahead, aside = frame.turn(ux, uy)
    parts = {
        "known": found,
        **_relative(config, frame, (x - px, y - py, z - pz)),
        "velocity_forward": ahead * (1.0 / SHOT_SPEED),
        "velocity_left": aside * (1.0 / SHOT_SPEED),
        "velocity_up": uz * (1.0 / SHOT_SPEED),
        "kind": weapon[..., None] == jnp.asarray(SHOT_KINDS, jnp.float32),
        "hostile": team != jnp.asarray(roster(config.num_packs).team, jnp.float32)[:, None],
        "homing": aim == jnp.arange(n, dtype=jnp.float32)[:, None],
    }
    rows = jnp.where(found[..., None], _columns(parts, SHOT, (arenas, n, SHOTS)), 0.0)
    return rows.reshape(arenas, n, -1), homes.any(-1)


def clouds(config: EnvConfig, rules: SimRules, state: EnvState, frame: Frame) -> Float32[Array, "arenas mechs rows"]:
    """The nearest smoke clouds; everybody sees them."""
    smoke, mechs = state.sim.smoke, state.sim.mechs
    arenas, n = mechs.alive.shape
    count = smoke.life.shape[1]
    dx, dy, dz = _offsets(smoke.position, mechs.position)
    key = jnp.where((smoke.life > 0)[:, None, :], dx * dx + dy * dy + dz * dz, jnp.inf)
    index, found = _nearest(key, CLOUDS)
    flat = jnp.arange(arenas, dtype=jnp.int32)[:, None, None] * count + jnp.minimum(index, count - 1)
    there = smoke.position.reshape(arenas * count, 3).at[flat].get(mode="promise_in_bounds")
    life = smoke.life.reshape(-1).at[flat].get(mode="promise_in_bounds")
    offset = tuple(there[..., axis] - mechs.position[..., axis, None] for axis in range(3))
    parts = {
        "known": found,
        **_relative(config, frame, offset),  # type: ignore[arg-type]
        "life": contacts.ratio(life.astype(jnp.float32), rules.cloud_substeps.astype(jnp.float32)),
    }
    rows = jnp.where(found[..., None], _columns(parts, CLOUD, (arenas, n, CLOUDS)), 0.0)
    return rows.reshape(arenas, n, -1)


def sound(
    config: EnvConfig,
    state: EnvState,
    frame: Frame,
    heard: Bool[Array, "arenas mechs mechs"],
    clear: Bool[Array, "arenas mechs mechs"],
) -> Float32[Array, "arenas mechs 8"]:
    """Loudness by quadrant, friends then hostiles, as L / (1 + L); added up in roster order. Cover takes four fifths."""
    mechs = state.sim.mechs
    team = roster(config.num_packs).team
    dx, dy, dz = _offsets(mechs.position, mechs.position)
    loudness = mechs.noise[:, None, :] / (1.0 + (dx * dx + dy * dy + dz * dz))
    loudness = jnp.where(heard, jnp.where(clear, loudness, loudness * SOUND_THROUGH_COVER), 0.0)
    ahead, left = frame.turn(dx, dy)
    hostile = jnp.asarray((team[:, None] != team[None, :]).astype(np.int32))
    place = hostile * 4 + jnp.where(ahead >= 0, 0, 2) + jnp.where(left >= 0, 0, 1)
    total = jnp.zeros((*heard.shape[:2], 8), jnp.float32)
    for other in range(heard.shape[2]):
        here = place[..., other, None] == jnp.arange(8, dtype=jnp.int32)
        total = total + jnp.where(here, loudness[..., other, None], 0.0)
    return total / (1.0 + total)


def itself(
    config: EnvConfig,
    rules: SimRules,
    state: EnvState,
    frame: Frame,
    quality: ewar.SensorQuality,
    incoming: Bool[Array, "arenas mechs"],
    zone: Zone,
) -> Float32[Array, "arenas mechs entries"]:
    """The mech itself: condition, limits, weapons, what hit it, what it did, where the zone is."""
    who = roster(config.num_packs)
    mechs, tally, place = state.sim.mechs, state.sim.tally, state.place
    arenas, n = mechs.alive.shape
    off = ewar.shutdown(rules, mechs)
    x, y, z = (mechs.position[..., axis] for axis in range(3))
    feet = z - rules.half[:, 2]
    height = jnp.maximum(feet - _ground_below(config, rules, state), 0.0)
    ahead, aside = frame.turn(mechs.velocity[..., 0], mechs.velocity[..., 1])
    hit_ahead, hit_aside = frame.turn(tally.damage_direction[..., 0], tally.damage_direction[..., 1])
    to_zone = frame.turn(place.zone[:, 0, None] - x, place.zone[:, 1, None] - y)
    distance = zone_distance(place, mechs.position)
    zone_cosine, zone_sine = _direction(*to_zone, distance)
    along, up = np.float32(1.0 / diagonal(config)), np.float32(1.0 / config.size_z)

    def share(counter: Array, full: Array) -> Array:
        return contacts.ratio(counter.astype(jnp.float32), full.astype(jnp.float32))

    def limit(value: Array, name: str) -> Array:
        return jnp.broadcast_to(value * np.float32(1.0 / _HULL_SCALE[name]), (arenas, n))

    kinetic = np.array([_KINETIC.get(int(c), LASER) for c in who.mech_class], np.int32)
    smoke = mechs.tube_was_smoke
    turning = rules.max_yaw_rate * np.float32(config.decision_seconds)
    parts = {
        "alive": mechs.alive,
        "pack_row": jnp.broadcast_to(np.eye(PACK_SIZE, dtype=np.float32)[who.pack_row], (arenas, n, PACK_SIZE)),
        "hp": contacts.fraction(mechs.hp, rules.max_hp),
        "leg_hp": contacts.fraction(mechs.leg_hp, rules.max_leg_hp),
        "heat": contacts.fraction(mechs.heat, rules.heat_cap, contacts.HEAT_CEILING),
        "stability": mechs.stability * np.float32(1.0 / k.MAX_STABILITY),
        "fallen": mechs.fallen > 0,
        "time_to_stand": share(mechs.fallen, rules.fallen_substeps),
        "legged": mechs.leg_hp <= 0,
        "shutdown": off,
        "airborne": height > AIRBORNE,
        "height": height * up,
        "altitude": feet * up,
        "velocity_forward": ahead * (1.0 / SPEED),
        "velocity_left": aside * (1.0 / SPEED),
        "velocity_up": mechs.velocity[..., 2] * (1.0 / SPEED),
        "turn_rate": (jnp.zeros_like(z) if state.recall is None else state.recall.turn)
        * jax.lax.optimization_barrier(1.0 / jnp.maximum(turning, _TINY)),
        "top_speed": limit(rules.max_speed, "top_speed"),
        "top_turn_rate": limit(rules.max_yaw_rate, "top_turn_rate"),
        "jets": limit(rules.max_jet_accel, "jets"),
        "full_hp": limit(rules.max_hp, "full_hp"),
        "heat_cap": limit(rules.heat_cap, "heat_cap"),
        "tonnage": limit(rules.tonnage, "tonnage"),
        "laser_cooldown": share(mechs.laser_cooldown, rules.cooldown[LASER]),
        "missile_cooldown": jnp.where(smoke, 0.0, share(mechs.tube_cooldown, rules.cooldown[MISSILE])),
        "smoke_cooldown": jnp.where(smoke, share(mechs.tube_cooldown, rules.cooldown[SMOKE]), 0.0),
        "kinetic_cooldown": share(mechs.kinetic_cooldown, rules.cooldown[kinetic]),
        "painter_cooldown": share(mechs.painter_cooldown, rules.cooldown[PAINTER]),
        "ams_cooldown": share(mechs.ams_cooldown, rules.ams_substeps),
        "painted_time": share(mechs.painted, rules.paint_substeps),
        "suppressed": share(mechs.suppressed, rules.suppression_substeps),
        "sensor_quality": quality.q * np.float32(1.0 / k.SENSOR_QUALITY_MAX),
        "jam": quality.jam,
        "ecm_on": mechs.ecm_on & ~off,
        "eccm_on": mechs.eccm_on & ~off,
        "under_fire": tally.was_hit,
        "damage_taken": contacts.fraction(tally.took_damage, rules.max_hp),
        "damage_forward": jnp.where(tally.has_damage_direction, hit_ahead, 0.0),
        "damage_left": jnp.where(tally.has_damage_direction, hit_aside, 0.0),
        "damage_up": jnp.where(tally.has_damage_direction, tally.damage_direction[..., 2], 0.0),
        "incoming_missile": incoming,
        "focus_taken": mechs.focus >= 0,
        "beam_fired": tally.laser_hits > 0,
        "missile_fired": tally.missile_launches > 0,
        "kinetic_fired": tally.kinetic_fires > 0,
        "smoke_fired": tally.smoke_launches > 0,
        "painter_fired": tally.paints > 0,
        "heading_cosine": frame.cosine,
        "heading_sine": frame.sine,
        "zone_forward": to_zone[0] * along,
        "zone_left": to_zone[1] * along,
        "zone_cosine": zone_cosine,
        "zone_sine": zone_sine,
        "zone_depth": (place.zone[:, 2, None] - distance) * (1.0 / ZONE_DEPTH),
        "zone_radius": jnp.broadcast_to(place.zone[:, 2, None] * (1.0 / ZONE_RADIUS), (arenas, n)),
        "in_zone": zone.inside,
    }
    return _columns(parts, SELF, (arenas, n))


def _ground_below(config: EnvConfig, rules: SimRules, state: EnvState) -> Float32[Array, "arenas mechs"]:
    """Height of the highest voxel top under each mech's box that is not above its feet; 0 is the bottom of the map."""
    mechs = state.sim.mechs
    arenas, n = mechs.alive.shape
    arena = jnp.repeat(jnp.arange(arenas, dtype=jnp.int32), n)
    x, y, z = (mechs.position[..., axis] for axis in range(3))
    hx, hy, hz = (rules.half[:, axis] for axis in range(3))
    low, high = ((x - hx).reshape(-1), (y - hy).reshape(-1)), ((x + hx).reshape(-1), (y + hy).reshape(-1))
    word = levels_under(config, state.sim.grid.collides, arena, low, high, MAX_BOX_COLUMNS).reshape(arenas, n)
    level = jnp.floor(z - hz + AIRBORNE).astype(jnp.int32)
    return (32 - jax.lax.clz(word & mask_below(level)).astype(jnp.int32)).astype(jnp.float32)


def teams(config: EnvConfig, rules: SimRules, state: EnvState, zone: Zone) -> Float32[Array, "arenas mechs entries"]:
    """Scores, ticks, tonnage in the zone and living mechs of the own and the other team, and the time."""
    arenas, n = state.sim.mechs.alive.shape
    half = config.team_size
    score = (state.score + state.score_carry) * np.float32(1.0 / config.score_to_win)
    living = state.sim.mechs.alive.reshape(arenas, 2, half).sum(-1).astype(jnp.float32) * np.float32(1.0 / half)
    weight = jnp.stack([_in_order(rules.tonnage[:half]), _in_order(rules.tonnage[half:])])
    tonnage = contacts.ratio(zone.tonnage, weight)
    clock = state.sim.tick.astype(jnp.float32) * np.float32(config.dt / config.max_episode_seconds)
    parts = {"time": jnp.broadcast_to(clock[:, None], (arenas, n))}
    for name, values in (("score", score), ("tick", zone.tick), ("tonnage", tonnage), ("living", living)):
        parts[f"own_{name}"] = jnp.repeat(values, half, -1)
        parts[f"enemy_{name}"] = jnp.repeat(values[:, ::-1], half, -1)
    return _columns(parts, TEAM, (arenas, n))


def _in_order(values: Float32[Array, " items"]) -> Float32[Array, ""]:
    total = values[0]
    for i in range(1, values.shape[0]):
        total = total + values[i]
    return total


def _axes(yaw: Float32[Array, "arenas mechs"]) -> Frame:
    return Frame(jnp.cos(yaw), jnp.sin(yaw))


def _made_once(wanted: Bool[Array, ""], make: Callable[[], T]) -> T:
    """What `make` returns, or zeros where nobody wants it.

    Without the branch the compiler would fuse the making into every reader: sines and neighbourhoods taken some fifty times.
    """
    shapes = jax.eval_shape(make)
    return jax.lax.cond(wanted, make, lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))


def observe(config: EnvConfig, rules: SimRules, state: EnvState) -> tuple[Observed, Recall]:
    """Observations of every mech, zeros for the dead, and the memory with what is seen now.

    Observing the same state with the returned memory gives the same observation. Contact slots are filled only where the
    original's actions are in use, which point at them.
    """
    mechs = state.sim.mechs
    arenas, n = mechs.alive.shape
    frame, columns = _made_once(
        mechs.alive.any(), lambda: (_axes(mechs.yaw), maps_modern.ground(config, state.sim.grid))
    )
    distance = ewar.distances(mechs.position)
    quality = ewar.sensor_quality(config, rules, mechs, distance)
    zone = zone_tick(rules, mechs, state.place)

    # Who sees whom.
    candidates = contacts.candidates(config, state)
    smoke = smoke_between(state)
    clear = terrain_between(config, state, candidates & smoke, jnp.zeros_like(candidates))
    visible = candidates
    recall = first_recall(config, mechs.position, None) if state.recall is None else state.recall
    if config.observation_mode != "full":
        visible = candidates & (clear | contacts.visible_without_sight(config, rules, state, distance, quality, smoke))
        recall = recall.replace(  # type: ignore[attr-defined]
            age=jnp.where(visible, 0, recall.age),
            place=jnp.where(visible[..., None], mechs.position[:, None, :, :], recall.place),
        )
    state = state.replace(recall=recall)

    # The vector.
    around = others(config, rules, state, frame, visible, clear, zone.inside)
    shots, incoming = projectiles(config, state, frame, contacts.RADAR_RANGE * quality.q)
    vector = jnp.concatenate(
        [
            itself(config, rules, state, frame, quality, incoming, zone),
            around.rows,
            shots,
            clouds(config, rules, state, frame),
            sound(config, state, frame, candidates & (mechs.noise > 0)[:, None, :], clear),
            messages(config, state),
            teams(config, rules, state, zone),
        ],
        -1,
    )
    finite = jnp.isfinite(vector)
    low, high = (bound[: vector_size(config)] for bound in observation_layout(config).bounds)
    vector = jnp.clip(jnp.where(finite, vector, 0.0), low, high)

    # The planes.
    friends = config.team_size - 1
    local = maps_modern.local_planes(config, rules, mechs, columns, frame.cosine, frame.sine)
    local.append(maps_modern.local_marks(around.forward, around.left, around.known, friends))
    assert len(local) == len(LOCAL_PLANES)
    own = maps_modern.own_marks(config, mechs.position, around.place[:, :, friends:], around.known[:, :, friends:])
    shared = [
        jnp.repeat(plane, config.team_size, 1)
        for plane in maps_modern.shared_planes(config, state.sim.grid, state.place, mechs)
    ]

    whole = jnp.concatenate([vector, *local, *own, *shared], -1)
    alive = mechs.alive[..., None]
    chosen: Int32[Array, "arenas mechs 5"] = jnp.full((arenas, n, CONTACTS), -1, jnp.int32)
    if config.actions == "original":
        chosen = jnp.where(alive, contacts.choose_contacts(config, rules, state, visible, distance), -1)
    seen = Observed(jnp.where(alive, whole, 0.0), chosen, mechs.alive & ~finite.all(-1))
    return seen, recall
