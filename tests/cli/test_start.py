"""How `echelon` starts: without JAX until a command needs it, and with every command in its table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from echelon_jax.cli.commands import BY_NAME, COMMANDS, Command
from echelon_jax.cli.main import parsed

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("jax", "flax", "orbax", "optax", "matplotlib", "torch", "tensorboardX", "scipy", "pandas")


def test_the_help_of_echelon_imports_no_heavy_library() -> None:
    code = (
        "import sys\nfrom echelon_jax.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', sorted(set({HEAVY}) & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert shown.stdout.splitlines()[-1] == "heavy: []"
    assert all(f"• {command.name}" in shown.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_is_described_in_the_table_as_by_its_class(command: Command) -> None:
    assert (command.load().__doc__ or "").strip().splitlines()[0] == command.text


def test_a_wrong_name_shows_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["trian"], ["--json"]):
        with pytest.raises(SystemExit) as stopped:
            parsed(argv)
        assert stopped.value.code == 2
        said = "".join(capsys.readouterr())
        assert all(name in said for name in BY_NAME) or "--json" in said
