"""The league file of the original Echelon as a league here: ratings, names, ranks and weights (docs/spec/arena.md 5.3)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

from echelon_jax.arena import storage, store
from echelon_jax.arena.glicko2 import Glicko2
from echelon_jax.arena.league import League
from echelon_jax.arena.records import Entry, LeagueData, LeagueError

_CONSTANTS = {"tau": "tau", "epsilon": "tolerance", "rating0": "rating", "rd0": "deviation", "vol0": "volatility"}


class Imported(NamedTuple):
    """The new league, and one sentence for each part of the file that could not be taken over."""

    league: League
    notes: tuple[str, ...]


def import_league(file: str | Path, folder: str | Path, checkpoints: str | Path | None = None) -> Imported:
    """Make a league in `folder` from the original's league file.

    The weights of an entry are searched at the path in the file, and by their file name in `checkpoints`. An entry without
    weights, or with weights of another game than the first entry's, is kept as retired: its rating stays, and it does not play.

    Raises:
        LeagueError: the file is missing, damaged or foreign, or `folder` holds a league already.
    """
    file, folder = Path(file), Path(folder)
    if storage.exists(folder):
        raise LeagueError(f"{folder} holds a league already; give another folder")
    found = _read(file)
    notes: list[str] = []
    system = _system(found, file)
    entries: list[Entry] = []
    game: dict[str, Any] | None = None
    folder.mkdir(parents=True, exist_ok=True)
    for row in found["entries"]:
        entry = _entry(row, file)
        weights = _weights(row, checkpoints)
        if weights is None:
            notes.append(f"{entry.name} is retired: its weights {row.get('ckpt_path')} are not there")
        else:
            try:
                policy, _ = store.read_policy(weights)
                fields = dataclasses.asdict(policy.env_config)
                if game is not None and fields != game:
                    raise LeagueError("it was trained for another game than the first entry")
                game = fields
                number = store.fingerprint(policy)
                if any(e.id == number for e in entries):
                    raise LeagueError("its weights are those of an earlier entry, whose file was overwritten")
                entry = dataclasses.replace(entry, id=number, source=store.keep(folder, policy), role=_role(row))
            except LeagueError as error:
                notes.append(f"{entry.name} is retired: {error}")
        if any(e.name == entry.name for e in entries):
            entry = dataclasses.replace(entry, name=f"{entry.name}-{entry.id[:4]}")
        left = 0 if entry.role == "retired" else None
        entries.append(dataclasses.replace(entry, left=left))
    with storage.locked(folder):
        storage.write(folder, LeagueData(game=game, system=system, entries=tuple(entries)))
    return Imported(League(folder), tuple(notes))


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LeagueError(f"there is no readable league file at {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise LeagueError(f"{file} is damaged: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list) or "schema_version" not in found:
        raise LeagueError(f"{file} is not a league file of the original: it has no schema_version and entries")
    if found["schema_version"] != 1:
        raise LeagueError(f"{file} has schema_version {found['schema_version']!r}, this version reads 1")
    return found


def _system(found: dict[str, Any], file: Path) -> Glicko2:
    given = found.get("glicko2") or {}
    try:
        return Glicko2(**{ours: given[theirs] for theirs, ours in _CONSTANTS.items() if theirs in given})
    except (TypeError, ValueError) as error:
        raise LeagueError(f"{file} is damaged: {error}") from error


def _entry(row: dict[str, Any], file: Path) -> Entry:
    """The entry without its weights."""
    try:
        rating, deviation, volatility = (float(row["rating"][name]) for name in ("rating", "rd", "vol"))
        number = str(row["id"])
        return Entry(
            id=number,
            name=str(row.get("commander_name") or number.split(":")[0]),
            kind="policy",
            source=None,
            role="retired",
            created_at=str(row["created_at"]),
            joined=0,
            start=(rating, deviation, volatility),
            rating=rating,
            deviation=deviation,
            volatility=volatility,
            games=int(row.get("games", 0)),
            origin={"from": "original league", "id": number, "meta": row.get("meta") or {}},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LeagueError(f"{file} is damaged: an entry has no readable {error}") from error


def _role(row: dict[str, Any]) -> str:
    return "commander" if row.get("kind") == "commander" else "candidate"


def _weights(row: dict[str, Any], checkpoints: str | Path | None) -> Path | None:
    named = Path(str(row.get("ckpt_path", "")))
    candidates = [named] if checkpoints is None else [named, Path(checkpoints) / named.name]
    return next((weights for weights in candidates if weights.is_file()), None)
