"""A dense layer that a CPU learns fast: its product has a gradient of its own, and it may read several inputs.

JAX's own gradient of a kernel is the transposed product of what a layer gave and what it read. XLA:CPU gets it by copying the
former into another order first, and where layers are narrow that copy takes as long as the product.
"""

from __future__ import annotations

import math
from itertools import accumulate

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float32

FEW_ROWS = 2048  # below it parts are put side by side: on a GPU fewer launches count for more than a smaller product


@jax.custom_vjp
def product(
    x: Float32[Array, "*batch inputs"], kernel: Float32[Array, "inputs outputs"]
) -> Float32[Array, "*batch outputs"]:
    """Return x @ kernel. It can be differentiated backwards, by both."""
    return x @ kernel


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ kernel, (x, kernel)


def _backward(read: tuple[Array, Array], given: Array) -> tuple[Array, Array]:
    x, kernel = read
    rows, given_rows = x.reshape(-1, x.shape[-1]), given.reshape(-1, given.shape[-1])
    return given @ kernel.T, jax.lax.dot_general(rows, given_rows, (((0,), (0,)), ((), ())))


product.defvjp(_forward, _backward)


class Dense(nn.Module):
    """x @ kernel + bias, where x may come in parts: what all mechs of an arena share is multiplied once, if there are many rows.

    The parameters are those of `flax.linen.Dense` that reads the parts side by side.
    """

    size: int
    kernel_init: nn.initializers.Initializer
    use_bias: bool = True

    @nn.compact
    def weights(self, inputs: int) -> tuple[Float32[Array, "inputs outputs"], Float32[Array, " outputs"] | None]:
        """Return the kernel for inputs of a width, and the bias."""
        kernel = self.param("kernel", self.kernel_init, (inputs, self.size))
        return kernel, self.param("bias", nn.initializers.zeros, (self.size,)) if self.use_bias else None

    def __call__(self, *parts: Float32[Array, "... _"]) -> Float32[Array, "... outputs"]:
        """Return the layer's output of parts [*batch, width]; where a part has an axis of 1, the others need not have it."""
        batch = jnp.broadcast_shapes(*(part.shape[:-1] for part in parts))
        if len(parts) > 1 and math.prod(batch) < FEW_ROWS:
            parts = (jnp.concatenate([jnp.broadcast_to(part, (*batch, part.shape[-1])) for part in parts], -1),)
        ends = list(accumulate(part.shape[-1] for part in parts))
        kernel, bias = self.weights(ends[-1])
        kernels = jnp.split(kernel, ends[:-1]) if len(parts) > 1 else [kernel]
        total = _of_part(parts[0], kernels[0])
        for part, own in zip(parts[1:], kernels[1:], strict=True):
            total = total + _of_part(part, own)
        return total if bias is None else total + bias


def _of_part(x: Array, kernel: Array) -> Array:
    """The product. With a single input it is an elementwise one, which a GPU needs no launch of its own for."""
    return x * kernel[0] if x.shape[-1] == 1 else product(x, kernel)


def together(x: Float32[Array, "*batch inputs"], *layers: Dense) -> list[Float32[Array, "*batch _"]]:
    """Return what several layers give of the same input, in one product: narrow ones are slow."""
    weights = [layer.weights(x.shape[-1]) for layer in layers]
    joined = product(x, jnp.concatenate([kernel for kernel, _ in weights], -1))
    outputs = jnp.split(joined, list(accumulate(layer.size for layer in layers))[:-1], -1)
    return [y if bias is None else y + bias for y, (_, bias) in zip(outputs, weights, strict=True)]
