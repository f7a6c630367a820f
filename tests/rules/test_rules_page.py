"""docs/rules.md shows the rules as they are."""

from pathlib import Path

from echelon_jax.rules.page import TABLES, fill

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"


def test_the_tables_of_the_page_are_those_of_the_rules() -> None:
    text = PAGE.read_text()
    assert fill(text) == text
    for make in TABLES.values():
        assert make() in text
