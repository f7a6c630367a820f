"""What differs between operating systems lies in one module, and the package imports without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from echelon_jax import system

ROOT = Path(__file__).resolve().parents[1]
POSIX_ONLY = {"fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog"}


def test_only_one_module_imports_what_some_systems_lack() -> None:
    users = {
        path.name
        for path in (ROOT / "echelon_jax").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if name.split(".")[0] in POSIX_ONLY
    }
    assert users == {"system.py"}


def test_every_module_imports_on_a_system_without_them() -> None:
    """The libraries are imported first: what they need is theirs to say."""
    code = f"""
import sys, pkgutil, importlib
import jax, flax.linen, optax, orbax.checkpoint, tyro, rich.live, tensorboardX, matplotlib.pyplot, PIL.Image, filelock
for name in {sorted(POSIX_ONLY)}:
    sys.modules[name] = None
import echelon_jax
optional = ("torch", "onnx", "onnxruntime", "onnxscript", "wandb", "av", "pettingzoo", "gymnasium", "dm_env", "jaxmarl")
for found in pkgutil.walk_packages(echelon_jax.__path__, "echelon_jax."):
    try:
        importlib.import_module(found.name)
    except ImportError as error:
        assert (error.name or "").split(".")[0] in optional, (found.name, error)
from echelon_jax.system import peak_megabytes, try_lock
print(peak_megabytes(), try_lock(0))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert shown.stdout.splitlines()[-1:] == ["None False"], shown.stderr  # some libraries greet when they are imported


@pytest.mark.skipif(system.resource is None, reason="this system does not tell")
def test_memory_is_told_in_mebibytes() -> None:
    resident, peak = system.resident_megabytes(), system.peak_megabytes()
    assert resident is not None and peak is not None
    assert 20 < resident <= peak * 1.01


def test_the_largest_memory_counts_where_the_system_does_not_tell_the_present_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_proc(*args: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_proc)
    assert system.resident_megabytes() == system.peak_megabytes()
