"""Running moments: the observation normaliser and the scale of returns (docs/spec/learner.md 9; T3, T16, T17)."""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

# Observations are made to lie near [-1, 1], so a feature that has hardly moved so far is magnified tenfold at most.
MIN_OBSERVATION_DEVIATION = 0.1
MIN_RETURN_DEVIATION = 1e-3


class Moments(flax.struct.PyTreeNode):
    """Mean and (biased) variance of `count` rows seen so far; 0 and 1 before the first."""

    mean: Float32[Array, "*features"]
    var: Float32[Array, "*features"]
    count: Float32[Array, ""]


def empty_moments(*shape: int) -> Moments:
    """Return the moments of nothing: mean 0, variance 1, count 0."""
    return Moments(jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32), jnp.zeros((), jnp.float32))


def batch_moments(rows: Float32[Array, "*_shape"], mask: Bool[Array, "*batch"]) -> Moments:
    """Return the moments per feature of the rows where `mask` is true. Other rows have no influence, even if they hold NaN.

    `rows` is [*batch, features], or [*batch] for moments of a single number.
    """
    axes = tuple(range(mask.ndim))
    count = mask.sum(dtype=jnp.float32)
    kept = mask.reshape(mask.shape + (1,) * (rows.ndim - mask.ndim))
    divisor = jnp.maximum(count, 1.0)
    mean = jnp.where(kept, rows, 0.0).sum(axes) / divisor
    var = jnp.square(jnp.where(kept, rows - mean, 0.0)).sum(axes) / divisor
    return Moments(mean, var, count)


def merge(old: Moments, new: Moments, keep: float = 1.0) -> Moments:
    """Merge two sets of moments, the between-means term included; an empty one changes nothing.

    Source: docs/spec/learner.md 4.3.

    With `keep` < 1 old rows fade geometrically: the old count is multiplied by `keep` first.
    """
    old_count = old.count * keep
    total = old_count + new.count
    share = new.count / jnp.maximum(total, 1e-8)
    delta = new.mean - old.mean
    merged = Moments(
        mean=old.mean + delta * share,
        var=old.var * (1.0 - share) + new.var * share + delta * delta * share * (1.0 - share),
        count=total,
    )
    some = new.count > 0
    return Moments(
        jnp.where(some, merged.mean, old.mean),
        jnp.where(some, merged.var, old.var),
        jnp.where(some, merged.count, old.count),
    )


def shift_and_scale(
    moments: Moments, continuous: Bool[Array, " features"]
) -> tuple[Float32[Array, " features"], Float32[Array, " features"]]:
    """Return the shift and the scale of (x - shift) / scale: those of the moments where `continuous`, else 0 and 1."""
    deviation = jnp.maximum(jnp.sqrt(moments.var), MIN_OBSERVATION_DEVIATION)
    return jnp.where(continuous, moments.mean, 0.0), jnp.where(continuous, deviation, 1.0)


def normalize(
    moments: Moments,
    rows: Float32[Array, "*batch features"],
    continuous: Bool[Array, " features"],
    clip: float | None = None,
) -> Float32[Array, "*batch features"]:
    """Return the rows with their continuous features shifted and scaled, and the others unchanged.

    Without `clip` the map is affine, so it folds into the first layer (`fold`). With `clip`, continuous features are
    clipped to [-clip, clip], which cannot be folded.
    """
    shift, scale = shift_and_scale(moments, continuous)
    scaled = (rows - shift) * (1.0 / scale)
    if clip is None:
        return scaled
    return jnp.where(continuous, jnp.clip(scaled, -clip, clip), scaled)


def fold(
    kernel: Float32[Array, "features hidden"],
    bias: Float32[Array, " hidden"],
    shift: Float32[Array, " features"],
    scale: Float32[Array, " features"],
) -> tuple[Float32[Array, "features hidden"], Float32[Array, " hidden"]]:
    """Return the kernel and bias that read raw rows as the given ones read normalised rows.

    Source: docs/spec/learner.md 2.5.
    """
    folded = kernel / scale[:, None]
    return folded, bias - shift @ folded


def return_deviation(moments: Moments) -> Float32[Array, ""]:
    """Return the unit in which the critic predicts, at least 1e-3."""
    return jnp.maximum(jnp.sqrt(moments.var), MIN_RETURN_DEVIATION)


def to_value_units(moments: Moments, returns: Float32[Array, "*batch"]) -> Float32[Array, "*batch"]:
    """Return critic targets: (return - mean) / deviation."""
    return (returns - moments.mean) / return_deviation(moments)


def to_reward_units(moments: Moments, values: Float32[Array, "*batch"]) -> Float32[Array, "*batch"]:
    """Return the critic's output in reward units: value * deviation + mean. GAE needs values in these units (D5)."""
    return values * return_deviation(moments) + moments.mean
