"""Two hundred random games of the default game leave nothing wrong behind; `make soak` plays ten thousand."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.optimised


SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", SOAK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.extended
def test_two_hundred_random_games_leave_nothing_wrong_behind(soak):
    report = soak.soak(games=200, arenas=100, size=40, seed=7, rules="revised", worlds=64)
    assert report["games"] >= 200 and report["judged"] >= 500  # mechs that lived through a full game
    assert {name: report[name] for name in soak.WRONG} == dict.fromkeys(soak.WRONG, 0)
