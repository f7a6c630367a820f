"""What a run in a league has learnt: its policy against its own past, the skill levels and runs with one fixed opponent.

    echelon train --preset cpu --opponent league --run-dir runs/league
    echelon train --preset cpu --run-dir runs/fixed
    python benchmarks/league.py runs/league --beside runs/fixed

The last policy plays each of its snapshots, which are spread evenly over the run. Then it, the runs of --beside and the skill
levels all play each other and are rated together. All maps are those of evaluation, which training never sees, and both sides of
each are played. Writes league.json, league.md and league.png into --out, and the run's own matrix beside them.
ECHELON_KERNELS=native makes the games faster.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from echelon_jax.jax_setup import set_up_jax


def snapshots_of(run_dir: Path, most: int) -> list[Any]:
    """Entries of the run's earlier policies, spread evenly over it, the oldest first."""
    from echelon_jax.arena.league import League

    entries = [e for e in League(run_dir / "league").read().entries if e.kind == "policy" and e.source is not None]
    earlier = sorted(entries, key=lambda entry: entry.origin["update"])[:-1]
    if len(earlier) <= most:
        return earlier
    return [earlier[i] for i in np.linspace(0, len(earlier) - 1, most).round().astype(int)]


def against_its_past(run_dir: Path, most: int, games: int, seed: int) -> list[dict[str, Any]]:
    """Scores of the last policy of a run against its snapshots."""
    from echelon_jax.arena.games import contest, maps
    from echelon_jax.arena.league import League
    from echelon_jax.intervals import paired_score
    from echelon_jax.runs.checkpoint import load_policy

    league, last = League(run_dir / "league"), load_policy(run_dir)
    worlds = maps(last.env_config, games, seed)
    rows = []
    for entry in snapshots_of(run_dir, most):
        played = contest(last.env_config, worlds, last, league.policy(entry), ("last", entry.name), seed)
        score, low, high = paired_score(played.games.result)
        rows.append({"update": entry.origin["update"], "games": games, "score": score, "low": low, "high": high})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def rated_together(runs: dict[str, Path], games: int, periods: int, seed: int) -> dict[str, dict[str, Any]]:
    """Ratings, and scores against the levels and the other runs."""
    from echelon_jax.arena.pool import LEVELS, rate_pool

    def shown(pair: str, done: int, total: int) -> None:
        if done == total:
            print(f"{pair}: {total} games", file=sys.stderr, flush=True)

    pool = rate_pool(dict(runs), games, periods, seed, progress=shown)
    names = [*runs, *LEVELS]
    return {
        name: {
            "rating": pool.rating(name),
            "against": {other: pool.score(name, other) for other in names if other != name},
        }
        for name in names
    }


def curve_of(run_dir: Path) -> list[dict[str, Any]]:
    """Win rates of a run over its updates, and the ratings of what it submitted, from all games of the run."""
    from echelon_jax.arena.league import League, rated_jointly

    entries = rated_jointly(League(run_dir / "league").read()).entries
    ratings = {entry.origin["update"]: entry for entry in entries if entry.origin.get("from") == "this run"}
    points = []
    for line in map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines()):
        point = {k: v for k, v in line.items() if k in ("update", "env_steps") or k.startswith("win_rate")}
        entry = ratings.get(line["update"])
        points.append(point if entry is None else {**point, "rating": entry.rating, "deviation": entry.deviation})
    return points


def cost_of(run_dir: Path) -> dict[str, Any]:
    """Environment steps of a run, and its CPU and wall seconds without compiling."""
    from echelon_jax.runs.checkpoint import load_policy

    config = load_policy(run_dir).config
    steps = config.decisions_per_update * config.updates_per_call
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return {
        "opponent": config.opponent,
        "seed": config.seed,
        "env_steps": lines[-1]["env_steps"],
        "cpu_seconds": round(sum(steps / line["env_steps_per_cpu_second"] for line in lines)),
        "wall_seconds": round(sum(steps / line["env_steps_per_second"] for line in lines)),
    }


def recent_mean(values: np.ndarray, width: int) -> np.ndarray:
    """The mean of the last `width` values at each place, of those that are numbers."""
    known = np.isfinite(values)
    sums, counts = (np.cumsum(np.concatenate([np.zeros(width), x])) for x in (np.where(known, values, 0.0), known))
    return (sums[width:] - sums[:-width]) / np.maximum(counts[width:] - counts[:-width], 1e-9)


def draw(curve: list[dict[str, Any]], path: Path) -> None:
    """Rating with its interval, and the win rates against the named agents, over the environment steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 3.8))
    rated = [point for point in curve if "rating" in point]
    steps, rating, deviation = (
        np.array([point[key] for point in rated], float) for key in ("env_steps", "rating", "deviation")
    )
    [line] = left.plot(steps, rating)
    left.fill_between(steps, rating - 1.96 * deviation, rating + 1.96 * deviation, alpha=0.2, color=line.get_color())
    left.set_title("rating from all games of the run (scripted:medium is 1500)")
    names = sorted({key for point in curve for key in point if key.startswith("win_rate/against_scripted")})
    for name in names:
        values = np.array([np.nan if p.get(name) is None else p[name] for p in curve], float)
        x = [point["env_steps"] for point in curve]
        right.plot(x, recent_mean(values, 10), label=name.removeprefix("win_rate/against_"))
    right.set_title("wins in training games, mean of ten updates")
    right.legend(fontsize=8)
    for axis in (left, right):
        axis.set_xlabel("environment steps")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def percent(row: dict[str, Any]) -> str:
    """A score with its interval."""
    return f"{100 * row['score']:.1f} % ({100 * row['low']:.1f} to {100 * row['high']:.1f})"


def page(report: dict[str, Any]) -> str:
    """The report as a page."""
    from echelon_jax.arena.pool import LEVELS
    from echelon_jax.markdown import table

    costs = [
        [name, c["opponent"], str(c["seed"]), f"{c['env_steps']:,}", f"{c['cpu_seconds']:,}", f"{c['wall_seconds']:,}"]
        for name, c in report["runs"].items()
    ]
    past = [[str(row["update"]), str(row["games"]), percent(row)] for row in report["past"]]
    rated = sorted(report["pool"].items(), key=lambda item: -item[1]["rating"]["rating"])
    ratings = [
        [
            name,
            f"{told['rating']['rating']:.0f} ({told['rating']['low']:.0f} to {told['rating']['high']:.0f})",
            *(percent(told["against"][level]) if level in told["against"] else "-" for level in reversed(LEVELS)),
        ]
        for name, told in rated
    ]
    each = next(iter(report["pool"].values()))["rating"]["games"]
    return "\n".join(
        [
            "# A run in a league",
            "",
            f"`{report['command']}`",
            "",
            "![rating and wins](league.png)",
            "",
            "## The runs",
            "",
            table(["run", "opponent in training", "seed", "environment steps", "CPU s", "wall s"], costs),
            "",
            "Seconds are without compiling, on a machine that did other work as well.",
            "",
            "## The last policy against its own past",
            "",
            table(["snapshot after update", "games", "score of the last policy (95 %)"], past),
            "",
            "## Rated together",
            "",
            f"Everyone played everyone, {each} games each. Scores are against the skill levels; intervals are of 95 %.",
            "",
            table(["player", "rating", *(level.removeprefix("scripted:") for level in reversed(LEVELS))], ratings),
            "",
            *(["## The run's own matrix", "", "![matrix](league_matrix.png)", ""] if report["matrix"] else []),
            f"Commit {report['commit']}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished run with --opponent league")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="runs of the same game with other opponents")
    parser.add_argument("--games", type=int, default=400, help="against each snapshot, an even number")
    parser.add_argument(
        "--pool-games", type=int, default=200, help="of each pair in each of the periods, an even number"
    )
    parser.add_argument("--periods", type=int, default=2, help="rating periods")
    parser.add_argument("--snapshots", type=int, default=5)
    parser.add_argument("--seed", type=int, default=500, help="of the maps")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    if not (args.run / "league").is_dir():
        parser.error(f"RUN must be a run with --opponent league, and there is no league in {args.run}")
    set_up_jax(1)
    from echelon_jax.runs.description import git_revision

    runs = {path.name: path for path in (args.run, *args.beside)}
    if len(runs) < 1 + len(args.beside):
        parser.error("the runs must have different names")
    curve = curve_of(args.run)
    matrix = args.run / "league_matrix.png"
    beside = f" --beside {' '.join(path.name for path in args.beside)}" if args.beside else ""
    report = {
        "command": f"python benchmarks/league.py {args.run.name}{beside} --games {args.games} --pool-games {args.pool_games}",
        "commit": git_revision(),
        "runs": {name: cost_of(path) for name, path in runs.items()},
        "past": against_its_past(args.run, args.snapshots, args.games, args.seed),
        "pool": rated_together(runs, args.pool_games, args.periods, args.seed + 1000),
        "matrix": matrix.exists(),
        "curve": curve,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "league.json").write_text(json.dumps(report))
    draw(curve, args.out / "league.png")
    if matrix.exists():
        shutil.copy(matrix, args.out / "league_matrix.png")
    text = page(report)
    (args.out / "league.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
