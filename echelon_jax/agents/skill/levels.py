"""The skill levels as rows of numbers, one a level; a strength between two levels reads numbers between their rows."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from echelon_jax.agents.base import AgentParams


class Skill(NamedTuple):
    """What a level is made of; Python numbers in the table, arrays [arenas, 1, 1] in a decision.

    Attributes:
        fire: chance that what a mech wants to fire is not withheld for a decision.
        aim_error: standard deviation of the heading it turns to, radians; follows itself with 0.9 per decision.
        lag: decisions between wanting another target and taking it.
        throttle: of full speed.
        vents_at: share of the heat cap from which on it vents.
        heat_limit: share of the cap that a shot may bring it to; 9 never holds fire.
        memory: seconds for which the team remembers where an enemy was that nobody sees; above 60 it knows them all.
        spacing: how much it minds the distance of its class to its target, 0 not at all.
        own_range: 0 takes 5.5 voxels for every class, 1 the distance of the class.
        avoids: how much it minds walls, lava and its own side in the way.
        orbit: how much it prefers to move across its target's view.
        caution: voxels by which it stands back per enemy that it is outnumbered by; also how it minds fire when hurt.
        near, seen, weak, shared, turned, kept: weights of a target's nearness, being in sight, lost hit points, team-mates on it,
            turning towards it, and being the target already.
    """

    fire: Array | float
    aim_error: Array | float
    lag: Array | float
    throttle: Array | float
    vents_at: Array | float
    heat_limit: Array | float
    memory: Array | float
    spacing: Array | float
    own_range: Array | float
    avoids: Array | float
    orbit: Array | float
    caution: Array | float
    near: Array | float
    seen: Array | float
    weak: Array | float
    shared: Array | float
    turned: Array | float
    kept: Array | float


LEVELS = {
    "trivial": Skill(0.25, 0.35, 4, 0.5, 0.9, 9.0, 99, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "easy": Skill(0.5, 0.15, 2, 1.0, 0.75, 9.0, 99, 1.0, 0.0, 1.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "medium": Skill(1.0, 0.05, 1, 1.0, 0.5, 1.0, 2, 1.0, 1.0, 1.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.2),
    "hard": Skill(1.0, 0.0, 0, 1.0, 0.0, 0.95, 2, 1.0, 1.0, 1.0, 0.2, 0.0, 1.5, 1.0, 0.5, 0.5, 0.5, 0.3),
    "expert": Skill(1.0, 0.0, 0, 1.0, 0.0, 0.95, 2, 1.0, 1.0, 1.0, 0.3, 2.0, 1.5, 1.0, 1.0, 1.0, 0.5, 0.3),
}
PROGRESSIVE = "progressive"
NAMES = (*LEVELS, PROGRESSIVE)
STRONGEST = len(LEVELS) - 1.0
TABLE = np.array(list(LEVELS.values()), np.float32)


class SkillParams(AgentParams):
    """The strengths an arena's episode is played with: drawn evenly from `lowest` to `highest`, 0 trivial to 4 expert.

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
