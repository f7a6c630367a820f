"""Smoke: scouts blind an enemy at whom nobody aims, so that the team meets fewer lasers at once."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from echelon_jax.agents.skill.levels import Skill
from echelon_jax.agents.skill.scene import Scene, by_side
from echelon_jax.agents.skill.weapons import of_class
from echelon_jax.config import EnvConfig
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.rules.mechs import SCOUT
from echelon_jax.rules.weapons import SMOKE

APART = 6.0  # voxels between the middle of a cloud and any enemy that is aimed at
COOL = 0.6  # share of the heat cap below which a shell is fired


def lay(
    config: EnvConfig,
    params: EnvParams,
    state: EnvState,
    skill: Skill,
    scene: Scene,
    target: Int32[Array, "arenas 2 team"],
) -> tuple[Bool[Array, "arenas 2 team"], Int32[Array, "arenas 2 team"]]:
    """Return who fires a shell, and the focus of everybody: a shell flies to the focus, so it is another one for this decision.

    Args:
        target: the enemy each mech aims at, -1 for none.
    """
    aimed = ((target[..., None] == jnp.arange(target.shape[-1])) & scene.alive[..., None]).any(2)
    x, y = scene.x[:, ::-1], scene.y[:, ::-1]  # of the enemies
    gx, gy = x[..., None] - x[..., None, :], y[..., None] - y[..., None, :]
    spared = ((gx * gx + gy * gy < APART**2) & aimed[..., None, :]).any(-1)
    blinded = scene.sight & scene.known & (scene.distance < params.rules.range[SMOKE]) & ~spared[:, :, None, :]
    ready = (by_side(state.sim.mechs.tube_cooldown) <= 0) & (scene.heat < COOL * by_side(params.rules.heat_cap[None]))
    able = jnp.asarray(of_class(config, SCOUT)) & (skill.smoke > 0.5)
    fires = able & ready & scene.alive & blinded.any(-1)
    nearest = jnp.argmin(jnp.where(blinded, scene.distance, jnp.inf), -1).astype(jnp.int32)
    return fires, jnp.where(fires, nearest, target)
