"""The command that plays in a checkout of the original, with a script in its place that has the same commands."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "original_arena.py"
tool = runpy.run_path(str(TOOL))

# The commands of the original's league script, for checkpoint files that torch can read.
SCRIPT = """
import argparse, json, pathlib, torch
parser = argparse.ArgumentParser()
parser.add_argument("--league")
commands = parser.add_subparsers(dest="command")
commands.add_parser("init").add_argument("--force", action="store_true")
add = commands.add_parser("add")
add.add_argument("file"), add.add_argument("--kind")
play = commands.add_parser("eval-candidate")
play.add_argument("file"), play.add_argument("--log")
play.add_argument("--matches", type=int), play.add_argument("--seed", type=int)
asked = parser.parse_args()
league = pathlib.Path(asked.league)
if asked.command == "init":
    league.write_text("[]")
else:
    held = torch.load(asked.file, weights_only=True)
    assert held["model_state"] and held["env_cfg"]["record_replay"] is False
    names = json.loads(league.read_text())
    if asked.command == "add":
        league.write_text(json.dumps([*names, asked.file]))
    else:
        scores = [(1.0, 0.5, 0.0, 1.0)[i % 4] for i in range(asked.matches)]
        rows = [{"i": i, "opponent": names[0], "candidate_score": score} for i, score in enumerate(scores)]
        pathlib.Path(asked.log).write_text("".join(json.dumps(row) + chr(10) for row in rows))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with a league script."""
    (tmp_path / "original" / "scripts").mkdir(parents=True)
    (tmp_path / "original" / "scripts" / "league.py").write_text(SCRIPT)
    (tmp_path / "original" / "train.py").write_text("print('not the league')\n")
    return tmp_path / "original"


def test_policies_are_exported_and_play_in_the_checkout(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [
        sys.executable,
        str(TOOL),
        str(checkout),
        "zoo:original",
        "--matches",
        "8",
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "8 games: 4 won (22% to 78%), 2 drawn, 2 lost" in done.stdout
    assert sorted(p.name for p in (tmp_path / "out").glob("*.pt")) == ["policy0.pt", "policy1.pt"]


def test_a_checkout_without_a_league_script_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(TOOL), str(tmp_path), "zoo:original"], capture_output=True, text=True)
    assert done.returncode == 1 and "script must be named" in done.stderr and "Traceback" not in done.stderr


def test_a_policy_that_the_original_cannot_load_is_refused_in_a_sentence(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(TOOL), str(checkout), "zoo:recruit", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "zoo:recruit" in done.stderr and "Traceback" not in done.stderr


def test_an_interpreter_that_cannot_be_run_is_refused_in_a_sentence(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(TOOL), str(checkout), "zoo:original", "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, "--python", "/no/such/python"], capture_output=True, text=True)
    assert done.returncode == 1 and "python must be an interpreter" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text", ['{"candidate_score": 1}\n{"candidate_score": 0.5}\n', '[{"candidate_score": 1}, {"candidate_score": 0.5}]']
)
def test_a_log_is_read_as_lines_or_as_one_list(text: str) -> None:
    assert [game["candidate_score"] for game in tool["games_of"](text)] == [1, 0.5]


def test_a_log_within_an_object_is_read() -> None:
    assert len(tool["games_of"]('{"seed": 0, "games": [{"candidate_score": 0}, {"candidate_score": 1}]}')) == 2
