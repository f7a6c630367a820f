"""Every example runs as it is told to in its docstring, and examples/README.md lists each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# What the output must show, besides an exit status of 0.
SHOWN = {
    "ppo_from_scratch.py": r"update 2: episodes \d+\.\d+, loss -?\d+\.\d+, reward -?\d+\.\d+",
    "own_network.py": r"(?s)update 1: loss -?\d+\.\d+, decisions of living mechs 160\n.*layers: .*gru",
    "own_reward.py": r"(?s)spread: 0\.\d+ per mech over 2 decisions\n.*hold_fire: 0\.\d+ per mech",
    "own_opponent.py": r"games 2: won \d, drawn \d, lost \d",
    "gymnasium_torch.py": r"update 1: loss -?\d+\.\d+, reward -?\d+\.\d+, wins \d+ % of the last 2,",
}
NEEDS = {"gymnasium_torch.py": ("torch", "gymnasium")}
SMALLER = {
    "ppo_from_scratch.py": ["--updates", "2"],
    "own_network.py": ["--updates", "1"],
    "own_reward.py": ["--steps", "2"],
    "own_opponent.py": ["--maps", "1", "--seconds", "4"],
    "gymnasium_torch.py": ["--updates", "1", "--envs", "2", "--steps", "4", "--seconds", "1"],
}


def test_every_example_is_run_and_listed():
    names = sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert names == sorted(SHOWN) == sorted(SMALLER)
    listed = re.findall(r"^- \[`(\w+\.py)`\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == names


# It trains with PyTorch, and the adaptor has tests of its own.
LONG = "gymnasium_torch.py"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.extended if name == LONG else ()) for name in sorted(SHOWN)]
)
def test_the_example_runs(name, tmp_path):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *SMALLER[name]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(SHOWN[name], done.stdout), done.stdout
