"""The memories that the modern network may have, by name: how their parameters begin, one step, and a stored sequence.

A new memory is a file with the two functions, as mingru.py, and a row here. To be exported it needs a cell in
export/torch_policy.py besides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float32, Key

from echelon_jax.policies.lstm import lstm_sequence, lstm_step
from echelon_jax.policies.mingru import mingru_sequence, mingru_step
from echelon_jax.policies.network import Carry

Step = Callable[[Array, Array, Carry, Array, Array], Carry]
Sequence = Callable[[Array, Array, Carry, Array, Array], tuple[Carry, Array]]


@dataclasses.dataclass(frozen=True)
class Memory:
    """A kind of memory. Its parameters are one kernel and one bias, with a block of columns for each gate.

    Attributes:
        gates: number of gates.
        keeps: which of them says what is kept; its bias begins with `forget_bias`.
        reads_itself: whether gates read the hidden state too; the kernel then has rows for it, after those of the inputs.
        step: (kernel, bias, carry, x, reset) -> carry after one step.
        sequence: the same for [time, ...] -> last carry and every hidden state.
    """

    gates: int
    keeps: int
    reads_itself: bool
    step: Step
    sequence: Sequence

    def kernel(self, key: Key[Array, ""], inputs: int, width: int) -> Float32[Array, "reads gates"]:
        """Return a fresh kernel; every gate's block is orthogonal."""
        sides = [inputs, width] if self.reads_itself else [inputs]
        keys = jax.random.split(key, len(sides) * self.gates)
        fresh = nn.initializers.orthogonal(1.0)
        rows = []
        for i, side in enumerate(sides):
            own = keys[i * self.gates : (i + 1) * self.gates]
            rows.append(jnp.concatenate([fresh(k, (side, width), jnp.float32) for k in own], 1))
        return jnp.concatenate(rows)

    def bias(self, width: int, forget_bias: float) -> Float32[Array, " gates"]:
        """Return a fresh bias: zeros but for the gate that keeps."""
        kept = slice(self.keeps * width, (self.keeps + 1) * width)
        return jnp.zeros(self.gates * width, jnp.float32).at[kept].set(forget_bias)


MEMORIES: dict[str, Memory] = {
    "lstm": Memory(gates=4, keeps=1, reads_itself=True, step=lstm_step, sequence=lstm_sequence),
    "mingru": Memory(gates=2, keeps=0, reads_itself=False, step=mingru_step, sequence=mingru_sequence),
}
