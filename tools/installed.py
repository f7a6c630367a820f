"""Build both distributions, install the wheel into a bare environment, and run every command there as a stranger would.

    python tools/installed.py                                  with this Python
    python tools/installed.py --python /usr/bin/python3.11     with another one

The place is as unfriendly as it may be: another directory, a path with spaces, no git on PATH, a read-only installation, a
locale that is not UTF-8. (JAX itself does not import from a path with signs that such a locale cannot decode.)

A read-only folder does not stop root, so that root runs the commands as another user; its Python must
then be one that this user can read. Exit status 1 if a command does not end as it should.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOBODY = 65534
FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE", "echelon_jax", "viewer")
RUN = "runs/a run of mine"
# Each command with the exit status that it must have. The base installation has no PyTorch: that must be one sentence.
COMMANDS: tuple[tuple[int, list[str]], ...] = (
    (0, ["--help"]),
    (2, ["nonsense"]),
    (0, ["runs", "--help"]),
    (0, ["train", "--preset", "smoke", "--updates", "2", "--eval-games", "2", "--run-dir", RUN]),
    (0, ["train", "--resume", "--run-dir", RUN, "--eval-games", "0"]),
    (0, ["runs"]),
    (0, ["evaluate", RUN, "--opponents", "random", "--games", "2", "--arenas", "2", "--out", "a report"]),
    (0, ["watch", "--size", "28", "--no-open", "--no-observe", "--max-episode-seconds", "10"]),
    (0, ["replay", "replays", "--no-open"]),
    (0, ["replay", "replays/watch-7.echelon", "--gif", "a film.gif"]),
    (0, ["arena", "add", "scripted:easy", "--league", "a league"]),
    (0, ["arena", "ladder", "--league", "a league"]),
    (0, ["bench", "--which", "env", "--arenas", "2", "--seconds", "0.5"]),
    (0, ["parity", "--fuzz", "1"]),
    (2, ["export", RUN]),
    (2, ["import", "nothing.pt"]),
)  # fmt: skip


def build(place: Path, isolated: bool = True) -> Path:
    """Build the source distribution from a clean copy, and the wheel from it; returns the folder that holds both.

    Args:
        place: an existing folder to work in.
        isolated: whether pip fetches the build's own packages, as `pip install` does; otherwise those of this Python are used.

    Raises:
        RuntimeError: the build failed or warned.
    """
    source, out = place / "source", place / "dist"
    source.mkdir()
    leftovers = shutil.ignore_patterns("__pycache__", "*.pyc", "node_modules")
    for name in FILES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=leftovers)
        else:
            shutil.copy2(ROOT / name, source / name)
    command = [
        sys.executable,
        "-m",
        "build",
        "--outdir",
        str(out),
        *([] if isolated else ["--no-isolation"]),
        str(source),
    ]
    surroundings = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }  # it warns of that
    shown = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    told = shown.stdout + shown.stderr
    warnings = [line for line in told.splitlines() if "deprecat" in line.lower() or line.startswith("warning:")]
    if shown.returncode or warnings:
        raise RuntimeError(f"the build failed or warned:\n{told}")
    return out


def install(python: str, wheel: Path, place: Path) -> Path:
    """Install a wheel and its dependencies into a new environment that is then read-only; returns its `echelon`."""
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-I", "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True)
    for folder, _, files in os.walk(place):
        os.chmod(folder, 0o555)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o555 | 0o444)
    return place / "bin" / "echelon"


def run(echelon: Path, work: Path, home: Path, argv: list[str]) -> tuple[int, float, str]:
    """Run one command; returns its exit status, wall seconds and output."""
    surroundings = {
        "PATH": str(echelon.parent),  # no git
        "HOME": str(home),
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "JAX_PLATFORMS": "cpu",
    }
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    began = time.perf_counter()
    shown = subprocess.run([str(echelon), *argv], cwd=work, env=surroundings, capture_output=True, **other)  # type: ignore[call-overload]
    told = (shown.stdout + shown.stderr).decode("ascii", "backslashreplace")
    return shown.returncode, time.perf_counter() - began, told


def main() -> int:
    """Build, install, run; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter of the bare environment")
    parser.add_argument("--folder", type=Path, help="where to work; kept afterwards, with its installation and caches")
    told = parser.parse_args()
    base = told.folder or Path(tempfile.mkdtemp(prefix="echelon-"))
    place, failed = base / "a place with spaces", 0
    if not place.exists():
        base.mkdir(exist_ok=True)
        base.chmod(0o755)
        place.mkdir()
        install(told.python, next(build(place).glob("*.whl")), place / "env")
    for name in ("work", "home"):
        (place / name).mkdir(exist_ok=True)
        if os.getuid() == 0:
            os.chown(place / name, NOBODY, NOBODY)
    shutil.rmtree(place / "work")
    (place / "work").mkdir()
    os.chown(place / "work", *((NOBODY, NOBODY) if os.getuid() == 0 else (-1, -1)))
    version = subprocess.run([place / "env/bin/python", "-VV"], capture_output=True, text=True).stdout.strip()
    print(f"{version}; read-only in {place}", flush=True)
    for wanted, argv in COMMANDS:
        status, seconds, output = run(place / "env" / "bin" / "echelon", place / "work", place / "home", argv)
        good = status == wanted and "Traceback" not in output
        print(f"{'passed' if good else 'FAILED'}  {seconds:6.1f} s  echelon {' '.join(argv)}", flush=True)
        if not good:
            failed = 1
            print(f"exit status {status}, not {wanted}:\n{output}", flush=True)
    if told.folder is None:
        subprocess.run(["chmod", "-R", "u+w", str(base)], check=True)
        shutil.rmtree(base)
    return failed


if __name__ == "__main__":
    sys.exit(main())
