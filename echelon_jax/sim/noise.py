"""Every random draw of a decision step as one explicit pytree (docs/spec/rules.md Appendix A)."""

from __future__ import annotations

import math

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32, Key, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.rules.weapons import HITSCAN
from echelon_jax.sim.slots import slots


class Noise(flax.struct.PyTreeNode):
    """The draws of one decision step; a draw that the rules do not ask for is ignored."""

    # Interception roll of (missile in tube slot `ring` of launcher heavy) against (defending heavy of the target's team, by pack).
    ams: Float32[Array, "arenas substeps heavies rings packs"]
    # Height of a hitscan hit, uniform in [0, 1), of each shooter: laser, flamer, and whatever else is in HITSCAN.
    hit_height: Float32[Array, "arenas substeps mechs hitscan"]
    # A permutation of all mechs; the living move in this order.
    move_order: Int32[Array, "arenas substeps mechs"]
    # Only under fair_order: a permutation of all mechs, the order of firing, and the roll of the wreck each mech would leave.
    fire_order: Int32[Array, "arenas substeps mechs"] | None = None
    wreck: Float32[Array, "arenas substeps mechs"] | None = None


def sample_noise(config: EnvConfig, keys: Key[Array, " arenas"]) -> Noise:
    """Draws of one decision step for a batch of arenas, one threefry key per arena; arena i depends on key i alone.

    All draws of an arena come from one call for raw bits, which compiles and runs faster than one call per field.
    """
    table, s, n = slots(config), config.substeps, config.num_mechs
    shapes = [(s, len(table.heavy), table.max_ring, config.num_packs), (s, n, len(HITSCAN)), (s, n)]
    if config.fair_order:
        shapes += [(s, n), (s, n)]
    sizes = [math.prod(shape) for shape in shapes]
    bits = jax.vmap(lambda key: jax.random.bits(key, (sum(sizes),), jnp.uint32))(keys)
    ams, heights, order, *fair = (
        part.reshape(len(keys), *shape)
        for part, shape in zip(jnp.split(bits, np.cumsum(sizes)[:-1], axis=1), shapes, strict=True)
    )
    noise = Noise(ams=_uniform(ams), hit_height=_uniform(heights), move_order=_permutation(order))
    if config.fair_order:
        noise = noise.replace(fire_order=_permutation(fair[0]), wreck=_uniform(fair[1]))
    return noise


def _uniform(bits: UInt32[Array, "*shape"]) -> Float32[Array, "*shape"]:
    """Uniform in [0, 1) from the upper 24 bits."""
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def _permutation(bits: UInt32[Array, "*batch items"]) -> Int32[Array, "*batch items"]:
    """A uniformly random permutation: items by their draw. Equal draws (1 in 1e8) keep their order."""
    items = jnp.arange(bits.shape[-1], dtype=jnp.int32)
    a, b = bits[..., :, None], bits[..., None, :]
    rank = ((b < a) | ((b == a) & (items < items[:, None]))).sum(-1, dtype=jnp.int32)
    return jnp.where(rank[..., None, :] == items[:, None], items, 0).sum(-1, dtype=jnp.int32)
