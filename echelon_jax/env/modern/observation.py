"""The modern observation: everything that a mech can know, bounded and in its own frame, with a slot for every other mech.

It is a pure function of the state. In partial mode the state keeps where each viewer last saw each other mech
(`ObservationMemory`). A mech out of sight is shown there, with the age of the sighting.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.env import contacts
from echelon_jax.env.episode import Zone, zone_distance, zone_tick
from echelon_jax.env.layout import CONTACTS
from echelon_jax.env.modern import maps as maps_modern
from echelon_jax.env.modern import slots as slots_modern
from echelon_jax.env.modern.frames import SPEED, TINY, Frame, columns, diagonal, direction, materialize, offsets
from echelon_jax.env.modern.layout import LOCAL_PLANES, SELF, TEAM, observation_layout, vector_size
from echelon_jax.env.modern.sight import clear_between
from echelon_jax.env.observed import SOUND_THROUGH_COVER, Observed, messages, smoke_clear_between
from echelon_jax.env.state import EnvState, ObservationMemory
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import PACK_SIZE, roster
from echelon_jax.rules.weapons import MAX_AIMED_RANGE, MISSILE, SMOKE, Timer, timed_weapon
from echelon_jax.sim import ewar
from echelon_jax.sim.grid import levels_under, mask_below
from echelon_jax.sim.rules import MAX_BOX_COLUMNS, SimRules
from echelon_jax.sim.widths import LoopWidths

SIGHT_RANGE = MAX_AIMED_RANGE  # voxels up to which sight is looked at for its own sake
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


def first_memory(
    config: EnvConfig, position: Float32[Array, "arenas mechs 3"], known: Bool[Array, "arenas mechs mechs"] | None
) -> ObservationMemory:
    """The memory at the start of an episode: the mechs of `known` (None: nobody) at their positions."""
    arenas, n = position.shape[:2]
    turn = jnp.zeros((arenas, n), jnp.float32)
    if config.observation_mode == "full":
        return ObservationMemory(turn=turn, age=None, last_seen=None)
    seen = jnp.zeros((arenas, n, n), bool) if known is None else known
    last_seen = jnp.where(seen[..., None], position[:, None, :, :], 0.0)
    return ObservationMemory(turn=turn, age=jnp.where(seen, 0, -1).astype(jnp.int32), last_seen=last_seen)


def older(
    memory: ObservationMemory, before: Float32[Array, "arenas mechs"], after: Float32[Array, "arenas mechs"]
) -> ObservationMemory:
    """The memory one decision later, in which yaws changed from `before` to `after`; the next observation refreshes it."""
    turn = jnp.mod(after - before + np.pi, 2.0 * np.pi) - np.pi
    age = None if memory.age is None else jnp.where(memory.age >= 0, memory.age + 1, -1)
    return memory.replace(turn=turn, age=age)  # type: ignore[attr-defined]


def _refreshed(
    memory: ObservationMemory, visible: Bool[Array, "arenas mechs mechs"], position: Float32[Array, "arenas mechs 3"]
) -> ObservationMemory:
    """The memory with those seen now where they are, of age 0."""
    if memory.age is None or memory.last_seen is None:
        return memory
    age = jnp.where(visible, 0, memory.age)
    last_seen = jnp.where(visible[..., None], position[:, None, :, :], memory.last_seen)
    return memory.replace(age=age, last_seen=last_seen)  # type: ignore[attr-defined]


def sound(
    config: EnvConfig,
    state: EnvState,
    frame: Frame,
    heard: Bool[Array, "arenas mechs mechs"],
    clear: Bool[Array, "arenas mechs mechs"],
) -> Float32[Array, "arenas mechs 8"]:
    """Loudness by quadrant, friends then hostiles, as L / (1 + L); added up in roster order.

    Cover takes four fifths, within the range of sight.
    """
    mechs = state.sim.mechs
    team = roster(config.num_packs).team
    dx, dy, dz = offsets(mechs.position, mechs.position)
    received = mechs.loudness[:, None, :] / (1.0 + (dx * dx + dy * dy + dz * dz))
    received = jnp.where(heard, jnp.where(clear, received, received * SOUND_THROUGH_COVER), 0.0)
    ahead, left = frame.turn(dx, dy)
    hostile = jnp.asarray((team[:, None] != team[None, :]).astype(np.int32))
    last_seen = hostile * 4 + jnp.where(ahead >= 0, 0, 2) + jnp.where(left >= 0, 0, 1)
    total = jnp.zeros((*heard.shape[:2], 8), jnp.float32)
    for other in range(heard.shape[2]):
        here = last_seen[..., other, None] == jnp.arange(8, dtype=jnp.int32)
        total = total + jnp.where(here, received[..., other, None], 0.0)
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
    """The mech itself: condition, limits, weapons, the last hit, its deeds, and where the zone is."""
    who = roster(config.num_packs)
    mechs, tally, arena_map = state.sim.mechs, state.sim.tally, state.arena_map
    arenas, n = mechs.alive.shape
    off = ewar.shutdown(rules, mechs)
    x, y, z = (mechs.position[..., axis] for axis in range(3))
    feet = z - rules.half[:, 2]
    height = jnp.maximum(feet - _ground_below(config, rules, state), 0.0)
    ahead, aside = frame.turn(mechs.velocity[..., 0], mechs.velocity[..., 1])
    hit_ahead, hit_aside = frame.turn(tally.damage_direction[..., 0], tally.damage_direction[..., 1])
    to_zone = frame.turn(arena_map.zone[:, 0, None] - x, arena_map.zone[:, 1, None] - y)
    distance = zone_distance(arena_map, mechs.position)
    zone_cosine, zone_sine = direction(*to_zone, distance)
    along, up = np.float32(1.0 / diagonal(config)), np.float32(1.0 / config.size_z)

    def share(counter: Array, full: Array) -> Array:
        return contacts.ratio(counter.astype(jnp.float32), full.astype(jnp.float32))

    def limit(value: Array, name: str) -> Array:
        return jnp.broadcast_to(value * np.float32(1.0 / _HULL_SCALE[name]), (arenas, n))

    laser, kinetic, painter = (
        np.array([timed_weapon(int(c), timer) for c in who.mech_class], np.int32)
        for timer in (Timer.LASER, Timer.KINETIC, Timer.PAINTER)
    )
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
        "turn_rate": (jnp.zeros_like(z) if state.memory is None else state.memory.turn)
        * jax.lax.optimization_barrier(1.0 / jnp.maximum(turning, TINY)),
        "top_speed": limit(rules.max_speed, "top_speed"),
        "top_turn_rate": limit(rules.max_yaw_rate, "top_turn_rate"),
        "jets": limit(rules.max_jet_accel, "jets"),
        "full_hp": limit(rules.max_hp, "full_hp"),
        "heat_cap": limit(rules.heat_cap, "heat_cap"),
        "tonnage": limit(rules.tonnage, "tonnage"),
        "laser_cooldown": share(mechs.laser_cooldown, rules.cooldown[laser]),
        "missile_cooldown": jnp.where(smoke, 0.0, share(mechs.tube_cooldown, rules.cooldown[MISSILE])),
        "smoke_cooldown": jnp.where(smoke, share(mechs.tube_cooldown, rules.cooldown[SMOKE]), 0.0),
        "kinetic_cooldown": share(mechs.kinetic_cooldown, rules.cooldown[kinetic]),
        "painter_cooldown": share(mechs.painter_cooldown, rules.cooldown[painter]),
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
        "zone_depth": (arena_map.zone[:, 2, None] - distance) * (1.0 / ZONE_DEPTH),
        "zone_radius": jnp.broadcast_to(arena_map.zone[:, 2, None] * (1.0 / ZONE_RADIUS), (arenas, n)),
        "in_zone": zone.inside,
    }
    return columns(parts, SELF, (arenas, n))


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
    return columns(parts, TEAM, (arenas, n))


def _in_order(values: Float32[Array, " items"]) -> Float32[Array, ""]:
    total = values[0]
    for i in range(1, values.shape[0]):
        total = total + values[i]
    return total


def _axes(yaw: Float32[Array, "arenas mechs"]) -> Frame:
    return Frame(jnp.cos(yaw), jnp.sin(yaw))


def observe(
    config: EnvConfig,
    rules: SimRules,
    state: EnvState,
    contact_slots: bool = False,
    widths: LoopWidths | None = None,
) -> Observed:
    """Observations of every mech, zeros for the dead, and the memory with what is seen now.

    Observing the same state with the returned memory gives the same observation. `contact_slots` asks for
    the original's contact slots too, for actions that point at them.
    """
    mechs = state.sim.mechs
    arenas, n = mechs.alive.shape
    living = mechs.alive.any()
    frame, opaque = materialize(living, lambda: (_axes(mechs.yaw), maps_modern.hazard_words(config, state.sim.grid)))
    ground = materialize(living, lambda: maps_modern.neighbourhoods(config, state.sim.grid.collides, opaque))
    distance = ewar.distances(mechs.position)
    quality = ewar.sensor_quality(config, rules, mechs, distance)
    zone = zone_tick(rules, mechs, state.arena_map, config.zone_on_the_ground)

    # Who sees whom.
    candidates = contacts.candidates(config, state)
    smoke = smoke_clear_between(state)
    near = candidates & (distance <= SIGHT_RANGE)
    memory = first_memory(config, mechs.position, None) if state.memory is None else state.memory
    asks = near
    if config.observation_mode != "full":
        seen_at_once = contacts.visible_without_sight(config, rules, state, distance, quality, smoke)
        asks = near | (candidates & ~seen_at_once)
    in_view = clear_between(config, state.sim.grid.opaque, mechs.position, asks & smoke, widths)
    clear, visible = near & in_view, candidates
    if config.observation_mode != "full":
        visible = candidates & (seen_at_once | in_view)
        memory = _refreshed(memory, visible, mechs.position)
    state = state.replace(memory=memory)

    # The vector.
    around = slots_modern.others(config, rules, state, frame, visible, clear, zone.inside)
    shots, incoming = slots_modern.projectiles(config, state, frame, contacts.RADAR_RANGE * quality.q)
    blocks = [
        itself(config, rules, state, frame, quality, incoming, zone),
        around.rows,
        shots,
        slots_modern.clouds(config, rules, state, frame),
        sound(config, state, frame, candidates & (mechs.loudness > 0)[:, None, :], clear | (candidates & ~near)),
        messages(config, state),
        teams(config, rules, state, zone),
    ]
    # Bounded and blanked block by block: each pass over the finished vector would cost as much as a block's making.
    alive = mechs.alive[..., None]
    bad, vector, start = jnp.zeros_like(mechs.alive), [], 0
    low, high = observation_layout(config).bounds
    for block in materialize(living, lambda: tuple(blocks)):
        where = slice(start, start + block.shape[-1])
        finite, start = jnp.isfinite(block), where.stop
        bad = bad | ~finite.all(-1)
        vector.append(jnp.where(alive & finite, jnp.clip(block, low[where], high[where]), 0.0))
    assert start == vector_size(config)

    # The planes.
    friends = config.team_size - 1
    local = maps_modern.local_planes(config, rules, mechs, ground, frame.cosine, frame.sine)
    local.append(maps_modern.local_marks(around.forward, around.left, around.known, friends))
    assert len(local) == len(LOCAL_PLANES)
    own = maps_modern.own_marks(config, mechs.position, around.position[:, :, friends:], around.known[:, :, friends:])
    shared = [
        jnp.repeat(plane, config.team_size, 1)
        for plane in maps_modern.shared_planes(config, state.sim.grid, state.arena_map, mechs)
    ]

    # The dead are blanked part by part: afterwards it would be one more pass over everything.
    whole = jnp.concatenate([*vector, *(jnp.where(alive, plane, 0.0) for plane in (*local, *own, *shared))], -1)
    chosen = jnp.full((arenas, n, CONTACTS), -1, jnp.int32)
    if contact_slots:
        chosen = jnp.where(alive, contacts.choose_contacts(config, rules, state, visible, distance), -1)
    return Observed(whole, chosen, mechs.alive & bad, memory)
