"""The LSTM that both networks share: one step of it, and a stored sequence with a backward pass of its own.

A scan that JAX differentiates keeps some fourteen arrays of every step. This one keeps three, and computes the gates again.
Products stay inside the scan, where what they read and write fits into a CPU's cache: as one before or after it they are slower.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float32

from echelon_jax.policies.network import Carry


def _from_zeros(carry: Carry, reset: Bool[Array, "*batch"]) -> Carry:
    return Carry(*(jnp.where(reset[..., None], 0.0, leaf) for leaf in carry))


def _gates(sums: Float32[Array, "*batch gates"]) -> tuple[Array, Array, Array, Array]:
    i, f, g, o = jnp.split(sums, 4, -1)
    return nn.sigmoid(i), nn.sigmoid(f), jnp.tanh(g), nn.sigmoid(o)


def _step(kernel: Array, bias: Array, carry: Carry, x: Array, reset: Array) -> tuple[Carry, Carry, Array]:
    """Return the memory after a step, the one that it began with, and what goes into the gates."""
    before = _from_zeros(carry, reset)
    sums = jnp.concatenate([x, before.h], -1) @ kernel + bias
    i, f, g, o = _gates(sums)
    c = f * before.c + i * g
    return Carry(c, o * jnp.tanh(c)), before, sums


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
    return _step(kernel, bias, carry, x, reset)[0]


@jax.custom_vjp
def lstm_sequence(
    kernel: Float32[Array, "inputs gates"],
    bias: Float32[Array, " gates"],
    carry: Carry,
    x: Float32[Array, "time arenas mechs hidden"],
    reset: Bool[Array, "time arenas mechs"],
) -> tuple[Carry, Float32[Array, "time arenas mechs lstm"]]:
    """Return the memory after a sequence and the hidden state of every step: what `lstm_step` gives one by one.

    `kernel` and `bias` are those of `lstm_step`. It can be differentiated backwards, once, by everything but `reset`.
    """
    return _forward(kernel, bias, carry, x, reset)[0]


def _forward(kernel: Array, bias: Array, carry: Carry, x: Array, reset: Array) -> tuple[Any, Any]:
    """Return what `lstm_sequence` returns, and what the backward pass needs."""

    def step(carry: Carry, now: tuple[Array, Array]) -> tuple[Carry, tuple[Array, Array, Array]]:
        after, before, sums = _step(kernel, bias, carry, *now)
        return after, (after.h, before.c, sums)

    last, (h, c, sums) = jax.lax.scan(step, carry, (x, reset))
    return (last, h), (kernel, carry.h, x, reset, h, c, sums)


def _backward(kept: Any, given: tuple[Carry, Array]) -> tuple[Array, Array, Carry, Array, None]:
    """Return the gradients by kernel, bias, first memory and inputs from those by the last memory and the hidden states.

    Full back-propagation through time (Graves and Schmidhuber 2005, without peepholes): the chain rule of `_step`.
    """
    kernel, first, x, reset, h, c, sums = kept
    transposed, hidden = kernel.T, x.shape[-1]
    h = jnp.where(reset[..., None], 0.0, jnp.concatenate([first[None], h[:-1]]))

    def step(carry: tuple[Carry, Array, Array], now: tuple[Array, ...]) -> tuple[tuple[Carry, Array, Array], Array]:
        later, d_kernel, d_bias = carry
        d_h, x, reset, h, c, sums = now
        i, f, g, o = _gates(sums)
        t = jnp.tanh(f * c + i * g)
        d_h = d_h + later.h
        d_c = later.c + d_h * o * (1 - t * t)
        d_sums = jnp.concatenate(
            [d_c * g * i * (1 - i), d_c * c * f * (1 - f), d_c * i * (1 - g * g), d_h * t * o * (1 - o)], -1
        )
        d_x, d_h = jnp.split(d_sums @ transposed, [hidden], -1)
        read = jnp.concatenate([x, h], -1).reshape(-1, kernel.shape[0])
        rows = d_sums.reshape(-1, kernel.shape[1])
        return (_from_zeros(Carry(d_c * f, d_h), reset), d_kernel + read.T @ rows, d_bias + d_sums), d_x

    none = given[0], jnp.zeros_like(kernel), jnp.zeros_like(sums[0])
    (d_carry, d_kernel, d_bias), d_x = jax.lax.scan(step, none, (given[1], x, reset, h, c, sums), reverse=True)
    return d_kernel, d_bias.sum((0, 1)), d_carry, d_x, None


lstm_sequence.defvjp(_forward, _backward)
