"""Citations of docs/spec: every section and identifier that a comment or a page cites exists, and none has an old form."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
PAGES = sorted(page for page in SPEC.glob("*.md") if page.name != "README.md")
SKIPPED_FOLDERS = {"build", "dist", "runs", "node_modules"}  # and those whose name begins with a dot

TOKEN = r"(?:Appendix [A-Z]|[A-Z]\.\d+|[A-Z]\d{1,2}|\d+(?:\.\d+)*)"
SECTION_LIST = rf"(?:(?:,|,? and|,? to)? (?:steps? [\d.]*\d|{TOKEN})(?![\w]))*"
CITATION = re.compile(rf"docs/spec/(\w+)\.md({SECTION_LIST})")
LINKED = re.compile(rf"\[(\w+)\.md\]\(\w+\.md\)({SECTION_LIST})")  # how the pages of docs/spec cite each other
OWN_SECTION = re.compile(rf"\b[Ss]ections?({SECTION_LIST})")
HEADING = re.compile(rf"^#{{2,4}} ({TOKEN})(?=[ :])", re.MULTILINE)
IDENTIFIER = re.compile(r"(?<![\w.\-/])[QSERGDTLM]\d{1,2}(?![\w.]\w|\w)")
DEFINITION = re.compile(r"^(?:\* \*\*|\| |#{2,4} )([QSERGDTLMA]\d{1,2})(?=[ *|])", re.MULTILINE)
RANGE = re.compile(r"([A-Z])(\d+) to [A-Z](\d+)")
OLD_FORMS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:simulation|environment|learning|worldgen|arena|sim|env|gen) spec\b",
        r"\bspec(?:'s)?,? (?:section |[a-z])?\d",
        r"\bspec(?:'s)?,? (?:section|appendix)\b",
        r"§",
        r"\bquirks? Q?\d",
        r"\btrainer requirements\b",
        r"[(;] ?design \"",
    )
]


def text_files(*suffixes: str) -> Iterator[Path]:
    """Every file of the repository with one of the suffixes, this one and docs/spec left out."""
    for path in sorted(ROOT.rglob("*")):
        folders = path.relative_to(ROOT).parts[:-1]
        if any(folder.startswith(".") or folder in SKIPPED_FOLDERS for folder in folders):
            continue
        if path.suffix in suffixes and path.is_file() and path != Path(__file__).resolve() and path.parent != SPEC:
            yield path


def prose(path: Path) -> str:
    """The comments and the strings of a Python file, lint directives left out; the whole text of another file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kept = [token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)]
    return "\n".join(part for part in kept if not part.startswith("# noqa"))


def definitions(path: Path) -> set[str]:
    """The identifiers that a page defines: list items, table rows or headings that begin with one."""
    return set(DEFINITION.findall(path.read_text(encoding="utf-8")))


def citable(path: Path) -> set[str]:
    """What a citation of a page may name: the numbers of its headings and the identifiers that it defines."""
    return set(HEADING.findall(path.read_text(encoding="utf-8"))) | definitions(path)


def listed(text: str) -> list[str]:
    """The sections in the tail of a citation, "5.4, 5.5 step 2" giving 5.4 and 5.5."""
    return re.findall(TOKEN, re.sub(r"steps? [\d.]*\d", "", text))


def unresolved(text: str) -> list[str]:
    """What is wrong with the citations of docs/spec in a text, one sentence each."""
    wrong = []
    for page, tail in CITATION.findall(text):
        path = SPEC / f"{page}.md"
        if not path.exists():
            wrong.append(f"docs/spec/{page}.md does not exist")
            continue
        known = citable(path)
        wrong += [f"docs/spec/{page}.md has no section {number}" for number in listed(tail) if number not in known]
    return wrong


def defined_identifiers() -> set[str]:
    """All identifiers of docs/spec and of the worked examples in docs/rewards.md."""
    return set().union(*(definitions(page) for page in [*PAGES, ROOT / "docs" / "rewards.md"]))


def test_every_cited_section_exists():
    wrong = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in text_files(".py", ".md")
        for fault in unresolved(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_code_cites_sections_and_not_whole_pages():
    bare = [
        f"{path.relative_to(ROOT)}: docs/spec/{page}.md without a section"
        for path in text_files(".py")
        for page, tail in CITATION.findall(path.read_text(encoding="utf-8"))
        if page != "README" and not listed(tail)
    ]
    assert bare == []


def test_every_cited_identifier_is_listed():
    known = defined_identifiers()
    wrong = [
        f"{path.relative_to(ROOT)}: {name} is listed nowhere"
        for path in [*text_files(".py", ".md"), *SPEC.glob("*.md")]
        for name in sorted(set(IDENTIFIER.findall(prose(path))) - known)
    ]
    assert wrong == []


def test_no_old_form_of_a_citation_is_left():
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files(".py", ".md", ".ipynb", ".toml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(form.search(line) for form in OLD_FORMS)
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_cites_only_sections_that_exist(page):
    text = page.read_text(encoding="utf-8")
    own = citable(page) | defined_identifiers()  # "(section 6.8, Q12)"
    wrong = [number for tail in OWN_SECTION.findall(text) for number in listed(tail) if number not in own]
    for other, tail in LINKED.findall(text):
        known = citable(SPEC / f"{other}.md")
        wrong += [f"{other} {number}" for number in listed(tail) if number not in known]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_heading_of_a_page_has_a_number_of_its_own(page):
    headings = re.findall(r"^#{2,} .*", page.read_text(encoding="utf-8"), re.MULTILINE)
    numbers = [match.group(1) for heading in headings if (match := HEADING.match(heading))]
    assert len(numbers) == len(headings)
    assert [number for number, count in Counter(numbers).items() if count > 1] == []


def test_the_table_of_identifiers_is_complete():
    named = set()
    for line in (SPEC / "README.md").read_text(encoding="utf-8").splitlines():
        spans = RANGE.findall(line.split("|")[1]) if line.startswith("| ") else []
        target = re.search(r"\]\((\S+\.md)\)", line)
        for letter, first, last in spans:
            span = {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
            assert target is not None and span <= definitions(SPEC / target.group(1)), line
            named |= span
    assert named == defined_identifiers()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("(docs/spec/rules.md 5.99)", "docs/spec/rules.md has no section 5.99"),
        ("(docs/spec/rules.md 5.12, 6.2 step 2, 9.9)", "docs/spec/rules.md has no section 9.9"),
        ("(docs/spec/rules.md 8.1 to 8.44; Q9)", "docs/spec/rules.md has no section 8.44"),
        ("docs/spec/rules.md Appendix Z.", "docs/spec/rules.md has no section Appendix Z"),
        ("docs/spec/nothing.md 1", "docs/spec/nothing.md does not exist"),
    ],
)
def test_a_citation_of_a_missing_section_is_found(text, fault):
    assert fault in unresolved(text)


@pytest.mark.parametrize(
    "text", ["docs/spec/rules.md 5.12.", "(docs/spec/learner.md 2, B.2)", "docs/spec/rules.md Appendix A and B"]
)
def test_a_citation_of_an_existing_section_is_accepted(text):
    assert unresolved(text) == []
