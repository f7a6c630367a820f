"""Source distribution and wheel: they build without a warning, and hold the package and nothing of the tests.

`tools/installed.py` installs the wheel into a bare environment and runs every command there.
"""

from __future__ import annotations

import ast
import email
import email.message
import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import echelon_jax

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "echelon_jax"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("build") is None, reason="needs the package build")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions; the wheel is built from the source distribution."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from installed import build
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return build(tmp_path_factory.mktemp("dist with spaces"), isolated=False)


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(built.glob("*.whl")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


def tracked() -> set[str]:
    """The files of the package that are no leftovers: those of git, or all but caches where there is no git."""
    try:
        shown = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "echelon_jax"], cwd=ROOT, capture_output=True
        )
        if shown.returncode == 0:
            return {name for name in shown.stdout.decode().splitlines() if (ROOT / name).exists()}
    except FileNotFoundError:
        pass
    return {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == tracked()


@pytest.mark.parametrize(
    "name", ["py.typed", "replay/assets/viewer.js", "replay/assets/page.html", "gpu/data/budget.json"]
)
def test_the_wheel_holds_what_is_no_code(wheel: zipfile.ZipFile, name: str) -> None:
    assert f"echelon_jax/{name}" in wheel.namelist()


def test_no_test_and_no_recording_is_shipped(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        names = [Path(*Path(name).parts[1:]) for name in source.getnames()]
    assert {path.parts[0] for path in names if path.parts} <= {
        "CHANGELOG.md", "LICENSE", "MANIFEST.in", "NOTICE", "PKG-INFO", "README.md",
        "echelon_jax", "echelon_jax.egg-info", "pyproject.toml", "setup.cfg", "viewer",
    }  # fmt: skip
    assert not [path for path in names if {"tests", "data", "node_modules"} & set(path.parts) - {"data"}]


def test_the_version_stands_in_one_place(metadata: email.message.Message) -> None:
    assert metadata["Version"] == echelon_jax.__version__
    assert "version" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_licence_of_the_page_comes_along(metadata: email.message.Message) -> None:
    assert metadata["License-Expression"] == "MIT"
    assert any("three" in name for name in metadata.get_all("License-File", []))


def test_what_only_tests_use_is_no_dependency(metadata: email.message.Message) -> None:
    needed = [line.split(">")[0] for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    names = {"orbax-checkpoint": "orbax", "pillow": "PIL"}  # some are imported by name, from viewing/extras.py
    assert "jax" in needed
    assert [
        name
        for name in needed
        if not re.search(rf"(?:import|from) {names.get(name, name)}\b|[\"']{names.get(name, name)}[.\"']", code)
    ] == []


def test_what_a_module_imports_when_it_is_imported_is_a_dependency(metadata: email.message.Message) -> None:
    """Libraries of an extra are imported inside of functions, or by modules that only their users import."""
    names = {"orbax-checkpoint": "orbax", "pillow": "PIL"}
    needed = [line.split(">")[0] for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    allowed = {names.get(name, name) for name in needed} | {"echelon_jax", "jaxlib"} | set(sys.stdlib_module_names)
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in ("compat", "export"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path.name}: {name}" for name in found if name.split(".")[0] not in allowed]
    assert wrong == []


def test_the_image_copies_files_that_exist_and_installs_an_extra_that_exists() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert copied and [name for name in copied if not (ROOT / name).exists() or name in ignored] == []
    [extra] = [line.split("=", 1)[1].strip("[]") for line in lines if line.startswith("ARG EXTRA=")]
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
