"""Every random draw of a decision step as one explicit pytree (simulation spec, Appendix A)."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32, Key

from echelon_jax.config import EnvConfig
from echelon_jax.sim.slots import slots


@flax.struct.dataclass
class Noise:
    """The draws of one decision step; a draw that the rules do not ask for is ignored."""

    # Interception roll of (missile in tube slot `ring` of launcher heavy) against (defending heavy of the target's team, by pack).
    ams: Float32[Array, "arenas substeps heavies rings packs"]
    # Height of a hitscan hit, uniform in [0, 1): laser, flamer of each shooter.
    hit_height: Float32[Array, "arenas substeps mechs 2"]
    # A permutation of all mechs; the living move in this order.
    move_order: Int32[Array, "arenas substeps mechs"]


def _arena_noise(config: EnvConfig, key: Key[Array, ""]) -> Noise:
    table = slots(config)
    s, n = config.substeps, config.num_mechs
    ams_key, height_key, order_key = jax.random.split(key, 3)
    # A uniformly random permutation: the rank of each draw among N. Equal draws (1 in 1e8) fall back to roster order.
    u = jax.random.bits(order_key, (s, n), jnp.uint32)
    earlier = (u[:, :, None] > u[:, None, :]) | (
        (u[:, :, None] == u[:, None, :]) & (jnp.arange(n)[:, None] > jnp.arange(n)[None, :])
    )
    rank = earlier.sum(-1, dtype=jnp.int32)  # place of each mech
    order = (rank[:, None, :] == jnp.arange(n)[None, :, None]) @ jnp.arange(n, dtype=jnp.int32)
    return Noise(
        ams=jax.random.uniform(ams_key, (s, len(table.heavy), table.max_ring, config.num_packs), jnp.float32),
        hit_height=jax.random.uniform(height_key, (s, n, 2), jnp.float32),
        move_order=order,
    )


def sample_noise(config: EnvConfig, keys: Key[Array, " arenas"]) -> Noise:
    """Draws of one decision step for a batch of arenas, one threefry key per arena; arena i depends on key i alone."""
    return jax.vmap(lambda key: _arena_noise(config, key))(keys)
