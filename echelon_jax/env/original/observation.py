"""Observations of all mechs of a batch of arenas: a pure function of the state (docs/spec/environment.md 2).

Line of sight is the expensive part, so the rays that are needed are found first: one for both viewers of a pair, and one from
each enemy near enough to be a threat.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env import contacts
from echelon_jax.env.episode import tonnage_margin, zone_presence
from echelon_jax.env.observed import (
    SOUND_THROUGH_COVER,
    Observed,
    messages,
    smoke_clear_between,
)
from echelon_jax.env.original.layout import LOCAL_MAP_SIDE, SCALARS
from echelon_jax.env.state import EnvState
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import GAUSS, LASER, MISSILE, PAINTER, WEAPONS
from echelon_jax.sim import ewar, readings
from echelon_jax.sim.rays import pair_sight
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.widths import LoopWidths, loop_widths

TARGETED_RANGE = 8.0
CRITICAL_HEAT = 0.85
SOUND_SCALE = 5.0
# The original compares a bearing with 1.570796, a little less than a right angle; this is the tangent of what is missing.
QUADRANT_SLACK = 3.268e-7


def first_askers(asks: Bool[Array, "arenas mechs mechs"]) -> Bool[Array, "arenas mechs mechs"]:
    """[from, to] the rays that answer every [viewer, other] of `asks`, one for both viewers of a pair.

    A ray runs from the earlier mech of the roster if that one asks, else from the later (docs/spec/environment.md 2.3).
    Its direction matters only where it meets edges of cells: such a ray can be blocked one way and clear the other.
    """
    upper = jnp.triu(jnp.ones(asks.shape[1:], bool), 1)
    later = asks.swapaxes(1, 2)
    return (upper & asks) | (upper & later & ~asks).swapaxes(1, 2)


def both_ways(rays: Bool[Array, "arenas mechs mechs"]) -> Bool[Array, "arenas mechs mechs"]:
    """Return the results of rays for both viewers of each pair."""
    return rays | rays.swapaxes(1, 2)


def sound(
    state: EnvState,
    heard: Bool[Array, "arenas mechs mechs"],
    clear: Bool[Array, "arenas mechs mechs"],
    cosine: Float32[Array, "arenas mechs"],
    sine: Float32[Array, "arenas mechs"],
) -> Float32[Array, "arenas mechs 4"]:
    """Loudness from front-left, front-right, rear-left and rear-right, added up in roster order.

    Source: docs/spec/environment.md 2.10.
    """
    mechs = state.sim.mechs
    dx, dy, dz = (mechs.position[:, None, :, axis] - mechs.position[:, :, None, axis] for axis in range(3))
    received = mechs.loudness[:, None, :] / (1.0 + (dx * dx + dy * dy + dz * dz))
    received = jnp.where(heard, jnp.where(clear, received, received * SOUND_THROUGH_COVER), 0.0)
    dx = jnp.where((dx == 0) & (dy == 0), 1.0, dx)  # a mech straight above is heard along +x, as atan2(0, 0) = 0 has it
    ahead = dx * cosine[..., None] + dy * sine[..., None]
    left = dy * cosine[..., None] - dx * sine[..., None]
    front = ahead > QUADRANT_SLACK * jnp.abs(left)
    is_left = (left > 0) | ((left == 0) & front)  # straight behind counts as right
    quadrant = jnp.where(front, 0, 2) + jnp.where(is_left, 0, 1)
    total = jnp.zeros((*heard.shape[:2], 4), jnp.float32)
    for other in range(heard.shape[2]):
        here = quadrant[..., other, None] == jnp.arange(4)
        total = total + jnp.where(here, received[..., other, None], 0.0)
    return jnp.log1p(total) / SOUND_SCALE


def local_map(
    config: EnvConfig,
    state: EnvState,
    cosine: Float32[Array, "arenas mechs"],
    sine: Float32[Array, "arenas mechs"],
) -> Float32[Array, "arenas mechs cells"]:
    """Walls in an 11 x 11 window that turns with the mech, 1 outside the map (docs/spec/environment.md 2.8).

    Coordinates are truncated toward zero, so what lies less than one voxel below 0 reads row or column 0. The whole part
    of the position is split off first, which keeps float32 close to the original's float64.
    """
    reach = LOCAL_MAP_SIDE // 2
    forward = jnp.repeat(jnp.arange(-reach, reach + 1, dtype=jnp.float32), LOCAL_MAP_SIDE)
    lateral = jnp.tile(jnp.arange(-reach, reach + 1, dtype=jnp.float32), LOCAL_MAP_SIDE)
    position = state.sim.mechs.position

    def cells(axis: int, along: Array, across: Array) -> Int32[Array, "arenas mechs cells"]:
        whole = jnp.floor(position[..., axis])
        inner = (position[..., axis] - whole)[..., None] + (along[..., None] * forward + across[..., None] * lateral)
        cell = jnp.floor(inner)
        index = whole[..., None] + cell
        return jnp.where((index == -1) & (inner != cell), 0.0, index).astype(jnp.int32)

    column, row = cells(0, cosine, -sine), cells(1, sine, cosine)
    inside = (column >= 0) & (column < config.size_x) & (row >= 0) & (row < config.size_y)
    arenas, columns = state.arena_map.occupancy.shape
    flat = jnp.where(inside, row * config.size_x + column, 0)
    flat = flat + jnp.arange(arenas, dtype=jnp.int32)[:, None, None] * columns
    wall = state.arena_map.occupancy.reshape(-1).at[flat].get(mode="promise_in_bounds")
    return jnp.where(inside, wall.astype(jnp.float32), 1.0)


def scalars(
    config: EnvConfig,
    rules: SimRules,
    state: EnvState,
    quality: ewar.SensorQuality,
    targeted: Bool[Array, "arenas mechs"],
    cosine: Float32[Array, "arenas mechs"],
    sine: Float32[Array, "arenas mechs"],
) -> Float32[Array, "arenas mechs 39"]:
    """The viewer itself, its team and the objective (docs/spec/environment.md 2.12)."""
    mechs, tally, shots = state.sim.mechs, state.sim.tally, state.sim.projectiles
    n, half = config.num_mechs, config.team_size
    longer = float(max(config.size_x, config.size_y, 1))
    off = ewar.shutdown(rules, mechs)
    heat = contacts.ratio(mechs.heat, rules.heat_cap)
    gx, gy, gz = (tally.damage_direction[..., axis] for axis in range(3))
    seen = tally.has_damage_direction
    homing = shots.alive & (shots.weapon == MISSILE)
    incoming = (homing[:, None, :] & (shots.target[:, None, :] == jnp.arange(n)[:, None])).any(-1)
    inside, tonnage = zone_presence(rules, mechs, state.arena_map, config.zone_on_the_ground)
    margin = tonnage_margin(tonnage)
    score = jnp.clip((state.score + state.score_carry) / config.score_to_win, 0.0, 1.0)
    side = jnp.asarray(roster(config.num_packs).team)
    clock = state.sim.tick.astype(jnp.float32) * np.float32(config.dt) / np.float32(config.max_episode_seconds)

    def all_mechs(value: Float32[Array, " arenas"]) -> Float32[Array, "arenas mechs"]:
        return jnp.broadcast_to(value[:, None], (value.shape[0], n))

    def share(seconds: Float32[Array, "arenas mechs"], full: float) -> Float32[Array, "arenas mechs"]:
        return jnp.clip(seconds / full, 0.0, 1.0)

    parts = {
        "targeted": targeted,
        "under_fire": tally.was_hit,
        "painted": mechs.painted > 0,
        "shutdown": off,
        "critical_heat": heat > CRITICAL_HEAT,
        "hp": contacts.fraction(mechs.hp, rules.max_hp),
        "heat": jnp.clip(heat, 0.0, contacts.HEAT_CEILING),
        "heat_headroom": contacts.fraction(rules.heat_cap - mechs.heat, rules.heat_cap),
        "stability_risk": jnp.clip((k.MAX_STABILITY - mechs.stability) / k.MAX_STABILITY, 0.0, 1.0),
        "damage_forward": jnp.where(seen, gx * cosine + gy * sine, 0.0),
        "damage_lateral": jnp.where(seen, gy * cosine - gx * sine, 0.0),
        "damage_up": jnp.where(seen, gz, 0.0),
        "incoming_missile": incoming,
        "sensor_quality": jnp.clip(quality.q / k.SENSOR_QUALITY_MAX, 0.0, 1.0),
        "jam": quality.jam,
        "ecm_on": mechs.ecm_on & ~off,
        "eccm_on": mechs.eccm_on & ~off,
        "suppressed": share(readings.suppressed_seconds(config, mechs), k.SUPPRESSION_DURATION),
        "ams_cooldown": share(readings.ams_seconds(config, mechs), k.AMS_COOLDOWN),
        "velocity": jnp.where(off[..., None], 0.0, mechs.velocity / contacts.VELOCITY_SCALE),
        "laser_cooldown": share(readings.laser_seconds(config, mechs), WEAPONS[LASER].cooldown),
        "tube_cooldown": share(readings.tube_seconds(config, mechs), WEAPONS[MISSILE].cooldown),
        "kinetic_cooldown": share(readings.kinetic_seconds(config, mechs), WEAPONS[GAUSS].cooldown),
        "painter_cooldown": share(readings.painter_seconds(config, mechs), WEAPONS[PAINTER].cooldown),
        "in_zone": inside,
        "zone_offset": (state.arena_map.zone[:, None, :2] - mechs.position[..., :2]) / longer,
        "altitude": -mechs.position[..., 2] / longer,
        "zone_radius": all_mechs(jnp.clip(state.arena_map.zone[:, 2] / longer, 0.0, 1.0)),
        "control": jnp.where(side == 0, margin[:, None], -margin[:, None]),
        "own_score": jnp.repeat(score, half, -1),
        "enemy_score": jnp.repeat(score[:, ::-1], half, -1),
        "time": all_mechs(jnp.clip(clock, 0.0, 1.0)),
        "sort_mode": state.sort_mode[..., None] == jnp.arange(3),
        "hostile_only": state.hostile_only,
    }
    columns = [parts[name].reshape(*mechs.alive.shape, size).astype(jnp.float32) for name, size, *_ in SCALARS]
    return jnp.concatenate(columns, -1)


def observe(config: EnvConfig, rules: SimRules, state: EnvState, widths: LoopWidths | None = None) -> Observed:
    """Observations of every mech, zeros for the dead, and the contact slots they show, empty for the dead."""
    mechs = state.sim.mechs
    arenas, n = mechs.alive.shape
    who = roster(config.num_packs)
    enemy = jnp.asarray(who.team[:, None] != who.team[None, :])
    cosine, sine = jnp.cos(mechs.yaw), jnp.sin(mechs.yaw)
    distance = ewar.distances(mechs.position)
    quality = ewar.sensor_quality(config, rules, mechs, distance)

    others = contacts.candidates(config, state)
    smoke = smoke_clear_between(state)
    heard = others & (mechs.loudness > 0)[:, None, :]
    threat = others & enemy & (distance <= TARGETED_RANGE)
    visible = others
    asks = heard
    if config.observation_mode != "full":
        visible = others & contacts.visible_without_sight(config, rules, state, distance, quality, smoke)
        asks = heard | (others & ~visible)
    shared = first_askers(asks & smoke)
    # A threat has a ray of its own, from the enemy to the mech (docs/spec/environment.md 2.12, entry 550), beside the
    # one its pair shares.
    rays = shared | (threat & smoke).swapaxes(1, 2)
    widths = widths or loop_widths(arenas)
    clear_rays = pair_sight(
        config,
        state.sim.grid.opaque,
        mechs.position,
        rays,
        chunk=widths.observed_rays,
        widths=widths,
        compaction_rounds=widths.compaction_rounds,
    )
    clear = both_ways(clear_rays & shared)
    visible = visible | (others & clear)
    targeted = (threat & smoke & clear_rays.swapaxes(1, 2)).any(-1)

    slots = contacts.choose_contacts(config, rules, state, visible, distance)
    telemetry = state.arena_map.telemetry.astype(jnp.float32)
    hull = jnp.eye(4, dtype=jnp.float32)[who.mech_class]
    # Only these three can hold a number that is not finite (a broken velocity, say); the rest are bits and messages.
    live = [
        contacts.contact_rows(config, rules, state, slots),
        sound(state, heard, clear, cosine, sine),
        scalars(config, rules, state, quality, targeted, cosine, sine),
    ]
    finite = [jnp.isfinite(block) for block in live]
    bad = ~(finite[0].all(-1) & finite[1].all(-1) & finite[2].all(-1))
    rows, loudness, own = (jnp.where(good, block, 0.0) for good, block in zip(finite, live, strict=True))
    blocks = [
        rows,
        messages(config, state),
        local_map(config, state, cosine, sine),
        jnp.broadcast_to(telemetry[:, None], (arenas, n, telemetry.shape[1])),
        loudness,
        jnp.broadcast_to(hull, (arenas, n, 4)),
        own,
    ]
    alive = mechs.alive[..., None]
    return Observed(
        jnp.concatenate([jnp.where(alive, block, 0.0) for block in blocks], -1),
        jnp.where(alive, slots, -1),
        mechs.alive & bad,
    )
