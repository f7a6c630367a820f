"""The PPO loss of a minibatch: a clipped surrogate per action head, a value loss and an entropy bonus; and its gradient.

Source: docs/spec/learner.md 4.3, 4.9.

A gradient can be computed in parts, one after another. Each part divides its sums by the counts of the whole minibatch, so the
sum of the parts' gradients is that of the minibatch. Metrics are computed from what the parts say of each decision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.policies.dense import FEW_ROWS
from echelon_jax.policies.features import Observation
from echelon_jax.policies.network import Carry, Network, Params
from echelon_jax.training import diagnostics
from echelon_jax.training.devices import ALONE, Across
from echelon_jax.training.diagnostics import PartNorms, WorstRatios

MIN_ADVANTAGE_DEVIATION = 1e-6
FORBIDDEN = -1e3  # log-prob below which an action counts as forbidden by an action mask


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """Settings of the update that are compiled into the program.

    Attributes:
        epochs: passes over the rollout, each unrolled again from the stored first memory.
        minibatches: parts of a pass; each holds whole sequences of whole arenas.
        clip: the ratio is clipped to [1 - clip, 1 + clip].
        value_coefficient: weight of the value loss.
        value_clip: the value may move this far from the rollout's (critic's units) before its loss is clipped; 0 for no clip.
        target_kl: once a minibatch's KL exceeds 1.5 times this, the rest of the update is left out; 0 for never.
        burn_in: whether a chunk's first memory is computed again from the chunk before.
        worst_ratios: number of entries with the worst ratios that are kept of an update; 0 for none.
        accumulate: parts in which a minibatch's gradient is computed, one after another; divides the sequences of a minibatch.
            0 for as many as `parts_for_a_cache` says.
        remat: whether the backward pass computes the network's activations again, decision by decision, instead of keeping them.
        skip: whether gradient steps after too large a KL are skipped. A GPU's host must be asked for that; without it they are
            computed and dropped, with the same results up to rounding.
    """

    epochs: int
    minibatches: int
    clip: float
    value_coefficient: float
    value_clip: float = 0.0
    target_kl: float = 0.0
    burn_in: bool = False
    worst_ratios: int = 0
    accumulate: int = 1
    remat: bool = False
    skip: bool = True


class Batch(flax.struct.PyTreeNode):
    """The input of the loss: a rollout of T steps and what was computed from it."""

    observation: Observation  # normalised
    reset: Bool[Array, "time arenas mechs"]  # the previous done
    policy_mask: Bool[Array, "time arenas mechs"]  # mechs alive at the decision
    value_mask: Bool[
        Array, "time arenas mechs"
    ]  # whose value is learnt: the living, and the dead where the critic knows them
    raw_action: Float32[Array, "time arenas mechs raw"]
    log_prob: Float32[Array, "time arenas mechs heads"]  # of the raw action, by the policy that acted
    value: Float32[Array, "time arenas mechs"]  # as the rollout saw it, critic's units
    advantage: Float32[Array, "time arenas mechs"]
    target: Float32[Array, "time arenas mechs"]  # returns in units of the critic
    teacher_action: Float32[Array, "time arenas mechs raw"] | None = None  # raw actions to imitate


class UpdateMetrics(flax.struct.PyTreeNode):
    """Means over all minibatches of an update, unless a field says otherwise."""

    loss: Float32[Array, "*batch"]
    policy_loss: Float32[Array, "*batch"]
    value_loss: Float32[Array, "*batch"]
    entropy: Float32[Array, "*batch"]  # weighted sum over the heads
    kl: Float32[Array, "*batch"]  # mean of (ratio - 1) - log ratio, summed over the heads
    clip_fraction: Float32[Array, "*batch"]
    ratio_error: Float32[Array, "*batch"]  # largest |ratio - 1| of living mechs, averaged over minibatches
    explained_variance: Float32[Array, "*batch"]  # of the critic targets
    head_entropy: Float32[Array, "*batch heads"]
    head_kl: Float32[Array, "*batch heads"]
    head_clip_fraction: Float32[Array, "*batch heads"]
    grad_norm: Float32[Array, "*batch"]  # before clipping
    update_ratio: Float32[Array, "*batch"]  # norm of the step over the norm of the parameters
    skipped: Float32[Array, "*batch"]  # share of gradient steps left out because something was not finite
    bad_gradient: Float32[
        Array, "*batch"
    ]  # 1 + number of the first parameter whose gradient is not finite, for the guard
    stopped: Float32[Array, "*batch"]  # share of gradient steps left out because the KL was too large
    # Before clipping, by part of the network; and the worst ratios of the whole update, if they are kept.
    part_grad_norm: PartNorms | None = None
    worst: WorstRatios | None = None
    # With a teacher: minus the log-prob of its actions, summed over the heads.
    imitation: Float32[Array, "*batch"] | None = None


def masked_head_mean(
    x: Float32[Array, "*batch heads"], use: Bool[Array, "*batch heads"], count: Float32[Array, "*#heads"]
) -> Float32[Array, " heads"]:
    """Return, per head, the sum of x where `use` is true, divided by `count`. With several devices: this device's part of it."""
    axes = tuple(range(x.ndim - 1))
    return jnp.where(use, x, 0.0).sum(axes) / jnp.maximum(count, 1.0)


def normalize_advantage(
    advantage: Float32[Array, "*batch"], mask: Bool[Array, "*batch"], across: Across = ALONE
) -> Float32[Array, "*batch"]:
    """Return (A - mean) / deviation over living mechs and 0 for the others; 0 everywhere if none lives or all are equal."""
    centred = jnp.where(mask, advantage - across.mean(advantage, mask), 0.0)
    deviation = jnp.sqrt(across.mean(centred * centred, mask))
    return jnp.where(
        deviation > MIN_ADVANTAGE_DEVIATION, centred / jnp.maximum(deviation, MIN_ADVANTAGE_DEVIATION), 0.0
    )


def surrogate_terms(
    log_ratio: Float32[Array, "*batch"], advantage: Float32[Array, "*#batch"], clip: float
) -> Float32[Array, "*batch"]:
    """Return max(-A rho, -A clip(rho, 1 - c, 1 + c)) with rho = exp(log_ratio), per entry."""
    ratio = jnp.exp(log_ratio)
    return jnp.maximum(-advantage * ratio, -advantage * jnp.clip(ratio, 1.0 - clip, 1.0 + clip))


def value_terms(
    value: Float32[Array, "*batch"],
    old: Float32[Array, "*batch"],
    target: Float32[Array, "*batch"],
    clip: float,
) -> Float32[Array, "*batch"]:
    """Return 1/2 (target - V)^2. With a clip, return the larger of that and of the same with V clipped to the old value +- clip."""
    plain = 0.5 * jnp.square(target - value)
    if not clip:
        return plain
    held = old + jnp.clip(value - old, -clip, clip)
    return jnp.maximum(plain, 0.5 * jnp.square(target - held))


def imitation_loss(
    log_prob: Float32[Array, "*batch heads"],
    counts: Bool[Array, "*batch heads"],
    alive: Bool[Array, " *batch"],
    living: Float32[Array, ""],
) -> Float32[Array, ""]:
    """Return minus the log-prob of a teacher's actions, summed over the heads that count, over the number of living mechs.

    A teacher does not know the learner's action masks. What they forbid cannot be learnt and does not count.
    """
    allowed = counts & alive[..., None] & (log_prob > FORBIDDEN)
    return masked_head_mean(-log_prob, allowed, living).sum()


class Whole(flax.struct.PyTreeNode):
    """Counts of a whole minibatch, of all devices, that each of its parts divides by."""

    living: Float32[Array, ""]
    values: Float32[Array, ""]


class Outcome(flax.struct.PyTreeNode):
    """What the present policy makes of a part of a minibatch; the metrics come from it. Nothing in it is differentiated."""

    loss: Float32[Array, ""]  # this and the next are this part's sums over the counts of the whole
    policy_loss: Float32[Array, ""]
    value_loss: Float32[Array, ""]
    entropy: Float32[Array, ""]
    imitation: Float32[Array, ""] | None  # None without a teacher
    head_entropy: Float32[Array, " heads"]
    log_ratio: Float32[Array, "time arenas mechs heads"]  # 0 where an entry does not count
    use: Bool[Array, "time arenas mechs heads"]
    value: Float32[Array, "time arenas mechs"]  # 0 where it is not learnt


def normalized(batch: Batch, across: Across = ALONE) -> tuple[Batch, Whole]:
    """Return a minibatch with normalised advantages, and its counts."""
    counts = batch.policy_mask.sum(dtype=jnp.float32), batch.value_mask.sum(dtype=jnp.float32)
    advantage = normalize_advantage(batch.advantage, batch.policy_mask, across)
    return batch.replace(advantage=advantage), Whole(*across.total(counts))  # type: ignore[attr-defined]


class Weights(flax.struct.PyTreeNode):
    """The weights of the loss that change over a run."""

    entropy: Float32[Array, ""]
    teacher: Float32[Array, ""]  # of the imitation loss


def _entropy(distribution: Any, noise: Any, key: Key[Array, ""]) -> Float32[Array, "*batch heads"]:
    return distribution.head_entropy(key) if noise is None else distribution.head_entropy_from(noise)


def heads_and_value(
    params: Params, network: Network, remat: bool, carry: Carry, batch: Batch, noise: Any, key: Key[Array, ""]
) -> tuple[Array, Array, Array, tuple[Array, Array] | None, Array]:
    """Return what the policy says of stored decisions: log-prob, entropy and loss mask of each head, and the value.

    Before the value stand log-prob and loss mask of the teacher's actions, or None without a teacher.

    Args:
        params, network: the policy.
        remat: whether a backward pass computes each decision again. Then it keeps the memories and what this returns.
        carry: the memory before the first decision.
        batch: the decisions.
        noise: for the estimate of the entropy (`entropy_noise`), or None.
        key: for it where there is no noise.
    """

    def outputs(distribution: Any, raw: Array, advice: Array | None, noise: Any, key: Array) -> Any:
        own = distribution.head_log_prob(raw), _entropy(distribution, noise, key), distribution.loss_mask(raw)
        return *own, None if advice is None else (
            distribution.imitation_log_prob(advice),
            distribution.loss_mask(advice),
        )

    if not remat:
        distribution, value = network.unroll(params, carry, batch.observation, batch.reset)
        return *outputs(distribution, batch.raw_action, batch.teacher_action, noise, key), value

    def decide(carry: Carry, now: Any) -> tuple[Carry, Any]:
        observation, reset, *rest = now
        carry, distribution, value = network.apply(params, carry, observation, reset)
        return carry, (*outputs(distribution, *rest), value)

    keys = jax.random.split(key, batch.reset.shape[0])
    inputs = batch.observation, batch.reset, batch.raw_action, batch.teacher_action, noise, keys
    return jax.lax.scan(jax.checkpoint(decide, prevent_cse=False), carry, inputs)[1]


def entropy_noise(
    network: Network, params: Params, sequences: Callable[[], tuple[Carry, Batch]], key: Key[Array, ""]
) -> Any:
    """Return the noise that `head_entropy(key)` would draw for a minibatch, so that a part of it can have its own share.

    None where the network's distribution has no `entropy_noise`; its parts then draw their own. Only shapes are looked at.
    """

    def made() -> Any:
        carry, batch = sequences()
        distribution, _ = network.unroll(params, carry, batch.observation, batch.reset)
        return distribution if hasattr(distribution, "entropy_noise") else None

    distribution = jax.eval_shape(made)
    return None if distribution is None else distribution.entropy_noise(key)


def part_loss(
    params: Params,
    network: Network,
    config: PPOConfig,
    weights: Weights,
    carry: Carry,
    batch: Batch,
    whole: Whole,
    noise: Any,
    key: Key[Array, ""],
) -> tuple[Float32[Array, ""], Outcome]:
    """Return the share of a part of a minibatch in the loss, and what the metrics need. `batch.advantage` is normalised."""
    log_prob, entropies, counts, taught, value = heads_and_value(
        params, network, config.remat, carry, batch, noise, key
    )
    mask = batch.policy_mask
    use = counts & mask[..., None]
    # Masked before exp: a dead mech's meaningless ratio must not become inf, whose gradient would be NaN.
    log_ratio = jnp.where(use, log_prob - batch.log_prob, 0.0)
    terms = surrogate_terms(log_ratio, batch.advantage[..., None], config.clip)
    policy_loss = masked_head_mean(terms, use, whole.living).sum()
    target, old_value, value = (jnp.where(batch.value_mask, x, 0.0) for x in (batch.target, batch.value, value))
    errors = jnp.where(batch.value_mask, value_terms(value, old_value, target, config.value_clip), 0.0)
    value_loss = errors.sum() / jnp.maximum(whole.values, 1.0)
    head_entropy = masked_head_mean(entropies, jnp.broadcast_to(mask[..., None], use.shape), whole.living)
    entropy = (head_entropy * jnp.asarray(network.entropy_weights, jnp.float32)).sum()
    loss = policy_loss + config.value_coefficient * value_loss - weights.entropy * entropy
    imitation = None if taught is None else imitation_loss(*taught, mask, whole.living)
    if imitation is not None:
        imitation = jnp.where(weights.teacher > 0, imitation, 0.0)  # afterwards the rollout holds no advice
        loss = loss + weights.teacher * imitation
    outcome = Outcome(loss, policy_loss, value_loss, entropy, imitation, head_entropy, log_ratio, use, value)
    return loss, jax.lax.stop_gradient(outcome)


def metrics_of(
    config: PPOConfig, batch: Batch, whole: Whole, outcome: Outcome, across: Across = ALONE
) -> UpdateMetrics:
    """Return the metrics of a minibatch. Those of the gradient step stay 0, and `part_grad_norm` is None."""
    log_ratio, use, value = outcome.log_ratio, outcome.use, outcome.value
    ratio = jnp.exp(log_ratio)
    head_kl = masked_head_mean(ratio - 1.0 - log_ratio, use, whole.living)
    clipped = (jnp.abs(ratio - 1.0) > config.clip).astype(jnp.float32)
    heads_used = across.total(use.sum(tuple(range(use.ndim - 1)), dtype=jnp.float32))
    target = jnp.where(batch.value_mask, batch.target, 0.0)
    target_centred = target - across.mean(target, batch.value_mask)
    error = target - value
    error_centred = error - across.mean(error, batch.value_mask)
    target_var = across.mean(target_centred * target_centred, batch.value_mask)
    error_var = across.mean(error_centred * error_centred, batch.value_mask)
    zero = jnp.zeros((), jnp.float32)
    parts = across.total(
        {
            "loss": outcome.loss,
            "policy_loss": outcome.policy_loss,
            "value_loss": outcome.value_loss,
            "entropy": outcome.entropy,
            "imitation": outcome.imitation,
            "kl": head_kl.sum(),
            "head_entropy": outcome.head_entropy,
            "head_kl": head_kl,
            "head_clip_fraction": masked_head_mean(clipped, use, heads_used),
        }
    )
    return UpdateMetrics(
        **parts,
        clip_fraction=across.mean(clipped, use),
        ratio_error=across.most(jnp.abs(ratio - 1.0).max()),
        explained_variance=jnp.where(target_var > 1e-8, 1.0 - error_var / jnp.maximum(target_var, 1e-8), 0.0),
        grad_norm=zero,
        update_ratio=zero,
        skipped=zero,
        bad_gradient=zero,
        stopped=zero,
        worst=diagnostics.worst_ratios(config.worst_ratios, log_ratio, batch.log_prob, batch.raw_action),
    )


def loss_and_metrics(
    params: Params,
    network: Network,
    config: PPOConfig,
    weights: Weights,
    carry: Carry,
    batch: Batch,
    key: Key[Array, ""],
    across: Across = ALONE,
) -> tuple[Float32[Array, ""], UpdateMetrics]:
    """Return policy loss + value coefficient x value loss - entropy coefficient x entropy + teacher's weight x imitation loss.

    The policy loss is the clipped surrogate of each head, where its loss mask is true and the mech lives, summed over heads and
    averaged over living mechs. The entropy is that of the heads times their weights, averaged over living mechs. The imitation
    loss is minus the log-prob of the teacher's actions, averaged in the same way, where they are allowed. The metrics
    `grad_norm`, `update_ratio`, `skipped`, `stopped` and `bad_gradient` stay 0 here, and `part_grad_norm` is None.

    With several devices the loss is this device's part: its sums over the counts of all devices. So the sum of the devices'
    losses, and of their gradients, is that of the minibatch of all of them. The metrics are those of all devices.
    """
    batch, whole = normalized(batch, across)
    noise = entropy_noise(network, params, lambda: (carry, batch), key) if config.remat else None
    loss, outcome = part_loss(params, network, config, weights, carry, batch, whole, noise, key)
    return loss, metrics_of(config, batch, whole, outcome, across)


def take_sequences(batch: Batch, some: Int32[Array, " some"]) -> Batch:
    """Return the sequences with the given indices, which must be in range; sequences are axis 1 of every field."""
    # Other modes compare every entry's index with the range.
    return jax.tree.map(lambda x: jnp.take(x, some, axis=1, mode="clip"), batch)


def parts_for_a_cache(network: Network, sequences: int, rows: int) -> int:
    """Return the parts in which a CPU computes the gradient of a minibatch fastest.

    What a layer gives for a whole minibatch does not stay in a core's cache until the next one reads it. So parts are small, but
    no smaller than FEW_ROWS rows, where products become slow. A memory whose gates read what it remembers is itself a product of
    a few rows at every step; a minibatch of such a network stays whole.

    Args:
        network: the policy; `memory_reads_itself` is taken to be true where it does not say.
        sequences: of the minibatch.
        rows: decisions of a sequence times its mechs.
    """
    if getattr(network, "memory_reads_itself", True):
        return 1
    fitting = [n for n in range(1, sequences + 1) if sequences % n == 0 and sequences // n * rows >= FEW_ROWS]
    return max(fitting, default=1)


def gradient(
    params: Params,
    network: Network,
    config: PPOConfig,
    weights: Weights,
    first_memory: Callable[[Int32[Array, " some"]], Carry],
    batch: Batch,
    sequences: Int32[Array, " some"],
    key: Key[Array, ""],
    across: Across = ALONE,
) -> tuple[Params, UpdateMetrics]:
    """Return this device's part of the gradient of the loss of a minibatch, and the metrics of all devices.

    Args:
        params, network, config, weights: see `loss_and_metrics`.
        first_memory: the memory before the first decision of some sequences.
        batch: all sequences of the rollout.
        sequences: those of the minibatch; `config.accumulate` divides their number unless it is 0.
        key: of the noise that estimates the entropy.
        across: the devices.
    """
    time, _, mechs = batch.reset.shape
    parts = config.accumulate or parts_for_a_cache(network, len(sequences), time * mechs)
    if parts == 1:
        own = first_memory(sequences), take_sequences(batch, sequences)
        settings = network, config, weights
        return jax.grad(loss_and_metrics, has_aux=True)(params, *settings, *own, key, across)

    # Observations of all of them are not gathered: XLA drops what nobody reads.
    minibatch, whole = normalized(take_sequences(batch, sequences), across)
    noise = entropy_noise(network, params, lambda: (first_memory(sequences), take_sequences(batch, sequences)), key)

    def cut(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(x.shape[0], parts, -1, *x.shape[2:]), 1, 0)

    def joined(x: Array) -> Array:
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], -1, *x.shape[3:])

    def add(total: Params, now: Any) -> tuple[Params, Outcome]:
        some, advantage, noise, key = now
        own = take_sequences(batch, some).replace(advantage=advantage)  # type: ignore[attr-defined]
        settings = network, config, weights, first_memory(some), own, whole, noise, key
        grads, outcome = jax.grad(part_loss, has_aux=True)(params, *settings)
        return jax.tree.map(jnp.add, total, grads), outcome

    inputs = (
        sequences.reshape(parts, -1),
        cut(minibatch.advantage),
        jax.tree.map(cut, noise),
        jax.random.split(key, parts),
    )
    grads, outcomes = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), inputs)
    each = {name: joined(getattr(outcomes, name)) for name in ("log_ratio", "use", "value")}
    rest = {name: getattr(outcomes, name) for name in Outcome.__dataclass_fields__ if name not in each}
    sums = jax.tree.map(lambda x: x.sum(0), rest)
    return grads, metrics_of(config, minibatch, whole, Outcome(**sums, **each), across)
