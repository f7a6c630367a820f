"""The slots of the modern observation: every other mech, the most urgent projectiles, the nearest smoke clouds."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.env import contacts
from echelon_jax.env.modern.frames import (
    SPEED,
    TINY,
    Frame,
    columns,
    diagonal,
    direction,
    materialize,
    nearness,
    offsets,
)
from echelon_jax.env.modern.layout import CLOUD, CLOUDS, PLACED, SEEN, SHOT, SHOT_KINDS, SHOTS, slot_mechs
from echelon_jax.env.state import EnvState
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import CLASS_NAMES, roster
from echelon_jax.rules.weapons import BALLISTIC, MISSILE, SEEKING, SMOKE, TOP_SHOT_SPEED, TRIGGERS
from echelon_jax.sim import ewar
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.slots import slots

AGE_SCALE = 10.0  # seconds
# What makes a projectile less urgent than its distance: it recedes, it is only smoke. One that homes on the mech comes first.
_RECEDES, _HARMLESS, _HOMES = 100.0, 200.0, -1000.0


_CONDITION = ("hp", "heat", "stability", "fallen", "legged", "shutdown")  # neighbours in SEEN


class Others(NamedTuple):
    """The slots of other mechs, and what the planes need of them."""

    rows: Float32[Array, "arenas mechs rows"]
    known: Bool[Array, "arenas mechs slots"]
    forward: Float32[Array, "arenas mechs slots"]
    left: Float32[Array, "arenas mechs slots"]
    position: Float32[Array, "arenas mechs slots 3"]


def _reaches(
    rules: SimRules,
    mech_class: np.ndarray,
    distance: Float32[Array, "arenas mechs slots"],
    bearing: Float32[Array, "arenas mechs slots"],
    clear: Bool[Array, "arenas mechs slots"],
    locked: Bool[Array, "arenas mechs slots"],
    upright: Bool[Array, "arenas mechs #slots"],
) -> Bool[Array, "arenas mechs slots"]:
    """Whether a fitted weapon of a mech of `mech_class` has its target in range, arc and sight.

    Source: docs/spec/rules.md 5.7 to 5.10.

    Kinetic weapons count where they would be aimed at it; a missile needs sight on board or a painted lock. Heat, cooldowns
    and the quality of sensors are not looked at.
    """
    near = jnp.zeros(distance.shape, bool)
    for weapon in SEEKING:
        fitted = jnp.asarray(np.isin(mech_class, list(TRIGGERS[weapon])))
        near = near | (fitted & clear & (distance <= rules.range[weapon]) & (bearing >= rules.arc_cosine[weapon]))
    for weapon in BALLISTIC:
        fitted = jnp.asarray(np.isin(mech_class, list(TRIGGERS[weapon])))
        in_cone = (distance < rules.range[weapon]) & (bearing > np.float32(np.cos(k.KINETIC_CONE)))
        near = near | (fitted & clear & upright & in_cone)
    lock = (clear & (distance <= k.ONBOARD_LOCK_RANGE)) | (locked & (distance <= rules.range[MISSILE]))
    heavy = jnp.asarray(np.isin(mech_class, list(TRIGGERS[MISSILE])))
    return near | (heavy & lock & (bearing >= rules.arc_cosine[MISSILE]))


def _hidden(shown: Bool[Array, "*batch"], part: Array, shape: tuple[int, ...]) -> Float32[Array, "*batch entries"]:
    """A part of a slot as columns, zeros where it is not shown."""
    values = part.reshape(*shape, -1).astype(jnp.float32)
    return jnp.where(shown[..., None], values, 0.0)


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
            inside.astype(jnp.float32),
            painter.astype(jnp.float32),
            # In the order of SEEN, so that they move as one piece.
            contacts.fraction(mechs.hp, rules.max_hp),
            contacts.fraction(mechs.heat, rules.heat_cap, contacts.HEAT_CEILING),
            mechs.stability * np.float32(1.0 / k.MAX_STABILITY),
            (mechs.fallen > 0).astype(jnp.float32),
            (mechs.leg_hp <= 0).astype(jnp.float32),
            off.astype(jnp.float32),
        ],
        -1,
    )
    arena = jnp.arange(arenas, dtype=jnp.int32)[:, None, None]
    row = table.reshape(arenas * n, -1).at[arena * n + index].get(mode="promise_in_bounds")
    pair = arena * (n * n) + np.arange(n, dtype=np.int32)[:, None] * n + index

    def of_pairs(values: Array) -> Array:
        return values.reshape(arenas * n * n, *values.shape[3:]).at[pair].get(mode="promise_in_bounds")

    memory = state.memory
    pair_flags = visible.astype(jnp.int32) + 2 * clear.astype(jnp.int32)  # what is asked of a pair, in one number
    if memory is not None and memory.age is not None:
        known = (memory.age >= 0) & mechs.alive[:, None, :] & mechs.alive[..., None]
        pair_flags = pair_flags + jnp.where(known, 8 * memory.age + 4, 0)
    pair_flags = of_pairs(pair_flags)
    seen_now, sight = (pair_flags & 1) > 0, (pair_flags & 2) > 0
    x, y, z, vx, vy, vz, cosine, sine, in_zone, paint = (row[..., i] for i in range(10))
    condition = row[..., 10:]
    fallen, stopped = condition[..., 3], condition[..., 5]
    if memory is not None and memory.last_seen is not None:
        remembered = of_pairs(memory.last_seen)
        known = (pair_flags & 4) > 0
        x, y, z = (remembered[..., axis] for axis in range(3))
        seconds = (pair_flags >> 3).astype(jnp.float32) * np.float32(config.decision_seconds / AGE_SCALE)
    else:
        known, seconds = seen_now, jnp.zeros((arenas, n, count), jnp.float32)

    def geometry() -> tuple[Array, ...]:
        dx, dy, dz = (there - mechs.position[..., axis, None] for axis, there in enumerate((x, y, z)))
        forward, left = frame.turn(dx, dy)
        flat2 = dx * dx + dy * dy
        flat, distance = jnp.sqrt(flat2), jnp.sqrt(flat2 + dz * dz)
        bearing, side = direction(forward, left, flat)
        aim, _ = direction(-(dx * cosine + dy * sine), jnp.zeros_like(dx), flat)
        return forward, left, dz, distance, bearing, side, aim

    forward, left, dz, distance, bearing, side, aim = materialize(mechs.alive.any(), geometry)
    along, up = np.float32(1.0 / diagonal(config)), np.float32(1.0 / config.size_z)
    focused = jnp.asarray(index) == mechs.focus[..., None]
    placed = {
        "known": known,
        "age": seconds,
        "offset_forward": forward * along,
        "offset_left": left * along,
        "offset_up": dz * up,
        "nearness": nearness(distance),
        "bearing_cosine": bearing,
        "bearing_sine": side,
        "elevation": dz / jnp.maximum(distance, TINY),
        "hull": jnp.broadcast_to(
            np.eye(len(CLASS_NAMES), dtype=np.float32)[who.mech_class[index]], (arenas, n, count, 4)
        ),
        "focused": focused,
    }

    facing_cosine, facing_sine = frame.turn(cosine, sine)
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
        _CONDITION[0]: condition,
        "painted": ours,
        "aims": aims,
        "reached": reached,
        "line_of_sight": sight,
        "in_zone": in_zone,
    }
    shape = (arenas, n, count)
    # Hidden entry by entry, which costs nothing; hiding finished rows would be one more pass.
    shown = [_hidden(known, placed[name], shape) for name, *_ in PLACED]
    live = [_hidden(seen_now, seen[name], shape) for name, *_ in SEEN if name not in _CONDITION[1:]]
    rows = jnp.concatenate([*shown, *live], -1).reshape(arenas, n, -1)
    return Others(rows, known, forward, left, jnp.stack([x, y, z], -1))


def _nearest(
    key: Float32[Array, "arenas mechs items"], count: int, ties: Float32[Array, "arenas 1 items"] | None = None
) -> tuple[Array, Array]:
    """Index of the `count` smallest keys, and whether there was one (a key that is not infinite).

    Of equal keys the one that `ties` calls largest comes first (not negative), then the first.
    """
    index, found = [], []
    numbers = jnp.arange(key.shape[-1], dtype=jnp.int32)
    for _ in range(count):
        least = key.min(-1)
        equal = key == least[..., None]
        if ties is not None:
            equal = equal & (ties == jnp.where(equal, ties, -1.0).max(-1)[..., None])
        first = jnp.where(equal, numbers, key.shape[-1]).min(-1)
        index.append(first)
        found.append(jnp.isfinite(least))
        key = jnp.where(numbers == first[..., None], jnp.inf, key)
    return jnp.stack(index, -1), jnp.stack(found, -1)


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
        "nearness": nearness(jnp.sqrt(dx * dx + dy * dy + dz * dz)),
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
    dx, dy, dz = offsets(shots.position, mechs.position)
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
        "velocity_forward": ahead * (1.0 / TOP_SHOT_SPEED),
        "velocity_left": aside * (1.0 / TOP_SHOT_SPEED),
        "velocity_up": uz * (1.0 / TOP_SHOT_SPEED),
        "kind": weapon[..., None] == jnp.asarray(SHOT_KINDS, jnp.float32),
        "hostile": team != jnp.asarray(roster(config.num_packs).team, jnp.float32)[:, None],
        "homing": aim == jnp.arange(n, dtype=jnp.float32)[:, None],
    }
    rows = jnp.where(found[..., None], columns(parts, SHOT, (arenas, n, SHOTS)), 0.0)
    return rows.reshape(arenas, n, -1), homes.any(-1)


def clouds(config: EnvConfig, rules: SimRules, state: EnvState, frame: Frame) -> Float32[Array, "arenas mechs rows"]:
    """The nearest smoke clouds, of those at one place the youngest first; everybody sees them."""
    smoke, mechs = state.sim.smoke, state.sim.mechs
    arenas, n = mechs.alive.shape
    count = smoke.life.shape[1]
    dx, dy, dz = offsets(smoke.position, mechs.position)
    key = jnp.where((smoke.life > 0)[:, None, :], dx * dx + dy * dy + dz * dz, jnp.inf)
    index, found = _nearest(key, CLOUDS, smoke.life[:, None, :].astype(jnp.float32))
    flat = jnp.arange(arenas, dtype=jnp.int32)[:, None, None] * count + jnp.minimum(index, count - 1)
    there = smoke.position.reshape(arenas * count, 3).at[flat].get(mode="promise_in_bounds")
    life = smoke.life.reshape(-1).at[flat].get(mode="promise_in_bounds")
    offset = tuple(there[..., axis] - mechs.position[..., axis, None] for axis in range(3))
    parts = {
        "known": found,
        **_relative(config, frame, offset),  # type: ignore[arg-type]
        "life": contacts.ratio(life.astype(jnp.float32), rules.cloud_substeps.astype(jnp.float32)),
    }
    rows = jnp.where(found[..., None], columns(parts, CLOUD, (arenas, n, CLOUDS)), 0.0)
    return rows.reshape(arenas, n, -1)
