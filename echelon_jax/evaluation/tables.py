"""Evaluation results as tables for a terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def games_table(title: str, rows: dict[str, dict[str, float | int]]) -> Table:
    """Return a table of results with one row per opponent; numbers of both sides are per game."""
    table = Table(title=title)
    for name in ("opponent", "games", "win rate", "95 % interval", "W/D/L", "zone share", "kills", "damage", "seconds"):
        table.add_column(name, justify="left" if name == "opponent" else "right")
    for opponent, s in rows.items():
        table.add_row(
            opponent,
            f"{s['games']}",
            f"{s['win_rate']:.0%}",
            f"{s['win_rate_low']:.0%} to {s['win_rate_high']:.0%}",
            f"{s['wins']}/{s['draws']}/{s['losses']}",
            f"{s['zone_share']:.0%}",
            f"{s['kills_own']:.1f} : {s['kills_other']:.1f}",
            f"{s['damage_own']:.0f} : {s['damage_other']:.0f}",
            f"{s['length_seconds']:.0f}",
        )
    return table


def behaviour_table(rows: dict[str, dict[str, Any]]) -> Table:
    """Return a table of behaviour with one row per opponent and side."""
    table = Table(title="how they were played (docs/evaluation.md)")
    columns = {
        "time in zone": lambda b: b["zone"]["in_zone"],
        "first there": lambda b: b["zone"]["first_seconds"],
        "gun shots in reach": lambda b: b["gun_shots_in_reach"],
        "chances taken": lambda b: b["chances_taken"],
        "heat": lambda b: b["heat"]["mean"],
        "over cap": lambda b: b["heat"]["over_cap"],
        "vents hot": lambda b: b["heat"]["vents_when_hot"],
        "vents cool": lambda b: b["heat"]["vents_when_cool"],
    }
    table.add_column("side")
    for name in columns:
        table.add_column(name, justify="right")
    for opponent, row in rows.items():
        for side, whose in ((f"against {opponent}", "own"), (f"{opponent}", "other")):
            values = {name: read(row["behaviour"][whose]) for name, read in columns.items()}
            shown = [
                "-" if value is None else f"{value:.1f} s" if name == "first there" else f"{value:.0%}"
                for name, value in values.items()
            ]
            table.add_row(side, *shown)
    return table
