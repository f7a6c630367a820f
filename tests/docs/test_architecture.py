"""docs/architecture.md: every folder of its tree exists, and the way of one decision is the way that the code takes.

The page lists functions as `path.py:qualified.name`. An indented line is a call that the line above it makes. Calls are read
from the source in the order in which Python evaluates them; a function handed to another one, such as the body of a scan,
counts where it is handed over.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEP = re.compile(r"^( *)- `([\w/]+\.py):([\w.]+)`", re.MULTILINE)
TREE = re.compile(r"^```\n(echelon_jax/ .*?)^```", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """One line of the way: a function and how deep it is indented."""

    depth: int
    path: str
    function: str


def steps() -> list[Step]:
    """The lines of the way in the order of the page."""
    return [Step(len(spaces) // 2, path, function) for spaces, path, function in STEP.findall(TEXT)]


def families() -> list[tuple[Step, list[Step]]]:
    """Each line that has indented lines below it, with these."""
    open_steps: list[Step] = []
    children: dict[Step, list[Step]] = {}
    for step in steps():
        del open_steps[step.depth :]
        if open_steps:
            children.setdefault(open_steps[-1], []).append(step)
        open_steps.append(step)
    return list(children.items())


@cache
def parsed(path: str) -> ast.Module:
    """The syntax tree of a file of the repository."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def definition(path: str, function: str) -> ast.AST | None:
    """The definition that a qualified name such as `Class.method` or `outer.inner` names; None if there is none."""
    node: ast.AST = parsed(path)
    for name in function.split("."):
        found = [
            child
            for child in ast.walk(node)
            if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == name and child is not node
        ]
        if not found:
            return None
        node = found[0]
    return node


class Uses(ast.NodeVisitor):
    """Names that a function calls or hands over, in the order of evaluation: arguments before the call itself."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)
        elif not isinstance(node.func, ast.Name):
            self.visit(node.func)
        for part in (*node.args, *node.keywords):
            self.visit(part)
        if isinstance(node.func, ast.Attribute):
            self.names.append(node.func.attr)
        elif isinstance(node.func, ast.Name):
            self.names.append(node.func.id)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.names.append(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        self.names.append(node.attr)


def uses(path: str, function: str) -> list[str]:
    """What a function's body calls or hands over, in order; annotations and decorators left out."""
    node = definition(path, function)
    assert isinstance(node, ast.FunctionDef), f"{path}:{function} is not a function"
    visitor = Uses()
    for statement in node.body:
        visitor.visit(statement)
    return visitor.names


def test_the_page_lists_a_way():
    assert len(steps()) > 40
    assert max(step.depth for step in steps()) > 6


@pytest.mark.parametrize("step", sorted({step[1:] for step in steps()}), ids=lambda step: ":".join(step))
def test_a_function_of_the_way_exists(step):
    path, function = step
    assert (ROOT / path).is_file()
    assert isinstance(definition(path, function), ast.FunctionDef)


@pytest.mark.parametrize(("caller", "called"), families(), ids=lambda one: getattr(one, "function", ""))
def test_a_function_calls_what_is_indented_below_it_in_that_order(caller, called):
    names = uses(caller.path, caller.function)
    at = -1
    for step in called:
        name = step.function.rpartition(".")[2]
        assert name in names[at + 1 :], f"{caller.function} does not call {name} after {names[: at + 1][-1:]}"
        at = names.index(name, at + 1)


def tree() -> list[str]:
    """The paths of the folder tree."""
    [block] = TREE.findall(TEXT)
    paths: list[str] = []
    for line in block.splitlines():
        spaces, name = re.match(r"( *)(\S+)  +\S", line).groups()
        depth = len(spaces) // 2
        above = [path for path in paths if path.endswith("/")]
        parent = "" if depth == 0 else [path for path in above if path.count("/") == depth][-1]
        paths.append(parent + name)
    return paths


def test_every_line_of_the_tree_exists():
    assert [path for path in tree() if not (ROOT / path).exists()] == []


def test_every_folder_of_the_package_is_in_the_tree():
    folders = {f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "echelon_jax").rglob("*.py")}
    assert sorted(folders - set(tree())) == []


def test_a_call_that_is_not_made_is_noticed(tmp_path):
    source = "def f(x):\n    def body(y):\n        return inner(y)\n    return outer(scan(body, first(x)))\n"
    visitor = Uses()
    visitor.visit(ast.parse(source))
    assert visitor.names == ["y", "inner", "body", "x", "first", "scan", "outer"]
