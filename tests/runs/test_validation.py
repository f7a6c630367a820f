"""Validation in a run, with a made-up validator: when it plays, what it leaves alone, and the best checkpoint that it chooses."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.made_up_runs import CONFIG, ENV, last, make_up, run, stop_after

from echelon_jax.runs import checkpoint, kept
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.validation import Validation, Validations
from echelon_jax.training.config import TrainConfig

SCORES = {3: 0.25, 6: 0.75, 9: 0.5, 12: 0.5}


class MadeUp:
    """Scores from a table; they also depend on the policy, as real ones do."""

    metric_names = ("validation/score",)

    def __init__(self, config: TrainConfig, env_config: Any) -> None:
        self.played: list[int] = []

    def __call__(self, params: Any, moments: Any, update: int) -> Validation:
        self.played.append(update)
        assert isinstance(
            next(iter(params.values())), (np.ndarray, dict)
        )  # a copy on the host, whatever training does next
        return Validation(SCORES[update], {"validation/score": SCORES[update]})


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch)


def validated(place: Path, *step: Any, **options: Any) -> None:
    run(place, *step, **{"validator": MadeUp, "validation_every": 3, "keep": 4, "save_every": 99, **options})


def lines(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]


def best(place: Path) -> int:
    return checkpoint.read_manifest(place / "checkpoints" / "best").update


def test_the_best_checkpoint_is_the_one_with_the_best_validation(tmp_path: Path) -> None:
    validated(tmp_path)
    assert best(tmp_path) == 6
    scores = {line["update"]: line["validation/score"] for line in lines(tmp_path)}
    assert scores == {update: SCORES.get(update) for update in range(1, 13)}
    assert all((line["seconds/validation"] is None) == (line["update"] not in SCORES) for line in lines(tmp_path))


def test_training_is_the_same_with_and_without_validation(tmp_path: Path) -> None:
    validated(tmp_path / "with")
    run(tmp_path / "without", save_every=99)
    assert last(tmp_path / "with")[0] == last(tmp_path / "without")[0]


def test_a_run_that_crashes_validates_at_the_same_updates(tmp_path: Path) -> None:
    validated(tmp_path / "whole")
    for number, launches in enumerate((5, 4)):
        with pytest.raises(MemoryError):
            validated(tmp_path / "crashed", stop_after(launches), resume=number > 0)
    validated(tmp_path / "crashed", resume=True)
    assert last(tmp_path / "crashed") == last(tmp_path / "whole")
    assert best(tmp_path / "crashed") == best(tmp_path / "whole")
    shown = [
        [(line["update"], line["validation/score"]) for line in lines(tmp_path / name)] for name in ("whole", "crashed")
    ]
    assert shown[0] == shown[1]


def test_scores_of_two_kinds_do_not_compare(tmp_path: Path) -> None:
    run(tmp_path, updates=1)
    path = tmp_path / "checkpoints" / "best" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "score": 0.99}))  # in training games
    validated(tmp_path, resume=True, updates=3)
    assert best(tmp_path) == 3


@pytest.mark.parametrize("per_call", [1, 2, 5])
def test_one_validation_is_due_in_each_interval_of_updates(per_call: int) -> None:
    config = TrainConfig(**{**CONFIG.__dict__, "validation_every": 4, "updates": 100, "updates_per_call": per_call})
    plan = Validations(MadeUp, config, ENV)
    due = [update for update in range(per_call, 101, per_call) if plan.due(update)]
    assert len(due) == (25 if per_call < 4 else 20)
    assert all(first // 4 < second // 4 for first, second in itertools.pairwise(due))


def test_a_run_with_validation_needs_somebody_who_plays_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="validator must be given where validation_every is 3"):
        run(tmp_path, validation_every=3)


# -- Going on from a kept checkpoint ---------------------------------------------------------------------------------------


def test_a_run_goes_on_from_any_checkpoint_that_it_keeps(tmp_path: Path) -> None:
    validated(tmp_path)
    whole = last(tmp_path)
    assert checkpoint.saved_updates(tmp_path) == [3, 6, 9, 12]
    with pytest.raises(MemoryError):
        validated(tmp_path, stop_after(0), resume=True, at=3)
    assert checkpoint.saved_updates(tmp_path) == [3]
    assert best(tmp_path) == 3, "the best of those that stay"
    assert [line["update"] for line in lines(tmp_path)] == [1, 2, 3]
    validated(tmp_path, resume=True)
    assert last(tmp_path) == whole and checkpoint.saved_updates(tmp_path) == [3, 6, 9, 12]
    assert best(tmp_path) == 6


def test_a_checkpoint_is_found_by_its_update_or_the_kept_ones_are_named(tmp_path: Path) -> None:
    run(tmp_path, keep=2, updates=3)
    assert kept.at_update(tmp_path, 3).name == "00000003"
    with pytest.raises(CheckpointError, match=r"keeps no checkpoint of update 5; it keeps those of 2, 3$"):
        kept.at_update(tmp_path, 5)
