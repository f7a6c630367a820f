"""RUN/ratios.jsonl: the entries of an update whose probabilities changed most, where a ratio exceeds the alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from echelon_jax.runs.sinks import append_line
from echelon_jax.training.diagnostics import WorstRatios


class RatioLog:
    """Takes the worst ratios of one run.

    Args:
        run_dir: where ratios.jsonl goes; there is no file before the first alarm.
        heads: names of the action heads.
        alarm: the ratio, or its inverse, from which an update is written down; 0 for never.
        sides: teams of an arena that learn. With two, an entry says of which it is: `own`, or `other`.
    """

    def __init__(self, run_dir: Path, heads: Sequence[str], alarm: float, sides: int = 1) -> None:
        self.path, self.heads, self.sides = run_dir / "ratios.jsonl", heads, sides
        self.limit = math.log(max(alarm, 1.0)) if alarm else math.inf

    def take(self, worst: WorstRatios | None, last_update: int) -> None:
        """Write a line for each update of a call that sets off the alarm; fields of `worst` lead with the updates.

        Raises:
            CheckpointError: the file cannot be written.
        """
        if worst is None:
            return
        sizes = np.abs(np.asarray(worst.log_ratio))
        for row in np.flatnonzero(sizes.max(-1) >= self.limit).tolist():
            update = last_update - len(sizes) + 1 + row
            order = np.argsort(-sizes[row], kind="stable").tolist()
            entries = [self._entry(worst, row, k) for k in order if sizes[row, k] >= self.limit]
            append_line(self.path, {"update": update, "entries": entries})

    def _entry(self, worst: WorstRatios, row: int, k: int) -> dict[str, object]:
        whole = {name: int(np.asarray(getattr(worst, name))[row, k]) for name in ("arena", "mech", "time", "head")}
        arena, seat = divmod(whole["arena"], self.sides)
        side = {} if self.sides == 1 else {"side": ("own", "other")[seat]}
        old, new = (float(np.asarray(x)[row, k]) for x in (worst.old_log_prob, worst.new_log_prob))
        return {
            **whole,
            "arena": arena,
            **side,
            "head": self.heads[whole["head"]],
            "ratio": float(np.exp(np.asarray(worst.log_ratio, np.float64)[row, k])),
            "old_log_prob": old,
            "new_log_prob": new,
            "raw_action": [float(x) for x in np.asarray(worst.raw_action)[row, k]],
        }
