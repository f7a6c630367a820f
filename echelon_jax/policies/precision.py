"""Precision of matrix products: every computation of a network states it.

On many GPUs a float32 product is computed in TF32, with 10 bits of mantissa instead of 23, unless the program asks for more.
A learner may choose that. Evaluation, export and parity always compute in float32, so that a policy does not depend on the
card that plays it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax

PRECISIONS = ("float32", "tensorfloat32", "bfloat16")


def products_in(precision: str) -> AbstractContextManager[None]:
    """Return a context in which traced matrix products have a precision, whatever JAX's global setting is.

    Args:
        precision: one of PRECISIONS.

    Example:
        >>> with products_in("float32"):
        ...     carry, distribution, value = network.apply(params, carry, observation, reset)
    """
    return jax.default_matmul_precision(precision)
