"""The plain reference on its own: it plays recorded episodes from the first row to the end with the recorded draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from echelon_jax.parity.recorded.event_counts import EventCount
from echelon_jax.parity.recorded.teacher_forced import FieldCount
from echelon_jax.reference.golden import Count, Episode, Report, replay

# Counts at the end of an episode that are shown as one row.
_TOGETHER = {"statistic": "statistics", "outcome": "outcome"}


@dataclasses.dataclass
class FreeRunning:
    """The result of following recorded episodes.

    Attributes:
        episodes: number of episodes followed.
        steps: decision steps compared.
        fields: counts of values by field; a difference is always unexplained here.
        events: counts of events by type.
        mismatches: one sentence for each thing that differs, with the episode's name.
    """

    episodes: int = 0
    steps: int = 0
    fields: dict[str, FieldCount] = dataclasses.field(default_factory=dict)
    events: dict[str, EventCount] = dataclasses.field(default_factory=dict)
    mismatches: list[str] = dataclasses.field(default_factory=list)

    def add(self, name: str, report: Report) -> None:
        """Add the replay of one episode."""
        self.episodes += 1
        self.steps += report.steps
        for field, count in report.fields.items():
            merged = self.fields.setdefault(_TOGETHER.get(field.split()[0], field), FieldCount())
            merged.merge(FieldCount(**_counted(count), largest=report.largest.get(field, 0.0)))
        for kind, count in report.events.items():
            self.events.setdefault(kind, EventCount()).merge(EventCount(**_counted(count)))
        self.mismatches += [f"{name}: {line}" for line in report.mismatches]


def _counted(count: Count) -> dict[str, int]:
    return {
        "rows": count.rows,
        "exact": count.exact,
        "within_tolerance": count.within_tolerance,
        "unexplained": count.different,
    }


def follow_files(paths: Sequence[Path], report: Callable[[str], Any] = lambda line: None) -> FreeRunning:
    """Follow every recorded episode to its end; `report` is called with one line about each."""
    result = FreeRunning()
    for path in paths:
        known = len(result.mismatches)
        result.add(path.stem, replay(Episode(path), teacher_forced=False))
        report(f"{path.stem}: followed, {len(result.mismatches) - known} differences")
    return result
