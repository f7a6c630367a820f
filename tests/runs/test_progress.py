"""What a person sees of a run: one live block on a terminal, short lines elsewhere, both within 80 columns."""

import re
from pathlib import Path

from rich.console import Console

from echelon_jax.config import EnvConfig
from echelon_jax.runs.progress import SPARKS, Progress, sparkline
from echelon_jax.training.config import TrainConfig


def test_a_sparkline_runs_from_the_lowest_to_the_highest_value() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == SPARKS
    assert sparkline([0.0, 0.5, 1.0], (0.0, 1.0)) == SPARKS[0] + SPARKS[4] + SPARKS[-1]
    assert sparkline([-1.0, 2.0], (0.0, 1.0)) == SPARKS[0] + SPARKS[-1]  # beyond the bounds
    assert sparkline([3.0, 3.0]) == SPARKS[0] * 2
    assert sparkline([]) == ""


def after_two_calls(console: Console) -> Progress:
    """Progress of a run of four updates after two of them, with a figure that no game has given yet."""
    progress = Progress(TrainConfig.smoke(validation_every=0), EnvConfig(), Path("runs/x"), console)
    progress.compiled(1.0)
    for update, rate in enumerate((0.0, 1.0), 1):
        window = {"win_rate": rate, "return_per_mech": rate, "zone_share": None, "per_episode/damage_learner": 4321.0}
        progress.advance(update, {"env_steps_per_second": 123_456.0, "win_rate": 0.3}, window)
    return progress


def test_the_live_block_shows_bar_time_left_and_the_numbers_that_matter() -> None:
    console = Console(force_terminal=True, width=80, record=True)
    progress = after_two_calls(console)
    console.print(progress.render())
    shown = console.export_text()
    assert "2/4" in shown and "left" in shown
    assert re.search(f"win rate +100%  {SPARKS[0]}{SPARKS[-1]}", shown)
    assert "zone share" not in shown  # no data yet
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80 and "…" not in shown


def test_the_last_validation_stays_on_the_screen_until_the_next() -> None:
    console = Console(force_terminal=True, width=80, record=True)
    progress = Progress(TrainConfig.smoke(), EnvConfig(), Path("runs/x"), console)
    progress.compiled(1.0)
    for update, rate in enumerate((0.5, None, 0.25, None), 1):
        progress.advance(update, {"validation/win_rate": rate}, {})
    console.print(progress.render())
    assert f"validation wins  25%  {SPARKS[4]}{SPARKS[2]}" in console.export_text()


def test_before_training_the_live_block_says_what_goes_on() -> None:
    console = Console(force_terminal=True, width=80, record=True)
    progress = Progress(TrainConfig.smoke(), EnvConfig(), Path("runs/x"), console)
    progress.phase("making 4 worlds")
    console.print(progress.render())
    assert console.export_text().startswith("making 4 worlds ... 0 s")


def test_elsewhere_a_call_is_one_short_line() -> None:
    console = Console(force_terminal=False, width=80, record=True)
    after_two_calls(console)
    lines = console.export_text().splitlines()
    assert lines[-1] == "[    0 s] 1/4  123,456 steps/s  win 0%  return 0.0  zone -  damage 4,321"
