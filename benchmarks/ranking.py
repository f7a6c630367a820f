"""Does a short run rank changes of the learner as the long run does? Spearman's rank correlation over some variants.

    python benchmarks/ranking.py --seeds 0 --proxy-seeds 0 1 2 --jobs 2

Trains each variant of the `cpu` preset in two lengths: as long as the preset is, and in a quarter of its updates with all schedules
a quarter as long (the proxy). Each run is an `echelon train` of its own on one thread, `--jobs` of them side by side. Then each
policy plays games against `scripted` and `scripted:hard` on maps that training never saw. Its score is the mean of the two shares
of games won. Finished runs are kept under --work, and one that was cut off goes on. Writes ranking.json and ranking.md into --out.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
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
SHORTER = 4  # by this the proxy is shorter
LENGTHS = ("proxy", "long")
OPPONENTS = ("scripted", "scripted:hard")
EVALUATION_SEED = 1000
EARLIER = (45, 90, 120, 145)  # updates at which the long runs are looked at before their end


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


def flags(config: TrainConfig) -> list[str]:
    """The arguments of `echelon train --preset cpu` that make this configuration; only numbers and texts may differ."""
    preset, found = TrainConfig.cpu(), []
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        # Kernels are always named, because the command takes native ones where they can be built.
        if value != getattr(preset, f.name) or f.name == "kernels":
            found += [f"--{f.name.replace('_', '-')}", str(value)]
    return found


def folder_of(work: Path, name: str, length: str, config: TrainConfig) -> Path:
    """Where a run lies; another configuration, such as that of a later preset, lies elsewhere."""
    mark = hashlib.sha256(json.dumps(dataclasses.asdict(config), sort_keys=True).encode()).hexdigest()[:12]
    return work / length / f"{name.replace(' ', '-')}-seed{config.seed}-{mark}"


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


def page(report: dict[str, Any]) -> str:
    """The report as a page of text."""
    scores = report["scores"]
    lines = [
        "# Does a short run rank changes as the long run does?",
        "",
        f"`{report['command']}`: variants of the `cpu` preset ({report['updates']['long']} updates) and the proxy of each, "
        f"{report['updates']['proxy']} updates with schedules {SHORTER} times shorter.",
        f"A score is the mean share of {report['games']} games won against `scripted` and of as many against `scripted:hard`, on "
        f"maps that training never saw. Seeds of the proxies: {listed(report['proxy_seeds'])}; of the long runs: "
        f"{listed(report['seeds'])}.",
        "",
        "| variant | proxy | long run |",
        "| --- | --- | --- |",
    ]
    for name, found in scores.items():
        lines.append(
            f"| {name} | " + " | ".join(", ".join(f"{s:.1%}" for s in found[length]) for length in LENGTHS) + " |"
        )
    lines += ["", "| seeds of the proxy | Spearman's rank correlation | p, one-sided | pairs in one order |"]
    lines += ["| --- | --- | --- | --- |"]
    whole = {length: [float(np.mean(found[length])) for found in scores.values()] for length in LENGTHS}
    rows = {"all, their mean": whole["proxy"]}
    for number, seed in enumerate(report["proxy_seeds"] if len(report["proxy_seeds"]) > 1 else []):
        rows[f"{seed} alone"] = [found["proxy"][number] for found in scores.values()]
    for name, proxy in rows.items():
        rank, p, pairs = agreement(proxy, whole["long"])
        lines.append(f"| {name} | {rank:.2f} | {p:.3f} | {pairs:.0%} |")
    lines += [
        "",
        "The long runs themselves, looked at before their end, by the share of training games won in ten updates:",
        "",
    ]
    lines += ["| up to update | Spearman's rank correlation | p, one-sided | pairs in one order |"]
    lines += ["| --- | --- | --- | --- |"]
    for update, won in report["training"].items():
        rank, p, pairs = agreement([won[name] for name in scores], whole["long"])
        lines.append(f"| {update} | {rank:.2f} | {p:.3f} | {pairs:.0%} |")
    if report.get("commit"):
        lines += ["", f"Commit {report['commit']}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seed_argument, nargs="+", default=[0])
    parser.add_argument("--proxy-seeds", type=seed_argument, nargs="+", help="those of the long runs without this")
    parser.add_argument("--games", type=int, default=400, help="against each opponent; an even number")
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
    seeds = {"proxy": asked.proxy_seeds or asked.seeds, "long": asked.seeds}
    jobs: dict[tuple[str, int, str], tuple[Path, TrainConfig]] = {}
    for length in LENGTHS:
        for seed in seeds[length]:
            for name, changes in VARIANTS.items():
                long = TrainConfig.cpu(seed=seed, devices=1, validation_every=0, kernels=asked.kernels, **changes)
                config = long.validate() if length == "long" else shortened(long, SHORTER)
                jobs[name, seed, length] = (folder_of(asked.work, name, length, config), config)
    with ThreadPoolExecutor(asked.jobs) as pool:
        running = {key: pool.submit(score, *job, asked.games) for key, job in jobs.items()}
        try:
            for key, future in running.items():
                print(*key, f"{future.result():.1%}", flush=True)
        except SystemExit:  # the runs that have begun go on to their end, and no other begins
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    scores = {
        name: {length: [running[name, seed, length].result() for seed in seeds[length]] for length in LENGTHS}
        for name in VARIANTS
    }
    training = {
        update: {
            name: float(np.mean([seen_in_training(jobs[name, seed, "long"][0], update) for seed in seeds["long"]]))
            for name in VARIANTS
        }
        for update in EARLIER
    }
    report = {
        "command": " ".join(["python benchmarks/ranking.py", *sys.argv[1:]]),
        "commit": commit,
        "games": asked.games,
        "seeds": seeds["long"],
        "proxy_seeds": seeds["proxy"],
        "updates": {"long": TrainConfig.cpu().updates, "proxy": shortened(TrainConfig.cpu(), SHORTER).updates},
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
