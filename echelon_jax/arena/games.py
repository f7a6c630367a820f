"""Games between any two players on paired maps with both sides, many in one batch, counted for a league or a match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from echelon_jax.agents.registry import is_agent_name, is_zoo_name
from echelon_jax.arena.league import League, entry_of
from echelon_jax.arena.records import Entry, LeagueError, Pairing
from echelon_jax.arena.schedule import Pair
from echelon_jax.arena.store import read_policy
from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.evaluation.games import Games, play, summarize_games
from echelon_jax.evaluation.matches import opponent_player
from echelon_jax.runs.checkpoint import Policy
from echelon_jax.worldgen.bank import WorldArrays, evaluation_seeds, generate_worlds

MOST_ARENAS = 1024  # side by side, unless told otherwise


class Contest(NamedTuple):
    """The games of two players against each other; "own" numbers of the summary are those of a."""

    a: str
    b: str
    games: Games
    summary: dict[str, float | int]


def contestant(name: str, league: League | None) -> str | Policy:
    """Return the player of a name: an entry of the league, else an agent by its name, else the policy at a path.

    Raises:
        LeagueError: none of them, or a policy that cannot be used.
    """
    if league is not None:
        data = league.read()
        if any(name in (e.name, e.id) for e in data.entries):
            return of_entry(league, entry_of(data, name))
    if is_agent_name(name):
        return name
    if is_zoo_name(name) or Path(name).exists():
        return read_policy(Path(name))[0]
    where = "" if league is None else f", nor an entry of {league.folder}"
    raise LeagueError(f"there is no policy at {name}, it is no agent's name{where}")


def of_entry(league: League, entry: Entry) -> str | Policy:
    """Return an entry as its agent's name or its policy.

    Raises:
        LeagueError: its weights are missing or damaged.
    """
    if entry.kind == "agent" and entry.source is not None:
        return entry.source
    return league.policy(entry)


def game_of(contestants: Sequence[str | Policy], otherwise: EnvConfig) -> EnvConfig:
    """Return the game that the first policy was trained for, or `otherwise` if no player is a policy."""
    return next((c.env_config for c in contestants if isinstance(c, Policy)), otherwise)


def maps(game: EnvConfig, games: int, seed: int) -> WorldArrays:
    """Return the maps of so many games, two per map, that training never saw.

    Raises:
        ValueError: games is not an even number from 2.
    """
    if games < 2 or games % 2:
        raise ValueError(f"games must be an even number from 2, got {games}")
    return generate_worlds(game, evaluation_seeds(seed, games // 2))


def contest(
    game: EnvConfig,
    worlds: WorldArrays,
    a: str | Policy,
    b: str | Policy,
    names: tuple[str, str],
    seed: int = 0,
    arenas: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Contest:
    """Play two games per map, sides exchanged.

    Args:
        game: the configuration of the games.
        worlds: the maps.
        a, b: agents by name, or policies; policies sample their actions.
        names: the names of both players.
        seed: seed of every draw.
        arenas: games side by side, an even number; by default all, up to MOST_ARENAS.
        progress: called with (games finished, games in all).

    Raises:
        ValueError: an unknown name, a policy of another game, or `arenas` out of range.
    """
    players: list[tuple[Any, Any]] = [opponent_player(who, game) for who in (a, b)]
    side_by_side = min(2 * len(worlds.seed), MOST_ARENAS if arenas is None else arenas)
    games = play(Echelon(game), worlds, players[0], players[1], jax.random.key(seed), side_by_side, progress)
    summary = summarize_games(games)
    summary["length_seconds"] = summary["length_steps"] * game.decision_seconds
    return Contest(*names, games, summary)


def pairing_of(a: Entry, b: Entry, games: Games) -> Pairing:
    """Return finished games as a pairing of a league."""
    wins, draws, losses = (int((games.result == value).sum()) for value in (1, 0, -1))
    return Pairing(a.id, b.id, wins, draws, losses)


def play_pairs(
    league: League,
    pairs: Sequence[Pair],
    games: int,
    seed: int,
    arenas: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Contest]:
    """Play so many games for each pair of a league, all pairs on the same maps; nothing is recorded.

    Raises:
        LeagueError: weights are missing or damaged.
        ValueError: `games` or `arenas` out of range.
    """
    game = league.game()
    worlds = maps(game, games, seed)
    out = []
    for number, (a, b) in enumerate(pairs):

        def told(done: int, total: int, a: Entry = a, b: Entry = b) -> None:
            if progress is not None:
                progress(f"{a.name} - {b.name}", done, total)

        ours, theirs = of_entry(league, a), of_entry(league, b)
        out.append(contest(game, worlds, ours, theirs, (a.name, b.name), seed + number, arenas, told))
    return out


def crosstable(pairings: Sequence[Pairing], ids: Sequence[str]) -> np.ndarray:
    """Return the mean score of each entry against each other one, float64 [entries, entries]; NaN if they have not played."""
    index_of = {name: i for i, name in enumerate(ids)}
    points, games = np.zeros((2, len(ids), len(ids)))
    for row in pairings:
        if row.a in index_of and row.b in index_of:
            i, j = index_of[row.a], index_of[row.b]
            points[i, j] += row.score * row.games
            points[j, i] += (1 - row.score) * row.games
            games[i, j] += row.games
            games[j, i] += row.games
    return np.where(games > 0, points / np.where(games > 0, games, 1), np.nan)
