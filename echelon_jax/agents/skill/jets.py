"""Jump jets: in a fight scouts and lights rise and stay above it, where shots that are aimed level do not reach them."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.agents.skill.levels import Skill
from echelon_jax.agents.skill.scene import Scene
from echelon_jax.agents.skill.targets import of_target
from echelon_jax.agents.skill.weapons import of_class
from echelon_jax.config import EnvConfig
from echelon_jax.rules.mechs import LIGHT, SCOUT

FIGHT = 12.0  # voxels to the target, seen from above


def thrust(
    config: EnvConfig,
    skill: Skill,
    scene: Scene,
    target: Int32[Array, "arenas 2 team"],
    fights: Bool[Array, "arenas 2 team"],
) -> Float32[Array, "arenas 2 team"]:
    """Return the vertical throttle, 0 to 1; `fights` are those who fight their target rather than approach it."""
    x, y = of_target(scene.dx, target), of_target(scene.dy, target)
    able = jnp.asarray(of_class(config, SCOUT, LIGHT))
    return jnp.where(able & fights & (x * x + y * y < FIGHT**2), skill.jets, 0.0)
