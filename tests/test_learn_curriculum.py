"""The curriculum's text: what holds at which update."""

import pytest

from echelon_jax.learn.config import REWARD_WEIGHTS, TrainConfig
from echelon_jax.learn.curriculum import NAMES, parse, values_at

TEXT = "0 fire=0.2; 100 fire=0.6 reward_zone=0.3; 300 fire=1"


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (0, {"fire": 0.2}),
        (99, {"fire": 0.2}),
        (100, {"fire": 0.6, "reward_zone": 0.3}),
        (300, {"fire": 1.0, "reward_zone": 0.3}),
    ],
)
def test_a_stage_holds_until_the_next_one_changes_it(update, expected):
    assert values_at(parse(TEXT), update) == expected


def test_no_text_is_no_stage():
    assert parse("") == () and values_at((), 5) == {}


def test_every_reward_weight_can_be_set():
    assert set(NAMES) == {"fire", *(f"reward_{name}" for name in REWARD_WEIGHTS)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fire=0.2", "its first update, a whole number, got 'fire=0.2'"),
        ("5 fire=0.2; 5 fire=0.3", "in order of updates, got 5 after 5"),
        ("0 speed=2", "a name of fire, reward_approach"),
        ("0 fire=2", "fire to a number from 0 to 1, got '2'"),
        ("0 fire=fast", "fire to a number, got 'fast'"),
        ("0 reward_win=nan", "reward_win to a number from -1000 to 1000"),
        ("7", "got nothing at update 7"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(curriculum=text).validate()
