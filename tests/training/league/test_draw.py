"""Who plays the next episode: the weights are those of the rule, and sum to one."""

import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.training.league.draw import RULES, DrawConfig, weights

# Scores against members 1 to 3, counted over so many games that the prior hardly shows: 0.9, 0.5 (all drawn), 0.2.
COUNTS = jnp.array([[1e6, 5e5, 0], [1e6, 9e5, 0], [1e6, 0, 1e6], [1e6, 2e5, 0]], jnp.float32)
RATINGS = jnp.array([1500.0, 1500.0, 1700.0, 1100.0], jnp.float32)
ALL = jnp.ones(4, bool)
EXPECTED = {  # of members 1 to 3, up to a factor; from the definitions in words
    "hard": [0.1**2, 0.5**2, 0.8**2],
    "even": [0.9 * 0.1, 0.25, 0.2 * 0.8],
    "linear": [0.1, 0.5, 0.8],
    "uniform": [1, 1, 1],
    "rating": [1, np.exp(-0.5), np.exp(-2)],
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_weighs_members_as_it_is_defined(rule: str) -> None:
    found = np.asarray(weights(DrawConfig(rule, 0.25, 0.2), COUNTS, RATINGS, ALL))
    expected = np.array(EXPECTED[rule]) / sum(EXPECTED[rule])
    np.testing.assert_allclose(found, [0.25, *(0.75 * (0.8 * expected + 0.2 / 3))], rtol=1e-3)


@pytest.mark.parametrize("rule", RULES)
def test_a_member_that_cannot_be_drawn_has_no_weight(rule: str) -> None:
    found = np.asarray(weights(DrawConfig(rule, 0.3, 0.5), COUNTS, RATINGS, ALL.at[2].set(False)))
    assert found[2] == 0 and found.sum() == pytest.approx(1) and (found[[1, 3]] > 0).all()


def test_the_current_policy_plays_itself_while_there_is_nobody_else() -> None:
    alone = jnp.array([True, False, False, False])
    assert weights(DrawConfig("hard", 0.0, 0.1), COUNTS, RATINGS, alone).tolist() == [1, 0, 0, 0]


def test_without_games_every_opponent_is_as_likely_as_any_other() -> None:
    found = weights(DrawConfig("hard", 0.0, 0.0), jnp.zeros((4, 3)), RATINGS, ALL)
    np.testing.assert_allclose(found, [0, 1 / 3, 1 / 3, 1 / 3], rtol=1e-6)


def test_an_opponent_that_always_loses_is_still_drawn_where_all_do() -> None:
    beaten = jnp.tile(jnp.array([[1e9, 1e9, 0]], jnp.float32), (4, 1))
    np.testing.assert_allclose(weights(DrawConfig("hard", 0.0, 0.0), beaten, RATINGS, ALL)[1:], 1 / 3, rtol=1e-3)
