"""The PPO update: epochs of minibatches of whole recurrent sequences, with dead mechs masked (training/loss.py).

Source: docs/spec/learner.md 4.3, 4.9.

A sequence is a whole rollout of an arena, or a chunk of it (truncated backpropagation through time). A chunk starts from the
memory that the rollout had there. With `burn_in` the present parameters compute that memory again from the chunk before,
without a gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.policies.network import Carry, Network, Params
from echelon_jax.training import diagnostics, vector
from echelon_jax.training.choosing import choose
from echelon_jax.training.devices import ALONE, Across
from echelon_jax.training.loss import Batch, PPOConfig, UpdateMetrics, Weights, gradient, take_sequences

ADAM_EPSILON = 1e-5


class UpdateSchedule(flax.struct.PyTreeNode):
    """Numbers of the update that change over a run."""

    learning_rate: Float32[Array, ""]
    entropy_coefficient: Float32[Array, ""]
    teacher_weight: Float32[Array, ""] | float = 0.0  # 0 without a teacher
    led: Bool[Array, ""] | bool = (
        False  # whether that weight is yet to fall: the policy may move further than PPO alone should
    )


def make_optimizer(max_grad_norm: float) -> optax.GradientTransformation:
    """Return clip by global norm, then Adam's direction (eps 1e-5); the learning rate is applied in `gradient_step`.

    It works on the parameters joined to one vector, and so do its moments. `init` joins a tree itself.
    """
    return optax.flatten(optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam(eps=ADAM_EPSILON)))


def gradient_step(
    network: Network,
    config: PPOConfig,
    optimizer: optax.GradientTransformation,
    schedule: UpdateSchedule,
    params: Params,
    optimizer_state: Any,
    first_memory: Callable[[Int32[Array, " some"]], Carry],
    batch: Batch,
    sequences: Int32[Array, " some"],
    key: Key[Array, ""],
    across: Across = ALONE,
) -> tuple[Params, Any, UpdateMetrics]:
    """Do one optimiser step on the minibatch of some sequences of a batch (see `gradient`).

    If the loss or a gradient is not finite, nothing changes and `skipped` is 1. So the parameters stay sound for the later steps.
    The guard then drops the whole update.
    """
    settings = network, config, Weights(schedule.entropy_coefficient, jnp.asarray(schedule.teacher_weight))
    own_grads, metrics = gradient(params, *settings, first_memory, batch, sequences, key, across)
    grads, before = across.total(vector.joined(own_grads)), vector.joined(params)
    norm = optax.tree.norm(grads)
    direction, stepped_state = optimizer.update(grads, optimizer_state, before)
    updates = -schedule.learning_rate * direction
    stepped = network.clip_params(vector.parted(before + updates, params))
    sound = jnp.isfinite(norm) & jnp.isfinite(metrics.loss)
    ratio = optax.tree.norm(updates) / jnp.maximum(optax.tree.norm(before), 1e-8)
    params, optimizer_state = choose(sound, (stepped, stepped_state), (params, optimizer_state), branch=config.skip)
    skipped = 1.0 - sound.astype(jnp.float32)
    bad = vector.first_bad_leaf(grads, params).astype(jnp.float32)
    return (
        params,
        optimizer_state,
        metrics.replace(
            grad_norm=norm,
            update_ratio=ratio,
            skipped=skipped,
            bad_gradient=bad,
            part_grad_norm=diagnostics.part_norms(network, grads, params),
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

    @jax.jit  # traced once, though `leave` asks for its shapes
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
            functools.partial(first_memory, params),
            batch,
            part,
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
        if not config.target_kl:
            params, optimizer_state, metrics = do(params, optimizer_state, *x)
            return (params, optimizer_state, stop), metrics
        if config.skip:
            params, optimizer_state, metrics = jax.lax.cond(stop, leave, do, params, optimizer_state, *x)
        else:
            left, made = leave(params, optimizer_state, *x), do(params, optimizer_state, *x)
            params, optimizer_state, metrics = jax.tree.map(lambda old, new: jnp.where(stop, old, new), left, made)
        too_far = metrics.kl > 1.5 * config.target_kl
        if batch.teacher_action is not None:
            too_far = too_far & ~jnp.asarray(schedule.led)
        return (params, optimizer_state, stop | too_far), metrics

    keys = jax.random.split(noise_key, parts.shape[0])
    start = (params, optimizer_state, jnp.zeros((), bool))
    (params, optimizer_state, _), metrics = jax.lax.scan(step, start, (parts, keys))
    shape = (config.epochs, config.minibatches)
    worst = diagnostics.worst_of(metrics.worst, across, arenas)
    metrics = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), metrics).replace(worst=worst)
    return params, optimizer_state, metrics
