"""docs/triage.md: every item of the reviews has its row, and every test that a row names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
TEXT = (TESTS.parent / "docs" / "triage.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
COUNTS = {"CRIT": 6, "HIGH": 15, "MED": 18, "LOW": 12}


def rows() -> list[tuple[str, ...]]:
    """The rows of all tables, without their heads."""
    return [row for row in ROW.findall(TEXT) if row[0] not in ("item", "---")]


@cache
def functions(file: str) -> set[str]:
    """The tests that a file of `tests/` defines."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_item_of_the_list_has_one_row() -> None:
    listed = [row[0] for row in rows() if row[0].split("-")[0] in COUNTS]
    assert listed == [f"{kind}-{number + 1}" for kind, count in COUNTS.items() for number in range(count)]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_row_names_tests_that_exist(row: tuple[str, ...]) -> None:
    named = NAMED.findall(row[3])
    assert named
    assert [f"{file}::{name}" for file, name in named if name not in functions(file)] == []
