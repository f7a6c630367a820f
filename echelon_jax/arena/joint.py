"""Ratings of players whose strength never changes, from all their games at once.

Glicko-2 goes through the periods in their order, as for people who learn. Frozen policies and skill levels do not learn, and in the
league of a run nearly all games are against the strongest, so few of them tie the scale to its anchor: taken period by period the
ratings of a run fell behind while its policies became better. Here every game counts for both players with whatever is known of
them by now: the most likely strengths under the Bradley-Terry model, which is that of Elo and Glicko. The prior of each player is
normal, as of a new player in Glicko-2, but half of its variance is shared by all: a league of strong players is not pulled down
once for each of them. Source of the model: Bradley and Terry, "Rank analysis of incomplete block designs", 1952.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from echelon_jax.arena.glicko2 import Glicko2, Ratings, Results

ELO = np.log(10) / 400  # per rating point
MOST_STEPS = 100  # of Newton's method; about ten are needed
PRECISION = 1e-6  # rating points


def rate_jointly(before: Ratings, played: Results, system: Glicko2, fixed: Bool[np.ndarray, " players"]) -> Ratings:
    """Return the most likely ratings of all players with their deviations; volatilities stay.

    Args:
        before: ratings so far; only those of fixed players and the volatilities are read.
        played: all games.
        system: the prior, rating and deviation of a new player.
        fixed: players whose rating does not change, such as anchors of the scale.
    """
    free = np.flatnonzero(~fixed)
    # Of the covariance v/2 (1 + ones), the inverse.
    prior = 2 / system.deviation**2 * (np.eye(len(free)) - 1 / (1 + len(free)))
    rating = np.where(fixed, before.rating, system.rating).astype(np.float64)

    def expected(rating: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-ELO * (rating[played.a] - rating[played.b])))

    def likelihood(rating: np.ndarray) -> float:
        p = np.clip(expected(rating), 1e-300, 1.0)
        q = np.clip(1 - p, 1e-300, 1.0)
        games = played.weight * (played.score * np.log(p) + (1 - played.score) * np.log(q))
        off = rating[free] - system.rating
        return float(games.sum() - off @ prior @ off / 2)

    def slope_and_information(rating: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, players = expected(rating), len(rating)
        surprise = ELO * played.weight * (played.score - p)
        slope = np.bincount(played.a, surprise, players) - np.bincount(played.b, surprise, players)
        told = ELO**2 * played.weight * p * (1 - p)
        information = np.diag(np.bincount(played.a, told, players) + np.bincount(played.b, told, players))
        np.add.at(information, (played.a, played.b), -told)
        np.add.at(information, (played.b, played.a), -told)
        return slope[free] - prior @ (rating - system.rating)[free], information[np.ix_(free, free)] + prior

    for _ in range(MOST_STEPS):
        slope, information = slope_and_information(rating)
        step, now, share = np.linalg.solve(information, slope), likelihood(rating), 1.0
        if np.abs(step).max(initial=0.0) < PRECISION:
            break
        while True:  # Newton's step may be too long far from the top
            moved = rating.copy()
            moved[free] += share * step
            if likelihood(moved) >= now or share < 1e-6:
                break
            share /= 2
        rating = moved
    deviation = before.deviation.astype(np.float64)
    deviation[free] = np.sqrt(np.diag(np.linalg.inv(slope_and_information(rating)[1])))
    return Ratings(rating, deviation, before.volatility)
