"""Whom each mech aims at: a weighted sum per enemy, with what the team-mates aim at as one term, and a lag."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.agents.skill.levels import Skill
from echelon_jax.agents.skill.scene import SIGHT_RANGE, Scene, of_enemies
from echelon_jax.rules.mechs import HEAVY, LIGHT, MEDIUM, SCOUT
from echelon_jax.sim.ordered import ordered_sum

NONE = -1
DANGER = {SCOUT: 0.0, LIGHT: 0.3, MEDIUM: 1.0, HEAVY: 0.8}  # how much is gained by a class that fires no more


class Aim(NamedTuple):
    """Targets by their number among the enemies, NONE for none; and for how many decisions another one has been wanted."""

    target: Int32[Array, "arenas 2 team"]
    wanted: Int32[Array, "arenas 2 team"]


def choose(
    skill: Skill,
    scene: Scene,
    before: Aim,
    max_hp: Float32[Array, "2 team"],
    helpless: Bool[Array, "arenas 2 team"],
    danger: Float32[Array, "2 team"],
) -> Aim:
    """Return the targets of this decision; one that is dead or unknown is dropped at once, another one taken after the lag.

    Args:
        helpless: mechs that are shut down or have fallen.
        danger: of each mech by its class, as in DANGER.
    """
    n = scene.alive.shape[-1]
    number = jnp.arange(n, dtype=jnp.int32)
    mine = before.target[..., None] == number
    others = ordered_sum((mine & scene.alive[..., None]).astype(jnp.float32).swapaxes(2, 3))[:, :, None, :] - mine
    lost = 1.0 - of_enemies(scene.hp / max_hp)
    score = (
        skill.near[..., None] * (1.0 - scene.distance / SIGHT_RANGE)
        + skill.seen[..., None] * scene.sight
        + skill.weak[..., None] * (lost + 0.5 * of_enemies(helpless))
        + skill.shared[..., None] * jnp.minimum(others, 3.0) / 3.0
        + skill.kept[..., None] * mine
        + skill.danger[..., None] * of_enemies(danger[None])
        - skill.turned[..., None] * jnp.abs(scene.error) / math.pi
    )
    score = jnp.where(scene.known, score, -jnp.inf)
    best = jnp.where(scene.known.any(-1), jnp.argmax(score, -1).astype(jnp.int32), NONE)
    still = (mine & scene.known).any(-1)
    current = jnp.where(still, before.target, NONE)
    wanted = jnp.where(best != current, before.wanted + 1, 0)
    takes = wanted.astype(jnp.float32) > skill.lag
    return Aim(jnp.where(takes, best, current), jnp.where(takes, 0, wanted))


def of_target(values: Array, target: Int32[Array, "arenas 2 team"]) -> Array:
    """values[..., target] of [arenas, 2, team, enemies]; of the first enemy where there is no target."""
    return jnp.take_along_axis(values, jnp.maximum(target, 0)[..., None], -1)[..., 0]
