"""Sight of opponents: whether terrain lies between each mech and one other, computed only where it is needed."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float32, Int32, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.sim.rays import queued_sight
from echelon_jax.sim.widths import LoopWidths, loop_widths


def target_sight(
    config: EnvConfig,
    opaque: UInt32[Array, "arenas columns"],
    position: Float32[Array, "arenas mechs 3"],
    target: Int32[Array, "arenas mechs"],
    needed: Bool[Array, "arenas mechs"],
    widths: LoopWidths | None = None,
) -> Bool[Array, "arenas mechs"]:
    """Terrain sight (no smoke) from each mech to its `target` mech where it is `needed`; false for the others."""
    arenas, n = target.shape
    widths = widths or loop_widths(arenas)
    point, aim = position.reshape(-1, 3), target.reshape(-1)

    def ray_of(mech: Int32[Array, " rays"]) -> tuple[Array, Array, Array]:
        arena = mech // n
        return arena, point[mech], point[arena * n + aim[mech]]

    # Half as many at a time as for pairs of mechs: at most one ray a mech is asked for.
    clear = queued_sight(config, opaque, needed.reshape(-1), ray_of, widths, max(64, widths.rays // 2))
    return clear.reshape(arenas, n)
