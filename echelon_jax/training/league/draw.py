"""Who plays the next episode: weights of the members from how the learner fared against them.

Prioritised fictitious self-play (Vinyals et al. 2019, Grandmaster level in StarCraft II using multi-agent reinforcement learning,
Methods): an opponent is drawn in proportion to f(p), where p is the learner's estimated score against it.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

RULES = ("hard", "even", "linear", "uniform", "rating")
PRIOR_GAMES = 4.0  # games with a score of one half that every estimate starts from
RATING_SCALE = 200.0  # rating points after which a distant opponent has 0.61 of the weight of an equal one


@dataclasses.dataclass(frozen=True)
class DrawConfig:
    """How opponents are drawn. `TrainConfig.league_*` documents each field."""

    rule: str
    current: float
    uniform: float


def scores(counts: Float32[Array, "members 3"]) -> Float32[Array, " members"]:
    """Return the learner's estimated score against each member from (games, wins, draws); one half without games."""
    games, wins, draws = counts[:, 0], counts[:, 1], counts[:, 2]
    return (wins + 0.5 * draws + 0.5 * PRIOR_GAMES) / (games + PRIOR_GAMES)


def weights(
    config: DrawConfig,
    counts: Float32[Array, "members 3"],
    ratings: Float32[Array, " members"],
    drawable: Bool[Array, " members"],
) -> Float32[Array, " members"]:
    """Return the probability of each member in a draw; member 0 is the current policy.

    The current policy has the share `config.current`, and all of it while nobody else can be drawn. Of the rest a share
    `config.uniform` is spread evenly; the other part follows the rule: (1 - p)^2 for "hard", p (1 - p) for "even", 1 - p for
    "linear", a Gaussian of the difference of ratings for "rating".

    Args:
        config: the rule and the shares.
        counts: games, wins and draws of the learner against each member.
        ratings: of the members; that of the current policy comes first.
        drawable: which members may be drawn; the first flag is not read.
    """
    p = scores(counts)
    by_rule = {
        "hard": jnp.square(1.0 - p),
        "even": p * (1.0 - p),
        "linear": 1.0 - p,
        "uniform": jnp.ones_like(p),
        "rating": jnp.exp(-0.5 * jnp.square((ratings - ratings[0]) / RATING_SCALE)),
    }[config.rule]
    others = drawable & (jnp.arange(p.shape[0]) > 0)
    even = _normalised(others.astype(jnp.float32))
    # A tiny floor: an opponent that always loses, or is far away, is still drawn before the weights are all zero.
    chosen = _normalised(jnp.where(others, by_rule + 1e-6, 0.0))
    rest = config.uniform * even + (1.0 - config.uniform) * chosen
    own = jnp.where(others.any(), config.current, 1.0)
    return ((1.0 - own) * rest).at[0].set(own)


def _normalised(x: Float32[Array, " members"]) -> Float32[Array, " members"]:
    total = x.sum()
    return jnp.where(total > 0, x / jnp.where(total > 0, total, 1.0), 0.0)
