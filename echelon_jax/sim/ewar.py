"""Electronic warfare: sensors under jamming and support (docs/spec/rules.md 5.12, docs/spec/environment.md 2.2)."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import roster
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Mechs


class SensorQuality(NamedTuple):
    """Sensor quality 0.25 to 1.5 (1 in a quiet field), strongest jamming and support in [0, 1], at each mech."""

    q: Float32[Array, "arenas mechs"]
    jam: Float32[Array, "arenas mechs"]
    eccm: Float32[Array, "arenas mechs"]


def shutdown(rules: SimRules, mechs: Mechs) -> Bool[Array, "arenas mechs"]:
    """Whether each mech is overheated, dead or alive: heat above its cap (docs/spec/rules.md 4.3)."""
    return mechs.heat > rules.heat_cap


def distances(position: Float32[Array, "arenas mechs 3"]) -> Float32[Array, "arenas mechs mechs"]:
    """Distance between the centres of every two mechs; symmetric bit for bit."""
    dx, dy, dz = (position[:, None, :, axis] - position[:, :, None, axis] for axis in range(3))
    return jnp.sqrt(dx * dx + dy * dy + dz * dz)


def strength(distance: Float32[Array, "*#batch mechs"]) -> Float32[Array, "*#batch mechs"]:
    """How strongly a source jams or supports at a distance: 1 - D/50, 0 from 50 voxels on (docs/spec/rules.md 5.12)."""
    return jnp.maximum(1.0 - distance / k.EWAR_RADIUS, 0.0)


def quality(jam: Float32[Array, "*batch"], eccm: Float32[Array, "*batch"]) -> Float32[Array, "*batch"]:
    """q = clip(1 - 0.85 jam + 0.65 eccm, 0.25, 1.5) (docs/spec/rules.md 5.12)."""
    return jnp.clip(1.0 - k.ECM_WEIGHT * jam + k.ECCM_WEIGHT * eccm, k.SENSOR_QUALITY_MIN, k.SENSOR_QUALITY_MAX)


def sensor_quality(
    config: EnvConfig,
    rules: SimRules,
    mechs: Mechs,
    distance: Float32[Array, "arenas mechs mechs"] | None = None,
) -> SensorQuality:
    """q = clip(1 - 0.85 jam + 0.65 eccm, 0.25, 1.5); a dead or shutdown viewer has q = 0.25 and neither jam nor eccm.

    jam is the largest 1 - D/50 over enemies with ECM on, eccm that over other team mates with ECCM on; sources are alive and
    not shutdown. `distance` may be handed in where it is known.
    """
    team = roster(config.num_packs).team
    enemy = jnp.asarray(team[:, None] != team[None, :])
    friend = jnp.asarray((team[:, None] == team[None, :]) & ~np.eye(len(team), dtype=bool))
    distance = distances(mechs.position) if distance is None else distance
    working = mechs.alive & ~shutdown(rules, mechs)
    felt = jnp.where(working[:, :, None], strength(distance), 0.0)  # [arenas, viewer, source]
    jam = jnp.where((working & mechs.ecm_on)[:, None, :] & enemy, felt, 0.0).max(-1)
    eccm = jnp.where((working & mechs.eccm_on)[:, None, :] & friend, felt, 0.0).max(-1)
    return SensorQuality(jnp.where(working, quality(jam, eccm), k.SENSOR_QUALITY_MIN), jam, eccm)
