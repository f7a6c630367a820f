"""Glicko-2: Glickman's worked example, what the system must do by its definition, and strengths recovered from games."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon_jax.arena.glicko2 import (
    Glicko2,
    Ratings,
    conservative,
    expected_score,
    interval,
    new_players,
    rate,
    rate_period,
    results,
    win_probability,
)

SYSTEM = Glicko2()


def players(*rows: tuple[float, float]) -> Ratings:
    rating, deviation = np.array(rows, np.float64).T
    return Ratings(rating, deviation, np.full(len(rows), 0.06))


def of(ratings: Ratings, player: int) -> tuple[float, float, float]:
    return tuple(float(field[player]) for field in ratings)  # type: ignore[return-value]


def one_by_one(before: Ratings, games: list[tuple[int, float]], me: int) -> tuple[float, float, float]:
    """The paper's steps for one player in plain Python, with bisection for the volatility: an oracle of another method."""
    mu, phi, sigma = (before.rating[me] - 1500) / 173.7178, before.deviation[me] / 173.7178, before.volatility[me]
    precision = surprise = 0.0
    for other, score in games:
        g = 1 / math.sqrt(1 + 3 * (before.deviation[other] / 173.7178) ** 2 / math.pi**2)
        e = 1 / (1 + math.exp(-g * (mu - (before.rating[other] - 1500) / 173.7178)))
        precision, surprise = precision + g * g * e * (1 - e), surprise + g * (score - e)
    if not games:
        return before.rating[me], 173.7178 * math.hypot(phi, sigma), sigma
    v = 1 / precision
    delta2, a = (v * surprise) ** 2, math.log(sigma**2)

    def f(x: float) -> float:
        power = math.exp(x)
        return power * (delta2 - phi**2 - v - power) / (2 * (phi**2 + v + power) ** 2) - (x - a) / 0.25

    low, high = a - 20.0, a + 20.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    sigma = math.exp(low / 2)
    phi = 1 / math.sqrt(1 / (phi**2 + sigma**2) + 1 / v)
    return 173.7178 * (mu + phi**2 * surprise) + 1500, 173.7178 * phi, sigma


def test_the_worked_example_of_the_paper() -> None:
    before = players((1500, 200), (1400, 30), (1550, 100), (1700, 300))
    after = rate_period(before, results([0, 0, 0], [1, 2, 3], [1, 0, 0]), SYSTEM)
    assert of(after, 0) == pytest.approx((1464.0507, 151.5165, 0.0599960), abs=6e-5)


def test_the_expected_score_of_the_paper() -> None:
    assert expected_score(players((1500, 200), (1400, 30)), [0], [1])[0] == pytest.approx(0.639468, abs=1e-6)


def test_a_loss_that_was_certain_moves_little() -> None:
    after = rate_period(players((4000, 50), (0, 30)), results([0], [1], [0]), SYSTEM)
    assert of(after, 0) == pytest.approx((3985.0508, 51.0753, 0.0600134), abs=6e-5)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_all_players_at_once_are_rated_as_one_by_one(data: st.DataObject) -> None:
    """Two phases: the oracle knows nothing but the ratings before the period."""
    count = data.draw(st.integers(2, 5))
    row = st.tuples(st.floats(1000, 2000), st.floats(30, 350), st.floats(0.03, 0.2))
    before = Ratings(*np.array(data.draw(st.lists(row, min_size=count, max_size=count))).T)
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1), st.sampled_from([0.0, 0.5, 1.0]))
    games = [(a, b, s) for a, b, s in data.draw(st.lists(pair, max_size=20)) if a != b]
    after = rate_period(before, results(*np.array(games, np.float64).reshape(-1, 3).T), SYSTEM)
    for me in range(count):
        mine = [(b, s) for a, b, s in games if a == me] + [(a, 1 - s) for a, b, s in games if b == me]
        expected = one_by_one(before, mine, me)
        np.testing.assert_allclose(of(after, me), (expected[0], min(expected[1], 350.0), expected[2]), rtol=1e-5)


def test_the_order_of_games_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    a, gap, score = rng.integers(0, 6, 60), rng.integers(1, 6, 60), rng.choice([0, 0.5, 1], 60)
    order = rng.permutation(60)
    b = (a + gap) % 6
    once = rate_period(new_players(6, SYSTEM), results(a, b, score), SYSTEM)
    again = rate_period(new_players(6, SYSTEM), results(a[order], b[order], score[order]), SYSTEM)
    np.testing.assert_allclose(np.array(once), np.array(again), rtol=1e-12)


def test_a_game_told_from_either_side_is_the_same_game() -> None:
    before = players((1500, 200), (1700, 80))
    ours = rate_period(before, results([0], [1], [0.5]), SYSTEM)
    theirs = rate_period(before, results([1], [0], [0.5]), SYSTEM)
    np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-12)


def test_a_row_of_ten_games_counts_as_ten_rows() -> None:
    before = players((1500, 200), (1600, 120))
    row = rate_period(before, results([0], [1], [0.7], [10]), SYSTEM)
    rows = rate_period(before, results([0] * 10, [1] * 10, [1] * 7 + [0] * 3), SYSTEM)
    np.testing.assert_allclose(np.array(row), np.array(rows), rtol=1e-9)


def test_a_draw_pulls_two_players_together() -> None:
    after = rate_period(players((1400, 150), (1600, 150)), results([0], [1], [0.5]), SYSTEM)
    assert after.rating[0] > 1400 and after.rating[1] < 1600


def test_a_draw_of_equals_only_narrows_the_deviation() -> None:
    after = rate_period(players((1500, 150), (1500, 150)), results([0], [1], [0.5]), SYSTEM)
    np.testing.assert_allclose(after.rating, 1500, atol=1e-9)
    assert (after.deviation < 150).all()


def test_who_does_not_play_grows_uncertain_by_the_volatility() -> None:
    after = rate_period(players((1500, 200), (1400, 30), (1550, 100)), results([1], [2], [1]), SYSTEM)
    assert of(after, 0) == pytest.approx((1500, 200.2714, 0.06), abs=1e-4)


def test_a_deviation_never_grows_beyond_that_of_a_new_player() -> None:
    ratings = players((1500, 349.9), (1400, 30), (1550, 100))
    for _ in range(20):
        ratings = rate_period(ratings, results([1], [2], [1]), SYSTEM)
    assert ratings.deviation[0] == 350.0


def test_a_fixed_player_keeps_his_rating_and_moves_the_other() -> None:
    before = players((1500, 50), (1500, 350))
    after = rate_period(before, results([0], [1], [0]), SYSTEM, fixed=np.array([True, False]))
    assert of(after, 0) == of(before, 0)
    assert after.rating[1] > 1600


def test_many_wins_stay_finite() -> None:
    after = rate_period(players((1500, 350), (1500, 30)), results([0], [1], [1], [1000]), SYSTEM)
    assert of(after, 0) == pytest.approx((1848.6604, 11.0311, 0.06), abs=1e-3)


def test_known_strengths_are_recovered() -> None:
    """Games are drawn from the model of the system; 95 % intervals must hold the truth about that often."""
    rng = np.random.default_rng(1)
    strength = rng.normal(1500, 250, 100)
    a = rng.integers(0, 100, 12_000)
    b = (a + rng.integers(1, 100, 12_000)) % 100
    chance = 1 / (1 + 10 ** ((strength[b] - strength[a]) / 400))
    score = (rng.random(12_000) < chance).astype(np.float64)
    rated = rate(results(a, b, score), np.repeat(np.arange(10), 1200), new_players(100, SYSTEM), SYSTEM)
    assert np.corrcoef(rated.rating, strength)[0, 1] > 0.97
    low, high = interval(rated)
    inside = ((low <= strength) & (strength <= high)).mean()
    assert inside >= 0.85


def test_periods_are_rated_in_the_order_of_their_numbers() -> None:
    played = results([0, 0], [1, 1], [1, 0])
    ratings = rate(played, np.array([7, 3]), new_players(2, SYSTEM), SYSTEM)
    expected = new_players(2, SYSTEM)
    for score in (0, 1):
        expected = rate_period(expected, results([0], [1], [score]), SYSTEM)
    np.testing.assert_allclose(np.array(ratings), np.array(expected))


def test_betting_minds_both_deviations() -> None:
    known, unknown = players((1700, 30), (1500, 30)), players((1700, 350), (1500, 30))
    assert win_probability(known, [0], [1])[0] > win_probability(unknown, [0], [1])[0] > 0.5


def test_the_conservative_rating_takes_its_confidence_as_a_parameter() -> None:
    ratings = players((1500, 100))
    assert conservative(ratings, 2.0)[0] == 1300
    assert conservative(ratings, 0.0)[0] == 1500


@pytest.mark.parametrize(
    ("a", "b", "score", "told"),
    [([0], [0], [1], "against himself"), ([0], [1], [1.5], "from 0 to 1"), ([0, 1], [1], [1], "one length")],
)
def test_impossible_games_are_refused(a: list, b: list, score: list, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        results(a, b, score)


@pytest.mark.parametrize("field", ["tau", "deviation", "volatility", "tolerance", "most_deviation"])
def test_a_constant_out_of_range_is_named(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Glicko2(**{field: 0.0})
