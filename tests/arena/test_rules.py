"""Promotion, demotion and retirement: one rule each."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon_jax.arena.rules import ROLES, Rules, Standing, moves

TWO = Rules(commanders=2, conservatism=2.0, settled_deviation=90.0, least_rating=1300.0)


def changed(*standings: tuple[str, float, float], rules: Rules = TWO) -> dict[int, str]:
    return {move.entry: move.role for move in moves([Standing(*s) for s in standings], rules)}


def test_an_unsettled_candidate_waits() -> None:
    assert changed(("candidate", 2500, 91)) == {}


def test_a_settled_candidate_takes_a_free_place() -> None:
    assert changed(("candidate", 1500, 90)) == {0: "commander"}


def test_a_free_place_is_not_for_the_weak() -> None:
    assert changed(("candidate", 1400, 90)) == {}


def test_a_better_candidate_takes_the_weakest_commanders_place() -> None:
    standings = (("commander", 1900, 50), ("commander", 1700, 50), ("candidate", 1800, 50))
    assert changed(*standings) == {2: "commander", 1: "retired"}


def test_an_equal_candidate_does_not_replace_a_commander() -> None:
    assert changed(("commander", 1900, 50), ("commander", 1700, 50), ("candidate", 1700, 50)) == {}


def test_a_candidate_that_cannot_reach_the_last_commander_is_retired() -> None:
    assert changed(("commander", 1900, 50), ("commander", 1700, 50), ("candidate", 1400, 50)) == {2: "retired"}


def test_a_candidate_that_still_may_reach_them_stays() -> None:
    assert changed(("commander", 1900, 50), ("commander", 1700, 50), ("candidate", 1500, 60)) == {}


def test_conservatism_decides_between_a_certain_and_an_uncertain_rating() -> None:
    standings = (("commander", 1700, 30), ("commander", 1700, 30), ("candidate", 1750, 80))
    assert changed(*standings, rules=Rules(commanders=2, conservatism=0.0)) == {2: "commander", 1: "retired"}
    assert changed(*standings, rules=Rules(commanders=2, conservatism=2.0)) == {}


patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
standing = st.tuples(st.sampled_from(ROLES), st.floats(500, 2500), st.floats(30, 350))


@patient
@given(st.lists(standing, max_size=12), st.integers(1, 4))
def test_there_are_never_more_commanders_than_places_and_anchors_stay(standings: list, places: int) -> None:
    rules = Rules(commanders=places)
    new = changed(*standings, rules=rules)
    roles = [new.get(i, s[0]) for i, s in enumerate(standings)]
    assert roles.count("commander") <= places
    assert all(new.get(i, s[0]) == s[0] for i, s in enumerate(standings) if s[0] in ("anchor", "retired"))


@patient
@given(st.lists(standing, max_size=12))
def test_a_second_look_at_the_same_ratings_changes_nothing(standings: list) -> None:
    new = changed(*standings)
    after = [(new.get(i, s[0]), s[1], s[2]) for i, s in enumerate(standings)]
    assert changed(*after) == {}


@pytest.mark.parametrize(("field", "value"), [("commanders", 0), ("conservatism", -1.0), ("settled_deviation", 0.0)])
def test_a_rule_out_of_range_is_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        Rules(**{field: value})
