"""The minGRU: a memory whose gates read the present alone. A stored sequence is one matrix product and a linear recurrence.

Source: Feng et al. 2024, "Were RNNs All We Needed?" (arXiv 2410.01201), section 3.1. With the share f that is kept,
c_t = f_t c_(t-1) + (1 - f_t) g_t, where f_t = sigmoid(W_f x_t + b_f) and g_t = W_g x_t + b_g. The heads read c_t + g_t: so what a
mech sees now reaches its decision in full, however long the memory keeps.

A CPU does the recurrence step by step, which is the least work. Every other device joins neighbouring steps to pairs, pairs to
fours and so on: twice the work, but a handful of launches instead of some for each step. The two differ by rounding.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float32

from echelon_jax.policies.dense import product
from echelon_jax.policies.network import Carry


def _gates(sums: Array, reset: Array) -> tuple[Array, Array, Array]:
    """Return what is kept of the state, what is added to it, and what is new; where `reset` nothing is kept."""
    kept, new = jnp.split(sums, 2, -1)
    share = nn.sigmoid(kept)
    return jnp.where(reset[..., None], 0.0, share), (1.0 - share) * new, new


def mingru_step(
    kernel: Float32[Array, "inputs gates"],
    bias: Float32[Array, " gates"],
    carry: Carry,
    x: Float32[Array, "arenas mechs hidden"],
    reset: Bool[Array, "arenas mechs"],
) -> Carry:
    """Return the memory after reading x; where `reset` it starts from zeros. `c` is the state, and `h` what the heads read.

    `kernel` is [hidden, 2 lstm]: the columns of what is kept, then of what is new.
    """
    keep, add, new = _gates(product(x, kernel) + bias, reset)
    c = keep * carry.c + add
    return Carry(c, c + new)


def mingru_sequence(
    kernel: Float32[Array, "inputs gates"],
    bias: Float32[Array, " gates"],
    carry: Carry,
    x: Float32[Array, "time arenas mechs hidden"],
    reset: Bool[Array, "time arenas mechs"],
) -> tuple[Carry, Float32[Array, "time arenas mechs lstm"]]:
    """Return the memory after a sequence and what the heads read at every step: what `mingru_step` gives one by one."""
    keep, add, new = _gates(product(x, kernel) + bias, reset)
    c = linear_recurrence(keep, add, carry.c)
    h = c + new
    return Carry(c[-1], h[-1]), h


# -- The recurrence ---------------------------------------------------------------------------------------------------------


@jax.custom_vjp
def linear_recurrence(
    keep: Float32[Array, "time *batch lstm"],
    add: Float32[Array, "time *batch lstm"],
    first: Float32[Array, "*batch lstm"],
) -> Float32[Array, "time *batch lstm"]:
    """Return the state after every step, keep_t state_(t-1) + add_t, with `first` before the first step.

    It can be differentiated backwards, once.
    """
    return jax.lax.platform_dependent(keep, add, first, cpu=in_turn, default=in_pairs)


def in_turn(
    keep: Float32[Array, "time *batch lstm"],
    add: Float32[Array, "time *batch lstm"],
    first: Float32[Array, "*batch lstm"],
) -> Float32[Array, "time *batch lstm"]:
    """Return `linear_recurrence` step by step.

    The gates are computed outside: inside the loop XLA:CPU would take their exponentials one number at a time.
    """

    def step(state: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        state = now[0] * state + now[1]
        return state, state

    return jax.lax.scan(step, first, (keep, add))[1]


def in_pairs(
    keep: Float32[Array, "time *batch lstm"],
    add: Float32[Array, "time *batch lstm"],
    first: Float32[Array, "*batch lstm"],
) -> Float32[Array, "time *batch lstm"]:
    """Return `linear_recurrence` by an associative scan."""
    return jax.lax.associative_scan(_join, (keep, add.at[0].add(keep[0] * first)))[1]


def _join(early: tuple[Array, Array], late: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return keep and add of two runs of steps as of one."""
    return early[0] * late[0], late[0] * early[1] + late[1]


def _forward(keep: Array, add: Array, first: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    states = linear_recurrence(keep, add, first)
    return states, (keep, first, states)


def _backward(kept: tuple[Array, Array, Array], given: Array) -> tuple[Array, Array, Array]:
    """The chain rule is the same recurrence from the end to the start."""
    keep, first, states = kept
    d_state = jax.lax.platform_dependent(keep, given, cpu=back_in_turn, default=back_in_pairs)
    before = jnp.concatenate([first[None], states[:-1]])
    return d_state * before, d_state, d_state[0] * keep[0]


linear_recurrence.defvjp(_forward, _backward)


def back_in_turn(
    keep: Float32[Array, "time *batch lstm"], given: Float32[Array, "time *batch lstm"]
) -> Float32[Array, "time *batch lstm"]:
    """Return the gradients of the states: what is given to each, and what the one after it kept of it; step by step."""

    def step(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        d_state = later + now[1]
        return now[0] * d_state, d_state

    none = jnp.zeros_like(keep[0])
    return jax.lax.scan(step, none, (keep, given), reverse=True)[1]


def back_in_pairs(
    keep: Float32[Array, "time *batch lstm"], given: Float32[Array, "time *batch lstm"]
) -> Float32[Array, "time *batch lstm"]:
    """Return what `back_in_turn` returns, by an associative scan."""
    of_next = jnp.concatenate([keep[1:], jnp.zeros_like(keep[:1])])
    return jax.lax.associative_scan(_join, (of_next, given), reverse=True)[1]
