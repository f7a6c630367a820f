"""Substep counters read in seconds, as the original's float64 timers stand (docs/spec/rules.md 1.2).

A timer set to `duration` reads zero after n decrements of dt. With c decrements to go it stands at duration - dt * (n - c),
which is dt * c - slack with slack = dt * n - duration, whatever n a changed rule table uses.
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.timers import decrements
from echelon_jax.rules.weapons import MISSILE, SMOKE, WEAPONS, Timer, timed_weapon
from echelon_jax.sim.state import Mechs


@cache
def slack(duration: float, dt: float) -> float:
    """Seconds by which a timer of `duration` is shorter than its decrements: 0.05 s for the laser at dt 0.05, 0 for most."""
    return decrements(duration, dt) * dt - duration


@cache
def _slack_on(config: EnvConfig, timer: Timer) -> np.ndarray:
    """float32 [mechs]: the slack of each mech's weapon on a timer."""
    weapons = [timed_weapon(int(c), timer) for c in roster(config.num_packs).mech_class]
    return np.array([slack(WEAPONS[w].cooldown, config.dt) for w in weapons], np.float32)


def _seconds(config: EnvConfig, count: Int32[Array, "*_shape"], short: Array | float) -> Float32[Array, "*_shape"]:
    running = count.astype(jnp.float32) * jnp.float32(config.dt) - short
    return jnp.where(count > 0, jnp.maximum(running, 0.0), 0.0)


def _timer(config: EnvConfig, count: Int32[Array, "*_shape"], duration: float) -> Float32[Array, "*_shape"]:
    return _seconds(config, count, jnp.float32(slack(duration, config.dt)))


def laser_seconds(config: EnvConfig, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """Seconds until the laser is ready, or another weapon on its timer."""
    return _seconds(config, mechs.laser_cooldown, jnp.asarray(_slack_on(config, Timer.LASER)))


def tube_seconds(config: EnvConfig, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """Seconds until the tube is ready: the original's missile cooldown, which smoke sets too."""
    smoke = _timer(config, mechs.tube_cooldown, WEAPONS[SMOKE].cooldown)
    return jnp.where(mechs.tube_was_smoke, smoke, _timer(config, mechs.tube_cooldown, WEAPONS[MISSILE].cooldown))


def kinetic_seconds(config: EnvConfig, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """Seconds until gauss (heavy), autocannon (medium) or flamer (light) is ready, or another weapon on their timer."""
    return _seconds(config, mechs.kinetic_cooldown, jnp.asarray(_slack_on(config, Timer.KINETIC)))


def painter_seconds(config: EnvConfig, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """Seconds until the painter is ready, or another weapon on its timer."""
    return _seconds(config, mechs.painter_cooldown, jnp.asarray(_slack_on(config, Timer.PAINTER)))


def painted_seconds(config: EnvConfig, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """Seconds a mech stays painted."""
    return _timer(config, mechs.painted, k.PAINT_DURATION)


def suppressed_seconds(config: EnvConfig, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """Seconds a mech stays suppressed."""
    return _timer(config, mechs.suppressed, k.SUPPRESSION_DURATION)


def ams_seconds(config: EnvConfig, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """Seconds until the anti-missile system is ready."""
    return _timer(config, mechs.ams_cooldown, k.AMS_COOLDOWN)


def fallen_seconds(config: EnvConfig, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """Seconds until a fallen mech stands up."""
    return _timer(config, mechs.fallen, k.FALLEN_DURATION)
