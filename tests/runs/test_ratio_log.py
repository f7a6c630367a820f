"""RUN/ratios.jsonl is written where a ratio exceeds the alarm, and names the entries."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.ratio_log import RatioLog
from echelon_jax.training.diagnostics import WorstRatios


def worst(*ratios: list[float]) -> WorstRatios:
    """One row per update; an entry's place tells its number."""
    sizes = np.log(np.asarray(ratios, np.float32))
    number = np.broadcast_to(np.arange(sizes.shape[1], dtype=np.float32), sizes.shape)
    old = np.full(sizes.shape, -1.0, np.float32)
    raw = np.stack([number, -number], -1)
    return WorstRatios(sizes, number, number + 10, number % 5, number % 2, old, old + sizes, raw)  # type: ignore[arg-type]


def lines(place: Path) -> list[dict]:
    return [json.loads(text) for text in (place / "ratios.jsonl").read_text().splitlines()]


def test_only_updates_and_entries_beyond_the_alarm_are_written_the_worst_first(tmp_path: Path) -> None:
    log = RatioLog(tmp_path, ("throttle", "trigger"), alarm=10.0)
    log.take(worst([2.0, 3.0, 0.5], [9.0, 40.0, 0.02]), last_update=7)
    [line] = lines(tmp_path)
    assert line["update"] == 7
    assert [entry["ratio"] for entry in line["entries"]] == pytest.approx([0.02, 40.0], rel=1e-5)
    first = line["entries"][0]
    assert (first["arena"], first["time"], first["mech"], first["head"]) == (2, 12, 2, "throttle")
    assert first["raw_action"] == [2.0, -2.0]
    assert first["new_log_prob"] - first["old_log_prob"] == pytest.approx(math.log(0.02), rel=1e-5)


@pytest.mark.parametrize(("alarm", "found"), [(0.0, None), (10.0, None), (10.0, worst([9.9, 0.2]))])
def test_without_an_alarm_there_is_no_file(tmp_path: Path, alarm: float, found: WorstRatios | None) -> None:
    RatioLog(tmp_path, ("throttle",), alarm).take(found if alarm else worst([1e6, 1e-6]), 1)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot write to"):
        RatioLog(tmp_path / "missing", ("throttle", "trigger"), 10.0).take(worst([50.0, 1.0]), 1)


def test_where_both_sides_learn_an_entry_says_of_which_it_is(tmp_path: Path) -> None:
    """Seats of arena 0 are 0 and 1, and so on (training/sides.py)."""
    RatioLog(tmp_path, ("throttle", "trigger"), 10.0, sides=2).take(worst([50.0, 40.0, 30.0, 20.0]), 1)
    [line] = lines(tmp_path)
    assert [(entry["arena"], entry["side"]) for entry in line["entries"]] == [
        (0, "own"), (0, "other"), (1, "own"), (1, "other"),
    ]  # fmt: skip
