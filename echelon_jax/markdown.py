"""Markdown tables for the pages that are made from the code."""

from __future__ import annotations

from collections.abc import Sequence


def row(*cells: object) -> str:
    """Return one line of a table; a bar or a line break inside a cell is written so that it stays inside."""
    texts = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(texts)} |"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a whole table: the head, the rule below it, and the rows."""
    return "\n".join([row(*head), row(*["---"] * len(head)), *(row(*cells) for cells in rows)])
