"""Replays of validation games while a run trains: the newest counts, a failure is told, and old files go."""

import threading
import time

import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.live import games as live_games
from echelon_jax.live.feed import Feed
from echelon_jax.live.games import GameRecorder
from echelon_jax.replay.checks import ReplayError
from echelon_jax.replay.file import from_bytes, read_replay


@pytest.fixture
def made(monkeypatch, data):
    """What is made instead of a replay: a stored one, once `go` is set; an update below 0 fails."""
    replay = from_bytes((data / "replays" / "small.echelon").read_bytes())
    made = threading.Event(), []

    def make(config, trace, origin):
        made[0].wait()
        made[1].append(trace)
        if trace < 0:
            raise ReplayError("it is no game")
        return replay

    monkeypatch.setattr(live_games, "make_replay", make)
    return made


def test_of_the_games_that_wait_the_newest_is_made(made, tmp_path):
    go, traces = made
    feed = Feed({})
    with GameRecorder(tmp_path, EnvConfig(), feed, "run") as games:
        games.take(1, "scripted", 1)
        while games._waiting is not None:  # until the first is in work
            time.sleep(0.01)
        for update in (2, 3, 4):
            games.take(update, "scripted", update)
        assert games.busy
        go.set()
    assert traces == [1, 4] and feed.game[0] == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["update-00000001.echelon", "update-00000004.echelon"]
    assert read_replay(tmp_path / "update-00000004.echelon").decisions > 0


def test_a_game_that_cannot_be_kept_is_told_and_the_next_one_is_made(made, tmp_path, monkeypatch):
    monkeypatch.setattr(live_games, "KEPT", 2)
    go, _ = made
    go.set()
    with GameRecorder(tmp_path, EnvConfig(), Feed({}), "run") as games:
        for update in (-1, 1, 2, 3):
            games.take(update, "scripted", update)
            while games.busy:
                time.sleep(0.01)
    assert games.problem == "the game of update -1 could not be kept: it is no game"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["update-00000002.echelon", "update-00000003.echelon"]
