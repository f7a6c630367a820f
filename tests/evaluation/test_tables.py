"""Tables of results: they fit 80 columns with whole words, whatever the opponents are called."""

from typing import Any

import pytest
from rich.console import Console

from echelon_jax.evaluation.tables import behaviour_table, games_table

NAMES = ["scripted", "random", "scripted:0.35", "runs/a-rather-long-name-of-a-run-40-seed0", "my_module:Own[/1]"]


def results(names: list[str]) -> dict[str, dict[str, Any]]:
    """Results with the largest numbers that games lead to."""
    behaviour = {
        "zone": {"in_zone": 1.0, "first_seconds": 59.75},
        "heat": {"mean": 1.0, "over_cap": 1.0, "vents_when_hot": None, "vents_when_cool": 1.0},
        "gun_shots_in_reach": None,
        "chances_taken": 1.0,
    }
    row = {
        "games": 10_000,
        "wins": 10_000,
        "draws": 0,
        "losses": 0,
        "win_rate": 1.0,
        "win_rate_low": 1.0,
        "win_rate_high": 1.0,
        "zone_share": 1.0,
        "kills_own": 10.0,
        "kills_other": 10.0,
        "damage_own": 4321.0,
        "damage_other": 4321.0,
        "length_seconds": 60.0,
        "behaviour": {"own": behaviour, "other": behaviour},
    }
    return dict.fromkeys(names, row)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_tables_fit_eighty_columns_with_whole_words(count: int) -> None:
    console = Console(width=80, record=True, markup=False, highlight=False)
    rows = results(NAMES[:count])
    console.print(games_table("runs/cpu-40-seed0 after update 60", rows))
    console.print(behaviour_table(rows))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for words in ("won, drawn, lost", "10000, 0, 0", "100% to 100%", "4321 : 4321", "first there, s", "- : -"):
        assert words in shown
    headings = "".join(line for line in shown.splitlines() if not line.startswith(("  win", "  games")))
    for name in NAMES[:count]:
        assert all(part in headings for part in (name[:16], name[16:32], name[32:]) if part.strip())
