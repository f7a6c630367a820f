"""A pool of players with nothing in common but their game: everyone plays everyone, and all are rated on one scale."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from echelon_jax.arena import pool

STRENGTH = {"scripted:easy": 0.25, "scripted:medium": 0.5, "scripted:hard": 0.75, "scripted:expert": 0.95}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Games whose winner follows from `STRENGTH`, instead of real ones; what was played is listed."""
    log = []

    def play_pairs(league, pairs, games, seed, progress):
        random = np.random.default_rng(seed)
        out = []
        for a, b in pairs:
            log.append((a.name, b.name, seed))
            chance = 0.5 + (STRENGTH[a.name] - STRENGTH[b.name]) / 2
            out.append(SimpleNamespace(games=SimpleNamespace(result=np.where(random.random(games) < chance, 1, -1))))
        return out

    monkeypatch.setattr(pool, "play_pairs", play_pairs)
    return log


def test_everyone_plays_everyone_once_a_period_on_other_maps(played):
    pool.rate_pool({}, games=10, periods=2, seed=7)
    pairs = list(itertools.combinations(pool.LEVELS, 2))
    assert played == [(a, b, seed) for seed in (7, 8) for a, b in pairs]


def test_ratings_follow_the_strengths_and_the_anchor_stays(played):
    found = pool.rate_pool({}, games=200)
    ratings = [found.rating(level) for level in pool.LEVELS]
    assert [r["rating"] for r in ratings] == sorted(r["rating"] for r in ratings)
    assert found.rating(pool.ANCHOR)["rating"] == 1500
    assert all(r["low"] < r["rating"] < r["high"] and r["games"] == 3 * 2 * 200 for r in ratings)


def test_a_score_is_the_same_from_both_sides(played):
    found = pool.rate_pool({}, games=100)
    ours, theirs = found.score("scripted:hard", "scripted:easy"), found.score("scripted:easy", "scripted:hard")
    assert ours["score"] == pytest.approx(1 - theirs["score"]) and ours["score"] > 0.6
    assert ours["low"] == pytest.approx(1 - theirs["high"]) and ours["games"] == 200


def test_a_pool_without_the_anchor_is_refused():
    with pytest.raises(ValueError, match="levels must have scripted:medium"):
        pool.rate_pool({}, games=2, levels=("scripted:hard",))
