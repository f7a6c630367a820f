"""The curriculum's text: what holds at which update."""

import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.curriculum import NAMES, REWARD_WEIGHTS, parse, values_at
from echelon_jax.training.reward_weights import preset_for, reward_weights

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


def test_a_runs_opponent_and_rewards_follow_the_curriculum(tmp_path):
    import jax.numpy as jnp
    from helpers.fake_env import CONFIG

    from echelon_jax.runs.runner import Runner
    from echelon_jax.training.trainer import LinearSchedule

    class State:
        def __init__(self, **values):
            self.values = values

        def replace(self, **values):
            return State(**{**self.values, **values})

    text = "2 fire=0.5; 4 reward_zone=0.25"
    runner = Runner(tmp_path / "run", TrainConfig(curriculum=text, updates=4), CONFIG)
    before = LinearSchedule(jnp.float32(0.1), jnp.float32(0.1), jnp.float32(0.0))
    state, params = runner._staged(0, State(opponent_fire=before), State(rewards=None))
    assert state.values["opponent_fire"] is before and params.values["rewards"] is None
    state, params = runner._staged(4, state, params)
    assert float(state.values["opponent_fire"].at(jnp.int32(0))) == 0.5
    assert float(params.values["rewards"].zone) == 0.25


def test_a_curriculum_of_weights_that_the_reward_lacks_is_refused_before_anything_is_written(tmp_path):
    from helpers.fake_env import CONFIG

    from echelon_jax.runs.runner import Runner

    with pytest.raises(ValueError, match="reward_win must be left out"):
        Runner(tmp_path / "run", TrainConfig(curriculum="0 reward_win=12"), CONFIG)
    assert not (tmp_path / "run").exists()


def test_a_curriculum_whose_weights_break_a_bound_of_the_reward_is_refused_with_its_stage():
    from echelon_jax.training.reward_weights import check_curriculum

    config = TrainConfig(curriculum="0 reward_zone=0.1; 20 reward_zone=0.9")
    with pytest.raises(
        ValueError, match=r"curriculum must fit the game's reward from update 20 on: win \+ death - draw"
    ):
        check_curriculum(config, EnvConfig.revised())
    check_curriculum(TrainConfig(curriculum="0 reward_zone=0.9 reward_win=60"), EnvConfig.revised())


def test_a_preset_keeps_its_curriculum_only_where_the_game_pays_what_it_changes_and_nobody_set_it():
    curriculum = TrainConfig.cpu().curriculum
    assert "reward_loss" in curriculum
    revised, original = EnvConfig.revised(), EnvConfig.original()
    assert preset_for("cpu", revised).curriculum == curriculum
    assert preset_for("cpu", revised, reward_death=-0.4).curriculum == curriculum
    assert preset_for("cpu", revised, reward_loss=-4.0).curriculum == ""
    assert preset_for("cpu", original).curriculum == ""
    assert preset_for("cpu", original, curriculum="0 fire=0.5").curriculum == "0 fire=0.5"


def test_a_price_for_shutdowns_goes_with_the_curriculum_or_alone_and_is_refused_where_the_game_does_not_pay_by_it():
    revised, original = EnvConfig(), EnvConfig.original()
    assert values_at(parse(preset_for("cpu", revised).curriculum), 100)["reward_shutdown"] == -1.0
    assert preset_for("cpu", revised, reward_shutdown=-2.0).curriculum == ""
    assert preset_for("cpu", original).reward_shutdown is None
    named = preset_for("cpu", original, reward_shutdown=-2.0)
    with pytest.raises(ValueError, match="reward_shutdown must be left out with the original reward"):
        reward_weights(named, original)
