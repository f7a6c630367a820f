"""The log of the guard on the host: RUN/events.jsonl, a note on the console, and RUN/guard_report.json when it gives up."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.guard import CAUSES, GuardState, Names, Report, events, sentence

VERSION = 1  # of the lines in events.jsonl
_REMEMBERED = 20


class RunStopped(CheckpointError):
    """The guard gave up; the state is saved and the message says where the report is."""


class GuardLog:
    """Takes the guard's reports of one run.

    Args:
        run_dir: where events.jsonl and guard_report.json go.
        names: the names of the findings.
        note: is called with each event as a sentence.
    """

    def __init__(self, run_dir: Path, names: Names, note: Callable[[str], None]) -> None:
        self.run_dir, self.names, self.note = run_dir, names, note
        self.gave_up = False
        self._last: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)

    def take(self, report: Report | None, last_update: int) -> dict[str, float | None]:
        """Log the events of the call that ended with an update, and return its numbers for the metrics.

        Raises:
            CheckpointError: the events cannot be written.
        """
        if report is None:
            return {}
        count = np.asarray(report.dropped).size
        found = events(self.names, report, last_update - count + 1)
        for event in found:
            if not self.gave_up:
                self.note(sentence(event))
            self.gave_up |= event["failed"]
        self._last.extend(found)
        if found:
            path = self.run_dir / "events.jsonl"
            try:
                with path.open("a") as log:
                    log.writelines(json.dumps({"version": VERSION, **event}) + "\n" for event in found)
            except OSError as error:
                raise CheckpointError(f"cannot write to {path}: {error.strerror or error}") from error
        return {
            "guard/dropped": float(np.asarray(report.dropped).sum()),
            "guard/rollbacks": float(np.asarray(report.rolled_back).sum()),
            "guard/rate": float(np.asarray(report.rate)[-1]),
        }

    def give_up(self, state: GuardState, config: TrainConfig, checkpoint: Path) -> RunStopped:
        """Write the report and return the exception to raise."""
        path = self.run_dir / "guard_report.json"
        counts = {cause: int(n) for cause, n in zip(CAUSES, np.asarray(state.counts), strict=True)}
        content = {
            "version": VERSION,
            "bad_updates_by_cause": counts,
            "last_events": list(self._last),
            "thresholds": dataclasses.asdict(config.guard_config),
            "checkpoint": str(checkpoint),
        }
        try:
            path.write_text(json.dumps(content, indent=1))
        except OSError as error:
            raise CheckpointError(f"cannot write to {path}: {error.strerror or error}") from error
        worst = max(counts, key=lambda cause: counts[cause])
        return RunStopped(
            f"the guard gave up after {config.guard_retries} rollbacks, most often for {worst}; the learner as it was "
            f"before is saved in {checkpoint}, the report in {path}"
        )
