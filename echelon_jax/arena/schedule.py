"""The pairs of a rating period: all pairs, or those whose games are most informative."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from echelon_jax.arena.glicko2 import Ratings, win_probability
from echelon_jax.arena.records import Entry

Pair = tuple[Entry, Entry]


def round_robin(entries: Sequence[Entry]) -> list[Pair]:
    """Return every pair of the entries that play, once. Games of two anchors change nothing, so such pairs are left out."""
    return [
        (a, b)
        for a, b in itertools.combinations([e for e in entries if e.plays], 2)
        if not (a.role == b.role == "anchor")
    ]


def matchmaking(entries: Sequence[Entry], pairs: int) -> list[Pair]:
    """Return up to `pairs` pairs, each at most once, beginning with the one whose games are most informative.

    A game is more informative if less is known of the two players (their deviations squared) and if its outcome is close to even
    (p (1 - p) of the expected score). Each choice of a pair halves what is left to learn about its two players.
    """
    candidates = round_robin(entries)
    players = list({e.id: e for pair in candidates for e in pair}.values())
    index_of = {e.id: i for i, e in enumerate(players)}
    ratings = Ratings(*(np.array([getattr(e, name) for e in players], np.float64) for name in Ratings._fields))
    a = np.array([index_of[x.id] for x, _ in candidates], np.int64)
    b = np.array([index_of[y.id] for _, y in candidates], np.int64)
    chance = win_probability(ratings, a, b)
    unknown = np.where([e.role == "anchor" for e in players], 0.0, ratings.deviation**2)
    free = np.ones(len(candidates), bool)
    chosen: list[Pair] = []
    for _ in range(min(pairs, len(candidates))):
        worth = np.where(free, (unknown[a] + unknown[b]) * chance * (1 - chance), -1.0)
        best = int(worth.argmax())
        free[best] = False
        unknown[[a[best], b[best]]] /= 2
        chosen.append(candidates[best])
    return chosen
