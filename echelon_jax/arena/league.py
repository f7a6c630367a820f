"""A league: players, their weights, results and ratings in one folder that needs nothing else.

LEAGUE/league.json        entries, results, ratings, settings (`records`); always replaced as a whole
       league.lock        held by who changes it
       policies/<id>/     weights, named by their content, never changed
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from echelon_jax.agents.registry import is_agent_name, is_zoo_name, make_agent
from echelon_jax.arena import storage, store
from echelon_jax.arena.glicko2 import Glicko2, Ratings, Results, rate_period, results
from echelon_jax.arena.joint import rate_jointly
from echelon_jax.arena.records import Entry, LeagueData, LeagueError, Pairing
from echelon_jax.arena.rules import ROLES, Move, Rules, Standing, moves
from echelon_jax.config import EnvConfig
from echelon_jax.runs import migrations
from echelon_jax.runs.checkpoint import Policy

IN_MEMORY = 20
ANCHOR_DEVIATION = 30.0  # an anchor's rating is taken as known


class Period(NamedTuple):
    """The result of a rating period: the league after it, and the entries that changed their role."""

    data: LeagueData
    moves: tuple[tuple[Entry, Move], ...]


class League:
    """The league in a folder. Reading needs no lock; every change reads, changes and writes under the lock.

    Args:
        folder: the folder of the league.
        in_memory: number of policies that `policy` keeps; one more drops the one that was used longest ago.

    Raises:
        LeagueError: there is no league in the folder.
    """

    def __init__(self, folder: str | Path, in_memory: int = IN_MEMORY) -> None:
        self.folder = Path(folder)
        if not storage.exists(self.folder):
            raise LeagueError(f"there is no league in {self.folder}; `echelon arena add` makes one")
        self._cache = store.PolicyCache(in_memory)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        game: EnvConfig | None = None,
        system: Glicko2 | None = None,
        rules: Rules | None = None,
        in_memory: int = IN_MEMORY,
    ) -> League:
        """Make a league in a folder, or open the one that is there (its own settings then count).

        Raises:
            LeagueError: the folder cannot be written.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LeagueError(f"cannot write to {folder}: {error.strerror or error}") from error
        with storage.locked(folder):
            if not storage.exists(folder):
                fields = None if game is None else dataclasses.asdict(game)
                storage.write(folder, LeagueData(fields, system or Glicko2(), rules or Rules()))
        return cls(folder, in_memory)

    # -- Reading ----------------------------------------------------------------------------------------------------------

    def read(self) -> LeagueData:
        """Return the league as it is now.

        Raises:
            LeagueError: missing, damaged, or of a newer format.
        """
        return storage.read(self.folder)

    def game(self) -> EnvConfig:
        """Return the game that the league plays; the default one while no policy has named another.

        Raises:
            LeagueError: the file names a game that this version does not have.
        """
        return _game_of(self.read(), self.folder) or EnvConfig()

    def policy(self, entry: Entry) -> Policy:
        """Return the weights of an entry of kind "policy"; the last few are kept in memory.

        Raises:
            LeagueError: it is no policy, or its weights are missing or damaged.
        """
        if entry.kind != "policy" or entry.source is None:
            raise LeagueError(f"{entry.name} has no weights in {self.folder}")
        return self._cache.get(self.folder / entry.source)

    # -- Changing ---------------------------------------------------------------------------------------------------------

    def add(
        self,
        what: str | Path,
        name: str | None = None,
        role: str = "candidate",
        rating: float | None = None,
        parent: str | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Add a policy (a run, a checkpoint, a torch export, a .pt of the original) or an agent by its name, and return its entry.

        An entry that exists already is returned unchanged; weights are compared by their content.

        Args:
            what: a path, or a name that `agents.registry` knows.
            name: the name in tables; by default made from the path.
            role: one of candidate, commander, anchor.
            rating: the first rating, which an anchor keeps; None for the league's default.
            parent: name or id of the entry that it was trained from.
            origin: any JSON that is kept with the entry.

        Raises:
            LeagueError: unreadable, of another game, or a name that is taken.
            ValueError: another role.
        """
        if role not in ROLES[:3]:
            raise ValueError(f"role must be one of {', '.join(ROLES[:3])}, got {role!r}")
        if is_agent_name(str(what)):
            try:
                make_agent(str(what), self.game())
            except ValueError as error:
                raise LeagueError(str(error)) from error
            found = Entry(str(what), name or str(what), "agent", str(what), role, _now(), 0, (0, 0, 0), 0, 0, 0)
            return self._insert(found, None, rating, parent, origin or {})
        if not is_zoo_name(what) and not Path(what).exists():
            raise LeagueError(f"there is no policy at {what}, and no agent has that name")
        policy, kind = store.read_policy(Path(what))
        return self.add_policy(
            policy, name or _name_of(Path(what), policy), role, rating, parent, {"from": kind, **(origin or {})}
        )

    def add_policy(
        self,
        policy: Policy,
        name: str,
        role: str = "candidate",
        rating: float | None = None,
        parent: str | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> Entry:
        """`add` for a policy in memory."""
        game = _game_of(self.read(), self.folder)
        if game is not None:
            _require_game(game, policy.env_config, name)
        source = store.keep(self.folder, policy)
        told = {"network": policy.config.network, "update": policy.update, **(origin or {})}
        found = Entry(store.fingerprint(policy), name, "policy", source, role, _now(), 0, (0, 0, 0), 0, 0, 0)
        return self._insert(found, policy.env_config, rating, parent, told)

    def record(self, played: Sequence[Pairing]) -> Period:
        """Rate games as one period, apply the rules, and return the result. `Pairing.period` is set here.

        Raises:
            LeagueError: games of an entry that is not there, or the folder cannot be written.
        """
        with self._changing() as change:
            data = change.data
            rows = tuple(dataclasses.replace(row, period=data.periods + 1) for row in played if row.games)
            entries = rated(data.entries, rows, data.periods + 1, data.system)
            changes = moves([Standing(e.role, e.rating, e.deviation) for e in entries], data.rules)
            for move in changes:
                left = data.periods + 1 if move.role == "retired" else None
                entries[move.entry] = dataclasses.replace(entries[move.entry], role=move.role, left=left)
            change.data = dataclasses.replace(
                data, entries=tuple(entries), results=data.results + rows, periods=data.periods + 1
            )
        return Period(change.data, tuple((entries[move.entry], move) for move in changes))

    def rate_again(self, system: Glicko2 | None = None, rules: Rules | None = None) -> LeagueData:
        """Compute all ratings again from the results, period by period, with other constants or rules if given. Roles stay.

        Raises:
            LeagueError: the folder cannot be written.
        """
        with self._changing() as change:
            data = dataclasses.replace(
                change.data, system=system or change.data.system, rules=rules or change.data.rules
            )
            entries = [
                dataclasses.replace(e, rating=e.start[0], deviation=e.start[1], volatility=e.start[2], games=before)
                for e, before in zip(data.entries, _games_before(data), strict=True)
            ]
            for period in range(1, data.periods + 1):
                entries = rated(entries, [row for row in data.results if row.period == period], period, data.system)
            change.data = dataclasses.replace(data, entries=tuple(entries))
        return change.data

    def rate_jointly(self) -> LeagueData:
        """Rate everybody from all results at once, as players whose strength never changes (`joint`). Roles stay.

        Raises:
            LeagueError: the folder cannot be written.
        """
        with self._changing() as change:
            change.data = rated_jointly(change.data)
        return change.data

    def retire(self, name: str) -> Entry:
        """Take an entry out of the games; its rating, results and weights stay.

        Raises:
            LeagueError: no entry, or more than one, has that name or id.
        """
        with self._changing() as change:
            data = change.data
            entry = entry_of(data, name)
            gone = dataclasses.replace(entry, role="retired", left=data.periods)
            change.data = dataclasses.replace(
                data, entries=tuple(gone if e.id == entry.id else e for e in data.entries)
            )
        return gone

    # -- Inside -----------------------------------------------------------------------------------------------------------

    def _insert(
        self, found: Entry, game: EnvConfig | None, rating: float | None, parent: str | None, origin: Mapping[str, Any]
    ) -> Entry:
        with self._changing() as change:
            data = change.data
            for entry in data.entries:
                if entry.id == found.id:
                    return entry
            if any(entry.name == found.name for entry in data.entries):
                raise LeagueError(f"name must be one that no entry of {self.folder} has, got {found.name!r}")
            theirs = _game_of(data, self.folder)
            if game is not None and theirs is not None:
                _require_game(theirs, game, found.name)
            system = data.system
            spread = ANCHOR_DEVIATION if found.role == "anchor" else system.deviation
            start = (float(system.rating if rating is None else rating), spread, system.volatility)
            entry = dataclasses.replace(
                found,
                joined=data.periods,
                start=start,
                rating=start[0],
                deviation=start[1],
                volatility=start[2],
                parent=None if parent is None else entry_of(data, parent).id,
                origin=dict(origin),
            )
            fields = data.game if game is None or data.game is not None else dataclasses.asdict(game)
            change.data = dataclasses.replace(data, game=fields, entries=(*data.entries, entry))
        return entry

    @contextmanager
    def _changing(self) -> Iterator[_Change]:
        """Lock, read, let the caller set `data`, and write it if it changed; after an error nothing is written."""
        with storage.locked(self.folder):
            before = storage.read(self.folder)
            change = _Change(before)
            yield change
            if change.data is not before:
                storage.write(self.folder, change.data)


class _Change:
    def __init__(self, data: LeagueData) -> None:
        self.data = data


def entry_of(data: LeagueData, name: str) -> Entry:
    """Return the entry with that name or id. The beginning of an id is enough if only one entry has it.

    Raises:
        LeagueError: none, or more than one.
    """
    for entry in data.entries:
        if name in (entry.name, entry.id):
            return entry
    close = [entry for entry in data.entries if len(name) >= 4 and entry.id.startswith(name)]
    if len(close) == 1:
        return close[0]
    raise LeagueError(f"{'no entry' if not close else 'more than one entry'} of the league is called {name!r}")


def rated(entries: Sequence[Entry], rows: Sequence[Pairing], period: int, system: Glicko2) -> list[Entry]:
    """Return the entries with their ratings after a period. Anchors and entries that were not there keep their ratings.

    Raises:
        LeagueError: games of an entry that is not there.
    """
    before, played = _in_numbers(entries, rows)
    away = [e.joined >= period or (e.left is not None and e.left < period) for e in entries]
    fixed = np.array([e.role == "anchor" or gone for e, gone in zip(entries, away, strict=True)], bool)
    after = rate_period(before, played, system, fixed)
    games = [sum(row.games for row in rows if e.id in (row.a, row.b)) for e in entries]
    return [dataclasses.replace(e, games=e.games + more) for e, more in zip(_with(entries, after), games, strict=True)]


def rated_jointly(data: LeagueData) -> LeagueData:
    """Return a league with ratings from all its results at once (`joint`); anchors keep theirs."""
    before, played = _in_numbers(data.entries, data.results)
    fixed = np.array([e.role == "anchor" for e in data.entries], bool)
    return dataclasses.replace(
        data, entries=tuple(_with(data.entries, rate_jointly(before, played, data.system, fixed)))
    )


def _in_numbers(entries: Sequence[Entry], rows: Sequence[Pairing]) -> tuple[Ratings, Results]:
    """The ratings of entries and their results; a player is an index.

    Raises:
        LeagueError: games of an entry that is not there.
    """
    index_of = {entry.id: i for i, entry in enumerate(entries)}
    for row in rows:
        for who in (row.a, row.b):
            if who not in index_of:
                raise LeagueError(f"results must be of entries of the league, got {who!r}")
    ratings = Ratings(*(np.array([getattr(e, name) for e in entries], np.float64) for name in Ratings._fields))
    played = results(
        np.array([index_of[row.a] for row in rows], np.int64),
        np.array([index_of[row.b] for row in rows], np.int64),
        np.array([row.score for row in rows], np.float64),
        np.array([row.games for row in rows], np.float64),
    )
    return ratings, played


def _with(entries: Sequence[Entry], ratings: Ratings) -> list[Entry]:
    """Entries with other ratings."""
    numbers = ([float(x) for x in field] for field in ratings)
    return [
        dataclasses.replace(e, rating=rating, deviation=deviation, volatility=volatility)
        for e, rating, deviation, volatility in zip(entries, *numbers, strict=True)
    ]


def _games_before(data: LeagueData) -> list[int]:
    """The games that each entry had played before it joined, which the results do not hold."""
    told = dict.fromkeys((e.id for e in data.entries), 0)
    for row in data.results:
        told[row.a] += row.games
        told[row.b] += row.games
    return [e.games - told[e.id] for e in data.entries]


def _game_of(data: LeagueData, folder: Path) -> EnvConfig | None:
    if data.game is None:
        return None
    try:
        return migrations.env_config(dict(data.game))
    except (TypeError, ValueError) as error:
        raise LeagueError(f"the league in {folder} plays a game that this version does not have: {error}") from error


def _require_game(game: EnvConfig, other: EnvConfig, name: str) -> None:
    """Refuse a policy of another game. The reward may differ."""
    theirs = dataclasses.replace(other, reward=game.reward)
    fields = [f.name for f in dataclasses.fields(game) if getattr(theirs, f.name) != getattr(game, f.name)]
    if fields:
        raise LeagueError(f"{name} was trained for another game than the league's: it differs in {', '.join(fields)}")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name_of(path: Path, policy: Policy) -> str:
    """A short name: the run's directory and the update, or the file's stem."""
    if is_zoo_name(path):
        return str(path)
    path = path.absolute()
    if path.is_file():
        return path.stem
    run = path.parents[1] if path.parent.name == "checkpoints" else path
    return f"{run.name}@{policy.update}"
