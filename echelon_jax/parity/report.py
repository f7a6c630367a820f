"""The report of a parity run, as plain data for JSON and as tables for a terminal."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Console

from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.recorded.event_counts import EventCount
from echelon_jax.parity.recorded.free_running import FreeRunning
from echelon_jax.parity.recorded.queries import REQUIRED_SHARE, QueryCount
from echelon_jax.parity.recorded.teacher_forced import (
    BY_NUDGE,
    BY_REFERENCE,
    UNEXPLAINED,
    Difference,
    FieldCount,
    Result,
)
from echelon_jax.terminal import number_table

REQUIRED_AGREEMENT = 0.999  # of the rows of living mechs, before any explanation
COLUMNS = ("rows", "exact", "within_tolerance", "explained", "unexplained")


@dataclasses.dataclass
class Report:
    """All sections of a run. A section without data, or that the user left out, is None.

    Attributes:
        episodes: teacher-forced steps.
        rays: line-of-sight queries by kind, summed over files.
        worlds: generated worlds.
        fuzz: random steps in both simulators, by shape.
        reference: the plain reference through whole episodes on its own.
        seconds: wall time.
        whole_set: the share of agreeing rows is a property of all recordings together; a few chosen files may fall short.
    """

    episodes: Result | None = None
    rays: dict[str, QueryCount] | None = None
    worlds: QueryCount | None = None
    fuzz: dict[str, fuzz.Result] | None = None
    reference: FreeRunning | None = None
    seconds: float = 0.0
    whole_set: bool = True

    def failures(self) -> list[str]:
        """The failures, one sentence each; empty when everything holds."""
        found = []
        if self.episodes is not None:
            if self.episodes.unexplained:
                found.append(
                    f"{self.episodes.unexplained} of {self.episodes.steps} steps differ without an explanation"
                )
            if self.whole_set and self.episodes.agreeing < REQUIRED_AGREEMENT * self.episodes.mech_rows:
                share = self.episodes.agreeing / self.episodes.mech_rows
                found.append(f"only {share:.3%} of the rows of living mechs agree in every field")
        for name, count in (self.rays or {}).items():
            # Ties decide lattice rays, and float32 decides some of them otherwise: reported, not required.
            required = {"lattice_rays": 0.0, "boxes": 1.0}.get(name, REQUIRED_SHARE)
            if count.share < required:
                found.append(f"only {count.share:.3%} of the {name} agree")
        if self.worlds is not None and self.worlds.exact < self.worlds.rows:
            found.append(f"{self.worlds.rows - self.worlds.exact} of {self.worlds.rows} worlds differ")
        for name, result in (self.fuzz or {}).items():
            found += [f"{name}: random step {f.seed} differs in {', '.join(f.fields)}" for f in result.unexplained]
        if self.reference is not None:
            found += self.reference.mismatches
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the keys of the tables."""
        return {
            "ok": not self.failures(),
            "failures": self.failures(),
            "seconds": round(self.seconds, 1),
            "episodes": None if self.episodes is None else _episodes(self.episodes),
            "rays": None if self.rays is None else {name: _count(count) for name, count in self.rays.items()},
            "worlds": None if self.worlds is None else _count(self.worlds),
            "fuzz": None if self.fuzz is None else {name: _fuzzed(result) for name, result in self.fuzz.items()},
            "reference": None if self.reference is None else _followed(self.reference),
        }

    def show(self, console: Console) -> None:
        """Print the tables and whether everything holds."""
        data = self.as_dict()
        if self.episodes is not None:
            _show_episodes(console, data["episodes"])
        counts = {**(data["rays"] or {}), **({} if data["worlds"] is None else {"worlds": data["worlds"]})}
        if counts:
            table = number_table("queries", ("rows", "exact", "share"), "Recorded queries")
            for name, count in counts.items():
                table.add_row(name, str(count["rows"]), str(count["exact"]), f"{count['share']:.4%}")
            console.print(table)
        for name, section in (data["fuzz"] or {}).items():
            _show_fields(console, f"Random steps, {name}", section["fields"])
            _show_events(console, f"Events of random steps, {name}", section["events"])
            console.print(
                f"{name}: {section['steps']} steps, {section['mech_rows']} rows of living mechs; steps explained by"
                f" float32 rays {section['steps_explained_by_rays']}, by a nudge {section['steps_explained_by_nudge']},"
                f" unexplained {section['steps_unexplained']}"
            )
        if data["reference"] is not None:
            _show_fields(console, "The reference on its own", data["reference"]["fields"])
            _show_events(console, "Events of the reference on its own", data["reference"]["events"])
            console.print(
                f"{data['reference']['steps']} steps of {data['reference']['episodes']} episodes followed to the end"
            )
        for failure in data["failures"]:
            console.print(failure, style="red", markup=False)
        if data["ok"]:
            console.print("Everything that was compared agrees or is explained.", style="green")


def _count(count: QueryCount) -> dict[str, Any]:
    return {"rows": count.rows, "exact": count.exact, "share": count.share}


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "episode": difference.episode,
        "row": difference.row,
        "fields": list(difference.fields),
        "mechs": list(difference.mechs),
        "explanation": difference.explanation,
    }


def _episodes(result: Result) -> dict[str, Any]:
    by = {why: sum(d.explanation == why for d in result.differences) for why in (BY_NUDGE, BY_REFERENCE, UNEXPLAINED)}
    return {
        "steps": result.steps,
        "mech_rows": result.mech_rows,
        "mech_rows_agreeing": result.agreeing,
        "mech_rows_agreeing_share": result.agreeing / result.mech_rows if result.mech_rows else 1.0,
        "steps_explained_by_nudge": by[BY_NUDGE],
        "steps_explained_by_reference": by[BY_REFERENCE],
        "steps_unexplained": by[UNEXPLAINED],
        **_fields_and_events(result.fields, result.events),
        "differences": [_difference(d) for d in result.differences],
    }


def _fields_and_events(fields: dict[str, FieldCount], events: dict[str, EventCount]) -> dict[str, Any]:
    return {
        "fields": {name: dataclasses.asdict(count) for name, count in fields.items()},
        "events": {kind: dataclasses.asdict(count) for kind, count in sorted(events.items())},
    }


def _fuzzed(result: fuzz.Result) -> dict[str, Any]:
    return {
        "steps": result.steps,
        "mech_rows": result.mech_rows,
        "steps_explained_by_rays": result.explained[fuzz.BY_RAYS],
        "steps_explained_by_nudge": result.explained[fuzz.BY_NUDGE],
        "steps_unexplained": len(result.unexplained),
        **_fields_and_events(result.fields, result.events),
        "differences": [dataclasses.asdict(found) for found in result.found],
    }


def _followed(result: FreeRunning) -> dict[str, Any]:
    return {
        "episodes": result.episodes,
        "steps": result.steps,
        **_fields_and_events(result.fields, result.events),
    }


def _show_fields(console: Console, title: str, fields: dict[str, Any]) -> None:
    table = number_table("field", [heading.replace("_", " ") for heading in (*COLUMNS, "largest")], title)
    for name, count in fields.items():
        style = "red" if count["unexplained"] else None
        table.add_row(name, *(str(count[key]) for key in COLUMNS), f"{count['largest']:.0e}", style=style)
    console.print(table)


def _show_events(console: Console, title: str, events: dict[str, Any]) -> None:
    table = number_table("event", [heading.replace("_", " ") for heading in COLUMNS], title)
    for kind, count in events.items():
        table.add_row(kind, *(str(count[key]) for key in COLUMNS), style="red" if count["unexplained"] else None)
    console.print(table)


def _show_episodes(console: Console, data: dict[str, Any]) -> None:
    _show_fields(console, "Teacher-forced steps", data["fields"])
    _show_events(console, "Events of teacher-forced steps", data["events"])
    for d in data["differences"]:
        console.print(
            f"{d['episode']} row {d['row']} ({d['explanation']}): mechs {d['mechs']}, {', '.join(d['fields'])}"
        )
    console.print(
        f"{data['steps']} steps; {data['mech_rows_agreeing']} of {data['mech_rows']} rows of living mechs"
        f" ({data['mech_rows_agreeing_share']:.3%}) agree in every field; steps explained by a nudge"
        f" {data['steps_explained_by_nudge']}, by the reference {data['steps_explained_by_reference']},"
        f" unexplained {data['steps_unexplained']}"
    )
