"""The page that lists every entry of the observations and every component of the actions.

`python -m echelon_jax.env.page > docs/observations.md` makes it from the layout tables.
"""

from __future__ import annotations

import math
import sys

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.layout import Entry, Layout
from echelon_jax.markdown import table

EXAMPLES = {
    "modern": "EnvConfig()",
    "original": "EnvConfig.original()",
}
HEAD = ("entry", "place", "numbers", "meaning", "unit", "range", "kind")


def page() -> str:
    """The text of docs/observations.md."""
    configs = {"modern": EnvConfig(), "original": EnvConfig.original()}
    lines = [
        "# Observations and actions",
        "",
        "Every number of a mech's observation and of its action has a name. `env.observation_layout()` and",
        "`env.action_layout()` give these tables in Python, and the environment's spaces are made from them.",
        "This page is made by `python -m echelon_jax.env.page`.",
        "",
        "- A *flag* is 0 or 1; of a *one_hot* at most one number is 1; a *map* is a plane of whole numbers; a normaliser scales",
        "  *continuous* numbers only.",
        "- Forward and left are the mech's own; the unit is what a 1 means.",
        "- Rows of a group of slots that differ in nothing but their number are one row: `hostile_*` stands for",
        "  `hostile_0`, `hostile_1` and so on, and the place is that of the first.",
    ]
    for name, config in configs.items():
        for what, layout in (("observation", observation_layout(config)), ("action", action_layout(config))):
            title = f"The {name} {what}"
            told = f"{layout.size} numbers with `{EXAMPLES[name]}`, 5 against 5."
            lines += ["", f"## {title}", "", told, "", table(HEAD, _rows(layout))]
    return "\n".join(lines) + "\n"


def _rows(layout: Layout) -> list[list[object]]:
    """One row per entry; of numbered blocks that are alike, the first stands for all."""
    numbers: dict[str, set[str]] = {}
    for entry in layout:
        base, number, part = _split(entry.name)
        if number:
            numbers.setdefault(f"{base}/{part}", set()).add(number)
    rows: list[list[object]] = []
    for entry in layout:
        base, number, part = _split(entry.name)
        alike = numbers.get(f"{base}/{part}", set()) if number else set()
        if number and number != min(alike, key=int):
            continue
        several = len(alike) > 1
        name = f"{base}_*{'/' + part if part else ''}" if several else entry.name
        size = f"{entry.size} x {len(alike)}" if several else f"{entry.size}"
        rows.append([f"`{name}`", entry.offset, size, entry.meaning, entry.unit or "-", _range(entry), entry.kind])
    return rows


def _split(name: str) -> tuple[str, str, str]:
    """(block without its number, its number or nothing, part) of `hostile_3/hp`."""
    block, _, part = name.partition("/")
    base, _, number = block.rpartition("_")
    return (base, number, part) if number.isdigit() and base else (block, "", part)


def _range(entry: Entry) -> str:
    low, high = (f"{x:g}" if math.isfinite(x) else "no limit" for x in (entry.low, entry.high))
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    sys.stdout.write(page())
