"""Links and file names in the Markdown pages: what a page points to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / ".github").rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
    ]
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)")
FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|md|json|png|toml))(?::[^`]*)?`")
# Where a file name in backticks may begin: at the root, in the package, the tests, the docs or beside the page.
HOMES = (ROOT, ROOT / "echelon_jax", ROOT / "tests", ROOT / "docs")
# Names that a page tells of the past, and files that a run or an export makes.
PAST = {ROOT / "CHANGELOG.md", ROOT / "docs" / "glossary.md"}
MADE = ("RUN/", "runs/", "report/", "OUT/", "export/policy", "my_package/")


def name(page: Path) -> str:
    """The page's path from the root."""
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    wrong = []
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path = (page.parent / target).resolve()
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            wrong.append(f"{target}#{anchor}" if anchor else target)
    return wrong


def missing_files(page: Path) -> list[str]:
    """The file names in a page's backticks that are nowhere."""
    names = set(FILE.findall(page.read_text(encoding="utf-8")))
    homes = (*HOMES, page.parent)
    return sorted(n for n in names if not n.startswith(MADE) and not any((home / n).exists() for home in homes))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page):
    assert broken_links(page) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in PAST], ids=name)
def test_every_file_that_a_page_names_exists(page):
    assert missing_files(page) == []


def test_a_broken_link_and_a_missing_file_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A b\n[x](nowhere.md) [y](page.md#a-b) [z](page.md#c) `sim/nothing.py` `sim/step.py`\n")
    assert broken_links(page) == ["nowhere.md", "page.md#c"]
    assert missing_files(page) == ["sim/nothing.py"]
