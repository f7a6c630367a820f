"""The view of a skilled opponent on a batch of arenas, in the layouts [arenas, side, mech] and [arenas, side, mech, enemy]."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.modern.sight import clear_between
from echelon_jax.env.state import EnvParams, EnvState

SIGHT_RANGE = 25.0  # voxels; no direct weapon reaches further


class Scene(NamedTuple):
    """One decision's view. Enemy j of a mech is the j-th of the other side's roster; numbers are those of the true state.

    Attributes:
        alive, x, y, z, yaw, hp, heat: of each mech.
        dx, dy: from each mech to where its team believes each enemy to be.
        distance: the same with the height, in space.
        error: by how much each mech would have to turn to face it, -pi to pi.
        sight: whether terrain leaves the view clear.
        known: whether the team knows of it.
        seen_x, seen_y: where the other side's team last saw each mech.
        age: decisions since then.
    """

    alive: Bool[Array, "arenas 2 team"]
    x: Float32[Array, "arenas 2 team"]
    y: Float32[Array, "arenas 2 team"]
    z: Float32[Array, "arenas 2 team"]
    yaw: Float32[Array, "arenas 2 team"]
    hp: Float32[Array, "arenas 2 team"]
    heat: Float32[Array, "arenas 2 team"]
    dx: Float32[Array, "arenas 2 team team"]
    dy: Float32[Array, "arenas 2 team team"]
    distance: Float32[Array, "arenas 2 team team"]
    error: Float32[Array, "arenas 2 team team"]
    sight: Bool[Array, "arenas 2 team team"]
    known: Bool[Array, "arenas 2 team team"]
    seen_x: Float32[Array, "arenas 2 team"]
    seen_y: Float32[Array, "arenas 2 team"]
    age: Int32[Array, "arenas 2 team"]


def by_side(values: Array) -> Array:
    """[arenas, mechs, ...] as [arenas, 2, team, ...]."""
    return values.reshape(values.shape[0], 2, values.shape[1] // 2, *values.shape[2:])


def of_enemies(values: Array) -> Array:
    """[arenas, 2, team] as what each side sees of the other: [arenas, 2, 1, team]."""
    return values[:, ::-1, None, :]


def wrap(angle: Array) -> Array:
    """An angle as -pi to pi."""
    return jnp.mod(angle + math.pi, 2.0 * math.pi) - math.pi


def look(
    config: EnvConfig,
    params: EnvParams,
    state: EnvState,
    seen_x: Float32[Array, "arenas 2 team"],
    seen_y: Float32[Array, "arenas 2 team"],
    age: Int32[Array, "arenas 2 team"],
    memory: Float32[Array, "arenas 1 1"],
) -> Scene:
    """Return the scene, given where each mech was last seen and when; `memory` is in seconds."""
    mechs, n = state.sim.mechs, config.team_size
    x, y, z = (by_side(mechs.position[..., axis]) for axis in range(3))
    alive = by_side(mechs.alive)

    close = jnp.zeros((*mechs.alive.shape, 2 * n), bool)
    dx, dy, dz = (of_enemies(v) - v[..., None] for v in (x, y, z))
    near = (dx * dx + dy * dy + dz * dz <= SIGHT_RANGE**2) & alive[..., None] & of_enemies(alive)
    close = close.at[:, :n, n:].set(near[:, 0])
    clear = clear_between(config, state.sim.grid.opaque, mechs.position, close)
    forth = clear[:, :n, n:]
    sight = jnp.stack([forth, forth.swapaxes(1, 2)], 1) & near

    # A team shares what it sees, and remembers it for a while.
    spotted = sight.any(2)[:, ::-1]
    seen_x, seen_y = jnp.where(spotted, x, seen_x), jnp.where(spotted, y, seen_y)
    age = jnp.where(spotted, 0, age + 1)
    remembered = age.astype(jnp.float32) * config.decision_seconds <= memory
    all_known = memory > 60.0
    known = of_enemies(alive & (remembered | all_known)) & alive[..., None]
    dx = of_enemies(jnp.where(all_known, x, seen_x)) - x[..., None]
    dy = of_enemies(jnp.where(all_known, y, seen_y)) - y[..., None]
    return Scene(
        alive=alive,
        x=x,
        y=y,
        z=z,
        yaw=by_side(mechs.yaw),
        hp=by_side(mechs.hp),
        heat=by_side(mechs.heat),
        dx=dx,
        dy=dy,
        distance=jnp.sqrt(dx * dx + dy * dy + dz * dz),
        error=wrap(jnp.arctan2(dy, dx) - by_side(mechs.yaw)[..., None]),
        sight=sight,
        known=known,
        seen_x=seen_x,
        seen_y=seen_y,
        age=age,
    )
