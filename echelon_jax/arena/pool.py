"""Ratings of policies that have nothing in common but their game: they and the skill levels all play each other."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from echelon_jax.arena.games import pairing_of, play_pairs
from echelon_jax.arena.league import League
from echelon_jax.arena.records import Entry
from echelon_jax.arena.rules import Rules
from echelon_jax.intervals import paired_score

LEVELS = ("scripted:easy", "scripted:medium", "scripted:hard", "scripted:expert")
ANCHOR = "scripted:medium"  # keeps the rating 1500


class Pool(NamedTuple):
    """What came of the games.

    Attributes:
        entries: the rated players by name.
        results: by a pair of names, the results of all its games for the first: 1, 0 or -1, two after another on one map.
    """

    entries: dict[str, Entry]
    results: dict[tuple[str, str], np.ndarray]

    def rating(self, name: str) -> dict[str, float | int]:
        """Return rating, `low` and `high` of its 95 % interval, and the number of games."""
        entry = self.entries[name]
        margin = 1.96 * entry.deviation
        return {
            "rating": entry.rating,
            "low": entry.rating - margin,
            "high": entry.rating + margin,
            "games": entry.games,
        }

    def score(self, a: str, b: str) -> dict[str, float | int]:
        """Return a's score against b, `low` and `high` of its 95 % interval over maps, and the number of games.

        Raises:
            KeyError: they have not played.
        """
        result = self.results[a, b] if (a, b) in self.results else -self.results[b, a]
        score, low, high = paired_score(result)
        return {"games": len(result), "score": score, "low": low, "high": high}


def rate_pool(
    policies: Mapping[str, str | Path],
    games: int,
    periods: int = 2,
    seed: int = 100,
    levels: Sequence[str] = LEVELS,
    progress: Callable[[str, int, int], None] | None = None,
) -> Pool:
    """Play every pair of the policies and the levels, and rate all of them.

    Args:
        policies: names and paths of policies of one game, or `zoo:NAME`.
        games: of each pair in each period, an even number, two per map.
        periods: rating periods, each on maps of its own.
        seed: of the first period's maps, which training never uses.
        levels: agents by name; `ANCHOR` is one of them.
        progress: called with (pair, games finished, games in all).

    Raises:
        LeagueError: a policy that cannot be read, or of another game.
        ValueError: `games` is not an even number from 2, or the levels lack the anchor.
    """
    if ANCHOR not in levels:
        raise ValueError(f"levels must have {ANCHOR}, which holds the scale, got {', '.join(levels)}")
    with tempfile.TemporaryDirectory() as folder:
        league = League.create(Path(folder) / "league", rules=Rules(commanders=1000))
        players = [league.add(path, name=name) for name, path in policies.items()]
        agents = [league.add(level, role="anchor" if level == ANCHOR else "candidate") for level in levels]
        pairs = list(itertools.combinations([*players, *agents], 2))
        results: dict[tuple[str, str], list[Any]] = {}
        for period in range(periods):
            played = play_pairs(league, pairs, games, seed + period, progress=progress)
            league.record([pairing_of(a, b, one.games) for (a, b), one in zip(pairs, played, strict=True)])
            for (a, b), one in zip(pairs, played, strict=True):
                results.setdefault((a.name, b.name), []).append(one.games.result)
        entries = {e.name: e for e in league.read().entries}
    return Pool(entries, {pair: np.concatenate(parts) for pair, parts in results.items()})
