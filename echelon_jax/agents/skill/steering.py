"""Where a mech goes: the best of sixteen directions and standing still, by a sum of what each would bring.

What is weighed: nearing the zone, the distance to the target, moving across its view and to its back, walls, lava and team-mates
in the way.
A mech that wants to move and does not for a second turns aside for a while; it aims and fires all the time.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.agents.skill.flank import towards_back
from echelon_jax.agents.skill.levels import Skill
from echelon_jax.agents.skill.scene import Scene, by_side
from echelon_jax.agents.skill.targets import of_target
from echelon_jax.config import EnvConfig
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.rules import constants as k
from echelon_jax.rules.materials import LAVA
from echelon_jax.rules.mechs import HEAVY, LIGHT, MEDIUM, SCOUT, roster
from echelon_jax.sim.grid import mask_below
from echelon_jax.sim.ordered import ordered_sum

DIRECTIONS = 16
STEP = 2.0  # voxels that are looked ahead
FEELERS = (0.5, 1.5)  # voxels beyond the box at which walls are felt
ONE_RANGE = 5.5  # for all classes, as the original's
CLASS_RANGE = {SCOUT: 9.5, LIGHT: 7.0, MEDIUM: 7.5, HEAVY: 10.5}
ENGAGED = 6.0  # voxels beyond its range within which a target is fought rather than approached
INNER_ZONE = 0.7  # share of the zone's radius that is gone to
NEAR_FOES, NEAR_FRIENDS = 14.0, 10.0  # voxels within which the odds are counted
HURT = 0.4  # share of hit points
STUCK_SECONDS, FREEING_SECONDS = 1.0, 0.75
PROGRESS = 0.3  # share of the commanded speed below which a mech does not get on
TURN_ASIDE = 2.0  # radians from the way that was blocked
GOAL, GOAL_ENGAGED, RANGE, MOMENTUM, WALL, HOT, CROWD, FREE = 1.0, 0.6, 1.5, 0.15, 8.0, 4.0, 1.5, 3.0

_ANGLES = np.arange(DIRECTIONS) * (2.0 * np.pi / DIRECTIONS)
_X = np.append(np.cos(_ANGLES), 0.0).astype(np.float32)  # the last one stands still
_Y = np.append(np.sin(_ANGLES), 0.0).astype(np.float32)


class Gait(NamedTuple):
    """What a mech remembers of its way.

    Attributes:
        x, y: where it was one decision ago.
        ux, uy: the direction it took, of length 1 or 0.
        blocked: seconds that it has wanted to move without getting on.
        freeing: seconds for which it still turns aside.
        sign: to which side, 1 or -1.
        fights: whether it fights its target rather than approaches it.
    """

    x: Float32[Array, "arenas 2 team"]
    y: Float32[Array, "arenas 2 team"]
    ux: Float32[Array, "arenas 2 team"]
    uy: Float32[Array, "arenas 2 team"]
    blocked: Float32[Array, "arenas 2 team"]
    freeing: Float32[Array, "arenas 2 team"]
    sign: Float32[Array, "arenas 2 team"]
    fights: Bool[Array, "arenas 2 team"]


def standing(x: Array, y: Array) -> Gait:
    """Return the memory of mechs that stand at (x, y)."""
    # Each a buffer of its own, so that the caller may donate them.
    ux, uy, blocked, freeing = (jnp.zeros_like(x) for _ in range(4))
    fights = jnp.zeros(x.shape, bool)
    return Gait(jnp.copy(x), jnp.copy(y), ux, uy, blocked, freeing, jnp.ones_like(x), fights)


def per_class(config: EnvConfig, values: dict[int, float]) -> Float32[Array, "2 team"]:
    """A number per mech from one per class."""
    return jnp.asarray(np.array([values[c] for c in roster(config.num_packs).mech_class], np.float32).reshape(2, -1))


def steer(
    config: EnvConfig,
    params: EnvParams,
    state: EnvState,
    skill: Skill,
    scene: Scene,
    target: Int32[Array, "arenas 2 team"],
    able: Bool[Array, "arenas 2 team"],
    gait: Gait,
    sign_draw: Float32[Array, "arenas 2 team"],
) -> Gait:
    """Return the direction to take as the new `Gait`.

    Args:
        target: the enemy each mech aims at, -1 for none.
        able: who can move at all.
        sign_draw: uniform; a mech that is stuck turns to the left iff above 1/2.
    """
    gait = _stuck(config, params, skill, scene, able, gait, sign_draw)
    way_x, way_y = jnp.asarray(_X), jnp.asarray(_Y)
    px, py = scene.x[..., None] + STEP * way_x, scene.y[..., None] + STEP * way_y

    # The zone: as far as its inner part there is something to gain.
    zone = state.arena_map.zone[:, None, None, :]
    inner = INNER_ZONE * zone[..., 2]

    def beyond(x: Array, y: Array, inner: Array) -> Array:
        gx, gy = x - zone[..., 0].reshape(-1, *(1,) * (x.ndim - 1)), y - zone[..., 1].reshape(-1, *(1,) * (x.ndim - 1))
        return jnp.maximum(jnp.sqrt(gx * gx + gy * gy) - inner, 0.0)

    here = beyond(scene.x, scene.y, inner)
    nearer = (here[..., None] - beyond(px, py, inner[..., None])) / STEP

    # The target, at the distance that suits the class and the odds.
    tx, ty = of_target(scene.dx, target), of_target(scene.dy, target)
    d = jnp.sqrt(tx * tx + ty * ty)
    wish = _wished_range(config, params, skill, scene)
    fights = (target >= 0) & (d < wish + ENGAGED) & (of_target(scene.sight, target) | (d < wish))
    qx, qy = tx[..., None] - STEP * way_x, ty[..., None] - STEP * way_y
    then = jnp.sqrt(qx * qx + qy * qy)
    fits = (jnp.abs(d - wish)[..., None] - jnp.abs(then - wish[..., None])) / STEP
    unit_x, unit_y = (v / jnp.maximum(d, 1e-3) for v in (tx, ty))
    across = gait.sign[..., None] * (unit_x[..., None] * way_y - unit_y[..., None] * way_x)

    flank = skill.flank[..., None] * towards_back(scene, target, qx, qy, STEP)

    in_the_way, lava = _felt(config, params, state, scene, px, py)
    aside = jnp.arctan2(gait.uy, gait.ux) + gait.sign * TURN_ASIDE
    frees = jnp.cos(aside)[..., None] * way_x + jnp.sin(aside)[..., None] * way_y
    on = fights[..., None]
    worth = (
        jnp.where(on & (skill.spacing > 0)[..., None], GOAL_ENGAGED, GOAL) * nearer
        + jnp.where(on, RANGE * skill.spacing[..., None] * fits + skill.orbit[..., None] * across + flank, 0.0)
        + MOMENTUM * (gait.ux[..., None] * way_x + gait.uy[..., None] * way_y)
        - skill.avoids[..., None] * (WALL * in_the_way + HOT * lava + CROWD * _crowd(params, scene, px, py))
        + jnp.where((gait.freeing > 0)[..., None], FREE * frees, 0.0)
    )
    best = jnp.argmax(worth, -1)
    return gait._replace(x=scene.x, y=scene.y, ux=way_x[best], uy=way_y[best], fights=fights)


def _wished_range(config: EnvConfig, params: EnvParams, skill: Skill, scene: Scene) -> Float32[Array, "arenas 2 team"]:
    own = per_class(config, CLASS_RANGE)
    wish = ONE_RANGE + skill.own_range * (own - ONE_RANGE)
    foes = ordered_sum((scene.known & (scene.distance < NEAR_FOES)).astype(jnp.float32))
    gx, gy = (v[..., None] - v[..., None, :] for v in (scene.x, scene.y))
    beside = (gx * gx + gy * gy < NEAR_FRIENDS**2) & scene.alive[..., None, :]
    friends = ordered_sum(beside.astype(jnp.float32))
    hurt = scene.hp < HURT * by_side(params.rules.max_hp[None])
    return wish + skill.caution * (jnp.clip(foes - friends, 0.0, 2.0) + 1.5 * hurt)


def _stuck(
    config: EnvConfig,
    params: EnvParams,
    skill: Skill,
    scene: Scene,
    able: Bool[Array, "arenas 2 team"],
    gait: Gait,
    sign_draw: Float32[Array, "arenas 2 team"],
) -> Gait:
    """The memory with the last decision's progress counted, by time."""
    seconds = config.decision_seconds
    gx, gy = scene.x - gait.x, scene.y - gait.y
    expected = by_side(params.rules.max_speed[None]) * skill.throttle * seconds
    wanted = able & (gait.ux * gait.ux + gait.uy * gait.uy > 0)
    still = wanted & (gx * gx + gy * gy < (PROGRESS * expected) ** 2)
    blocked = jnp.where(still, gait.blocked + seconds, jnp.maximum(gait.blocked - seconds, 0.0))
    starts = blocked > STUCK_SECONDS
    return gait._replace(
        blocked=jnp.where(starts, 0.0, blocked),
        freeing=jnp.where(starts, FREEING_SECONDS, jnp.maximum(gait.freeing - seconds, 0.0)),
        sign=jnp.where(starts, jnp.where(sign_draw > 0.5, 1.0, -1.0), gait.sign),
    )


def _felt(
    config: EnvConfig, params: EnvParams, state: EnvState, scene: Scene, px: Array, py: Array
) -> tuple[Bool[Array, "arenas 2 team ways"], Bool[Array, "arenas 2 team ways"]]:
    """Which directions run into a wall or off the map, and which end in lava."""
    half = by_side(params.rules.half[None])
    feet, head = scene.z - half[..., 2], scene.z + half[..., 2]
    low, high = (jnp.floor(v).astype(jnp.int32) for v in (feet + k.STEP_UP_HEIGHT, head))
    levels = mask_below(high + 1) & ~mask_below(low)
    width, words = half[..., 0], state.sim.grid.collides
    arena = jnp.arange(words.shape[0], dtype=jnp.int32)[:, None, None, None]
    way_x, way_y = jnp.asarray(_X), jnp.asarray(_Y)
    hit = jnp.zeros(px.shape, bool)
    for ahead in FEELERS:
        for across in (-0.9, 0.0, 0.9):
            x = scene.x[..., None] + (width[..., None] + ahead) * way_x - across * width[..., None] * way_y
            y = scene.y[..., None] + (width[..., None] + ahead) * way_y + across * width[..., None] * way_x
            cx, cy = jnp.floor(x).astype(jnp.int32), jnp.floor(y).astype(jnp.int32)
            outside = (cx < 0) | (cx >= config.size_x) | (cy < 0) | (cy >= config.size_y)
            column = jnp.clip(cy, 0, config.size_y - 1) * config.size_x + jnp.clip(cx, 0, config.size_x - 1)
            word = words.at[arena, column].get(mode="promise_in_bounds")
            hit = hit | outside | ((word & levels[..., None]) > 0)
    cx, cy = (jnp.clip(jnp.floor(v).astype(jnp.int32), 0, s - 1) for v, s in ((px, config.size_x), (py, config.size_y)))
    level = jnp.clip(jnp.floor(feet + 0.05).astype(jnp.int32), 0, config.size_z - 1)[..., None]
    ground = state.sim.grid.material.at[arena, (level * config.size_y + cy) * config.size_x + cx]
    moves = (way_x != 0) | (way_y != 0)
    return hit & moves, (ground.get(mode="promise_in_bounds") == LAVA) & moves


def _crowd(params: EnvParams, scene: Scene, px: Array, py: Array) -> Float32[Array, "arenas 2 team ways"]:
    """How much team-mates stand in the way, 1 for one whose box would be touched."""
    width = by_side(params.rules.half[None])[..., 0]
    room = width[..., :, None] + width[..., None, :] + 0.5
    n = scene.alive.shape[-1]
    other = ~jnp.eye(n, dtype=bool) & scene.alive[..., None, :]
    gx = px[..., None] - scene.x[..., None, None, :]
    gy = py[..., None] - scene.y[..., None, None, :]
    overlap = 1.0 - jnp.sqrt(gx * gx + gy * gy) / room[..., None, :]
    return ordered_sum(jnp.where(other[..., None, :], jnp.maximum(overlap, 0.0), 0.0))
