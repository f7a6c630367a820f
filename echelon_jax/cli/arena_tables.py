"""Tables of `echelon arena`, 80 columns at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from echelon_jax.terminal import PlainConsole

if TYPE_CHECKING:
    from echelon_jax.arena.games import Contest
    from echelon_jax.arena.records import Entry, LeagueData

WIDTH = 80
LONGEST = 26  # of a name
MOST_COLUMNS = 8  # of a matrix


def show(table: Table) -> None:
    """Print a table, at most 80 columns wide."""
    console = PlainConsole()
    console.width = min(console.width, WIDTH)
    console.print(table)


def short(name: str, length: int = LONGEST) -> str:
    """A name with its middle left out where it is too long."""
    if len(name) <= length:
        return name
    front = (length - 1) // 2
    return f"{name[:front]}…{name[len(name) - (length - 1 - front) :]}"


def contest_table(contests: Sequence[Contest]) -> Table:
    """Scores of pairs: a's mean score with its interval over maps, and how it came about."""
    table = Table(title="score of a: win 1, draw 1/2; 95 % interval over maps", title_justify="left")
    for name in ("a", "b"):
        table.add_column(name)
    for name in ("games", "W/D/L", "score", "95 %", "s/game"):
        table.add_column(name, justify="right")
    for one in contests:
        s = one.summary
        table.add_row(
            short(one.a, 16),
            short(one.b, 16),
            f"{s['games']}",
            f"{s['wins']}/{s['draws']}/{s['losses']}",
            f"{s['score']:.2f}",
            f"{s['score_low']:.2f} to {s['score_high']:.2f}",
            f"{s['length_seconds']:.0f}",
        )
    return table


def ranked(data: LeagueData, retired: bool) -> list[Entry]:
    """The entries, best first."""
    return sorted((e for e in data.entries if retired or e.role != "retired"), key=lambda e: -e.rating)


def ladder_rows(data: LeagueData, retired: bool = False) -> list[dict[str, Any]]:
    """The ladder as JSON: best first, with 95 % intervals and the rating that counts for promotion."""
    return [
        {
            "rank": rank,
            "name": e.name,
            "id": e.id,
            "role": e.role,
            "rating": e.rating,
            "low": e.rating - 1.96 * e.deviation,
            "high": e.rating + 1.96 * e.deviation,
            "lowered": e.rating - data.rules.conservatism * e.deviation,
            "deviation": e.deviation,
            "volatility": e.volatility,
            "games": e.games,
        }
        for rank, e in enumerate(ranked(data, retired), 1)
    ]


def ladder_table(data: LeagueData, retired: bool = False) -> Table:
    """Ratings, best first, with their intervals."""
    table = Table(title=f"after {data.periods} rating periods; 95 % intervals", title_justify="left")
    for name in ("", "name", "role", "rating", "interval", "lowered", "games"):
        table.add_column(name, justify="left" if name in ("name", "role") else "right")
    for row in ladder_rows(data, retired):
        table.add_row(
            f"{row['rank']}",
            short(row["name"]),
            row["role"],
            f"{row['rating']:.0f}",
            f"{row['low']:.0f} to {row['high']:.0f}",
            f"{row['lowered']:.0f}",
            f"{row['games']}",
        )
    return table


def matrix_table(data: LeagueData) -> Table:
    """The mean score of the best few against each other, in percent."""
    from echelon_jax.arena.games import crosstable

    best = ranked(data, False)[:MOST_COLUMNS]
    scores = crosstable(data.results, [e.id for e in best])
    table = Table(title="score of the row against the column, percent", title_justify="left")
    table.add_column("")
    table.add_column("name")
    for number in range(1, len(best) + 1):
        table.add_column(f"{number}", justify="right")
    for number, (entry, row) in enumerate(zip(best, scores, strict=True), 1):
        shown = ["-" if np.isnan(score) else f"{100 * score:.0f}" for score in row]
        table.add_row(f"{number}", short(entry.name, 20), *shown)
    return table


def entries_table(data: LeagueData) -> Table:
    """All entries in the order they came."""
    names = {e.id: e.name for e in data.entries}
    table = Table(title=f"{len(data.entries)} entries", title_justify="left")
    for name in ("name", "id", "role", "from", "trained from", "added"):
        table.add_column(name)
    for e in data.entries:
        table.add_row(
            short(e.name, 20),
            short(e.id, 10),
            e.role,
            "agent" if e.kind == "agent" else str(e.origin.get("from", "policy")),
            "-" if e.parent is None else short(names[e.parent], 14),
            e.created_at[:10],
        )
    return table
