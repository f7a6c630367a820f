"""The benchmark that ranks short and long runs: what a proxy is, how a run is told to be one, how agreement is measured."""

from __future__ import annotations

import dataclasses
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from echelon_jax.cli.main import parsed
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.curriculum import parse

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "ranking.py"))
shortened, flags, agreement, page = (TOOL[name] for name in ("shortened", "flags", "agreement", "page"))
PRESET = TrainConfig.cpu(devices=1, validation_every=0)


def test_a_proxy_has_a_quarter_of_the_updates_and_every_schedule_a_quarter_as_long() -> None:
    proxy = shortened(PRESET, 4)
    for name in ("updates", "teacher_updates", "after_death_start", "after_death_ramp"):
        assert getattr(proxy, name) == getattr(PRESET, name) / 4
    long, short = parse(PRESET.curriculum), parse(proxy.curriculum)
    assert [stage.update for stage in short] == [stage.update / 4 for stage in long]
    assert [stage.values for stage in short] == [stage.values for stage in long]
    same = {"updates", "teacher_updates", "after_death_start", "after_death_ramp", "bank_swap_every", "curriculum"}
    assert {f.name for f in dataclasses.fields(proxy) if getattr(proxy, f.name) != getattr(PRESET, f.name)} == same


def test_what_is_off_stays_off() -> None:
    proxy = shortened(dataclasses.replace(PRESET, curriculum="", bank_swap_every=0, after_death_start=0), 4)
    assert (proxy.curriculum, proxy.bank_swap_every, proxy.after_death_start) == ("", 0, 0)


@pytest.mark.parametrize("changes", TOOL["VARIANTS"].values(), ids=TOOL["VARIANTS"].keys())
def test_the_command_line_of_a_run_makes_its_configuration(changes: dict[str, object]) -> None:
    config = shortened(dataclasses.replace(PRESET, **changes), 4)  # type: ignore[arg-type]
    made, _ = parsed(["train", "--preset", "cpu", *flags(config)]).configurations()
    assert made == config


def test_equal_orders_agree_and_opposite_ones_do_not() -> None:
    scores = [0.1, 0.4, 0.2, 0.8, 0.6]
    assert agreement(scores, [s * s for s in scores]) == pytest.approx((1.0, 1 / 120, 1.0))
    rank, p, pairs = agreement(scores, [-s for s in scores])
    assert (rank, p, pairs) == pytest.approx((-1.0, 1.0, 0.0))


def test_one_neighbouring_pair_the_other_way_costs_one_pair_of_ten() -> None:
    """Spearman: 1 - 6 (1 + 1) / (5 (25 - 1))."""
    rank, _, pairs = agreement([1, 2, 3, 4, 5], [1, 2, 4, 3, 5])
    assert (rank, pairs) == pytest.approx((0.9, 0.9))


def test_the_page_names_every_variant_with_every_score() -> None:
    scores = {name: {"proxy": [0.1 * i, 0.2 - 0.01 * i], "long": [0.2 * i]} for i, name in enumerate("abcd")}
    seeds = {"seeds": [7], "proxy_seeds": [7, 8]}
    training = {2: {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.0}}
    made = {"command": "python x", "games": 4, **seeds, "updates": {"proxy": 1, "long": 4}}
    text = page({**made, "scores": scores, "training": training})
    assert "| d | 30.0%, 17.0% | 60.0% |" in text
    assert "| all, their mean | 1.00 | 0.042 | 100% |" in text
    assert "| 8 alone | -1.00 | 1.000 | 0% |" in text
    assert "| 2 | -1.00 | 1.000 | 0% |" in text


def test_an_early_look_takes_the_ten_updates_up_to_one(tmp_path: Path) -> None:
    lines = [{"update": n, "win_rate": None if n == 20 else float(n > 10)} for n in range(1, 41)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert TOOL["seen_in_training"](tmp_path, 20) == pytest.approx(0.9)  # 11 to 19, and 20 in which no game ended


def test_scores_that_are_all_equal_have_no_rank() -> None:
    rank, p, pairs = agreement([0.2, 0.2, 0.2], [0.1, 0.2, 0.3])
    assert np.isnan(rank) and (p, pairs) == (1.0, 0.5)
