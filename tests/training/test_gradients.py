"""`jax.test_util.check_grads`: the gradient that is taken is that of the numbers, for the loss and for every distribution."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from training import test_ppo as small

from echelon_jax.config import EnvConfig
from echelon_jax.policies.distributions import SquashedGaussian, log_det
from echelon_jax.policies.factored import Factored
from echelon_jax.policies.heads import GAUSSIAN, heads_of
from echelon_jax.training import loss

ROUNDING = {"order": 1, "modes": ("rev",), "atol": 2e-2, "rtol": 2e-2, "eps": 1e-2}  # of float32 and of the step
HEADS = heads_of(EnvConfig(size_x=28, size_y=28))
ROWS = 3


def test_the_gradient_of_the_loss_is_that_of_its_differences() -> None:
    batch = small.random_batch(seed=5)
    moved = batch.replace(log_prob=batch.log_prob + 0.05)  # off the kink of the clip, where there is no gradient

    @jax.jit
    def of(params: object) -> jax.Array:
        made = loss.loss_and_metrics(
            params, small.NETWORK, small.CONFIG, small.WEIGHTS, small.CARRY, moved, jax.random.key(0)
        )
        return made[0]

    check_grads(of, (small.PARAMS,), **ROUNDING)


def numbers(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


def gaussian(mean: jax.Array, log_std: jax.Array) -> SquashedGaussian:
    return SquashedGaussian(mean, log_std)


GAUSSIAN_PARTS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "log-prob": lambda m, s: gaussian(m, s).head_log_prob(numbers(ROWS, 4)).sum(),
    "log-prob of the action": lambda m, s: gaussian(m, s).action_log_prob(numbers(ROWS, 4)).sum(),
    "entropy": lambda m, s: gaussian(m, s).head_entropy(jax.random.key(1)).sum(),
    "log-det": lambda m, s: log_det(m + jnp.exp(s)).sum(),
}


@pytest.mark.parametrize("part", GAUSSIAN_PARTS)
def test_gradients_of_the_squashed_gaussian_are_those_of_their_differences(part: str) -> None:
    check_grads(jax.jit(GAUSSIAN_PARTS[part]), (numbers(ROWS, 4), 0.3 * numbers(4)), **ROUNDING)


@pytest.mark.parametrize("part", ["head_log_prob", "head_action_log_prob", "head_entropy"])
def test_gradients_of_distributions_are_those_of_their_differences(part: str) -> None:
    """Of all heads together: each head's own number is weighted by its place, so that none can hide another's."""
    outputs = {head.name: numbers(ROWS, head.size) for head in HEADS.table}
    spreads = {head.name: 0.3 * numbers(ROWS, head.size) for head in HEADS.table if head.kind == GAUSSIAN}
    allowed = jnp.ones((ROWS, HEADS.mask_size), bool)
    given = jax.random.key(2) if part == "head_entropy" else Factored(HEADS, outputs, spreads, allowed).mode() * 0.7
    weights = 1.0 + jnp.arange(len(HEADS.table), dtype=jnp.float32)

    @jax.jit
    def total(outputs: dict[str, jax.Array], spreads: dict[str, jax.Array]) -> jax.Array:
        return (getattr(Factored(HEADS, outputs, spreads, allowed), part)(given) * weights).mean()

    check_grads(total, (outputs, spreads), **ROUNDING)
