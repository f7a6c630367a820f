"""The site of docs/ builds without a warning, and its generated pages and snippets are those of the code."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from echelon_jax.env import page as observations

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPETS = [
    pytest.param(text, id=f"{path.relative_to(ROOT)}-{number}")
    for path in PAGES
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL))
]
HOOKS = importlib.util.spec_from_file_location("site_hooks", ROOT / "tools" / "site_hooks.py")


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="needs the extra docs")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # a note of the theme about its own future
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=quiet)
    assert shown.returncode == 0, shown.stderr
    assert "WARNING" not in shown.stderr
    assert (tmp_path / "index.html").is_file() and (tmp_path / "images" / "game.gif").is_file()


def test_the_page_of_observations_is_that_of_the_layouts() -> None:
    written = (ROOT / "docs" / "observations.md").read_text()
    assert written == observations.page(), "run: python -m echelon_jax.env.page > docs/observations.md"


def test_every_entry_of_a_layout_has_its_place_on_the_page() -> None:
    """A row of numbered blocks stands for all of them: the sizes of the rows add up to the size of the vector."""
    text = observations.page()
    for section, size in re.findall(r"^## (The .*)\n\n(\d+) numbers", text, flags=re.MULTILINE):
        table = text.split(f"## {section}\n")[1].split("\n## ")[0]
        sizes = re.findall(r"^\| `[^|]*` \| \d+ \| (\d+)(?: x (\d+))? \|", table, flags=re.MULTILINE)
        assert sum(int(one) * int(times or 1) for one, times in sizes) == int(size), section


@pytest.mark.parametrize("text", SNIPPETS)
def test_a_snippet_is_python_and_what_it_imports_exists(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "echelon_jax":
            home = importlib.import_module(node.module or "")
            assert [alias.name for alias in node.names if not hasattr(home, alias.name)] == []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "echelon_jax":
            assert hasattr(importlib.import_module("echelon_jax"), node.attr), node.attr


def test_the_tutorial_shows_the_library_example_that_the_readme_runs() -> None:
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert example is not None and example.group(0) in (ROOT / "docs" / "tutorials.md").read_text()


def test_a_link_that_leaves_the_site_keeps_its_text_only(tmp_path: Path) -> None:
    import types

    assert HOOKS is not None and HOOKS.loader is not None
    hooks = importlib.util.module_from_spec(HOOKS)
    HOOKS.loader.exec_module(hooks)
    (tmp_path / "docs" / "spec").mkdir(parents=True)
    page = types.SimpleNamespace(file=types.SimpleNamespace(abs_src_path=str(tmp_path / "docs" / "spec" / "a.md")))
    text = "[out](../../README.md) [in](../b.md#c) [here](#d) [web](https://x.org) ![p](../p.png)\n```\n[code](../../x)\n```"
    made = hooks.on_page_markdown(text, page, {"docs_dir": str(tmp_path / "docs")}, None)
    assert made == text.replace("[out](../../README.md)", "out")
