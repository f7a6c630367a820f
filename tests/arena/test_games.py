"""Schedules and games of a league: who is paired, what is counted, and the commands that print it."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.small_leagues import agents, small_policy, won

from echelon_jax.arena.games import contestant, crosstable
from echelon_jax.arena.league import League, entry_of
from echelon_jax.arena.records import Entry, LeagueError, Pairing
from echelon_jax.arena.schedule import matchmaking, round_robin
from echelon_jax.cli.main import main
from echelon_jax.config import EnvConfig

GAME = EnvConfig(size_x=28, size_y=28, max_episode_seconds=4.0)


def player(name: str, rating: float = 1500.0, deviation: float = 100.0, role: str = "candidate") -> Entry:
    return Entry(name, name, "agent", name, role, "now", 0, (rating, deviation, 0.06), rating, deviation, 0.06)


def names(pairs: list) -> list[str]:
    return [a.name + b.name for a, b in pairs]


# -- Schedules --------------------------------------------------------------------------------------------------------------


def test_a_round_robin_pairs_everybody_once() -> None:
    assert names(round_robin([player(name) for name in "abcd"])) == ["ab", "ac", "ad", "bc", "bd", "cd"]


def test_the_retired_are_not_paired_and_anchors_not_with_each_other() -> None:
    entries = [player("a", role="anchor"), player("b", role="anchor"), player("c"), player("d", role="retired")]
    assert names(round_robin(entries)) == ["ac", "bc"]


def test_matchmaking_prefers_the_unknown() -> None:
    entries = [
        player("a", deviation=50),
        player("b", deviation=50),
        player("c", deviation=300),
        player("d", deviation=300),
    ]
    assert names(matchmaking(entries, 1)) == ["cd"]


def test_matchmaking_prefers_even_games() -> None:
    entries = [player("a", 1500), player("b", 1510), player("c", 2300), player("d", 2310)]
    assert sorted(names(matchmaking(entries, 2))) == ["ab", "cd"]


def test_matchmaking_chooses_a_pair_once() -> None:
    pairs = names(matchmaking([player(name) for name in "abc"], 10))
    assert sorted(pairs) == ["ab", "ac", "bc"]


# -- Names ------------------------------------------------------------------------------------------------------------------


def test_a_name_is_an_entry_before_it_is_an_agent_or_a_path(tmp_path: Path) -> None:
    league = League.create(tmp_path / "league")
    policy = small_policy(1)
    league.add_policy(policy, "scripted")
    found = contestant("scripted", league)
    assert not isinstance(found, str) and found.update == policy.update
    assert contestant("random", league) == "random"


def test_a_name_that_is_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(LeagueError, match="there is no policy at nobody"):
        contestant("nobody", None)


def test_the_matrix_tells_the_score_of_each_against_each() -> None:
    rows = [Pairing("a", "b", 3, 0, 1), Pairing("b", "a", 2, 0, 2), Pairing("a", "c", 0, 2, 0)]
    scores = crosstable(rows, ["a", "b", "c"])
    np.testing.assert_allclose(scores[0], [np.nan, 0.625, 0.5])
    np.testing.assert_allclose(scores[1], [0.375, np.nan, np.nan])


# -- Commands ---------------------------------------------------------------------------------------------------------------


def arena(*arguments: str) -> int:
    return main(["arena", *arguments])


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert arena(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("echelon: ") and error.count("\n") == 1
    return error


def test_a_league_from_adding_to_the_ladder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two agents play a few short games; what the ladder says follows from what was played."""
    place = ["--league", str(tmp_path / "league")]
    league = League.create(tmp_path / "league", GAME)
    for name in ("scripted", "random"):
        assert arena("add", name, *place) == 0
    capsys.readouterr()
    assert arena("play", *place, "--games", "2", "--json") == 0
    period = json.loads(capsys.readouterr().out)
    (contest,) = period["contests"]
    assert contest["games"] == 2 and contest["wins"] + contest["draws"] + contest["losses"] == 2
    (row,) = league.read().results
    assert (row.wins, row.draws, row.losses) == (contest["wins"], contest["draws"], contest["losses"])
    assert arena("ladder", *place, "--json") == 0
    ladder = json.loads(capsys.readouterr().out)
    assert ladder == period["ladder"]
    assert [entry["rating"] for entry in ladder] == sorted((e["rating"] for e in ladder), reverse=True)
    assert arena("rate", *place, "--json") == 0
    assert json.loads(capsys.readouterr().out) == ladder


def test_tables_fit_eighty_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    league = League.create(tmp_path / "league")
    a, b = agents(league, "random", "scripted")
    league.add("scripted:progressive", name="a name that is much longer than any name of an entry ought to be")
    league.record([won(a, b, 1000, 1000)])
    for command in (["ladder", "--matrix"], ["list"]):
        assert arena(*command, "--league", str(league.folder)) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) > 5 and max(map(len, lines)) <= 80


def test_retire_takes_an_entry_out_of_the_ladder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    league = League.create(tmp_path / "league")
    agents(league, "random", "scripted")
    assert arena("retire", "random", "--league", str(league.folder)) == 0
    assert entry_of(league.read(), "random").role == "retired"
    capsys.readouterr()
    assert arena("ladder", "--league", str(league.folder), "--json") == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == ["scripted"]


def test_flags_of_another_game_than_the_leagues_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    League.create(tmp_path / "league", GAME)
    error = told(capsys, "add", "random", "--size", "32", "--league", str(tmp_path / "league"))
    assert "they differ in size_x, size_y" in error


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ladder"], "there is no league in"),
        (["play"], "there is no league in"),
        (["play", "--games", "3"], "games must be an even number"),
        (["play", "--schedule", "swiss"], "schedule must be round-robin or matchmaking"),
        (["match", "scripted", "nobody"], "there is no policy at nobody"),
        (["match", "scripted", "random", "--games", "5"], "games must be an even number"),
        (["add", "scripted:godlike"], "scripted:LEVEL"),
        (["add", "nowhere"], "no policy at nowhere"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert sentence in told(capsys, *arguments, "--league", str(tmp_path / "league"))
