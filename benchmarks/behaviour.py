"""Behaviour of policies in numbers: trained runs beside the untrained policies that they started from, and their opponent.

    python benchmarks/behaviour.py runs/long/seed0 runs/long/seed1 --games 200 --out table.md
    python benchmarks/behaviour.py zoo:student --games 400

Each policy plays games against the scripted opponent at its full fire rate (or `--opponent random`), on maps that training never
saw, both sides of each. For several runs the first table shows the mean, with the range in brackets. The second has what a mech of
each class does in a game, and the third from how far each weapon is fired, both as means.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echelon_jax.jax_setup import set_up_jax

EVALUATION_SEED = 2000
Read = Callable[[dict[str, Any], str], float | None]


def number(*path: str, scale: float = 1.0) -> Read:
    """A number somewhere in a side's behaviour, times `scale`."""

    def read(result: dict[str, Any], whose: str) -> float | None:
        value: Any = result["behaviour"][whose]
        for name in path:
            value = value[name]
        return None if value is None else scale * value

    return read


def percent(*path: str) -> Read:
    """A share somewhere in a side's behaviour, in percent."""
    return number(*path, scale=100.0)


def zone_share(result: dict[str, Any], whose: str) -> float:
    """Share of all zone seconds that are a side's."""
    return 100 * (result["zone_share"] if whose == "own" else 1 - result["zone_share"])


def wins(result: dict[str, Any], whose: str) -> float:
    """Share of games that a side won."""
    return 100 * result["wins" if whose == "own" else "losses"] / result["games"]


ROWS: dict[str, tuple[Read, str]] = {
    "games won": (wins, "%"),
    "share of all zone seconds": (zone_share, "%"),
    "time of living mechs in the zone": (percent("zone", "in_zone"), "%"),
    "games in which the side reaches the zone": (percent("zone", "reached"), "%"),
    "first there after": (number("zone", "first_seconds"), "s"),
    "gun shots with an enemy in range and arc": (percent("gun_shots_in_reach"), "%"),
    "chances to fire taken": (percent("chances_taken"), "%"),
    "decisions that vent at 75 % of the heat cap or more": (percent("heat", "vents_when_hot"), "%"),
    "decisions that vent below that": (percent("heat", "vents_when_cool"), "%"),
    "mean heat, share of the cap": (percent("heat", "mean"), "%"),
    "shutdowns a game": (number("heat", "shutdowns_per_game"), ""),
    "time shut down": (percent("heat", "over_cap"), "%"),
}


# Columns of the table by class: the number of one mech, and what it is multiplied by.
CLASS_COLUMNS: dict[str, tuple[str, float]] = {
    "alive, % of the game": ("alive", 100),
    "in the zone, % of its life": ("in_zone", 100),
    "damage dealt": ("damage_per_game", 1),
    "damage suffered": ("damage_taken_per_game", 1),
    "kills": ("kills_per_game", 1),
    "hits on what it painted": ("assists_per_game", 1),
    "shutdowns": ("shutdowns_per_game", 1),
}


def class_table(trained: list[dict[str, Any]], opponent: str) -> str:
    """What a mech of each class does in a game: the trained policies' mean, and that of their opponent."""
    lines = [
        "| a mech in a game | of | " + " | ".join(CLASS_COLUMNS) + " |",
        "| --- | --- |" + " --- |" * len(CLASS_COLUMNS),
    ]
    for name in trained[0]["behaviour"]["own"]["per_class"]:
        for side, label in (("own", "the trained"), ("other", opponent)):
            of_class = [result["behaviour"][side]["per_class"][name] for result in trained]
            means = [
                scale * sum(numbers[key] for numbers in of_class) / len(of_class)
                for key, scale in CLASS_COLUMNS.values()
            ]
            lines.append(f"| {name} | {label} | " + " | ".join(f"{mean:.3g}" for mean in means) + " |")
    return "\n".join(lines) + "\n"


def range_table(trained: list[dict[str, Any]], opponent: str) -> str:
    """Shots a game by weapon and distance to the nearest enemy: the trained policies' mean, and that of their opponent."""
    from echelon_jax.evaluation.behaviour import RANGE_EDGES

    edges = [f"{edge:g}" for edge in RANGE_EDGES]
    bins = [f"{low} to {high}" for low, high in zip(["0", *edges], edges, strict=False)] + [f"{edges[-1]} and more"]
    lines = [
        "| shots a game, by voxels to an enemy | of | " + " | ".join(bins) + " |",
        "| --- | --- |" + " --- |" * len(bins),
    ]
    for name in trained[0]["behaviour"]["own"]["weapons"]:
        for side, label in (("own", "the trained"), ("other", opponent)):
            shots = [result["behaviour"][side]["weapons"][name]["by_range"] for result in trained]
            means = [sum(of_runs) / len(of_runs) for of_runs in zip(*shots, strict=True)]
            lines.append(f"| {name} | {label} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    return "\n".join(lines) + "\n"


def shown(results: list[dict[str, Any]], whose: str, read: Read, unit: str) -> str:
    """A number of one side over several results: mean and range."""
    values = [value for value in (read(result, whose) for result in results) if value is not None]
    if not values:
        return "-"
    text = f"{sum(values) / len(values):.3g}"
    if len(values) > 1:
        text += f" ({min(values):.3g} to {max(values):.3g})"
    return f"{text} {unit}".strip()


def table(before: list[dict[str, Any]], trained: list[dict[str, Any]], opponent: str) -> str:
    """Results of the untrained and of the trained policies against one opponent, as a table of the documentation."""
    lines = [
        f"| against {opponent} | untrained | trained | {opponent}, against the trained |",
        "| --- | --- | --- | --- |",
    ]
    sides = ((before, "own"), (trained, "own"), (trained, "other"))
    for label, (read, unit) in ROWS.items():
        lines.append(f"| {label} | " + " | ".join(shown(results, whose, read, unit) for results, whose in sides) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of runs, or zoo:NAME")
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--opponent", default="scripted")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    set_up_jax(args.threads)
    from learning import untrained

    from echelon_jax.agents.registry import make_agent
    from echelon_jax.evaluation.matches import evaluate
    from echelon_jax.runs.checkpoint import CheckpointError, load_policy

    try:
        policies = [load_policy(run) for run in args.runs]
        for policy in policies:
            make_agent(args.opponent, policy.env_config)
    except (CheckpointError, ValueError) as error:
        parser.error(str(error))
    before: list[dict[str, Any]] = []
    trained: list[dict[str, Any]] = []
    for run, policy in zip(args.runs, policies, strict=True):
        start = untrained(policy.config, policy.env_config)
        for kept, player in ((before, start), (trained, policy)):
            result = evaluate(player, args.opponent, games=args.games, arenas=args.games, seed=EVALUATION_SEED)
            kept.append(result.against[args.opponent])
        print(f"{run}: {trained[-1]['win_rate']:.1%} of {args.games} games", flush=True)
    tables = [table(before, trained, args.opponent)]
    tables += [class_table(trained, args.opponent), range_table(trained, args.opponent)]
    text = "\n".join(tables)
    if args.out:
        args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
