"""The policies that come with the package: what is read is what was written, what is damaged is refused, names work everywhere."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import jax
import pytest
from helpers.checkpoint_states import same
from helpers.small_leagues import GAME, small_policy

from echelon_jax.agents.registry import is_agent_name
from echelon_jax.arena.games import contestant
from echelon_jax.arena.league import League
from echelon_jax.evaluation.matches import evaluate, opponent_player
from echelon_jax.runs import zoo
from echelon_jax.runs.checkpoint import CheckpointError, load_policy
from echelon_jax.runs.policy import Policy
from echelon_jax.runs.runner import Runner
from echelon_jax.runs.zoo import ZooError

ZOO_TOOL = Path(__file__).parents[2] / "benchmarks" / "zoo.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    zoo.write("small", small_policy(3), {"text": "untrained"}, tmp_path)
    return tmp_path


def test_what_is_read_is_what_was_written(folder: Path) -> None:
    found, wanted = zoo.load("zoo:small", folder), small_policy(3)
    assert zoo.names(folder) == ("small",)
    assert same(found.params, wanted.params) and same(found.observation_moments, wanted.observation_moments)
    assert (found.config, found.env_config, found.update) == (wanted.config, GAME, wanted.update)
    assert zoo.card("small", folder)["about"] == {"text": "untrained"}


def test_weights_that_are_not_the_cards_are_refused(folder: Path) -> None:
    place = folder / "small.safetensors"
    place.write_bytes(place.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(ZooError, match="the weights of zoo:small are not those of its card"):
        zoo.load("small", folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "has format 99, this version reads up to 1"),
        ({"format": None}, "it names no format"),
        ({"train": {"seed": 0}}, "is damaged or foreign"),
    ],
)
def test_a_card_that_cannot_be_used_is_refused(folder: Path, change: dict[str, object], message: str) -> None:
    place = folder / "small.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    with pytest.raises(ZooError, match=message):
        zoo.load("small", folder)


def test_a_name_with_other_signs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=r"letters, digits and hyphens, got '\.\./small'"):
        zoo.write("../small", small_policy(), {}, tmp_path)


def test_a_policy_that_the_zoo_does_not_hold_is_refused_with_what_it_holds(folder: Path) -> None:
    with pytest.raises(ZooError, match="a policy of the zoo must be one of zoo:small, got 'zoo:nobody'"):
        zoo.load("zoo:nobody", folder)
    with pytest.raises(CheckpointError, match="got 'zoo:nobody'"):
        load_policy("zoo:nobody")


@pytest.mark.parametrize("name", zoo.names())
def test_every_card_tells_how_it_was_trained_and_how_strong_it_is(name: str) -> None:
    told = zoo.card(name)
    rating = told["rating"]
    assert rating["low"] < rating["rating"] < rating["high"] and rating["games"] >= 100
    assert told["about"]["text"].endswith(".") and told["env_steps"] > 0
    assert all(0 <= row["low"] <= row["score"] <= row["high"] <= 1 for row in told["against"].values())


@pytest.mark.parametrize("name", zoo.names())
def test_a_name_of_the_zoo_works_wherever_a_policy_is_named(name: str, tmp_path: Path) -> None:
    told = f"zoo:{name}"
    assert not is_agent_name(told)
    policy = load_policy(told)
    assert same(policy.params, load_policy(Path(told)).params)
    assert isinstance(contestant(told, None), Policy)
    assert same(opponent_player(told, policy.env_config)[1].params, policy.params)
    league = League.create(tmp_path / "league")
    entry = league.add(told)
    assert entry.name == told and same(league.policy(entry).params, policy.params)
    observation = jax.numpy.zeros((policy.env_config.team_size, policy.network.features.size))
    assert policy.act(observation, deterministic=True)[0].shape[0] == policy.env_config.team_size


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_the_score_of_a_card_still_holds(name: str) -> None:
    """On other maps than those of the card, and far fewer: the intervals must meet."""
    level = "scripted:medium"
    told = zoo.card(name)["against"][level]
    found = evaluate(f"zoo:{name}", level, games=40, seed=7).against[level]
    assert found["score_low"] <= told["high"] and told["low"] <= found["score_high"]


@pytest.mark.parametrize("name", zoo.names())
def test_every_policy_can_be_trained_anew_from_its_card(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the first update: the run is accepted, with the opponent and the start that the card names."""
    made: list[Runner] = []
    monkeypatch.setattr(Runner, "train", lambda self: made.append(self))
    runpy.run_path(str(ZOO_TOOL))["Train"](name, tmp_path).run()
    start = zoo.card(name)["about"].get("start_from")
    assert made[0].config == zoo.load(name).config
    assert made[0].start_from == (None if start is None else Path(start))
    assert (made[0].companion is not None) == (made[0].config.opponent == "league")
