"""Round the flank: towards the back of a target that looks elsewhere, where every hit does more damage."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32

from echelon_jax.agents.skill.scene import Scene, of_enemies
from echelon_jax.agents.skill.targets import of_target


def towards_back(
    scene: Scene,
    target: Int32[Array, "arenas 2 team"],
    then_x: Float32[Array, "arenas 2 team ways"],
    then_y: Float32[Array, "arenas 2 team ways"],
    step: float,
) -> Float32[Array, "arenas 2 team ways"]:
    """Return by how much each direction leads out of the target's view, about -1 to 1; 0 where it is not in sight.

    Args:
        then_x, then_y: from where each direction ends to the target, in voxels.
        step: voxels that are looked ahead.
    """
    yaw = of_target(jnp.broadcast_to(of_enemies(scene.yaw), scene.distance.shape), target)
    cos, sin = jnp.cos(yaw), jnp.sin(yaw)
    x, y = of_target(scene.dx, target), of_target(scene.dy, target)
    distance = jnp.maximum(jnp.sqrt(x * x + y * y), 1.0)
    here = (x * cos + y * sin) / distance  # 1 right behind it, -1 before its nose
    then = (then_x * cos[..., None] + then_y * sin[..., None]) / jnp.maximum(
        jnp.sqrt(then_x * then_x + then_y * then_y), 1.0
    )
    gain = (then - here[..., None]) * distance[..., None] / step
    return jnp.where(of_target(scene.sight, target)[..., None], gain, 0.0)
