"""Contacts: the mechs that a viewer sees, the five that it is shown, and the numbers of each.

Source: docs/spec/environment.md 2.4 to 2.6.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import CONTACTS
from echelon_jax.env.original.layout import CONTACT_ROW
from echelon_jax.env.state import EnvState
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import HEAVY, LIGHT, MEDIUM, SCOUT, roster
from echelon_jax.rules.weapons import GAUSS, WEAPONS
from echelon_jax.sim.ewar import SensorQuality
from echelon_jax.sim.rules import SimRules

RADAR_RANGE = 14.0  # voxels at sensor quality 1
HOT_FRACTION = 0.80  # of the heat cap, above which a mech is seen by its heat
RESERVED_FRIENDS = 3
VELOCITY_SCALE = 10.0
HEAT_CEILING = 2.0
_SIZE_RANK = {HEAVY: 3.0, MEDIUM: 2.0, LIGHT: 1.0, SCOUT: 1.0}
_CLOSE, _SLOW = 0.1, 0.5  # lengths and speeds below which a direction is not taken


@cache
def pack_ids(config: EnvConfig) -> np.ndarray:
    """[mechs] number of each mech's pack, red's packs after blue's."""
    who = roster(config.num_packs)
    return (who.team * config.num_packs + who.pack).astype(np.int32)


def ratio(value: Array, full: Array) -> Array:
    """Value over its full amount (at least 1), to the same bits in a batch of any width.

    Division by a row of numbers per mech is compiled as a product with their reciprocals, except in a batch of one; so the
    product is written out, and the barrier keeps it one.
    """
    return value * jax.lax.optimization_barrier(1.0 / jnp.maximum(full, 1.0))


def fraction(value: Array, full: Array, ceiling: float = 1.0) -> Array:
    """Value over its full amount (at least 1), clipped to [0, ceiling]."""
    return jnp.clip(ratio(value, full), 0.0, ceiling)


def painting_pack(config: EnvConfig, state: EnvState) -> Int32[Array, "arenas mechs"]:
    """Number of the pack that painted each mech, -1 where it is not painted."""
    mechs = state.sim.mechs
    pack = jnp.asarray(pack_ids(config))[jnp.maximum(mechs.last_painter, 0)]
    return jnp.where((mechs.painted > 0) & (mechs.last_painter >= 0), pack, -1)


def candidates(config: EnvConfig, state: EnvState) -> Bool[Array, "arenas mechs mechs"]:
    """[viewer, other]: both alive and not the same mech."""
    alive = state.sim.mechs.alive
    return alive[:, :, None] & alive[:, None, :] & ~jnp.eye(config.num_mechs, dtype=bool)


def visible_without_sight(
    config: EnvConfig,
    rules: SimRules,
    state: EnvState,
    distance: Float32[Array, "arenas mechs mechs"],
    quality: SensorQuality,
    smoke: Bool[Array, "arenas mechs mechs"],
) -> Bool[Array, "arenas mechs mechs"]:
    """[viewer, other]: visible by paint, radar, heat or emissions (conditions 1 to 4); no terrain ray is needed."""
    mechs = state.sim.mechs
    team = roster(config.num_packs).team
    enemy = jnp.asarray(team[:, None] != team[None, :])
    painted = painting_pack(config, state)[:, None, :] == jnp.asarray(pack_ids(config))[:, None]
    by_paint = painted & (quality.q >= k.PAINT_LOCK_QUALITY)[:, :, None]
    by_radar = distance <= RADAR_RANGE * quality.q[:, :, None]
    hot = ratio(mechs.heat, rules.heat_cap) > HOT_FRACTION
    emits = hot | mechs.ecm_on | mechs.eccm_on
    return by_paint | by_radar | (emits[:, None, :] & enemy & smoke)


def choose_contacts(
    config: EnvConfig,
    rules: SimRules,
    state: EnvState,
    visible: Bool[Array, "arenas mechs mechs"],
    distance: Float32[Array, "arenas mechs mechs"],
) -> Int32[Array, "arenas mechs 5"]:
    """Mech index in each viewer's contact slots, -1 empty (docs/spec/environment.md 2.5, 10).

    Friends and hostiles are ranked apart by (sort key, distance, roster index): a mech's rank is the number of visible
    mechs of its team that come before it.
    """
    n, half = config.num_mechs, config.team_size
    mechs = state.sim.mechs
    size_key = jnp.asarray([-_SIZE_RANK[c] for c in roster(config.num_packs).mech_class], jnp.float32)
    damage_key = fraction(mechs.hp, rules.max_hp)
    mode = state.sort_mode[:, :, None]
    key = jnp.where(mode == 1, size_key, jnp.where(mode == 2, damage_key[:, None, :], 0.0))
    # The axes of a comparison: arenas, viewer, team, mech, rival of the same team.
    first = jnp.where(visible, key, jnp.inf).reshape(-1, n, 2, half)
    second = distance.reshape(-1, n, 2, half)
    seen = visible.reshape(-1, n, 2, half)
    mine, rival = first[..., :, None], first[..., None, :]
    near_mine, near_rival = second[..., :, None], second[..., None, :]
    earlier = jnp.asarray(np.arange(half)[None, :] < np.arange(half)[:, None])
    before = (rival < mine) | ((rival == mine) & ((near_rival < near_mine) | ((near_rival == near_mine) & earlier)))
    rank = (before & seen[..., None, :]).sum(-1, dtype=jnp.int32).reshape(-1, n, n)
    count = seen.sum(-1, dtype=jnp.int32)

    team = roster(config.num_packs).team
    friend = jnp.asarray(team[:, None] == team[None, :])
    blue = jnp.asarray(team == 0)
    friends = jnp.where(blue, count[..., 0], count[..., 1])
    hostiles = jnp.where(blue, count[..., 1], count[..., 0])
    only = state.hostile_only
    lead = jnp.where(only, 0, jnp.minimum(RESERVED_FRIENDS, friends))
    foes = jnp.minimum(CONTACTS - lead, hostiles)
    extra = jnp.where(only, 0, CONTACTS - lead - foes)
    lead, foes, extra = lead[..., None], foes[..., None], extra[..., None]
    friend_slot = jnp.where(rank < lead, rank, jnp.where(rank < lead + extra, rank + foes, -1))
    hostile_slot = jnp.where(rank < foes, lead + rank, -1)
    slot = jnp.where(visible, jnp.where(friend, friend_slot, hostile_slot), -1)
    index = jnp.arange(n, dtype=jnp.int32) + 1
    chosen = slot[..., None, :] == jnp.arange(CONTACTS, dtype=jnp.int32)[:, None]
    return jnp.where(chosen, index, 0).sum(-1, dtype=jnp.int32) - 1


def contact_rows(
    config: EnvConfig,
    rules: SimRules,
    state: EnvState,
    chosen: Int32[Array, "arenas mechs 5"],
) -> Float32[Array, "arenas mechs contacts"]:
    """The numbers of the viewers' contacts: five rows of 25 numbers, with zeros for an empty slot.

    Source: docs/spec/environment.md 2.6.
    """
    who = roster(config.num_packs)
    mechs = state.sim.mechs
    arenas, n = mechs.yaw.shape
    x, y, z = (mechs.position[..., axis] for axis in range(3))
    vx, vy, vz = (mechs.velocity[..., axis] for axis in range(3))
    own = [x, y, z, vx, vy, vz]
    hull = np.eye(4, dtype=np.float32)[who.mech_class]
    told = [  # entries 6 to 12 of a row, the same for every viewer
        jnp.sin(mechs.yaw),
        jnp.cos(mechs.yaw),
        fraction(mechs.hp, rules.max_hp),
        fraction(mechs.heat, rules.heat_cap, HEAT_CEILING),
        fraction(mechs.stability, jnp.float32(k.MAX_STABILITY)),
        (mechs.fallen > 0).astype(jnp.float32),
        (mechs.leg_hp <= 0).astype(jnp.float32),
    ]
    painter = painting_pack(config, state).astype(jnp.float32)
    table = jnp.stack([*own, painter, *told], -1)
    flat = jnp.arange(arenas, dtype=jnp.int32)[:, None, None] * n + jnp.maximum(chosen, 0)
    row = table.reshape(arenas * n, -1).at[flat].get(mode="promise_in_bounds")
    used = chosen >= 0
    known = jnp.maximum(chosen, 0)

    dx, dy, dz = (row[..., i] - own[i][..., None] for i in range(3))
    wx, wy, wz = (row[..., 3 + i] - own[3 + i][..., None] for i in range(3))
    ox, oy, oz = (row[..., 3 + i] for i in range(3))
    distance = jnp.sqrt(dx * dx + dy * dy + dz * dz)
    apart = distance > _CLOSE
    length = jnp.where(apart, distance, 1.0)
    flat_distance = jnp.sqrt(dx * dx + dy * dy)
    flight = flat_distance / WEAPONS[GAUSS].speed
    drop = 0.5 * config.gravity * flight * flight
    pitch = jnp.clip(jnp.arctan2(dz + drop, flat_distance) / (np.pi / 4), -1.0, 1.0)
    closing = jnp.clip(-(wx * dx + wy * dy + wz * dz) / length / VELOCITY_SCALE, -1.0, 1.0)
    speed = jnp.sqrt(ox * ox + oy * oy + oz * oz)
    moving = apart & (speed > _SLOW)
    along = (dx * ox + dy * oy + dz * oz) / (length * jnp.where(moving, speed, 1.0))
    friendly = jnp.asarray(who.team)[known] == jnp.asarray(who.team)[:, None]
    pack = jnp.asarray(pack_ids(config), jnp.float32)[:, None]

    scale = 1.0 / max(config.size_x, config.size_y, config.size_z)
    parts = {
        "offset": jnp.stack([dx, dy, dz], -1) * scale,
        "velocity": jnp.stack([wx, wy, wz], -1) / VELOCITY_SCALE,
        "heading": row[..., 7:9],
        "hp": row[..., 9],
        "heat": row[..., 10],
        "stability": row[..., 11],
        "fallen": row[..., 12],
        "legged": row[..., 13],
        "relation": jnp.stack([friendly, ~friendly, jnp.zeros_like(friendly)], -1),
        "hull": jnp.asarray(hull)[known],
        "painted": row[..., 6] == pack,
        "used": used,
        "ballistic_pitch": jnp.where(flat_distance > _CLOSE, pitch, 0.0),
        "closing_speed": jnp.where(apart, closing, 0.0),
        "crossing": jnp.where(moving, 1.0 - jnp.abs(along), 0.0),
    }
    columns = [parts[name].reshape(arenas, n, CONTACTS, size).astype(jnp.float32) for name, size, *_ in CONTACT_ROW]
    return jnp.where(used[..., None], jnp.concatenate(columns, -1), 0.0).reshape(arenas, n, -1)
