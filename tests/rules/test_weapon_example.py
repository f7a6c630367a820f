"""The weapons of docs/extending.md, added to a copy of the package as the page says, and played there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACE = "        # A weapon of your own goes here (docs/extending.md).\n"


def rows_of_the_page() -> str:
    """The rows that docs/extending.md shows."""
    found = re.search(r"<!-- weapons -->\n```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
    assert found
    return found[1]


@pytest.mark.extended
def test_the_weapons_of_the_page_play_alike_in_both_simulators_with_one_file_changed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "echelon_jax", tmp_path / "echelon_jax", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "echelon_jax" / "rules" / "weapons.py"
    text = table.read_text()
    assert text.count(PLACE) == 1
    table.write_text(text.replace(PLACE, rows_of_the_page()))
    script = ROOT / "tests" / "helpers" / "weapon_example.py"
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "both simulators agree" in done.stdout
