"""The contents of a league file: entries, results and settings as plain records. Only this file knows its JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from echelon_jax.arena.glicko2 import Glicko2
from echelon_jax.arena.rules import ROLES, Rules

FORMAT = 1
KINDS = ("policy", "agent")


class LeagueError(Exception):
    """A league could not be read, changed or played; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One player of a league.

    Attributes:
        id: the fingerprint of a policy's content, or an agent's name.
        name: the name in tables; no two entries share one.
        kind: "policy" (weights in the league's folder) or "agent" (made by its name, `agents.registry`).
        source: folder of the weights relative to the league's, the agent's name, or None where the weights are lost.
        role: one of `rules.ROLES`.
        created_at: UTC, YYYY-MM-DDTHH:MM:SSZ.
        joined: number of finished rating periods when it joined.
        left: number of finished rating periods when it was retired, None while it plays.
        start: its first rating, deviation and volatility.
        rating, deviation, volatility, games: the present values.
        parent: id of the entry from which it was trained, None if unknown.
        origin: its origin, any JSON.
    """

    id: str
    name: str
    kind: str
    source: str | None
    role: str
    created_at: str
    joined: int
    start: tuple[float, float, float]
    rating: float
    deviation: float
    volatility: float
    games: int = 0
    left: int | None = None
    parent: str | None = None
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def plays(self) -> bool:
        """Whether it takes part in games."""
        return self.role != "retired" and self.source is not None


@dataclasses.dataclass(frozen=True)
class Pairing:
    """Games of two entries in one rating period, from a's point of view."""

    a: str
    b: str
    wins: int
    draws: int
    losses: int
    period: int = 0

    @property
    def games(self) -> int:
        """Number of games."""
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """Mean score of a, 0 to 1."""
        return (self.wins + 0.5 * self.draws) / self.games


@dataclasses.dataclass(frozen=True)
class LeagueData:
    """Everything that a league file holds.

    Attributes:
        game: fields of the EnvConfig that all entries play, None until the first policy names it.
        system: constants of the ratings.
        rules: the rules of promotion and retirement.
        entries: entries in the order in which they joined.
        results: results in the order in which they were played.
        periods: number of finished rating periods.
    """

    game: Mapping[str, Any] | None = None
    system: Glicko2 = dataclasses.field(default_factory=Glicko2)
    rules: Rules = dataclasses.field(default_factory=Rules)
    entries: tuple[Entry, ...] = ()
    results: tuple[Pairing, ...] = ()
    periods: int = 0


def to_text(data: LeagueData) -> str:
    """Return a league file's text: entries over several lines, one line for each pairing."""
    head = {
        "format": FORMAT,
        "game": data.game,
        "glicko2": dataclasses.asdict(data.system),
        "rules": dataclasses.asdict(data.rules),
        "periods": data.periods,
        "entries": [dataclasses.asdict(entry) for entry in data.entries],
    }
    rows = [json.dumps([p.period, p.a, p.b, p.wins, p.draws, p.losses]) for p in data.results]
    return json.dumps(head, indent=1)[:-2] + ',\n "results": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n"


def from_text(text: str, file_name: str) -> LeagueData:
    """Return the contents of a league file's text; `file_name` is the file's name in messages.

    Raises:
        LeagueError: not a league file, of a newer format, or damaged (the field is named).
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise LeagueError(f"{file_name} is damaged and was left as it is: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise LeagueError(f"{file_name} is not a league file: it names no format")
    if found["format"] > FORMAT:
        raise LeagueError(
            f"{file_name} has format {found['format']}, this version reads up to {FORMAT}; update echelon-jax to use it"
        )
    try:
        data = LeagueData(
            game=None if found["game"] is None else dict(found["game"]),
            system=Glicko2(**found["glicko2"]),
            rules=Rules(**found["rules"]),
            entries=tuple(_entry(row) for row in found["entries"]),
            results=tuple(_pairing(row) for row in found["results"]),
            periods=_whole("periods", found["periods"]),
        )
    except KeyError as error:
        raise LeagueError(f"{file_name} is damaged and was left as it is: it lacks {error.args[0]}") from error
    except (TypeError, ValueError) as error:
        raise LeagueError(f"{file_name} is damaged and was left as it is: {error}") from error
    known = {entry.id for entry in data.entries}
    if len(known) < len(data.entries):
        raise LeagueError(f"{file_name} is damaged and was left as it is: two entries have one id")
    for row in data.results:
        if row.a not in known or row.b not in known:
            raise LeagueError(f"{file_name} is damaged and was left as it is: results of an entry that is not there")
    return data


def _entry(row: Mapping[str, Any]) -> Entry:
    fields = dict(row)
    for name in ("id", "name", "kind", "role", "created_at"):
        if not isinstance(fields[name], str) or not fields[name]:
            raise ValueError(f"{name} of an entry must be text, got {fields[name]!r}")
    for name, allowed in (("kind", KINDS), ("role", ROLES)):
        if fields[name] not in allowed:
            raise ValueError(f"{name} of {fields['name']} must be one of {', '.join(allowed)}, got {fields[name]!r}")
    for name in ("rating", "deviation", "volatility"):
        fields[name] = _number(f"{name} of {fields['name']}", fields[name])
    for name in ("joined", "games"):
        fields[name] = _whole(f"{name} of {fields['name']}", fields[name])
    fields["start"] = tuple(_number(f"start of {fields['name']}", value) for value in fields["start"])
    if len(fields["start"]) != 3:
        raise ValueError(f"start of {fields['name']} must be three numbers")
    return Entry(**fields)


def _pairing(row: Any) -> Pairing:
    period, a, b, *counts = row
    wins, draws, losses = (_whole("a count of games", count) for count in counts)
    pairing = Pairing(str(a), str(b), wins, draws, losses, _whole("the period of a result", period))
    if pairing.games == 0 or a == b:
        raise ValueError(f"results of {a} against {b} must be games of two entries")
    return pairing


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number from 0, got {value!r}")
    return value
