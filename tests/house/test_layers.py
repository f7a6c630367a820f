"""The order of the layers: a room imports only rooms that stand above it in the table of docs/architecture.md.

The table is read from the page, so that the page and the rule cannot differ. Imports are read from the source, those inside
functions included. Imports under `if TYPE_CHECKING:` obey the same order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "echelon_jax"
PAGE = ROOT / "docs" / "architecture.md"
ROW = re.compile(r"^\| (\d+) \| `(\w+)(?:\.py|/)` \|", re.MULTILINE)

# Rooms whose freedom is smaller than the order of the layers gives.
ONLY = {
    "markdown": set(),
    "fields": {"plugins"},
    "rules": {"markdown"},
    "reference": {"rules", "config", "worldgen"},
    "sim": {"rules", "config"},
    "versions": set(),
    "compiling": set(),
}
# Rooms that processes without JAX import: the workers that make worlds, and the reference.
WITHOUT_JAX = {"markdown", "fields", "rules", "intervals", "plugins", "config", "worldgen", "reference"}
JAX_LIBRARIES = {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
# Rooms that may import the reference, the oracle of the tests. The game itself must not depend on it.
MAY_IMPORT_REFERENCE = {"compat", "parity", "export", "replay", "testing"}


class Import(NamedTuple):
    """One import of a room by a file."""

    file: str
    line: int
    room: str
    imported: str


def layers() -> list[str]:
    """The rooms from the lowest layer to the highest, as the page lists them."""
    return [name for _, name in ROW.findall(PAGE.read_text(encoding="utf-8"))]


def room_of(path: Path) -> str:
    """The room of a file of the package: a folder, or a module beside the folders."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file imports from this package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides its room"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == PACKAGE.name)


def imports_of(text: str, room: str, file: str) -> list[Import]:
    """The imports of other rooms in a file's text."""
    found = []
    for line, name in imported_modules(ast.parse(text)):
        imported = [*name.split("."), ""][1]
        if imported not in (room, "__version__"):
            found.append(Import(file, line, room, imported))
    return found


def package_imports() -> list[Import]:
    """All imports between rooms. `__init__.py` is the door: it may import every room."""
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]
    return [
        found
        for path in files
        for found in imports_of(path.read_text(encoding="utf-8"), room_of(path), str(path.relative_to(ROOT)))
    ]


def broken(found: Import, order: list[str]) -> str | None:
    """What an import breaks, as a sentence; None where it is allowed."""
    here = f"{found.file}:{found.line}: {found.room} must not import {found.imported}"
    if found.imported not in order:
        return f"{here}, which is not a room; import from the module that holds the name"
    if order.index(found.imported) >= order.index(found.room):
        return f"{here}, a higher layer"
    if found.room in ONLY and found.imported not in ONLY[found.room]:
        return f"{here}, only {', '.join(sorted(ONLY[found.room])) or 'nothing'}"
    if found.imported == "reference" and found.room not in MAY_IMPORT_REFERENCE:
        return f"{here}, only {', '.join(sorted(MAY_IMPORT_REFERENCE))} may"
    return None


def test_imports_point_downwards_only():
    order = layers()
    assert [sentence for found in package_imports() if (sentence := broken(found, order))] == []


def test_every_room_of_the_package_has_its_layer_on_the_page():
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert sorted(rooms - set(layers())) == []


def test_rooms_without_jax_import_none_of_its_libraries():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if room_of(path) in WITHOUT_JAX:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = (
                    [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
                )
                if isinstance(node, ast.Import | ast.ImportFrom):
                    libraries = {str(name).split(".")[0] for name in names} & JAX_LIBRARIES
                    wrong += [f"{path.relative_to(ROOT)}:{node.lineno}: {library}" for library in libraries]
    assert wrong == []


def test_the_page_numbers_the_layers_in_order_and_names_each_once():
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len({name for _, name in rows}) == len(rows)


@pytest.mark.parametrize("folder", ["benchmarks", "notebooks", "examples"])
def test_scripts_use_the_library_and_not_the_helpers_of_the_command_line(folder):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in imported_modules(ast.parse(path.read_text(encoding="utf-8")))
        if name.split(".")[1:2] == ["cli"]
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("room", "line", "sentence"),
    [
        ("sim", "from echelon_jax.env.state import Step", "a higher layer"),
        ("sim", "def f():\n    import echelon_jax.policies.heads", "a higher layer"),
        ("env", "from echelon_jax.reference.state import Mech", "only compat, export, parity, replay, testing may"),
        ("reference", "from echelon_jax.intervals import wilson", "only config, rules, worldgen"),
        ("training", "from echelon_jax import EnvConfig", "which is not a room"),
    ],
)
def test_a_broken_layer_is_found(room, line, sentence):
    [found] = imports_of(line, room, "x.py")
    said = broken(found, layers())
    assert said is not None and sentence in said


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("env", "from echelon_jax.sim.state import Grid"),
        ("export", "from echelon_jax.reference.environment import ReferenceEnv"),
        ("runs", "from echelon_jax import __version__"),
    ],
)
def test_an_allowed_import_passes(room, line):
    assert [broken(found, layers()) for found in imports_of(line, room, "x.py")] in ([None], [])
