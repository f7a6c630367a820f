"""The skill levels as rows of numbers. A strength between two levels interpolates between their rows."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from echelon_jax.agents.base import AgentParams


class Skill(NamedTuple):
    """The numbers of a level, per arena; the columns of TABLE.

    Attributes:
        fire: probability that a mech does not hold back a wanted shot in a decision.
        aim_error: standard deviation of the heading to which it turns, in radians; its autocorrelation is 0.9 per decision.
        lag: decisions between the wish for another target and the change.
        throttle: share of full speed.
        vents_at: share of the heat cap at which it begins to vent.
        heat_limit: largest share of the cap after a shot; with 9 it never holds fire.
        memory: seconds for which the team remembers the position of an enemy that nobody sees; above 60 it knows them all.
        spacing: weight of the distance to its target; 0 ignores it.
        own_range: 0 keeps 5.5 voxels for every class, 1 the distance of the class.
        avoids: weight of walls, lava and its own side in the way.
        orbit: weight of motion across its target's view.
        caution: voxels by which it stands back per enemy in excess, and half as much again when hurt.
        near, seen, weak, shared, turned, kept, danger: weights of a target's nearness, being in sight, lost hit points, team-mates
            on it, needing no turn, being the target already, and the fire power of its class.
        flank: weight of going round to the back of the target.
        jets: vertical throttle of scouts and lights in a fight; it takes 0.6 or more to rise.
        smoke: above 1/2 scouts blind enemies at whom nobody aims.
    """

    fire: Float32[Array, "arenas 1 1"]
    aim_error: Float32[Array, "arenas 1 1"]
    lag: Float32[Array, "arenas 1 1"]
    throttle: Float32[Array, "arenas 1 1"]
    vents_at: Float32[Array, "arenas 1 1"]
    heat_limit: Float32[Array, "arenas 1 1"]
    memory: Float32[Array, "arenas 1 1"]
    spacing: Float32[Array, "arenas 1 1"]
    own_range: Float32[Array, "arenas 1 1"]
    avoids: Float32[Array, "arenas 1 1"]
    orbit: Float32[Array, "arenas 1 1"]
    caution: Float32[Array, "arenas 1 1"]
    near: Float32[Array, "arenas 1 1"]
    seen: Float32[Array, "arenas 1 1"]
    weak: Float32[Array, "arenas 1 1"]
    shared: Float32[Array, "arenas 1 1"]
    turned: Float32[Array, "arenas 1 1"]
    kept: Float32[Array, "arenas 1 1"]
    danger: Float32[Array, "arenas 1 1"]
    flank: Float32[Array, "arenas 1 1"]
    jets: Float32[Array, "arenas 1 1"]
    smoke: Float32[Array, "arenas 1 1"]


# Each level is the one below it with what it has learnt.
_TRIVIAL: dict[str, float] = dict.fromkeys(Skill._fields, 0.0) | {
    "fire": 0.25, "aim_error": 0.35, "lag": 4.0, "throttle": 0.5, "vents_at": 0.9, "heat_limit": 9.0, "memory": 99.0, "near": 3.0,
}  # fmt: skip
_EASY = _TRIVIAL | {
    "fire": 0.4, "aim_error": 0.15, "lag": 2.0, "throttle": 0.85, "vents_at": 0.75, "spacing": 1.0, "avoids": 1.0,
}  # fmt: skip
_MEDIUM = _EASY | {
    "fire": 0.75, "aim_error": 0.12, "throttle": 0.9, "vents_at": 0.5, "heat_limit": 1.0, "memory": 2.0, "own_range": 1.0,
    "orbit": 0.1, "near": 0.7, "seen": 1.5, "kept": 0.3,
}  # fmt: skip
_HARD = _MEDIUM | {
    "fire": 0.85, "aim_error": 0.08, "lag": 1.0, "throttle": 1.0, "vents_at": 0.0, "heat_limit": 0.9, "caution": 1.0, "weak": 0.5,
    "shared": 0.2, "turned": 0.8, "danger": 0.3, "flank": 0.5,
}  # fmt: skip
_EXPERT = _HARD | {
    "fire": 1.0, "aim_error": 0.0, "lag": 0.0, "seen": 2.5, "weak": 1.5, "danger": 0.7, "flank": 1.0, "jets": 0.8, "smoke": 1.0,
}  # fmt: skip
LEVELS = {"trivial": _TRIVIAL, "easy": _EASY, "medium": _MEDIUM, "hard": _HARD, "expert": _EXPERT}
PROGRESSIVE = "progressive"
NAMES = (*LEVELS, PROGRESSIVE)
STRONGEST = len(LEVELS) - 1.0
TABLE = np.array([[row[name] for name in Skill._fields] for row in LEVELS.values()], np.float32)


class SkillParams(AgentParams):
    """The strength of an arena's episode: drawn evenly from `lowest` to `highest`, from 0 (trivial) to 4 (expert).

    `fire_probability` multiplies the level's own.
    """

    lowest: Float32[Array, "*batch"] | float = 0.0
    highest: Float32[Array, "*batch"] | float = STRONGEST


def skill_params(name: str, fire_probability: float = 1.0) -> SkillParams:
    """Return the parameters of a level by its name; `progressive` draws another strength for every episode.

    Raises:
        ValueError: there is no such level.
    """
    if name not in NAMES:
        raise ValueError(f"a skill level must be one of {', '.join(NAMES)}, got {name!r}")
    lowest, highest = (0.0, STRONGEST) if name == PROGRESSIVE else (float(NAMES.index(name)),) * 2
    numbers = (jnp.float32(value) for value in (fire_probability, lowest, highest))
    return SkillParams(*numbers)


def at_strength(strength: Float32[Array, " arenas"]) -> Skill:
    """Return the numbers of each arena's strength, [arenas, 1, 1] each, linear between the rows of the table."""
    table = jnp.asarray(TABLE)
    below = jnp.clip(jnp.floor(strength), 0, len(TABLE) - 2)
    share = jnp.clip(strength - below, 0.0, 1.0)[:, None]
    row = below.astype(jnp.int32)
    mixed = table[row] * (1 - share) + table[row + 1] * share
    return Skill(*(mixed[:, i, None, None] for i in range(mixed.shape[1])))
