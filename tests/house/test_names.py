"""Names: every global name that a function uses exists, which the linter cannot say, and test files have names of their own."""

from __future__ import annotations

import builtins
import dis
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import echelon_jax


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that lie inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def unknown_names(source: str, known: set[str]) -> set[str]:
    """Global names that the functions of a module read and that are neither `known` nor built in."""
    inside = [c for c in codes(compile(source, "module", "exec")) if c.co_name != "<module>"]
    read = {i.argval for c in inside for i in dis.get_instructions(c) if i.opname == "LOAD_GLOBAL"}
    return read - known - set(vars(builtins))


def test_an_unknown_name_is_found() -> None:
    assert unknown_names("x = 1\ndef f(a):\n    return [x + a + y for _ in range(3)]", {"x", "f"}) == {"y"}


def test_every_name_exists() -> None:
    wrong = {}
    for found in pkgutil.walk_packages(echelon_jax.__path__, "echelon_jax."):
        if found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("echelon_jax"):
                raise
            continue  # a package that is an extra
        source = found.module_finder.find_spec(found.name).loader.get_source(found.name)  # type: ignore[union-attr,call-arg]
        if names := unknown_names(source or "", set(vars(module))):
            wrong[found.name] = names
    assert wrong == {}


def test_test_files_have_names_of_their_own() -> None:
    """The folders of the tests are no packages, so pytest refuses two files of one name."""
    names = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
