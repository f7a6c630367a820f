"""Ratings from all games at once: known strengths come back, and the scale of a run's league does not drift."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from echelon_jax.arena.glicko2 import Glicko2, Ratings, Results, new_players, rate, results
from echelon_jax.arena.joint import ELO, rate_jointly
from echelon_jax.arena.league import League
from echelon_jax.arena.records import Pairing
from echelon_jax.config import EnvConfig

SYSTEM = Glicko2()


def start(players: int) -> tuple[Ratings, np.ndarray]:
    """New players, of whom the first is the anchor."""
    return new_players(players, SYSTEM), np.arange(players) == 0


def expected(strengths: np.ndarray, a: np.ndarray, b: np.ndarray, games: float) -> Results:
    """Results that are exactly what the strengths promise."""
    return results(
        a, b, 1 / (1 + 10 ** ((strengths[b] - strengths[a]) / 400)), np.full(len(a), games, dtype=np.float64)
    )


def test_known_strengths_come_back() -> None:
    strengths = np.array([1500.0, 1130.0, 1690.0, 1800.0, 1950.0])
    a, b = np.triu_indices(5, 1)
    found = rate_jointly(start(5)[0], expected(strengths, a, b, 1e5), SYSTEM, start(5)[1])
    np.testing.assert_allclose(found.rating, strengths, atol=0.1)


def test_ratings_are_the_top_of_the_likelihood() -> None:
    """No other rating of one player makes results and prior more likely."""
    random = np.random.default_rng(0)
    a, b = random.integers(0, 6, 40), random.integers(0, 6, 40)
    there = a != b
    played = results(a[there], b[there], random.random(there.sum()), random.integers(1, 30, there.sum()).astype(float))
    before, fixed = start(6)
    found = rate_jointly(before, played, SYSTEM, fixed).rating

    def likelihood(rating: np.ndarray) -> float:
        p = 1 / (1 + np.exp(-ELO * (rating[played.a] - rating[played.b])))
        games = (played.weight * (played.score * np.log(p) + (1 - played.score) * np.log(1 - p))).sum()
        covariance = 350.0**2 / 2 * (np.eye(5) + 1)
        return float(games - 0.5 * (rating[1:] - 1500.0) @ np.linalg.inv(covariance) @ (rating[1:] - 1500.0))

    for player in range(1, 6):
        for change in (-1.0, 1.0):
            other = found.copy()
            other[player] += change
            assert likelihood(other) < likelihood(found)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    random, inside, total = np.random.default_rng(1), 0, 0
    a, b = np.triu_indices(6, 1)
    for _ in range(200):
        strengths = np.concatenate([[1500.0], 1500 + 250 * random.normal() + 250 * random.normal(size=5)])
        p = 1 / (1 + 10 ** ((strengths[b] - strengths[a]) / 400))
        played = results(a, b, random.binomial(40, p) / 40, np.full(len(a), 40.0))
        found = rate_jointly(*start(6)[:1], played, SYSTEM, start(6)[1])
        inside += int((np.abs(found.rating - strengths) < 1.96 * found.deviation)[1:].sum())
        total += 5
    assert 0.93 < inside / total < 0.97


def test_a_fixed_player_keeps_its_numbers_and_who_has_not_played_is_as_uncertain_as_a_new_player() -> None:
    before, fixed = start(3)
    found = rate_jointly(before, results(*(np.empty(0, np.int64),) * 2, np.empty(0), np.empty(0)), SYSTEM, fixed)
    np.testing.assert_allclose(found.rating, 1500.0)
    np.testing.assert_allclose(found.deviation, 350.0)
    decided = expected(np.array([1500.0, 1800.0, 1500.0]), np.array([0]), np.array([1]), 50.0)
    found = rate_jointly(before, decided, SYSTEM, fixed)
    assert found.rating[0] == 1500.0 and found.deviation[0] == before.deviation[0]
    assert 1500 < found.rating[2] < found.rating[1] - 50  # half of the prior is shared by all
    assert found.rating[1] > 1700 and found.deviation[1] < 100 < found.deviation[2]


def a_run(entries: int) -> tuple[np.ndarray, Results, np.ndarray]:
    """The strengths and games of a run's league: medium (the anchor), expert, and snapshots that get better.

    Each plays ten games against medium and 300 against expert, as a draw by win rate has it.
    """
    strengths = np.concatenate([[1500.0, 1940.0], np.linspace(1800.0, 1980.0, entries)])
    snapshot = np.arange(2, 2 + entries)
    a, b = np.concatenate([snapshot, snapshot]), np.concatenate([np.zeros_like(snapshot), np.ones_like(snapshot)])
    p = 1 / (1 + 10 ** ((strengths[b] - strengths[a]) / 400))
    games = np.where(b == 0, 10.0, 300.0)
    return strengths, results(a, b, p, games), np.concatenate([snapshot, snapshot])


def test_the_scale_of_a_run_does_not_drift() -> None:
    strengths, played, period = a_run(30)
    before, fixed = start(len(strengths))
    jointly = rate_jointly(before, played, SYSTEM, fixed).rating
    assert np.abs(jointly - strengths).max() < 40
    assert (np.diff(jointly[2:]) > 0).all()
    # Period by period, everybody but the anchor stays hundreds of points below.
    one_by_one = rate(played, period, before, SYSTEM, fixed).rating
    assert np.abs(one_by_one - strengths)[1:].min() > 100


def test_a_league_is_rated_jointly_and_its_anchor_stays(tmp_path: Path) -> None:
    league = League.create(tmp_path / "league", EnvConfig())
    anchor, hard, expert = (
        league.add("scripted:medium", role="anchor"),
        league.add("scripted:hard"),
        league.add("scripted:expert"),
    )
    league.record([Pairing(hard.id, anchor.id, 76, 0, 24), Pairing(expert.id, hard.id, 76, 0, 24)])
    before = league.read()
    after = league.rate_jointly()
    found = {entry.name: entry for entry in after.entries}
    assert found["scripted:medium"].rating == 1500.0
    assert found["scripted:hard"].rating == pytest.approx(1700, abs=20)
    assert found["scripted:expert"].rating == pytest.approx(1890, abs=30)
    assert after == league.read() and after.results == before.results
    assert [entry.games for entry in after.entries] == [entry.games for entry in before.entries]
