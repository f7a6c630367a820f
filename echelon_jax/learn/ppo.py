"""The PPO update: clipped surrogate over whole recurrent sequences, dead mechs masked (learning spec 4.3, 4.9)."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.learn.features import Observation
from echelon_jax.learn.networks import Carry, OriginalNetwork, Params

ADAM_EPSILON = 1e-5
MIN_ADVANTAGE_DEVIATION = 1e-6


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """Numbers of the update.

    Attributes:
        epochs: passes over the rollout, each unrolled again from the stored first memory.
        minibatches: parts of a pass; each holds whole sequences of whole arenas.
        clip: the ratio is clipped to [1 - clip, 1 + clip].
        entropy_coefficient, value_coefficient: weights in the loss.
    """

    epochs: int
    minibatches: int
    clip: float
    entropy_coefficient: float
    value_coefficient: float


class Batch(flax.struct.PyTreeNode):
    """What the loss reads: a rollout of T steps and what was computed from it."""

    observation: Observation  # normalised
    reset: Bool[Array, "time arenas mechs"]  # the previous done
    alive: Bool[Array, "time arenas mechs"]  # at the decision
    sample: Float32[Array, "time arenas mechs actions"]  # u, before squashing
    log_density: Float32[Array, "time arenas mechs"]  # of u, by the policy that acted
    advantage: Float32[Array, "time arenas mechs"]
    target: Float32[Array, "time arenas mechs"]  # returns in units of the critic


class UpdateMetrics(flax.struct.PyTreeNode):
    """Means over all minibatches of an update, unless said otherwise."""

    loss: Float32[Array, ""]
    policy_loss: Float32[Array, ""]
    value_loss: Float32[Array, ""]
    entropy: Float32[Array, ""]
    kl: Float32[Array, ""]  # mean of (ratio - 1) - log ratio
    clip_fraction: Float32[Array, ""]
    ratio_error: Float32[Array, ""]  # largest |ratio - 1| of living mechs, averaged over minibatches
    explained_variance: Float32[Array, ""]  # of the critic targets
    grad_norm: Float32[Array, ""]  # before clipping
    skipped: Float32[Array, ""]  # share of gradient steps left out because something was not finite


def masked_mean(x: Float32[Array, "*batch"], mask: Bool[Array, "*batch"]) -> Float32[Array, ""]:
    """Return the mean of x where `mask` is true, 0 if nowhere; other entries never matter, not even NaN."""
    return jnp.where(mask, x, 0.0).sum() / jnp.maximum(mask.sum(dtype=jnp.float32), 1.0)


def normalize_advantage(advantage: Float32[Array, "*batch"], mask: Bool[Array, "*batch"]) -> Float32[Array, "*batch"]:
    """Return (A - mean) / deviation over the living, 0 elsewhere and 0 everywhere if they all agree or none lives."""
    centred = jnp.where(mask, advantage - masked_mean(advantage, mask), 0.0)
    deviation = jnp.sqrt(masked_mean(centred * centred, mask))
    return jnp.where(
        deviation > MIN_ADVANTAGE_DEVIATION, centred / jnp.maximum(deviation, MIN_ADVANTAGE_DEVIATION), 0.0
    )


def surrogate_terms(
    log_ratio: Float32[Array, "*batch"], advantage: Float32[Array, "*batch"], clip: float
) -> Float32[Array, "*batch"]:
    """Return max(-A rho, -A clip(rho, 1 - c, 1 + c)) with rho = exp(log_ratio), per entry."""
    ratio = jnp.exp(log_ratio)
    return jnp.maximum(-advantage * ratio, -advantage * jnp.clip(ratio, 1.0 - clip, 1.0 + clip))


def loss_and_metrics(
    params: Params, network: OriginalNetwork, config: PPOConfig, carry: Carry, batch: Batch, key: Key[Array, ""]
) -> tuple[Float32[Array, ""], UpdateMetrics]:
    """Return policy loss + value coefficient x value loss - entropy coefficient x entropy, means over living mechs.

    value loss = 1/2 (target - V)^2, unclipped, in the critic's units. Of the metrics `grad_norm` and `skipped` are left 0.
    """
    distribution, value = network.unroll(params, carry, batch.observation, batch.reset)
    mask = batch.alive
    # Masked before exp: a dead mech's meaningless ratio must not become inf, whose gradient would be NaN.
    log_ratio = jnp.where(mask, distribution.log_density(batch.sample) - batch.log_density, 0.0)
    advantage = normalize_advantage(batch.advantage, mask)
    policy_loss = masked_mean(surrogate_terms(log_ratio, advantage, config.clip), mask)
    error = jnp.where(mask, batch.target - value, 0.0)
    value_loss = 0.5 * masked_mean(error * error, mask)
    entropy = masked_mean(distribution.entropy(jax.random.normal(key, batch.sample.shape, jnp.float32)), mask)
    loss = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * entropy

    ratio = jnp.exp(log_ratio)
    target_centred = batch.target - masked_mean(batch.target, mask)
    error_centred = error - masked_mean(error, mask)
    target_var = masked_mean(target_centred * target_centred, mask)
    error_var = masked_mean(error_centred * error_centred, mask)
    zero = jnp.zeros((), jnp.float32)
    return loss, UpdateMetrics(
        loss=loss,
        policy_loss=policy_loss,
        value_loss=value_loss,
        entropy=entropy,
        kl=masked_mean(ratio - 1.0 - log_ratio, mask),
        clip_fraction=masked_mean((jnp.abs(ratio - 1.0) > config.clip).astype(jnp.float32), mask),
        ratio_error=jnp.abs(ratio - 1.0).max(),
        explained_variance=jnp.where(target_var > 1e-8, 1.0 - error_var / jnp.maximum(target_var, 1e-8), 0.0),
        grad_norm=zero,
        skipped=zero,
    )


def make_optimizer(
    learning_rate: float, max_grad_norm: float, anneal_steps: int | None
) -> optax.GradientTransformation:
    """Return clip by global norm, then Adam (eps 1e-5); over `anneal_steps` gradient steps, if given, the rate falls to 0."""
    rate = learning_rate if anneal_steps is None else optax.linear_schedule(learning_rate, 0.0, anneal_steps)
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.adam(rate, eps=ADAM_EPSILON))


def take_arenas(batch: Batch, arenas: Int32[Array, " some"]) -> Batch:
    """Return the whole sequences of some arenas; arenas are axis 1 of every field."""
    return jax.tree.map(lambda x: jnp.take(x, arenas, axis=1), batch)


def gradient_step(
    network: OriginalNetwork,
    config: PPOConfig,
    optimizer: optax.GradientTransformation,
    params: Params,
    optimizer_state: Any,
    carry: Carry,
    batch: Batch,
    key: Key[Array, ""],
) -> tuple[Params, Any, UpdateMetrics]:
    """Do one optimiser step on one minibatch. If the loss or a gradient is not finite nothing changes, which is counted."""
    grads, metrics = jax.grad(loss_and_metrics, has_aux=True)(params, network, config, carry, batch, key)
    norm = optax.tree.norm(grads)
    updates, stepped_state = optimizer.update(grads, optimizer_state, params)
    stepped = network.project(optax.apply_updates(params, updates))
    sound = jnp.isfinite(norm) & jnp.isfinite(metrics.loss)
    params, optimizer_state = jax.tree.map(
        lambda new, old: jnp.where(sound, new, old), (stepped, stepped_state), (params, optimizer_state)
    )
    return params, optimizer_state, metrics.replace(grad_norm=norm, skipped=1.0 - sound.astype(jnp.float32))


def update(
    network: OriginalNetwork,
    config: PPOConfig,
    optimizer: optax.GradientTransformation,
    params: Params,
    optimizer_state: Any,
    carry: Carry,
    batch: Batch,
    key: Key[Array, ""],
) -> tuple[Params, Any, UpdateMetrics]:
    """Run all epochs and minibatches; every epoch permutes the arenas afresh.

    `carry` is the memory before the first step, [arenas, mechs, lstm]; its arenas divide evenly into minibatches
    (`TrainConfig` checks it). Metrics have the shape [epochs, minibatches].
    """
    arenas = batch.alive.shape[1]
    order_key, noise_key = jax.random.split(key)
    order = jax.vmap(lambda k: jax.random.permutation(k, arenas))(jax.random.split(order_key, config.epochs))
    parts = order.reshape(config.epochs * config.minibatches, arenas // config.minibatches)

    def step(state: tuple[Params, Any], x: tuple[Array, Array]) -> tuple[tuple[Params, Any], UpdateMetrics]:
        part, step_key = x
        some = jax.tree.map(lambda leaf: jnp.take(leaf, part, axis=0), carry)
        params, optimizer_state, metrics = gradient_step(
            network, config, optimizer, *state, some, take_arenas(batch, part), step_key
        )
        return (params, optimizer_state), metrics

    keys = jax.random.split(noise_key, parts.shape[0])
    (params, optimizer_state), metrics = jax.lax.scan(step, (params, optimizer_state), (parts, keys))
    shape = (config.epochs, config.minibatches)
    return params, optimizer_state, jax.tree.map(lambda x: x.reshape(shape), metrics)
