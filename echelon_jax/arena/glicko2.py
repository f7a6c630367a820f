"""Glicko-2 ratings of all players of a rating period at once, in numpy (Glickman, "Example of the Glicko-2 system", 2013).

A period has two phases. First every new rating is computed from the ratings before the period, then all are replaced. So the
order of the games within a period does not matter, and no rating is computed from one that already contains the game.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

SCALE = 173.7178  # rating points per unit of the internal scale
LEAST_INFORMATION = 1e-12  # games whose outcome is certain tell nothing; their variance stays finite
MOST_ITERATIONS = 100  # of the search for a volatility; about ten are needed


@dataclasses.dataclass(frozen=True)
class Glicko2:
    """Constants of the system.

    Attributes:
        rating, deviation, volatility: values of a new player.
        tau: how quickly volatilities change; 0.3 to 1.2 are usual.
        tolerance: tolerance of the search for a volatility, in its logarithm.
        most_deviation: upper limit of every deviation; a player who was away for long is as uncertain as a new one.

    Raises:
        ValueError: naming the field and its allowed values.
    """

    rating: float = 1500.0
    deviation: float = 350.0
    volatility: float = 0.06
    tau: float = 0.5
    tolerance: float = 1e-6
    most_deviation: float = 350.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not number or (field.name != "rating" and value <= 0):
                allowed = "a finite number" if field.name == "rating" else "a number above 0"
                raise ValueError(f"{field.name} must be {allowed}, got {value!r}")


class Ratings(NamedTuple):
    """Ratings of all players, float64; a player is an index."""

    rating: Float64[np.ndarray, " players"]
    deviation: Float64[np.ndarray, " players"]
    volatility: Float64[np.ndarray, " players"]


class Results(NamedTuple):
    """The results of a period: one row for each game, or for `weight` games of the same two players with one mean score.

    Attributes:
        a, b: index of the two players.
        score: score of a: win 1, draw 1/2, loss 0, or the mean over the row's games.
        weight: number of games of the row.
    """

    a: Int[np.ndarray, " rows"]
    b: Int[np.ndarray, " rows"]
    score: Float64[np.ndarray, " rows"]
    weight: Float64[np.ndarray, " rows"]


def new_players(count: int, system: Glicko2) -> Ratings:
    """Return the ratings of `count` players who have not played."""
    return Ratings(*(np.full(count, value) for value in (system.rating, system.deviation, system.volatility)))


def results(a: np.ndarray, b: np.ndarray, score: np.ndarray, weight: np.ndarray | None = None) -> Results:
    """Return rows of games as `Results`; every row is one game without `weight`.

    Raises:
        ValueError: arrays of different lengths, a player against himself, a score outside of 0 to 1, or a negative weight.
    """
    first, second = np.asarray(a, np.int64).ravel(), np.asarray(b, np.int64).ravel()
    scores = np.asarray(score, np.float64).ravel()
    weights = np.ones(len(scores)) if weight is None else np.asarray(weight, np.float64).ravel()
    if not len(first) == len(second) == len(scores) == len(weights):
        raise ValueError(
            f"a, b, score and weight must have one length, got {[len(x) for x in (first, second, scores, weights)]}"
        )
    if (first == second).any():
        raise ValueError(
            f"a and b must be two players, got a game of player {int(first[first == second][0])} against himself"
        )
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError(f"score must be from 0 to 1, got {float(scores[~((scores >= 0) & (scores <= 1))][0])}")
    if not (weights >= 0).all():
        raise ValueError(f"weight must be a number from 0, got {float(weights[~(weights >= 0)][0])}")
    return Results(first, second, scores, weights)


def expected_score(ratings: Ratings, a: np.ndarray, b: np.ndarray) -> Float64[np.ndarray, " rows"]:
    """Return the expected score of each a against b, 0 to 1, by b's deviation alone (Glickman's E).

    The expected score of 1500 against 1400 with a deviation of 30 is 0.639.
    """
    gap = (ratings.rating[a] - ratings.rating[b]) / SCALE
    return _logistic(_discount(ratings.deviation[b] / SCALE) * gap)


def win_probability(ratings: Ratings, a: np.ndarray, b: np.ndarray) -> Float64[np.ndarray, " rows"]:
    """Return the expected score of each a against b, 0 to 1, by the deviations of both. It is the best forecast."""
    gap = (ratings.rating[a] - ratings.rating[b]) / SCALE
    return _logistic(_discount(np.hypot(ratings.deviation[a], ratings.deviation[b]) / SCALE) * gap)


def conservative(ratings: Ratings, deviations: float = 2.0) -> Float64[np.ndarray, " players"]:
    """Return a cautious rating: `deviations` deviations below the estimate."""
    return ratings.rating - deviations * ratings.deviation


def interval(ratings: Ratings, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """Return low and high end of each rating's interval, 95 % by default."""
    return ratings.rating - z * ratings.deviation, ratings.rating + z * ratings.deviation


def rate_period(
    before: Ratings, played: Results, system: Glicko2, fixed: Bool[np.ndarray, " players"] | None = None
) -> Ratings:
    """Return all ratings after one period, each computed from the ratings before it (steps 2 to 8 of Glickman's example).

    A player who did not play keeps rating and volatility. The deviation grows by the volatility, up to `system.most_deviation`.

    Args:
        before: ratings before the period.
        played: the period's games.
        system: the constants.
        fixed: players whose rating never changes, such as anchors of the scale.
    """
    mu, phi = (before.rating - system.rating) / SCALE, before.deviation / SCALE
    players = len(mu)
    me, other = np.concatenate([played.a, played.b]), np.concatenate([played.b, played.a])
    score, weight = np.concatenate([played.score, 1 - played.score]), np.concatenate([played.weight, played.weight])
    g = _discount(phi)[other]
    expected = _logistic(g * (mu[me] - mu[other]))
    information = np.bincount(me, weight * g * g * expected * (1 - expected), players)
    surprise = np.bincount(me, weight * g * (score - expected), players)
    active = np.bincount(me, weight, players) > 0
    variance = 1 / np.maximum(LEAST_INFORMATION, information)

    volatility = np.where(
        active, _volatility(variance * surprise, phi, variance, before.volatility, active, system), before.volatility
    )
    wider = np.hypot(phi, volatility)
    narrowed = np.where(active, 1 / np.sqrt(1 / wider**2 + 1 / variance), wider)
    moved = mu + np.where(active, narrowed**2 * surprise, 0.0)
    after = Ratings(
        rating=np.where(active, SCALE * moved + system.rating, before.rating),
        deviation=np.minimum(SCALE * narrowed, np.maximum(system.most_deviation, before.deviation)),
        volatility=volatility,
    )
    if fixed is None:
        return after
    return Ratings(*(np.where(fixed, old, new) for old, new in zip(before, after, strict=True)))


def rate(
    played: Results,
    period: Int[np.ndarray, " rows"],
    before: Ratings,
    system: Glicko2,
    fixed: Bool[np.ndarray, " players"] | None = None,
) -> Ratings:
    """Return the ratings after all periods in the order of their numbers; `period` is the number of each row's period."""
    ratings = before
    for number in np.unique(period):
        rows = period == number
        ratings = rate_period(ratings, Results(*(field[rows] for field in played)), system, fixed)
    return ratings


def _logistic(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _discount(phi: np.ndarray) -> np.ndarray:
    """g of the paper: how much an opponent's uncertainty weakens a result."""
    return 1 / np.sqrt(1 + 3 * phi**2 / math.pi**2)


def _volatility(
    change: np.ndarray, phi: np.ndarray, variance: np.ndarray, before: np.ndarray, active: np.ndarray, system: Glicko2
) -> np.ndarray:
    """New volatilities: the root of f by the Illinois variant of regula falsi, all players in lock step (step 5 of the paper)."""
    a, tau = np.log(before**2), system.tau
    change2, phi2 = change**2, phi**2

    def f(x: np.ndarray) -> np.ndarray:
        power = np.exp(x)
        top = power * (change2 - phi2 - variance - power)
        return top / (2 * (phi2 + variance + power) ** 2) - (x - a) / tau**2

    # The bracket: from ln(volatility^2) up to where the change alone would put it, or down in steps of tau.
    jumped = active & (change2 > phi2 + variance)
    low = np.where(jumped, np.log(np.where(jumped, change2 - phi2 - variance, 1.0)), a - tau)
    for _ in range(MOST_ITERATIONS):
        too_high = active & ~jumped & (f(low) < 0)
        if not too_high.any():
            break
        low = np.where(too_high, low - tau, low)
    x, y, f_x, f_y = a, low, f(a), f(low)
    for _ in range(MOST_ITERATIONS):
        open_ = active & (np.abs(y - x) > system.tolerance)
        if not open_.any():
            break
        slope = np.where(f_y == f_x, 1.0, f_y - f_x)
        z = np.where(open_, x + (x - y) * f_x / slope, y)
        f_z = f(z)
        crossed = f_z * f_y <= 0
        x, f_x = np.where(open_ & crossed, y, x), np.where(open_, np.where(crossed, f_y, f_x / 2), f_x)
        y, f_y = np.where(open_, z, y), np.where(open_, f_z, f_y)
    return np.exp(x / 2)
