"""One step of the LSTM cell that both networks share."""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float32

from echelon_jax.policies.network import Carry


def lstm_step(
    kernel: Float32[Array, "inputs gates"],
    bias: Float32[Array, " gates"],
    carry: Carry,
    x: Float32[Array, "arenas mechs hidden"],
    reset: Bool[Array, "arenas mechs"],
) -> Carry:
    """Return the memory after reading x; where `reset` it starts from zeros (docs/spec/learner.md 2.3).

    `kernel` is [hidden + lstm, 4 lstm]: rows of the input, then of the hidden state; columns in torch's gate order i, f, g, o.
    """
    c = jnp.where(reset[..., None], 0.0, carry.c)
    h = jnp.where(reset[..., None], 0.0, carry.h)
    i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ kernel + bias, 4, -1)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
    return Carry(c, nn.sigmoid(o) * jnp.tanh(c))
