"""The PPO update: a clipped surrogate per action head over whole recurrent sequences, with dead mechs masked.

Source: docs/spec/learner.md 4.3, 4.9.

A sequence is a whole rollout of an arena, or a chunk of it (truncated backpropagation through time). A chunk starts from the
memory that the rollout had there. With `burn_in` the present parameters compute that memory again from the chunk before,
without a gradient.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.policies.features import Observation
from echelon_jax.policies.network import Carry, Network, Params
from echelon_jax.training import diagnostics
from echelon_jax.training.devices import ALONE, Across
from echelon_jax.training.diagnostics import WorstRatios
from echelon_jax.training.guard import first_bad

ADAM_EPSILON = 1e-5
MIN_ADVANTAGE_DEVIATION = 1e-6


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
    """

    epochs: int
    minibatches: int
    clip: float
    value_coefficient: float
    value_clip: float = 0.0
    target_kl: float = 0.0
    burn_in: bool = False
    worst_ratios: int = 0


class UpdateSchedule(flax.struct.PyTreeNode):
    """Numbers of the update that change over a run."""

    learning_rate: Float32[Array, ""]
    entropy_coefficient: Float32[Array, ""]


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
    part_grad_norm: dict[str, Float32[Array, "*batch"]] = dataclasses.field(default_factory=dict)
    worst: WorstRatios | None = None


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


def loss_and_metrics(
    params: Params,
    network: Network,
    config: PPOConfig,
    entropy_coefficient: Float32[Array, ""],
    carry: Carry,
    batch: Batch,
    key: Key[Array, ""],
    across: Across = ALONE,
) -> tuple[Float32[Array, ""], UpdateMetrics]:
    """Return policy loss + value coefficient x value loss - entropy coefficient x entropy.

    The policy loss is the clipped surrogate of each head, where its loss mask is true and the mech lives, summed over heads and
    averaged over living mechs. The entropy is that of the heads times their weights, averaged over living mechs. The metrics
    `grad_norm`, `update_ratio`, `skipped`, `stopped` and `bad_gradient` stay 0 here, and `part_grad_norm` stays empty.

    With several devices the loss is this device's part: its sums over the counts of all devices. So the sum of the devices'
    losses, and of their gradients, is that of the minibatch of all of them. The metrics are those of all devices.
    """
    distribution, value = network.unroll(params, carry, batch.observation, batch.reset)
    mask = batch.policy_mask
    use = distribution.loss_mask(batch.raw_action) & mask[..., None]
    heads_used = use.sum(tuple(range(use.ndim - 1)), dtype=jnp.float32)
    living, value_count, used = across.total(
        (mask.sum(dtype=jnp.float32), batch.value_mask.sum(dtype=jnp.float32), heads_used)
    )
    # Masked before exp: a dead mech's meaningless ratio must not become inf, whose gradient would be NaN.
    log_ratio = jnp.where(use, distribution.head_log_prob(batch.raw_action) - batch.log_prob, 0.0)
    advantage = normalize_advantage(batch.advantage, mask, across)
    terms = surrogate_terms(log_ratio, advantage[..., None], config.clip)
    policy_loss = masked_head_mean(terms, use, living).sum()
    target, old_value, value = (jnp.where(batch.value_mask, x, 0.0) for x in (batch.target, batch.value, value))
    errors = jnp.where(batch.value_mask, value_terms(value, old_value, target, config.value_clip), 0.0)
    value_loss = errors.sum() / jnp.maximum(value_count, 1.0)
    head_entropy = masked_head_mean(
        distribution.head_entropy(key), jnp.broadcast_to(mask[..., None], use.shape), living
    )
    entropy = (head_entropy * jnp.asarray(network.entropy_weights, jnp.float32)).sum()
    loss = policy_loss + config.value_coefficient * value_loss - entropy_coefficient * entropy

    # From here on nothing is differentiated: these are the metrics.
    log_ratio, value = jax.lax.stop_gradient((log_ratio, value))
    ratio = jnp.exp(log_ratio)
    head_kl = masked_head_mean(ratio - 1.0 - log_ratio, use, living)
    clipped = (jnp.abs(ratio - 1.0) > config.clip).astype(jnp.float32)
    target_centred = target - across.mean(target, batch.value_mask)
    error = target - value
    error_centred = error - across.mean(error, batch.value_mask)
    target_var = across.mean(target_centred * target_centred, batch.value_mask)
    error_var = across.mean(error_centred * error_centred, batch.value_mask)
    zero = jnp.zeros((), jnp.float32)
    parts = across.total(
        jax.lax.stop_gradient(
            {
                "loss": loss,
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy,
                "kl": head_kl.sum(),
                "head_entropy": head_entropy,
                "head_kl": head_kl,
                "head_clip_fraction": masked_head_mean(clipped, use, used),
            }
        )
    )
    return loss, UpdateMetrics(
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


def make_optimizer(max_grad_norm: float) -> optax.GradientTransformation:
    """Return clip by global norm, then Adam's direction (eps 1e-5); the learning rate is applied in `gradient_step`."""
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam(eps=ADAM_EPSILON))


def take_sequences(batch: Batch, some: Int32[Array, " some"]) -> Batch:
    """Return the sequences with the given indices; sequences are axis 1 of every field."""
    return jax.tree.map(lambda x: jnp.take(x, some, axis=1), batch)


def gradient_step(
    network: Network,
    config: PPOConfig,
    optimizer: optax.GradientTransformation,
    schedule: UpdateSchedule,
    params: Params,
    optimizer_state: Any,
    carry: Carry,
    batch: Batch,
    key: Key[Array, ""],
    across: Across = ALONE,
) -> tuple[Params, Any, UpdateMetrics]:
    """Do one optimiser step on one minibatch. If the loss or a gradient is not finite, nothing changes and `skipped` is 1.

    So the parameters stay sound for the later steps. The guard then drops the whole update.
    """
    grads, metrics = jax.grad(loss_and_metrics, has_aux=True)(
        params, network, config, schedule.entropy_coefficient, carry, batch, key, across
    )
    grads = across.total(grads)
    norm = optax.tree.norm(grads)
    direction, stepped_state = optimizer.update(grads, optimizer_state, params)
    updates = jax.tree.map(lambda d: -schedule.learning_rate * d, direction)
    stepped = network.clip_params(optax.apply_updates(params, updates))
    sound = jnp.isfinite(norm) & jnp.isfinite(metrics.loss)
    ratio = optax.tree.norm(updates) / jnp.maximum(optax.tree.norm(params), 1e-8)
    params, optimizer_state = jax.tree.map(
        lambda new, old: jnp.where(sound, new, old), (stepped, stepped_state), (params, optimizer_state)
    )
    skipped = 1.0 - sound.astype(jnp.float32)
    bad = first_bad(grads).astype(jnp.float32)
    return (
        params,
        optimizer_state,
        metrics.replace(
            grad_norm=norm,
            update_ratio=ratio,
            skipped=skipped,
            bad_gradient=bad,
            part_grad_norm=diagnostics.part_norms(network, grads),
        ),
    )


def in_chunks(batch: Batch, chunks: int) -> Batch:
    """Return a batch of [time, arenas] as one of [time / chunks, chunks x arenas], chunk by chunk."""

    def cut(x: Array) -> Array:
        length = x.shape[0] // chunks
        parts = jnp.moveaxis(x.reshape(chunks, length, *x.shape[1:]), 0, 1)
        return parts.reshape(length, chunks * x.shape[1], *x.shape[2:])

    return batch if chunks == 1 else jax.tree.map(cut, batch)


def update(
    network: Network,
    config: PPOConfig,
    optimizer: optax.GradientTransformation,
    schedule: UpdateSchedule,
    params: Params,
    optimizer_state: Any,
    carries: Carry,
    batch: Batch,
    key: Key[Array, ""],
    across: Across = ALONE,
) -> tuple[Params, Any, UpdateMetrics]:
    """Run all epochs and minibatches. Every epoch permutes the sequences anew.

    `carries` is the memory before the first step of each chunk, [chunks, arenas, mechs, lstm]. Chunks divide the time evenly,
    and minibatches divide the arenas evenly (`TrainConfig` checks both). Metrics have the shape [epochs, minibatches].
    With several devices a minibatch holds as many sequences of each.
    """
    chunks, arenas = jax.tree.leaves(carries)[0].shape[:2]
    sequences = chunks * arenas
    batch = in_chunks(batch, chunks)
    flat = jax.tree.map(lambda x: x.reshape(sequences, *x.shape[2:]), carries)
    order_key, noise_key = jax.random.split(across.own_key(key))
    order = jax.vmap(lambda k: jax.random.permutation(k, sequences))(jax.random.split(order_key, config.epochs))
    parts = order.reshape(config.epochs * config.minibatches, sequences // config.minibatches)

    def first_memory(params: Params, part: Int32[Array, " some"]) -> Carry:
        stored = jax.tree.map(lambda leaf: jnp.take(leaf, part, axis=0), flat)
        if not config.burn_in or chunks == 1:
            return stored
        before = jnp.maximum(part - arenas, 0)
        earlier = take_sequences(batch, before)
        start = jax.tree.map(lambda leaf: jnp.take(leaf, before, axis=0), flat)
        anew = jax.lax.stop_gradient(network.final_carry(params, start, earlier.observation, earlier.reset))

        def choose(new: Array, old: Array) -> Array:
            return jnp.where((part >= arenas).reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        return jax.tree.map(choose, anew, stored)

    def do(
        params: Params, state: Any, part: Int32[Array, " some"], step_key: Array
    ) -> tuple[Params, Any, UpdateMetrics]:
        params, state, metrics = gradient_step(
            network,
            config,
            optimizer,
            schedule,
            params,
            state,
            first_memory(params, part),
            take_sequences(batch, part),
            step_key,
            across,
        )
        worst = diagnostics.in_rollout(metrics.worst, part, arenas, batch.reset.shape[0])
        return params, state, metrics.replace(worst=worst)

    def leave(params: Params, state: Any, part: Array, step_key: Array) -> tuple[Params, Any, UpdateMetrics]:
        made = jax.eval_shape(do, params, state, part, step_key)[2]
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), made)
        return params, state, nothing.replace(stopped=jnp.ones((), jnp.float32))

    def step(
        state: tuple[Params, Any, Array], x: tuple[Array, Array]
    ) -> tuple[tuple[Params, Any, Array], UpdateMetrics]:
        params, optimizer_state, stop = state
        if config.target_kl:
            params, optimizer_state, metrics = jax.lax.cond(stop, leave, do, params, optimizer_state, *x)
            stop = stop | (metrics.kl > 1.5 * config.target_kl)
        else:
            params, optimizer_state, metrics = do(params, optimizer_state, *x)
        return (params, optimizer_state, stop), metrics

    keys = jax.random.split(noise_key, parts.shape[0])
    start = (params, optimizer_state, jnp.zeros((), bool))
    (params, optimizer_state, _), metrics = jax.lax.scan(step, start, (parts, keys))
    shape = (config.epochs, config.minibatches)
    worst = diagnostics.worst_of(metrics.worst, across, arenas)
    metrics = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), metrics).replace(worst=worst)
    return params, optimizer_state, metrics
