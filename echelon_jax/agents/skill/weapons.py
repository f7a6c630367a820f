"""What is fired: every trigger whose weapon has something in reach and sight, in the order of damage per heat."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from echelon_jax.agents.skill.levels import Skill
from echelon_jax.agents.skill.scene import Scene, by_side
from echelon_jax.config import EnvConfig
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import HEAVY, LIGHT, MEDIUM, SCOUT, roster
from echelon_jax.rules.weapons import AUTOCANNON, FLAMER, GAUSS, LASER, MISSILE, PAINTER

CONE = 0.9  # share of a cone or arc that is trusted, since the target moves within the decision
AMS_MARGIN = 1.0  # voxels around the reach of a point defence that a missile is not sent into


class Triggers(NamedTuple):
    """What each mech pulls."""

    primary: Bool[Array, "arenas 2 team"]
    secondary: Bool[Array, "arenas 2 team"]
    tertiary: Bool[Array, "arenas 2 team"]
    vent: Bool[Array, "arenas 2 team"]


def of_class(config: EnvConfig, *classes: int) -> np.ndarray:
    """[2, team] which mechs are of the classes."""
    return np.isin(roster(config.num_packs).mech_class, classes).reshape(2, -1)


def pull(
    config: EnvConfig,
    params: EnvParams,
    state: EnvState,
    skill: Skill,
    scene: Scene,
    is_target: Bool[Array, "arenas 2 team team"],
    error: Float32[Array, "arenas 2 team team"],
    held: Bool[Array, "arenas 2 team"],
) -> Triggers:
    """Return the triggers.

    Args:
        is_target: which enemy each mech aims at.
        error: by how much each mech takes itself to be off each enemy.
        held: who withholds its fire in this decision.
    """
    rules, mechs = params.rules, state.sim.mechs
    scout, light, medium, heavy = (jnp.asarray(of_class(config, c)) for c in (SCOUT, LIGHT, MEDIUM, HEAVY))
    off, d = jnp.abs(error), scene.distance
    in_view = scene.sight & scene.known

    def reach(weapon: int, cone: Array | float) -> Array:
        return (in_view & (d <= rules.range[weapon]) & (off <= CONE * cone)).any(-1)

    def ready(timer: Array) -> Array:
        return by_side(timer) <= config.substeps

    laser = reach(LASER, jnp.arccos(rules.arc_cosine[LASER])) & (light | medium | heavy) & ready(mechs.laser_cooldown)
    flamer = reach(FLAMER, jnp.arccos(rules.arc_cosine[FLAMER])) & light & ready(mechs.kinetic_cooldown)
    paint = (
        reach(PAINTER, jnp.arccos(rules.arc_cosine[PAINTER])) & (scout | light | medium) & ready(mechs.painter_cooldown)
    )
    # A kinetic weapon aims by itself, but only within a cone, wider for the focus.
    cone = jnp.where(is_target, k.KINETIC_FOCUS_CONE, k.KINETIC_CONE)
    gauss = reach(GAUSS, cone) & heavy & ready(mechs.kinetic_cooldown)
    autocannon = reach(AUTOCANNON, cone) & medium & ready(mechs.kinetic_cooldown)
    missile = _missile(config, params, state, scene, off) & heavy & ready(mechs.tube_cooldown)

    # Shots one after another while the heat they bring stays below the limit.
    cap = by_side(jnp.broadcast_to(rules.heat_cap, mechs.heat.shape))
    vent = scene.heat > skill.vents_at * cap
    cooling = by_side(jnp.broadcast_to(rules.heat_dissipation, mechs.heat.shape)) * config.decision_seconds
    heat = scene.heat - cooling * jnp.where(vent, 1.0 + k.VENT_MULTIPLIER, 1.0)
    fires = {}
    for weapon, wanted in (
        (GAUSS, gauss),
        (AUTOCANNON, autocannon),
        (MISSILE, missile),
        (LASER, laser),
        (FLAMER, flamer),
    ):
        shots = max(1, round(config.decision_seconds / SECONDS_BETWEEN[weapon]))
        cost = rules.weapon_heat[weapon] * shots
        fires[weapon] = wanted & (heat + cost <= skill.heat_limit * cap) & ~held
        heat = heat + jnp.where(fires[weapon], cost, 0.0)
    cool = scene.heat <= 0.8 * cap
    paint = paint & cool & ~held
    return Triggers(
        primary=(scout & paint) | (light & fires[FLAMER]) | ((medium | heavy) & fires[LASER]),
        secondary=(light & fires[LASER]) | (heavy & fires[MISSILE]),
        tertiary=(light & paint) | (medium & (fires[AUTOCANNON] | paint)) | (heavy & fires[GAUSS]),
        vent=vent,
    )


SECONDS_BETWEEN = {GAUSS: 4.0, AUTOCANNON: 0.25, MISSILE: 3.0, LASER: 0.65, FLAMER: 0.2}


def _missile(
    config: EnvConfig, params: EnvParams, state: EnvState, scene: Scene, off: Float32[Array, "arenas 2 team team"]
) -> Bool[Array, "arenas 2 team"]:
    """Whether a missile would find a lock on an enemy that no ready point defence covers."""
    rules, mechs = params.rules, state.sim.mechs
    r = roster(config.num_packs)
    pack = jnp.asarray(r.team * config.num_packs + r.pack)
    painter = jnp.where((mechs.painted > 0) & (mechs.last_painter >= 0), pack[mechs.last_painter], NO_PACK)
    painted = by_side(painter)[:, ::-1, None, :] == pack.reshape(2, -1)[:, :, None]
    lock = (painted & (scene.distance <= rules.range[MISSILE])) | (
        scene.sight & (scene.distance <= k.ONBOARD_LOCK_RANGE)
    )
    heavy = jnp.asarray(of_class(config, HEAVY))
    guard = heavy & scene.alive & (by_side(mechs.ams_cooldown) <= config.substeps)
    guard = guard & (scene.heat <= by_side(jnp.broadcast_to(rules.heat_cap, mechs.heat.shape)))
    gx, gy = (v[..., None] - v[..., None, :] for v in (scene.x, scene.y))
    covered = ((gx * gx + gy * gy <= (k.AMS_RANGE + AMS_MARGIN) ** 2) & guard[..., None, :]).any(-1)
    return (lock & scene.known & (off <= CONE * math.pi / 2) & ~covered[:, ::-1, None, :]).any(-1)


NO_PACK = -1
