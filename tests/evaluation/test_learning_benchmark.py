"""What the comparison of training variants says of them: differences are paired by seed, with an interval over the seeds."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "benchmarks" / "learning.py"))
paired_difference, differences = TOOL["paired_difference"], TOOL["differences"]


def runs(wins: list[float], seeds: list[int] | None = None) -> list[dict[str, Any]]:
    """Runs of a variant with such win rates."""
    numbers = range(len(wins)) if seeds is None else seeds
    return [{"seed": seed, "trained": {"win_rate": w, "zone_share": w}} for seed, w in zip(numbers, wins, strict=True)]


def test_what_the_seeds_share_cancels() -> None:
    """Seeds that differ much from each other, and a variant that gains the same with each."""
    base = [0.1, 0.5, 0.9]
    mean, low, high = paired_difference(runs(base), runs([w + 0.05 for w in base]), "win_rate")
    assert mean == pytest.approx(0.05) and (low, high) == pytest.approx((0.05, 0.05))


def test_the_interval_is_students() -> None:
    """Differences 0.1, 0.2 and 0.3: mean 0.2, deviation 0.1, and 4.303 times 0.1 / sqrt(3) to both sides."""
    mean, low, high = paired_difference(runs([0.0, 0.0, 0.0]), runs([0.1, 0.2, 0.3]), "win_rate")
    assert mean == pytest.approx(0.2)
    assert (high - low) / 2 == pytest.approx(4.3027 * 0.1 / np.sqrt(3), rel=1e-4)


def test_the_interval_of_five_seeds_holds_the_true_difference_as_often_as_it_says() -> None:
    random, inside = np.random.default_rng(0), 0
    for _ in range(1000):
        seed_effect, noise = random.normal(0, 0.3, 5), random.normal(0, 0.05, (2, 5))
        one, other = seed_effect + noise[0], seed_effect + 0.1 + noise[1]
        _, low, high = paired_difference(runs(list(one)), runs(list(other)), "win_rate")
        inside += low < 0.1 < high
    assert 930 < inside < 970


def test_other_seeds_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="same seeds"):
        paired_difference(runs([0.1, 0.2]), runs([0.1, 0.2], [3, 4]), "win_rate")


def test_one_variant_or_one_seed_has_no_differences() -> None:
    assert differences({"modern": runs([0.1, 0.2])}) == []
    assert differences({"modern": runs([0.1]), "other": runs([0.2])}) == []
    lines = differences({"modern": runs([0.1, 0.2]), "other": runs([0.2, 0.3])})
    assert lines[-1].startswith("| other | +0.100 (")


def test_a_run_of_another_game_is_refused_in_a_sentence() -> None:
    stored = ROOT / "tests" / "data" / "checkpoints" / "format4"
    with pytest.raises(
        SystemExit, match=r"runs must be of the cpu preset's game, revised or original, and .*format4 is not"
    ):
        TOOL["given_run"](stored, "cpu", 10, {"revised": "revised", "original": "original"})


def test_an_earlier_report_is_a_variant_with_its_name_and_commit(tmp_path: Path) -> None:
    file, before = tmp_path / "goal.json", TOOL["earlier_runs"]
    file.write_text(json.dumps({"commit": "0123456789", "games": 400, "variants": {"modern": runs([0.1, 0.2])}}))
    assert before(f"lstm={file}", 400, [1, 0]) == {"lstm (0123456)": runs([0.1, 0.2])}
    for games, seeds in ((200, [0, 1]), (400, [0, 2])):
        with pytest.raises(SystemExit, match=f"before must be a report of {games} games a run and the same seeds"):
            before(f"lstm={file}", games, seeds)
    for told in (str(file), f"lstm={tmp_path / 'none.json'}"):
        with pytest.raises(SystemExit, match="before must be NAME=FILE with a report of this command, got "):
            before(told, 400, [0, 1])
