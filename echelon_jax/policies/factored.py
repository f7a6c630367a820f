"""The distribution over factored samples: one Gaussian, Bernoulli or categorical part per head, masked by what is legal.

Everything is per head, [*batch, heads], so that ratio, clipping, KL and entropy are each head's own. An illegal component or
choice has probability 0, takes no part in a density or an entropy, and its logits get no gradient.
"""

from __future__ import annotations

import math

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.policies.distributions import HALF_LOG_TWO_PI, log_det
from echelon_jax.policies.heads import BERNOULLI, GAUSSIAN, Head, Heads

ILLEGAL = -1e4  # logit of an illegal choice
_LOG_2 = math.log(2.0)


def _last_sum(x: Float32[Array, "*batch parts"], legal: Bool[Array, "*batch parts"]) -> Float32[Array, "*batch"]:
    return jnp.where(legal, x, 0.0).sum(-1)


class Factored(flax.struct.PyTreeNode):
    """What a policy with heads does next.

    Attributes:
        heads: the table of heads.
        outputs: per head, [*batch, size]: logits, or the mean of a Gaussian.
        log_stds: of the Gaussian heads, [*batch, size].
        legal: components and choices that are possible.
    """

    heads: Heads = flax.struct.field(pytree_node=False)
    outputs: dict[str, Float32[Array, "*batch size"]]
    log_stds: dict[str, Float32[Array, "*batch size"]]
    legal: Bool[Array, "*batch legal"]

    def _logits(self, head: Head) -> Float32[Array, "*batch size"]:
        return jnp.where(self.legal[..., head.legal], self.outputs[head.name], ILLEGAL)

    def sample(self, key: Key[Array, ""]) -> Float32[Array, "*batch sample"]:
        """Draw a sample; this is what a rollout stores."""
        parts = []
        for head, k in zip(self.heads.table, jax.random.split(key, len(self.heads.table)), strict=True):
            legal, output = self.legal[..., head.legal], self.outputs[head.name]
            if head.kind == GAUSSIAN:
                noise = jax.random.normal(k, output.shape, jnp.float32)
                parts.append(jnp.where(legal, output + jnp.exp(self.log_stds[head.name]) * noise, 0.0))
            elif head.kind == BERNOULLI:
                drawn = jax.random.uniform(k, output.shape, jnp.float32) < jax.nn.sigmoid(output)
                parts.append((drawn & legal).astype(jnp.float32))
            else:
                parts.append(jax.random.categorical(k, self._logits(head))[..., None].astype(jnp.float32))
        return jnp.concatenate(parts, -1)

    def mode(self) -> Float32[Array, "*batch sample"]:
        """Return the sample of a policy that does not explore: means, likelier sides, likeliest choices."""
        parts = []
        for head in self.heads.table:
            legal, output = self.legal[..., head.legal], self.outputs[head.name]
            if head.kind == GAUSSIAN:
                parts.append(jnp.where(legal, output, 0.0))
            elif head.kind == BERNOULLI:
                parts.append((legal & (output > 0)).astype(jnp.float32))
            else:
                parts.append(jnp.argmax(self._logits(head), -1)[..., None].astype(jnp.float32))
        return jnp.concatenate(parts, -1)

    def action(self, sample: Float32[Array, "*batch sample"]) -> Float32[Array, "*batch actions"]:
        """Return the environment's action of a sample."""
        return self.heads.to_action(sample)

    def head_log_density(self, sample: Float32[Array, "*batch sample"]) -> Float32[Array, "*batch heads"]:
        """Return each head's log-density of a sample.

        A Gaussian's is that before the squash: the squash's term depends on the sample alone and cancels in every ratio.
        """
        parts = []
        for head in self.heads.table:
            x, legal, output = sample[..., head.sample], self.legal[..., head.legal], self.outputs[head.name]
            if head.kind == GAUSSIAN:
                log_std = self.log_stds[head.name]
                z = (x - output) * jnp.exp(-log_std)
                parts.append(_last_sum(-(0.5 * z * z + log_std + HALF_LOG_TWO_PI), legal))
            elif head.kind == BERNOULLI:
                parts.append(_last_sum(x * output - jax.nn.softplus(output), legal))
            else:
                chosen = x == jnp.arange(head.size)
                parts.append(_last_sum(jax.nn.log_softmax(self._logits(head)), chosen))
        return jnp.stack(parts, -1)

    def head_log_prob(self, sample: Float32[Array, "*batch sample"]) -> Float32[Array, "*batch heads"]:
        """Return each head's log-probability of an action: the density above less the log-det of the squash."""
        density = self.head_log_density(sample)
        parts = []
        for i, head in enumerate(self.heads.table):
            squash = jnp.zeros(density.shape[:-1], jnp.float32)
            if head.kind == GAUSSIAN:
                squash = _last_sum(log_det(sample[..., head.sample]), self.legal[..., head.legal])
            parts.append(density[..., i] - squash)
        return jnp.stack(parts, -1)

    def head_entropy(self, key: Key[Array, ""]) -> Float32[Array, "*batch heads"]:
        """Return each head's entropy on a scale where 1 is one even choice; 0 where there is nothing to choose.

        Categorical: over log(number of legal choices). Bernoulli: mean over the legal triggers, over log 2. Gaussian: mean over
        the legal components of the squashed entropy, estimated from one fresh sample through which the gradient goes, less
        log 2 (a uniform throttle has 0).
        """
        parts = []
        for head, k in zip(self.heads.table, jax.random.split(key, len(self.heads.table)), strict=True):
            legal, output = self.legal[..., head.legal], self.outputs[head.name]
            count = legal.sum(-1, dtype=jnp.float32)
            if head.kind == GAUSSIAN:
                log_std = self.log_stds[head.name]
                u = output + jnp.exp(log_std) * jax.random.normal(k, output.shape, jnp.float32)
                each = 0.5 + HALF_LOG_TWO_PI + log_std + log_det(u) - _LOG_2
                parts.append(_last_sum(each, legal) / jnp.maximum(count, 1.0))
            elif head.kind == BERNOULLI:
                each = jax.nn.softplus(output) - output * jax.nn.sigmoid(output)
                parts.append(_last_sum(each, legal) / (_LOG_2 * jnp.maximum(count, 1.0)))
            else:
                log_p = jax.nn.log_softmax(self._logits(head))
                entropy = _last_sum(-jnp.exp(log_p) * log_p, legal)
                parts.append(jnp.where(count > 1, entropy / jnp.log(jnp.maximum(count, 2.0)), 0.0))
        return jnp.stack(parts, -1)

    def applies(self, sample: Float32[Array, "*batch sample"]) -> Bool[Array, "*batch heads"]:
        """Return which heads' choices can have made a difference.

        A head with a single legal choice made none; a target matters only where a weapon's trigger was pulled.
        """
        parts = []
        for head in self.heads.table:
            count = self.legal[..., head.legal].sum(-1, dtype=jnp.int32)
            counts = count > (1 if head.kind not in (GAUSSIAN, BERNOULLI) else 0)
            if head.name == "target":
                trigger = self.heads["trigger"]
                pulled = sample[..., trigger.sample] > 0.5
                weapons = jnp.asarray([name not in ("vent", "hostile_only") for name in self.heads.triggers])
                counts = counts & (pulled & weapons).any(-1)
            parts.append(counts)
        return jnp.stack(parts, -1)
