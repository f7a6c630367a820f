"""Does a cheap run rank changes of the learner as the whole run does? Spearman's rank correlation over some variants.

    python benchmarks/ranking.py --seeds 0 --proxy-seeds 0 1 2 --jobs 2

Trains each variant of the `cpu` preset whole and as two proxies, each with a quarter of the environment steps: a short one with a
quarter of the updates and all schedules a quarter as long, and a narrow one with a quarter of the arenas and as many updates. Each
run is an `echelon train` of its own on one thread, `--jobs` of them side by side. Then each policy plays games against `scripted`
and `scripted:hard` on maps that training never saw. Its score is the mean of the two shares of games won. Finished runs are kept
under --work, and one that was cut off goes on. Writes ranking.json and ranking.md into --out.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from echelon_jax.fields import seed_argument
from echelon_jax.native.choice import KERNELS
from echelon_jax.runs.description import git_revision
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.curriculum import parse

# What each variant changes in the `cpu` preset; parts of it that may matter, and some changes that should harm.
VARIANTS: dict[str, dict[str, Any]] = {
    "the preset": {},
    "no teacher": {"teacher": ""},
    "no curriculum": {"curriculum": ""},
    "rate 3e-4": {"learning_rate": 3e-4},
    "rate 3e-3": {"learning_rate": 3e-3},
    "entropy 0.006": {"entropy_coefficient": 0.006},
    "one epoch": {"epochs": 1},
}
CHEAPER = 4  # by this a proxy has fewer environment steps
OPPONENTS = ("scripted", "scripted:hard")
EVALUATION_SEED = 1000
GAMES = 400
EARLIER = (45, 90, 120, 145)  # updates at which the whole runs are looked at before their end


def shortened(config: TrainConfig, factor: int) -> TrainConfig:
    """The same training with `1 / factor` of the updates and of every schedule that counts updates, at least one each."""

    def less(updates: int) -> int:
        return max(1, round(updates / factor)) if updates else 0

    stages = parse(config.curriculum)
    curriculum = "; ".join(
        f"{less(stage.update)} " + " ".join(f"{name}={value:g}" for name, value in stage.values.items())
        for stage in stages
    )
    counts = ("updates", "teacher_updates", "after_death_start", "after_death_ramp", "bank_swap_every", "fire_ramp")
    changes: dict[str, Any] = {name: less(getattr(config, name)) for name in counts}
    return dataclasses.replace(config, curriculum=curriculum, **changes).validate()


def narrowed(config: TrainConfig, factor: int) -> TrainConfig:
    """The same training with `1 / factor` of the arenas, and with as many updates and gradient steps."""
    return dataclasses.replace(config, arenas=config.arenas // factor).validate()


def whole(config: TrainConfig, factor: int) -> TrainConfig:
    """The training itself."""
    return config.validate()


# How a variant is trained; all but the last are proxies of it.
KINDS: dict[str, Callable[[TrainConfig, int], TrainConfig]] = {"short": shortened, "narrow": narrowed, "whole": whole}
PROXIES = tuple(KINDS)[:-1]


def flags(config: TrainConfig) -> list[str]:
    """The arguments of `echelon train --preset cpu` that make this configuration; only numbers and texts may differ."""
    preset, found = TrainConfig.cpu(), []
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        # Kernels are always named, because the command takes native ones where they can be built.
        if value != getattr(preset, f.name) or f.name == "kernels":
            found += [f"--{f.name.replace('_', '-')}", str(value)]
    return found


def folder_of(work: Path, name: str, kind: str, config: TrainConfig) -> Path:
    """Where a run lies; another configuration, such as that of a later preset, lies elsewhere."""
    mark = hashlib.sha256(json.dumps(dataclasses.asdict(config), sort_keys=True).encode()).hexdigest()[:12]
    return work / kind / f"{name.replace(' ', '-')}-seed{config.seed}-{mark}"


def training_command(folder: Path, config: TrainConfig) -> list[str]:
    """The arguments of `echelon` that begin a run, and that go on with one that was cut off."""
    return [
        "train",
        "--preset",
        "cpu",
        *flags(config),
        "--run-dir",
        str(folder),
        "--resume",
        "--eval-games",
        "0",
        "--json",
    ]


def score(folder: Path, config: TrainConfig, games: int) -> float:
    """Train a run unless it is finished, let its policy play unless it has, and return its score.

    Raises:
        SystemExit: one of the two commands failed, and its output lies beside the run; or the training was stopped.
    """
    file = folder.with_name(f"{folder.name}-{games}.json")
    environment = os.environ | {"NPROC": "1"}

    def command(*arguments: str) -> str:
        name = arguments[0]
        with folder.with_name(f"{folder.name}-{name}.log").open("a") as log:
            words = [sys.executable, "-m", "echelon_jax.cli.main", *arguments]
            done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
            log.write(done.stdout)
        if done.returncode:
            raise SystemExit(f"`echelon {name}` failed; {log.name} has its output")
        return done.stdout

    if not file.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        [run] = json.loads(command(*training_command(folder, config)))["runs"]
        if run["stopped_early"]:
            raise SystemExit(f"{folder} was stopped after {run['updates']} updates; the same command goes on with it")
        played = ["--games", str(games), "--seed", str(EVALUATION_SEED), "--kernels", config.kernels, "--json"]
        file.write_text(command("evaluate", str(folder), "--opponents", *OPPONENTS, *played))
    against = json.loads(file.read_text())["against"]
    return float(np.mean([against[name]["win_rate"] for name in OPPONENTS]))


def seen_in_training(folder: Path, update: int) -> float:
    """Mean share of training games that a run won in the ten updates up to one."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    won = [line["win_rate"] or 0.0 for line in lines if update - 10 < line["update"] <= update]
    return float(np.mean(won))


def agreement(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Spearman's rank correlation of two lists of scores, its p-value, and the share of pairs that both put in one order.

    The p-value is one-sided: how often a random order of the second list agrees as well or better. Ties count as half a pair. Where
    all scores of a list are equal there is no correlation, nan, and the p-value is 1.
    """
    above = np.triu_indices(len(one), 1)
    orders = [np.sign(np.subtract.outer(values, values))[above] for values in (np.asarray(one), np.asarray(other))]
    pairs = float(np.mean((1 + orders[0] * orders[1]) / 2))
    if not all(order.any() for order in orders):
        return float("nan"), 1.0, pairs

    def correlation(values: Any) -> float:
        return float(stats.spearmanr(values, other).statistic)

    test = stats.permutation_test(
        (one,), correlation, permutation_type="pairings", alternative="greater", n_resamples=50_000, rng=0
    )
    return float(test.statistic), float(test.pvalue), pairs


def listed(seeds: Sequence[int]) -> str:
    """Seeds as part of a sentence."""
    return ", ".join(map(str, seeds))


def table(first: str, rows: dict[str, tuple[Sequence[float], Sequence[float]]]) -> list[str]:
    """Lines of a table that compares pairs of lists of scores."""
    lines = [
        f"| {first} | Spearman's rank correlation | p, one-sided | pairs in one order |",
        "| --- | --- | --- | --- |",
    ]
    for name, pair in rows.items():
        rank, p, pairs = agreement(*pair)
        lines.append(f"| {name} | {rank:.2f} | {p:.3f} | {pairs:.0%} |")
    return lines


def page(report: dict[str, Any]) -> str:
    """The report as a page of text."""
    scores, updates = report["scores"], report["updates"]
    mean = {kind: [float(np.mean(found[kind])) for found in scores.values()] for kind in KINDS}
    lines = [
        "# Does a cheap run rank changes as the whole run does?",
        "",
        f"`{report['command']}`: variants of the `cpu` preset ({updates['whole']} updates of {report['arenas']['whole']} arenas) "
        f"and two proxies of each with {CHEAPER} times fewer environment steps: a short one ({updates['short']} updates, "
        f"schedules {CHEAPER} times shorter) and a narrow one ({report['arenas']['narrow']} arenas, with as many updates).",
        f"A score is the mean share of {report['games']} games won against `scripted` and of as many against `scripted:hard`, on "
        f"maps that training never saw. Seeds of the proxies: {listed(report['proxy_seeds'])}; of the whole runs: "
        f"{listed(report['seeds'])}.",
        "",
        f"| variant | {' | '.join(PROXIES)} | whole run |",
        f"|{' --- |' * (len(KINDS) + 1)}",
    ]
    for name, found in scores.items():
        lines.append(f"| {name} | " + " | ".join(", ".join(f"{s:.1%}" for s in found[kind]) for kind in KINDS) + " |")
    several = len(report["proxy_seeds"]) > 1
    rows = {}
    for kind in PROXIES:
        rows[f"{kind}, mean of its seeds" if several else kind] = (mean[kind], mean["whole"])
        for number, seed in enumerate(report["proxy_seeds"] if several else []):
            rows[f"{kind}, seed {seed} alone"] = ([found[kind][number] for found in scores.values()], mean["whole"])
    lines += ["", *table("proxy", rows), ""]
    lines += [
        "The whole runs themselves, looked at before their end, by the share of training games won in ten updates:",
        "",
    ]
    early = {update: ([won[name] for name in scores], mean["whole"]) for update, won in report["training"].items()}
    lines += table("up to update", early)
    if report.get("commit"):
        lines += ["", f"Commit {report['commit']}."]
    return "\n".join(lines) + "\n"


def command_of(asked: argparse.Namespace) -> str:
    """The command that the page names: what decides the results, without the places of one machine."""
    words = ["python benchmarks/ranking.py --seeds", *map(str, asked.seeds)]
    if asked.proxy_seeds:
        words += ["--proxy-seeds", *map(str, asked.proxy_seeds)]
    return " ".join([*words, *([f"--games {asked.games}"] if asked.games != GAMES else [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seed_argument, nargs="+", default=[0])
    parser.add_argument("--proxy-seeds", type=seed_argument, nargs="+", help="those of the whole runs without this")
    parser.add_argument("--games", type=int, default=GAMES, help="against each opponent; an even number")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--kernels", choices=KERNELS, default="native", help="what runs the simulation")
    parser.add_argument("--work", type=Path, default=Path("runs/ranking"))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    if asked.games < 2 or asked.games % 2:
        parser.error(f"--games must be an even number from 2, two games on each map, got {asked.games}")
    if asked.jobs < 1:
        parser.error(f"--jobs must be 1 or more, got {asked.jobs}")
    commit = git_revision()
    seeds = {kind: asked.seeds if kind == "whole" else asked.proxy_seeds or asked.seeds for kind in KINDS}
    jobs: dict[tuple[str, int, str], tuple[Path, TrainConfig]] = {}
    for kind, made in KINDS.items():
        for seed in seeds[kind]:
            for name, changes in VARIANTS.items():
                config = TrainConfig.cpu(seed=seed, devices=1, validation_every=0, kernels=asked.kernels, **changes)
                config = made(config, CHEAPER)
                jobs[name, seed, kind] = (folder_of(asked.work, name, kind, config), config)
    with ThreadPoolExecutor(asked.jobs) as pool:
        running = {key: pool.submit(score, *job, asked.games) for key, job in jobs.items()}
        try:
            for key, future in running.items():
                print(*key, f"{future.result():.1%}", flush=True)
        except SystemExit:  # the runs that have begun go on to their end, and no other begins
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    scores = {
        name: {kind: [running[name, seed, kind].result() for seed in seeds[kind]] for kind in KINDS}
        for name in VARIANTS
    }
    training = {
        update: {
            name: float(np.mean([seen_in_training(jobs[name, seed, "whole"][0], update) for seed in seeds["whole"]]))
            for name in VARIANTS
        }
        for update in EARLIER
    }
    report = {
        "command": command_of(asked),
        "commit": commit,
        "games": asked.games,
        "seeds": seeds["whole"],
        "proxy_seeds": seeds["short"],
        "updates": {kind: made(TrainConfig.cpu(), CHEAPER).updates for kind, made in KINDS.items()},
        "arenas": {kind: made(TrainConfig.cpu(), CHEAPER).arenas for kind, made in KINDS.items()},
        "scores": scores,
        "training": training,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "ranking.json").write_text(json.dumps(report, indent=1) + "\n")
    text = page(report)
    (asked.out / "ranking.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
