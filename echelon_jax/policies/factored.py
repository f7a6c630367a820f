"""The distribution over raw actions: one masked Gaussian, Bernoulli or categorical part per head.

Everything is per head, [*batch, heads], so that ratio, clipping, KL and entropy are computed per head. A masked component or
choice has probability 0, takes no part in a density or an entropy, and its logits get no gradient.
"""

from __future__ import annotations

import math

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.draws import in_a_row
from echelon_jax.policies.distributions import HALF_LOG_TWO_PI, log_det, softplus
from echelon_jax.policies.heads import BERNOULLI, GAUSSIAN, Head, Heads

MASKED_LOGIT = -1e4  # logit of an illegal choice
_LOG_2 = math.log(2.0)


def _last_sum(x: Float32[Array, "*batch parts"], action_mask: Bool[Array, "*batch parts"]) -> Float32[Array, "*batch"]:
    return jnp.where(action_mask, x, 0.0).sum(-1)


class Factored(flax.struct.PyTreeNode):
    """What a policy with heads does next.

    Attributes:
        heads: the table of heads.
        outputs: per head, [*batch, size]: logits, or the mean of a Gaussian.
        log_stds: of the Gaussian heads, [*batch, size].
        action_mask: bool [*batch, mask], the components and choices that are allowed.
    """

    heads: Heads = flax.struct.field(pytree_node=False)
    outputs: dict[str, Float32[Array, "*batch size"]]
    log_stds: dict[str, Float32[Array, "*batch size"]]
    action_mask: Bool[Array, "*batch mask"]

    def _logits(self, head: Head) -> Float32[Array, "*batch size"]:
        return jnp.where(self.action_mask[..., head.action_mask], self.outputs[head.name], MASKED_LOGIT)

    def sample(self, key: Key[Array, ""]) -> Float32[Array, "*batch raw"]:
        """Draw a raw action; this is what a rollout stores."""
        parts = []
        for head, k in zip(self.heads.table, jax.random.split(key, len(self.heads.table)), strict=True):
            action_mask, output = self.action_mask[..., head.action_mask], self.outputs[head.name]
            if head.kind == GAUSSIAN:
                noise = in_a_row(jax.random.normal, k, output.shape)
                parts.append(jnp.where(action_mask, output + jnp.exp(self.log_stds[head.name]) * noise, 0.0))
            elif head.kind == BERNOULLI:
                drawn = in_a_row(jax.random.uniform, k, output.shape) < jax.nn.sigmoid(output)
                parts.append((drawn & action_mask).astype(jnp.float32))
            else:
                logits = self._logits(head)
                choice = jnp.argmax(
                    logits + in_a_row(jax.random.gumbel, k, logits.shape), -1
                )  # as jax.random.categorical
                parts.append(choice[..., None].astype(jnp.float32))
        return jnp.concatenate(parts, -1)

    def mode(self) -> Float32[Array, "*batch raw"]:
        """Return the raw action of a policy that does not explore: means, likelier trigger states, likeliest choices."""
        parts = []
        for head in self.heads.table:
            action_mask, output = self.action_mask[..., head.action_mask], self.outputs[head.name]
            if head.kind == GAUSSIAN:
                parts.append(jnp.where(action_mask, output, 0.0))
            elif head.kind == BERNOULLI:
                parts.append((action_mask & (output > 0)).astype(jnp.float32))
            else:
                parts.append(jnp.argmax(self._logits(head), -1)[..., None].astype(jnp.float32))
        return jnp.concatenate(parts, -1)

    def action(self, raw_action: Float32[Array, "*batch raw"]) -> Float32[Array, "*batch actions"]:
        """Return the environment's action of a raw action."""
        return self.heads.to_action(raw_action)

    def probabilities(self) -> Float32[Array, "*batch choices"]:
        """Return the probability of each of `Heads.choices`; of a trigger, that it is pressed."""
        parts = []
        for head in self.heads.table:
            if head.kind == BERNOULLI:
                pressed = jax.nn.sigmoid(self.outputs[head.name])
                parts.append(jnp.where(self.action_mask[..., head.action_mask], pressed, 0.0))
            elif head.kind != GAUSSIAN:
                parts.append(jax.nn.softmax(self._logits(head)))
        return jnp.concatenate(parts, -1)

    def head_log_prob(self, raw_action: Float32[Array, "*batch raw"]) -> Float32[Array, "*batch heads"]:
        """Return each head's log-prob of a raw action.

        A Gaussian's log-prob is that before the squash. The term of the squash depends on the raw action alone and cancels in
        every ratio.
        """
        parts = []
        for head in self.heads.table:
            x, action_mask, output = (
                raw_action[..., head.raw_action],
                self.action_mask[..., head.action_mask],
                self.outputs[head.name],
            )
            if head.kind == GAUSSIAN:
                log_std = self.log_stds[head.name]
                z = (x - output) * jnp.exp(-log_std)
                parts.append(_last_sum(-(0.5 * z * z + log_std + HALF_LOG_TWO_PI), action_mask))
            elif head.kind == BERNOULLI:
                parts.append(_last_sum(x * output - softplus(output), action_mask))
            else:
                chosen = x == jnp.arange(head.size)
                parts.append(_last_sum(jax.nn.log_softmax(self._logits(head)), chosen))
        return jnp.stack(parts, -1)

    def imitation_log_prob(self, raw_action: Float32[Array, "*batch raw"]) -> Float32[Array, "*batch heads"]:
        """Return each head's log-prob of a teacher's raw action (training/teacher.py); a component that is NaN does not count."""
        known = ~jnp.isnan(raw_action)
        parts = [
            known[..., head.raw_action] & self.action_mask[..., head.action_mask]
            if head.kind in (GAUSSIAN, BERNOULLI)
            else self.action_mask[..., head.action_mask]
            for head in self.heads.table
        ]
        of_known = self.replace(action_mask=jnp.concatenate(parts, -1))  # type: ignore[attr-defined]
        log_prob = of_known.head_log_prob(jnp.where(known, raw_action, 0.0))
        counts = jnp.stack([known[..., head.raw_action].any(-1) for head in self.heads.table], -1)
        return jnp.where(counts, log_prob, 0.0)

    def head_action_log_prob(self, raw_action: Float32[Array, "*batch raw"]) -> Float32[Array, "*batch heads"]:
        """Return each head's log-prob of an action: `head_log_prob` minus the log-det of the squash."""
        density = self.head_log_prob(raw_action)
        parts = []
        for i, head in enumerate(self.heads.table):
            squash = jnp.zeros(density.shape[:-1], jnp.float32)
            if head.kind == GAUSSIAN:
                squash = _last_sum(log_det(raw_action[..., head.raw_action]), self.action_mask[..., head.action_mask])
            parts.append(density[..., i] - squash)
        return jnp.stack(parts, -1)

    def head_entropy(self, key: Key[Array, ""]) -> Float32[Array, "*batch heads"]:
        """Return `head_entropy_from` noise that is drawn from a key."""
        return self.head_entropy_from(self.entropy_noise(key))

    def entropy_noise(self, key: Key[Array, ""]) -> dict[str, Float32[Array, "*batch size"]]:
        """Return standard normal noise for every component of the Gaussian heads; only shapes of `outputs` are read."""
        keys = zip(self.heads.table, jax.random.split(key, len(self.heads.table)), strict=True)
        drawn = {head.name: k for head, k in keys if head.kind == GAUSSIAN}
        return {name: in_a_row(jax.random.normal, k, self.outputs[name].shape) for name, k in drawn.items()}

    def head_entropy_from(self, noise: dict[str, Float32[Array, "*batch size"]]) -> Float32[Array, "*batch heads"]:
        """Return each head's entropy on a scale where 1 is one even choice; 0 where there is nothing to choose.

        Categorical: the entropy divided by log(number of allowed choices). Bernoulli: the mean over the allowed triggers,
        divided by log 2. Gaussian: the mean over the allowed components of the squashed entropy minus log 2, so that a uniform
        throttle has 0; one sample, made with the noise, estimates it, and the gradient goes through that sample.
        """
        parts = []
        for head in self.heads.table:
            action_mask, output = self.action_mask[..., head.action_mask], self.outputs[head.name]
            count = action_mask.sum(-1, dtype=jnp.float32)
            if head.kind == GAUSSIAN:
                log_std = self.log_stds[head.name]
                u = output + jnp.exp(log_std) * noise[head.name]
                each = 0.5 + HALF_LOG_TWO_PI + log_std + log_det(u) - _LOG_2
                parts.append(_last_sum(each, action_mask) / jnp.maximum(count, 1.0))
            elif head.kind == BERNOULLI:
                each = softplus(output) - output * jax.nn.sigmoid(output)
                parts.append(_last_sum(each, action_mask) / (_LOG_2 * jnp.maximum(count, 1.0)))
            else:
                log_p = jax.nn.log_softmax(self._logits(head))
                entropy = _last_sum(-jnp.exp(log_p) * log_p, action_mask)
                parts.append(jnp.where(count > 1, entropy / jnp.log(jnp.maximum(count, 2.0)), 0.0))
        return jnp.stack(parts, -1)

    def loss_mask(self, raw_action: Float32[Array, "*batch raw"]) -> Bool[Array, "*batch heads"]:
        """Return the heads whose choices can have made a difference.

        A head with a single allowed choice makes none. A target matters only where a weapon's trigger was pressed.
        """
        parts = []
        for head in self.heads.table:
            count = self.action_mask[..., head.action_mask].sum(-1, dtype=jnp.int32)
            counts = count > (1 if head.kind not in (GAUSSIAN, BERNOULLI) else 0)
            if head.name == "target":
                trigger = self.heads["trigger"]
                pulled = raw_action[..., trigger.raw_action] > 0.5
                weapons = jnp.asarray([name not in ("vent", "hostile_only") for name in self.heads.triggers])
                counts = counts & (pulled & weapons).any(-1)
            parts.append(counts)
        return jnp.stack(parts, -1)
