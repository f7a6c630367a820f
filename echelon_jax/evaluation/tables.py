"""Evaluation results as tables for a terminal of 80 columns: a row for each number, a column for each opponent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

ABREAST = 3  # opponents in one table; more of them are shown in several tables
WIDEST = 16  # of a column; the name of an opponent goes on in the next line


def games_table(title: str, rows: Mapping[str, Mapping[str, float | int]]) -> Group:
    """Return tables of results with one column per opponent; "a : b" is the policy's number and the opponent's, per game."""
    shown: dict[str, Callable[[Any], str]] = {
        "games": lambda s: f"{s['games']}",
        "win rate": lambda s: f"{s['win_rate']:.0%}",
        "95 % interval": lambda s: f"{s['win_rate_low']:.0%} to {s['win_rate_high']:.0%}",
        "won, drawn, lost": lambda s: f"{s['wins']}, {s['draws']}, {s['losses']}",
        "zone share": lambda s: f"{s['zone_share']:.0%}",
        "kills": lambda s: f"{s['kills_own']:.1f} : {s['kills_other']:.1f}",
        "damage": lambda s: f"{s['damage_own']:.0f} : {s['damage_other']:.0f}",
        "seconds of play": lambda s: f"{s['length_seconds']:.0f}",
    }
    return _tables(title, list(rows), {name: [read(s) for s in rows.values()] for name, read in shown.items()})


def behaviour_table(rows: Mapping[str, Mapping[str, Any]]) -> Group:
    """Return tables of behaviour with one column per opponent: the policy's number, and that of its opponent."""
    shown: dict[str, Callable[[Any], float | None]] = {
        "time in zone": lambda b: b["zone"]["in_zone"],
        "first there, s": lambda b: b["zone"]["first_seconds"],
        "gun shots in reach": lambda b: b["gun_shots_in_reach"],
        "chances taken": lambda b: b["chances_taken"],
        "heat": lambda b: b["heat"]["mean"],
        "time over cap": lambda b: b["heat"]["over_cap"],
        "vents when hot": lambda b: b["heat"]["vents_when_hot"],
        "vents when cool": lambda b: b["heat"]["vents_when_cool"],
    }

    def pair(name: str, behaviour: Mapping[str, Any]) -> str:
        values = (shown[name](behaviour[whose]) for whose in ("own", "other"))
        form = ".1f" if name.endswith(", s") else ".0%"
        return " : ".join("-" if value is None else format(value, form) for value in values)

    cells = {name: [pair(name, row["behaviour"]) for row in rows.values()] for name in shown}
    return _tables("how they were played, policy : opponent (docs/evaluation.md)", list(rows), cells)


def _tables(title: str, opponents: Sequence[str], cells: Mapping[str, Sequence[str]]) -> Group:
    """A title, and tables of a few opponents each; a table with too many columns would cut its headings."""
    parts: list[Any] = [Text(title)]
    for start in range(0, len(opponents), ABREAST):
        some = slice(start, start + ABREAST)
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("against", no_wrap=True)
        for name in opponents[some]:
            table.add_column(Text(name), justify="right", overflow="fold", max_width=WIDEST)
        for label, values in cells.items():
            table.add_row(label, *values[some])
        parts.append(table)
    return Group(*parts)
