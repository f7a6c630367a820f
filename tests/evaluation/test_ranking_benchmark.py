"""The benchmark that ranks cheap and whole runs: what a proxy is, how a run is told to be one, how agreement is measured."""

from __future__ import annotations

import argparse
import dataclasses
import json
import runpy
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from echelon_jax.cli.main import parsed
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.curriculum import parse

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "ranking.py"))
shortened, narrowed, agreement, page = TOOL["shortened"], TOOL["narrowed"], TOOL["agreement"], TOOL["page"]
training_command, folder_of = TOOL["training_command"], TOOL["folder_of"]
PRESET = TrainConfig.cpu(devices=1, validation_every=0)


def test_a_short_proxy_has_a_quarter_of_the_updates_and_every_schedule_a_quarter_as_long() -> None:
    proxy = shortened(PRESET, 4)
    for name in ("updates", "teacher_updates", "after_death_start", "after_death_ramp"):
        assert getattr(proxy, name) == getattr(PRESET, name) / 4
    long, short = parse(PRESET.curriculum), parse(proxy.curriculum)
    assert [stage.update for stage in short] == [stage.update / 4 for stage in long]
    assert [stage.values for stage in short] == [stage.values for stage in long]
    same = {"updates", "teacher_updates", "after_death_start", "after_death_ramp", "bank_swap_every", "curriculum"}
    assert {f.name for f in dataclasses.fields(proxy) if getattr(proxy, f.name) != getattr(PRESET, f.name)} == same


def test_a_narrow_proxy_has_a_quarter_of_the_arenas_and_else_all_that_the_whole_run_has() -> None:
    proxy = narrowed(PRESET, 4)
    assert proxy.arenas == PRESET.arenas / 4 and dataclasses.replace(proxy, arenas=PRESET.arenas) == PRESET


def test_both_proxies_cost_a_quarter_of_the_environment_steps() -> None:
    costs = [config.updates * config.decisions_per_update for config in (shortened(PRESET, 4), narrowed(PRESET, 4))]
    assert costs == [PRESET.updates * PRESET.decisions_per_update / 4] * 2


def test_what_is_off_stays_off() -> None:
    proxy = shortened(dataclasses.replace(PRESET, curriculum="", bank_swap_every=0, after_death_start=0), 4)
    assert (proxy.curriculum, proxy.bank_swap_every, proxy.after_death_start) == ("", 0, 0)


@pytest.mark.parametrize("kind", TOOL["KINDS"])
@pytest.mark.parametrize("changes", TOOL["VARIANTS"].values(), ids=TOOL["VARIANTS"].keys())
def test_the_command_line_of_a_run_makes_its_configuration(
    changes: dict[str, object], kind: str, tmp_path: Path
) -> None:
    config = TOOL["KINDS"][kind](dataclasses.replace(PRESET, **changes), 4)  # type: ignore[arg-type]
    command = parsed(training_command(tmp_path, config))
    assert command.configurations()[0] == config
    assert command.run_dir == tmp_path and command.resume and command.eval_games == 0


def test_another_configuration_lies_elsewhere() -> None:
    """So that no run of an earlier preset is taken for one of today's."""
    one = folder_of(Path("work"), "one epoch", "whole", PRESET)
    assert one == folder_of(Path("work"), "one epoch", "whole", PRESET)
    assert one != folder_of(Path("work"), "one epoch", "whole", dataclasses.replace(PRESET, gamma=0.9))


def run_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> None:
    places = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["ranking.py", *places, *arguments])
    TOOL["main"]()


@pytest.mark.parametrize("wrong", [["--games", "3"], ["--jobs", "0"], ["--kernels", "fast"]])
def test_a_mistake_is_said_before_anything_trains(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_tool(monkeypatch, tmp_path, *wrong)
    assert wrong[0] in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_run_that_was_stopped_has_no_score(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = json.dumps({"runs": [{"updates": 30, "stopped_early": True}]})
    monkeypatch.setattr(subprocess, "run", lambda *given, **_: subprocess.CompletedProcess([], 0, stdout=told))
    with pytest.raises(SystemExit, match="was stopped after 30 updates"):
        TOOL["score"](tmp_path / "run", PRESET, 4)
    assert not list(tmp_path.glob("*.json"))


def test_after_a_failed_run_no_other_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun = []

    def failed(*given: object, **_: object) -> subprocess.CompletedProcess[str]:
        begun.append(given)
        time.sleep(0.05)
        return subprocess.CompletedProcess([], 1, stdout="")

    monkeypatch.setattr(subprocess, "run", failed)
    with pytest.raises(SystemExit, match=r"`echelon train` failed; .*train\.log has its output"):
        run_tool(monkeypatch, tmp_path, "--jobs", "1")
    assert len(begun) < len(TOOL["KINDS"]) * len(TOOL["VARIANTS"])


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
    scores = {
        name: {"short": [0.1 * i, 0.2 - 0.01 * i], "narrow": [0.5, 0.1 * i], "whole": [0.2 * i]}
        for i, name in enumerate("abcd")
    }
    seeds = {"seeds": [7], "proxy_seeds": [7, 8]}
    sizes = {"updates": {"short": 1, "narrow": 4, "whole": 4}, "arenas": {"short": 8, "narrow": 2, "whole": 8}}
    training = {2: {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.0}}
    text = page({"command": "python x", "games": 4, **seeds, **sizes, "scores": scores, "training": training})
    assert "| d | 30.0%, 17.0% | 50.0%, 30.0% | 60.0% |" in text
    assert "| short, mean of its seeds | 1.00 | 0.042 | 100% |" in text
    assert "| short, seed 8 alone | -1.00 | 1.000 | 0% |" in text
    assert "| narrow, seed 8 alone | 1.00 | 0.042 | 100% |" in text
    assert "| narrow, seed 7 alone | nan | 1.000 | 50% |" in text
    assert "| 2 | -1.00 | 1.000 | 0% |" in text


def test_the_page_names_the_command_without_places_of_a_machine() -> None:
    asked = argparse.Namespace(seeds=[0, 1], proxy_seeds=[2], games=400, work=Path("/home/me/runs"))
    assert TOOL["command_of"](asked) == "python benchmarks/ranking.py --seeds 0 1 --proxy-seeds 2"


def test_an_early_look_takes_the_ten_updates_up_to_one(tmp_path: Path) -> None:
    lines = [{"update": n, "win_rate": None if n == 20 else float(n > 10)} for n in range(1, 41)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert TOOL["seen_in_training"](tmp_path, 20) == pytest.approx(0.9)  # 11 to 19, and 20 in which no game ended


def test_scores_that_are_all_equal_have_no_rank() -> None:
    rank, p, pairs = agreement([0.2, 0.2, 0.2], [0.1, 0.2, 0.3])
    assert np.isnan(rank) and (p, pairs) == (1.0, 0.5)
