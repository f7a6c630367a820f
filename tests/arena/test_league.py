"""The league: what is kept, what is refused, and that nothing is lost to a crash, a second writer or a damaged file."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.small_leagues import GAME, agents, small_policy, won

from echelon_jax.arena import storage
from echelon_jax.arena.glicko2 import Glicko2
from echelon_jax.arena.league import League, entry_of
from echelon_jax.arena.records import FORMAT, LeagueError, Pairing, from_text, to_text
from echelon_jax.arena.rules import Rules
from echelon_jax.arena.store import PolicyCache, fingerprint
from echelon_jax.config import EnvConfig


@pytest.fixture
def league(tmp_path: Path) -> League:
    return League.create(tmp_path / "league")


@pytest.fixture(scope="module")
def policy():
    return small_policy(1)


# -- What is kept -----------------------------------------------------------------------------------------------------------


def test_a_league_comes_back_as_it_was_written(league: League) -> None:
    a, b = agents(league, "random", "scripted")
    data = league.record([Pairing(a, b, 3, 1, 2)]).data
    assert League(league.folder).read() == data


def test_a_policy_is_kept_by_its_content(league: League, policy) -> None:
    entry = league.add_policy(policy, "first")
    again = league.add_policy(policy, "the same under another name")
    assert again == entry
    assert entry.id == fingerprint(policy) != fingerprint(small_policy(2))


def test_a_later_policy_leaves_the_weights_of_an_earlier_one(league: League, policy) -> None:
    first = league.add_policy(policy, "first")
    league.add_policy(small_policy(2), "second")
    kept = league.policy(first)
    for name, value in policy.params.items():
        np.testing.assert_array_equal(kept.params[name], value)


def test_a_league_needs_nothing_but_its_folder(league: League, policy, tmp_path: Path) -> None:
    entry = league.add_policy(policy, "first")
    shutil.move(league.folder, tmp_path / "elsewhere")
    moved = League(tmp_path / "elsewhere")
    assert fingerprint(moved.policy(entry_of(moved.read(), "first"))) == entry.id


def test_no_path_in_the_file_is_absolute(league: League, policy) -> None:
    league.add_policy(policy, "first")
    assert str(league.folder.absolute()) not in (league.folder / storage.FILE).read_text()


def test_the_parent_of_an_entry_is_kept(league: League) -> None:
    (a,) = agents(league, "random")
    assert league.add("scripted", parent="random").parent == a


def test_only_the_policies_used_last_stay_in_memory() -> None:
    loaded = []
    cache = PolicyCache(2, load=lambda place: loaded.append(place.name) or object())  # type: ignore[arg-type,func-returns-value]
    for name in ("a", "b", "a", "c", "a", "b"):
        cache.get(Path(name))
    assert loaded == ["a", "b", "c", "b"]
    assert len(cache) == 2


# -- Ratings ----------------------------------------------------------------------------------------------------------------


def test_rating_again_gives_what_was_rated_period_by_period(league: League) -> None:
    a, b = agents(league, "random", "scripted")
    league.record([won(b, a, 8, 2)])
    (c,) = agents(league, "scripted:0.5")
    league.record([won(b, c, 6, 4)])
    before = league.record([won(c, a)]).data
    assert league.rate_again() == before


def test_rating_again_may_change_the_constants(league: League) -> None:
    a, b = agents(league, "random", "scripted")
    league.record([won(b, a)])
    after = league.rate_again(system=Glicko2(rating=1500.0, tau=1.2, deviation=350.0, volatility=0.06))
    assert after.system.tau == 1.2


def test_who_joins_later_has_not_aged(league: League) -> None:
    a, b = agents(league, "random", "scripted")
    league.record([won(b, a)])
    league.add("scripted:0.5")
    league.retire("scripted")
    league.record([won(a, entry_of(league.read(), "scripted:0.5").id)])
    entry = entry_of(league.read(), "scripted")
    assert entry.deviation == entry_of(league.rate_again(), "scripted").deviation


def test_an_anchor_keeps_its_rating(league: League) -> None:
    anchor = league.add("scripted", role="anchor", rating=1800.0)
    (other,) = agents(league, "random")
    data = league.record([won(other, anchor.id)]).data
    assert entry_of(data, "scripted").rating == 1800.0
    assert entry_of(data, "random").rating > 1500.0


def test_games_are_counted_on_both_sides(league: League) -> None:
    a, b = agents(league, "random", "scripted")
    data = league.record([Pairing(a, b, 3, 1, 2)]).data
    assert [entry.games for entry in data.entries] == [6, 6]


def test_a_settled_winner_is_promoted(tmp_path: Path) -> None:
    league = League.create(tmp_path / "league", rules=Rules(settled_deviation=120.0))
    anchor = league.add("scripted", role="anchor", rating=1500.0)
    (other,) = agents(league, "random")
    period = league.record([won(other, anchor.id, 60, 40)])
    assert [(entry.name, move.role) for entry, move in period.moves] == [("random", "commander")]
    assert entry_of(league.read(), "random").role == "commander"


# -- What is refused --------------------------------------------------------------------------------------------------------


def test_a_policy_of_another_game_is_refused(league: League, policy) -> None:
    league.add_policy(policy, "first")
    other = small_policy(3, EnvConfig.original(size_x=24, size_y=20, max_episode_seconds=5.0))
    with pytest.raises(LeagueError, match="differs in size_x"):
        league.add_policy(other, "other")
    assert len(league.read().entries) == 1
    assert len(list((league.folder / "policies").iterdir())) == 1


def test_a_name_that_is_taken_is_refused(league: League, policy) -> None:
    league.add_policy(policy, "first")
    with pytest.raises(LeagueError, match="name must be one that no entry"):
        league.add_policy(small_policy(2), "first")


def test_results_of_a_stranger_are_refused(league: League) -> None:
    (a,) = agents(league, "random")
    with pytest.raises(LeagueError, match="stranger"):
        league.record([won(a, "stranger")])
    assert league.read().periods == 0


def test_a_path_that_is_not_there_is_named(league: League, tmp_path: Path) -> None:
    with pytest.raises(LeagueError, match="no policy at"):
        league.add(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text.replace('"deviation": 350.0', '"deviation": "wide"', 1), "deviation"),
        (lambda text: text.replace('"role": "candidate"', '"role": "king"', 1), "role"),
        (lambda text: text.replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'), "update echelon-jax"),
        (lambda text: "[]", "not a league file"),
    ],
)
def test_a_damaged_or_newer_file_is_refused_and_left_as_it_is(league: League, change, told: str) -> None:
    a, b = agents(league, "random", "scripted")
    league.record([won(a, b)])
    place = league.folder / storage.FILE
    text = change(place.read_text())
    place.write_text(text)
    for action in (league.read, lambda: league.add("scripted:0.5"), lambda: league.record([won(a, b)])):
        with pytest.raises(LeagueError, match=told) as error:
            action()
        assert "\n" not in str(error.value)
    assert place.read_text() == text


def test_reading_refuses_results_of_an_entry_that_is_not_there(league: League) -> None:
    a, b = agents(league, "random", "scripted")
    data = league.record([won(a, b)]).data
    text = to_text(data).replace(f'"{a}", "{b}"', f'"{a}", "gone"')
    with pytest.raises(LeagueError, match="not there"):
        from_text(text, "file")


# -- Crashes and writers ----------------------------------------------------------------------------------------------------


def add_results(folder: Path, a: str, b: str, times: int) -> None:
    league = League(folder)
    for _ in range(times):
        league.record([won(a, b, 1, 0)])


def test_two_writers_lose_nothing(league: League) -> None:
    a, b = agents(league, "random", "scripted")
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=add_results, args=(league.folder, a, b, 20)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    data = league.read()
    assert data.periods == 40
    assert sorted(row.period for row in data.results) == list(range(1, 41))
    assert [entry.games for entry in data.entries] == [40, 40]


WRITER = """
import sys
from echelon_jax.arena.league import League
from echelon_jax.arena.records import Pairing
league = League(sys.argv[1])
print("ready", flush=True)
while True:
    print(league.record([Pairing(sys.argv[2], sys.argv[3], 1, 0, 0)]).data.periods, flush=True)
"""


@pytest.mark.parametrize("wait", [0.0, 0.03, 0.1])
def test_a_killed_writer_leaves_a_whole_file_with_all_that_it_had_told(league: League, wait: float) -> None:
    a, b = agents(league, "random", "scripted")
    command = [sys.executable, "-c", WRITER, str(league.folder), a, b]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        told = int(process.stdout.readline())
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        told = max([told, *(int(line) for line in process.stdout if line.endswith("\n"))])
    data = league.read()
    assert data.periods >= told
    assert len(data.results) == data.periods
    assert league.record([won(a, b)]).data.periods == data.periods + 1  # the lock is free again


def test_a_writer_that_waits_too_long_says_so(league: League) -> None:
    with (
        storage.locked(league.folder),
        pytest.raises(LeagueError, match="another process"),
        storage.locked(league.folder, 0.05),
    ):
        pass


def test_an_error_while_changing_writes_nothing(league: League) -> None:
    agents(league, "random")
    before = (league.folder / storage.FILE).read_bytes()
    with pytest.raises(LeagueError):
        league.retire("nobody")
    assert (league.folder / storage.FILE).read_bytes() == before


def test_a_full_disk_leaves_the_old_file(league: League, monkeypatch: pytest.MonkeyPatch) -> None:
    agents(league, "random")
    before = (league.folder / storage.FILE).read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LeagueError, match="No space left"):
        league.retire("random")
    assert (league.folder / storage.FILE).read_bytes() == before
    assert not list(league.folder.glob(".partial*"))


# -- The original's league file ---------------------------------------------------------------------------------------------


def original_file(place: Path, *paths: Path) -> Path:
    entries = [
        {
            "id": f"{path.stem}:123:456",
            "ckpt_path": str(path),
            "kind": "commander" if i == 0 else "candidate",
            "commander_name": "Iron Wolf #00ff" if i == 0 else None,
            "created_at": "2025-01-02T03:04:05Z",
            "rating": {"rating": 1600.0 + i, "rd": 80.0, "vol": 0.06, "conservative_rating": 1440.0},
            "games": 30,
            "meta": {},
        }
        for i, path in enumerate(paths)
    ]
    constants = {"tau": 0.7, "epsilon": 1e-6, "rating0": 1500.0, "rd0": 350.0, "vol0": 0.06}
    place.write_text(json.dumps({"schema_version": 1, "glicko2": constants, "env_signature": None, "entries": entries}))
    return place


def test_the_originals_league_is_imported(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from echelon_jax.arena.import_original import import_league
    from echelon_jax.export.original import write_original

    weights = [tmp_path / "one.pt", tmp_path / "two.pt"]
    for seed, place in enumerate(weights):
        write_original(small_policy(seed, width=128), place)
    file = original_file(tmp_path / "old.json", *weights)
    weights[1].rename(tmp_path / "moved.pt")  # only the first is where the file says
    league, notes = import_league(file, tmp_path / "league")
    first, second = league.read().entries
    assert (first.role, first.name, first.rating, first.deviation) == ("commander", "Iron Wolf #00ff", 1600.0, 80.0)
    assert second.role == "retired" and len(notes) == 1
    expected = small_policy(0, width=128).params["encoder_0_kernel"]
    np.testing.assert_allclose(league.policy(first).params["encoder_0_kernel"], expected, rtol=1e-6)


def test_an_entry_of_the_originals_league_without_weights_is_kept_as_retired(tmp_path: Path) -> None:
    from echelon_jax.arena.import_original import import_league

    league, notes = import_league(original_file(tmp_path / "old.json", tmp_path / "gone.pt"), tmp_path / "league")
    (entry,) = league.read().entries
    assert (entry.role, entry.rating, entry.games, entry.name) == ("retired", 1600.0, 30, "Iron Wolf #00ff")
    assert not entry.plays
    assert len(notes) == 1 and "gone.pt" in notes[0]
    assert league.read().system.tau == 0.7


def test_a_file_that_is_no_league_of_the_original_is_refused(tmp_path: Path) -> None:
    from echelon_jax.arena.import_original import import_league

    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(LeagueError, match="not a league file of the original"):
        import_league(tmp_path / "old.json", tmp_path / "league")
    assert not (tmp_path / "league" / storage.FILE).exists()


def test_the_game_of_the_first_policy_is_the_leagues(league: League, policy) -> None:
    assert league.game() == EnvConfig()
    league.add_policy(policy, "first")
    assert league.game() == GAME
