"""The squashed Gaussian: u ~ N(mean, std), action = tanh(u) (docs/spec/learner.md 2.4; T7, T8)."""

from __future__ import annotations

import math

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.draws import in_a_row

LOG_STD_RANGE = (-5.0, 1.0)
SQUASH_EPSILON = 1e-6  # actions of imported data are clamped this far inside (-1, 1)
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def softplus(x: Float32[Array, "*batch"]) -> Float32[Array, "*batch"]:
    """Return log(1 + e^x) with an error of 1e-7 at most besides the rounding of x.

    `jax.nn.softplus` has the digits of results near 0 as well, and its log1p is slower on a CPU. The smaller of x and -x, unlike
    -|x|, has the right slope at 0.
    """
    return jnp.maximum(x, 0.0) + jnp.log(1.0 + jnp.exp(jnp.minimum(x, -x)))


def log_det(u: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch actions"]:
    """Return log(1 - tanh(u)^2) per component as 2 (log 2 - u - softplus(-2u)), finite for every finite u."""
    return 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))


def from_action(action: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch actions"]:
    """Return the raw action u of a recorded action, which is clamped to 1e-6 inside (-1, 1).

    It serves imported data; a rollout stores u itself.
    """
    inside = jnp.clip(action, -1.0 + SQUASH_EPSILON, 1.0 - SQUASH_EPSILON)
    return 0.5 * (jnp.log1p(inside) - jnp.log1p(-inside))


class SquashedGaussian(flax.struct.PyTreeNode):
    """Independent Gaussians squashed by tanh; `log_std` broadcasts against `mean`."""

    mean: Float32[Array, "*batch actions"]
    log_std: Float32[Array, "*#batch actions"]

    def sample(self, key: Key[Array, ""]) -> Float32[Array, "*batch actions"]:
        """Draw a raw action u; this is what a rollout stores."""
        return self.mean + jnp.exp(self.log_std) * in_a_row(jax.random.normal, key, self.mean.shape)

    @staticmethod
    def action(u: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch actions"]:
        """Return the action of a raw action, in [-1, 1]."""
        return jnp.tanh(u)

    def log_prob(self, u: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch"]:
        """Return the log-prob of u. It lacks a term of `action_log_prob` that depends on u alone and cancels in every ratio."""
        z = (u - self.mean) * jnp.exp(-self.log_std)
        return -(0.5 * z * z + self.log_std + HALF_LOG_TWO_PI).sum(-1)

    def action_log_prob(self, u: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch"]:
        """Return the log-prob of the action tanh(u): log_prob - sum log(1 - tanh(u)^2)."""
        return self.log_prob(u) - log_det(u).sum(-1)

    def entropy(self, noise: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch"]:
        """Estimate the entropy of the action from standard normal `noise`, drawn afresh.

        H = sum_k (1/2 + 1/2 log 2 pi + log std_k) + E[sum_k log(1 - tanh(u_k)^2)], the expectation from one sample
        u = mean + std noise, through which the gradient reaches mean and std.
        """
        u = self.mean + jnp.exp(self.log_std) * noise
        return (0.5 + HALF_LOG_TWO_PI + self.log_std + log_det(u)).sum(-1)

    # The interface that a rollout and the update use, with everything in one head.

    def mode(self) -> Float32[Array, "*batch actions"]:
        """Return the raw action of a policy that does not explore: the mean."""
        return self.mean

    def head_log_prob(self, raw_action: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch 1"]:
        """Return `log_prob` of the one head."""
        return self.log_prob(raw_action)[..., None]

    def imitation_log_prob(self, raw_action: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch 1"]:
        """Return the log-prob of a teacher's raw action, of which a component may be known in part (training/teacher.py).

        A finite component counts as in `log_prob`. An infinite one stands for all values of its sign: its probability is that of
        the sign. A component that is NaN does not count.
        """
        spread = jnp.exp(-self.log_std)
        z = (jnp.where(jnp.isfinite(raw_action), raw_action, self.mean) - self.mean) * spread
        exact = -(0.5 * z * z + self.log_std + HALF_LOG_TWO_PI)
        of_sign = jax.scipy.stats.norm.logcdf(jnp.where(raw_action > 0, self.mean, -self.mean) * spread)
        known = jnp.where(jnp.isinf(raw_action), of_sign, exact)
        return jnp.where(jnp.isnan(raw_action), 0.0, known).sum(-1)[..., None]

    def head_entropy(self, key: Key[Array, ""]) -> Float32[Array, "*batch 1"]:
        """Return `entropy` of the one head, its noise drawn from a key."""
        return self.head_entropy_from(self.entropy_noise(key))

    def entropy_noise(self, key: Key[Array, ""]) -> Float32[Array, "*batch actions"]:
        """Return standard normal noise for every component; only the shape of `mean` is read."""
        return in_a_row(jax.random.normal, key, self.mean.shape)

    def head_entropy_from(self, noise: Float32[Array, "*batch actions"]) -> Float32[Array, "*batch 1"]:
        """Return `entropy` of the one head."""
        return self.entropy(noise)[..., None]

    @staticmethod
    def loss_mask(raw_action: Float32[Array, "*batch actions"]) -> Bool[Array, "*batch 1"]:
        """Return true: every component of an action counts."""
        return jnp.ones((*raw_action.shape[:-1], 1), bool)
