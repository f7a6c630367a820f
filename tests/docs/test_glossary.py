"""docs/glossary.md: a word has one line, and the new names of its last table are in the code while the old ones are not."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
WORDS, OLD_NAMES = TEXT.split("## Old names")
# Old names that mean something else in the code today, and the files that read what earlier versions wrote.
OTHER_MEANING = {
    "sample",
    "legal",
    "alive",
    "place",
    "recall",
    "project",
    "log_density",
    "head_log_prob",
    "keep",
    "look",
}
OTHER_MEANING |= {"told", "remember", "behaviour_table", "noise", "launcher"}
READERS = {"migrations.py", "common.py", "torch_policy.py"}


def identifiers(path: Path) -> set[str]:
    """Every name that a file defines or uses: functions, classes, arguments, variables, attributes, fields."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for field in ("name", "id", "attr", "arg"):
            value = getattr(node, field, None)
            found |= {value} if isinstance(value, str) else set()
    return found


@functools.cache
def names() -> dict[Path, set[str]]:
    """The identifiers of every file of the package."""
    return {path: identifiers(path) for path in sorted((ROOT / "echelon_jax").rglob("*.py"))}


def rows() -> list[tuple[list[str], list[str]]]:
    """(old names, new names) of each row of the table, as far as they stand in backticks."""
    lines = [line.strip("| ").split(" | ") for line in OLD_NAMES.splitlines() if line.startswith("| ")][2:]
    return [(re.findall(r"`([^`]+)`", line[0]), re.findall(r"`([^`]+)`", line[1])) for line in lines]


def last_part(name: str) -> str:
    """The identifier in a name such as `EnvConfig.revised()`."""
    return name.split("(")[0].split(".")[-1]


def test_a_word_has_one_line():
    words = [
        word.strip()
        for line in WORDS.splitlines()
        if line.startswith("| ") and not line.startswith(("| word ", "| --- "))
        for word in line.strip("| ").split(" | ")[0].split(",")
    ]
    assert len(words) > 80
    assert [word for word, count in Counter(words).items() if count > 1] == []


@pytest.mark.parametrize("name", sorted({name for _, new in rows() for name in new if not name.startswith("--")}))
def test_a_new_name_is_in_the_package(name):
    if "/" in name or name.endswith(".py"):
        assert (ROOT / "echelon_jax" / name).exists()
    else:
        assert any(last_part(name) in found for found in names().values()) or name == "revised"


@pytest.mark.parametrize("name", sorted({name for old, _ in rows() for name in old} - OTHER_MEANING))
def test_an_old_name_is_not_in_the_package(name):
    if "/" in name:
        assert list((ROOT / "echelon_jax").glob(name.rstrip("/"))) == []
    elif name.isidentifier():
        users = [path.name for path, found in names().items() if name in found]
        assert sorted(set(users) - READERS) == []
