"""The history of a league as a matrix: who scores how much against whom, from games played for it or from those of the record.

A cycle shows as an entry that beats a stronger one: look for scores above one half below the diagonal of a list from the
strongest to the weakest.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from echelon_jax.arena.games import crosstable, pairing_of, play_pairs
from echelon_jax.arena.league import League
from echelon_jax.arena.records import Entry, LeagueData, Pairing
from echelon_jax.markdown import table

MOST_ENTRIES = 12  # of a matrix


@dataclasses.dataclass(frozen=True)
class History:
    """A matrix of scores.

    Attributes:
        entries: in the order of rows and columns, the strongest first.
        scores: mean score of the row against the column, 0 to 1; NaN where they have not played.
        games: games of each pair.
    """

    entries: tuple[Entry, ...]
    scores: np.ndarray
    games: np.ndarray

    def report(self) -> dict[str, Any]:
        """Return everything ready for JSON; None where a pair has not played."""
        return {
            "entries": [
                {"name": e.name, "id": e.id, "role": e.role, "rating": e.rating, "deviation": e.deviation}
                for e in self.entries
            ],
            "scores": [[None if np.isnan(x) else round(float(x), 4) for x in row] for row in self.scores],
            "games": self.games.astype(int).tolist(),
        }

    def markdown(self) -> str:
        """Return the matrix as a table: percent of the row against the column."""
        head = ["", "name", "rating", *(f"{i}" for i in range(1, len(self.entries) + 1))]
        rows = [
            [f"{i}", e.name, f"{e.rating:.0f}", *("-" if np.isnan(x) else f"{100 * x:.0f}" for x in row)]
            for i, (e, row) in enumerate(zip(self.entries, self.scores, strict=True), 1)
        ]
        return table(head, rows) + "\n"


def members_of_history(data: LeagueData, most: int = MOST_ENTRIES) -> list[Entry]:
    """Return the agents and policies spread evenly over the time of their submission, at most `most`, the last one included."""
    agents = [e for e in data.entries if e.kind == "agent"]
    policies = [e for e in data.entries if e.kind == "policy" and e.source is not None]
    room = max(most - len(agents), 2)
    if len(policies) > room:
        policies = [policies[i] for i in np.linspace(0, len(policies) - 1, room).round().astype(int)]
    return agents + policies


def history(
    league: League,
    games: int = 0,
    seed: int = 0,
    most: int = MOST_ENTRIES,
    progress: Callable[[str, int, int], None] | None = None,
) -> History:
    """Return the matrix of a league's history.

    Args:
        league: the league; nothing is recorded in it.
        games: games to play of each pair with a policy, an even number, two per map; 0 takes those of the record instead.
        seed: of the maps and draws.
        most: entries of the matrix.
        progress: called with (pair, games finished, games in all).

    Raises:
        LeagueError: weights are missing or damaged.
        ValueError: `games` is out of range.
    """
    data = league.read()
    entries = sorted(members_of_history(data, most), key=lambda e: -e.rating)
    rows: list[Pairing] = list(data.results)
    if games:
        # The policy first, so that pairs of one kind share a compiled match. What agents do against each other is known
        # (docs/opponents.md).
        pairs = [
            (b, a) if a.kind == "agent" else (a, b)
            for a, b in itertools.combinations(entries, 2)
            if not (a.kind == b.kind == "agent")
        ]
        played = play_pairs(league, pairs, games, seed, progress=progress)
        rows = [pairing_of(a, b, one.games) for (a, b), one in zip(pairs, played, strict=True)]
    ids = [e.id for e in entries]
    counts = np.zeros((len(ids), len(ids)))
    for row in rows:
        if row.a in ids and row.b in ids:
            i, j = ids.index(row.a), ids.index(row.b)
            counts[i, j] += row.games
            counts[j, i] += row.games
    return History(tuple(entries), crosstable(rows, ids), counts)
