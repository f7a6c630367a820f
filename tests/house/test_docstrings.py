"""Docstrings use the headings of the Google style and no others, in one order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("echelon_jax", "benchmarks", "examples", "tests")
ORDER = ("Attributes:", "Args:", "Returns:", "Raises:", "Example:")
# A line of its own that ends with a colon, such as "Arguments:"; it is a heading where an indented line follows.
HEADING = re.compile(r"^([A-Z]\w*(?: \w+)?:)\n+(?=[ \t]+\S)", re.MULTILINE)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


def faults(text: str) -> list[str]:
    """What is wrong with the headings of a docstring."""
    found = HEADING.findall(text)
    unknown = [f"{heading} is not one of {' '.join(ORDER)}" for heading in found if heading not in ORDER]
    known = [ORDER.index(heading) for heading in found if heading in ORDER]
    return unknown + (
        [] if known == sorted(set(known)) else [f"{' '.join(found)} must stand in the order {' '.join(ORDER)}"]
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_heading_is_of_the_google_style(folder):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in docstrings(path)
        for fault in faults(text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Do it.\n\nArguments:\n    x: a number.", "Arguments: is not one of"),
        ("Do it.\n\nRaises:\n    ValueError: if not.\n\nArgs:\n    x: a number.", "must stand in the order"),
        ("Do it.\n\nArgs:\n    x: a number.\n\nArgs:\n    y: a number.", "must stand in the order"),
    ],
)
def test_a_foreign_heading_and_a_wrong_order_are_found(text, fault):
    assert any(fault in found for found in faults(text))


def test_prose_with_a_colon_is_no_heading():
    assert faults("Do it. Two ways:\n\n    one\n\nNote that this holds:\nalways.") == []
