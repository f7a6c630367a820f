"""Learning curves of a preset over several seeds against the untrained policy.

    python benchmarks/learning.py --seeds 0 1 2 --out docs/results

Trains one run per seed with the `cpu` preset, then plays evaluation games of the untrained and of the trained policy of every seed
against the scripted opponent at its full fire rate, on maps that training never saw, both sides of each. Writes learning.json,
learning.png and learning.md into --out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from echelon_jax.cli.common import GameFlags, set_up_jax

GAME = ("rules", "observation", "actions", "reward")
SHOWN = {
    "return_per_mech": "return per mech and episode",
    "zone_share": "zone share",
    "per_episode/damage_learner": "damage dealt per episode",
}
JUDGED = {"return_own": "return per mech", "zone_share": "zone share", "damage_own": "damage dealt per game"}


def untrained(config: Any, env_config: Any) -> Any:
    """The policy that a run of this configuration starts from."""
    import jax
    import jax.numpy as jnp

    from echelon_jax.learn.checkpoint import Policy
    from echelon_jax.learn.normalize import empty_moments
    from echelon_jax.learn.trainer import make_network

    network = make_network(config, env_config)
    params_key, _, _ = jax.random.split(jax.random.key(config.seed), 3)
    moments = jax.tree.map(jnp.asarray, empty_moments(network.features.own_size))
    return Policy(network, network.init(params_key), moments, config, env_config, update=0, extra={})


def run_seed(seed: int, preset: str, flags: GameFlags, games: int, folder: Path) -> dict[str, Any]:
    """Train one seed and evaluate it before and after."""
    from echelon_jax.cli.evaluate import evaluate_policy
    from echelon_jax.cli.train import DEFAULT_SIZE
    from echelon_jax.learn.checkpoint import load_policy
    from echelon_jax.learn.config import TrainConfig
    from echelon_jax.learn.runner import Runner

    env_config = flags.config(DEFAULT_SIZE[preset])
    config = TrainConfig.preset(preset, seed=seed).validate()
    began, cpu = time.perf_counter(), time.process_time()
    Runner(folder / f"seed{seed}", config, env_config).train()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    lines = (folder / f"seed{seed}" / "metrics.jsonl").read_text().splitlines()
    results = {}
    for name, policy in (
        ("untrained", untrained(config, env_config)),
        ("trained", load_policy(folder / f"seed{seed}")),
    ):
        results[name] = evaluate_policy(policy, "scripted", games=games, arenas=games, seed=1000)
    keys = ("update", "env_steps", "env_steps_per_cpu_second", "win_rate", *SHOWN)
    curve = [{key: line[key] for key in keys} for line in map(json.loads, lines)]
    return {"seed": seed, "wall_seconds": wall, "cpu_seconds": cpu, "curve": curve, **results}


def verdict(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """For each judged number: the range over seeds before and after, and whether the ranges are apart."""
    out = {}
    for key in JUDGED:
        before, after = ([run[when][key] for run in runs] for when in ("untrained", "trained"))
        out[key] = {
            "untrained": [min(before), max(before)],
            "trained": [min(after), max(after)],
            "apart": min(after) > max(before),
        }
    return out


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """One panel per number: a line per seed over environment steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(SHOWN), figsize=(5 * len(SHOWN), 3.6))
    for axis, (key, title) in zip(axes, SHOWN.items(), strict=True):
        for run in runs:
            points = [(p["env_steps"], p[key]) for p in run["curve"] if p[key] is not None]
            axis.plot(*zip(*points, strict=True), label=f"seed {run['seed']}")
        axis.set_title(title)
        axis.set_xlabel("environment steps")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def page(report: dict[str, Any], name: str) -> str:
    """The report as a page of text."""
    runs, judged = report["runs"], report["verdict"]
    flags = [f"--{key} {value}" for key, value in report["game"].items() if value != "original"]
    names = [] if name == "learning" else [f"--name {name}"]
    seeds = " ".join(str(run["seed"]) for run in runs)
    command = " ".join(["python benchmarks/learning.py --seeds", seeds, *flags, *names, "--out docs/results"])
    lines = [
        "# Learning with the CPU preset",
        "",
        f"`{command}`:",
        f"{runs[0]['curve'][-1]['env_steps']:,} environment steps per seed, {report['games']} evaluation games per policy",
        "against the scripted opponent at its full fire rate, on maps that training never saw, each from both sides.",
        "",
        f"![curves]({name}.png)",
        "",
        "| over the seeds | untrained | trained | ranges apart |",
        "| --- | --- | --- | --- |",
    ]
    for key, title in JUDGED.items():
        row = judged[key]
        before, after = (f"{low:.3g} to {high:.3g}" for low, high in (row["untrained"], row["trained"]))
        lines.append(f"| {title} | {before} | {after} | {'yes' if row['apart'] else 'no'} |")
    lines += [
        "",
        "| seed | wins before | wins after | 95 % interval after | training, wall s | CPU s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for run in runs:
        after = run["trained"]
        lines.append(
            f"| {run['seed']} | {run['untrained']['win_rate']:.0%} | {after['win_rate']:.0%} | "
            f"{after['win_rate_low']:.0%} to {after['win_rate_high']:.0%} | {run['wall_seconds']:.0f} | {run['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--preset", default="cpu")
    for name in GAME:
        parser.add_argument(f"--{name}", default="original")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--name", default="learning", help="of the files written")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    set_up_jax(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        flags = GameFlags(**{name: getattr(args, name) for name in GAME})
        runs = [run_seed(seed, args.preset, flags, args.games, Path(folder)) for seed in args.seeds]
    game = {name: getattr(args, name) for name in GAME}
    report = {"preset": args.preset, "game": game, "games": args.games, "verdict": verdict(runs), "runs": runs}
    (args.out / f"{args.name}.json").write_text(json.dumps(report, indent=1))
    draw(runs, args.out / f"{args.name}.png")
    (args.out / f"{args.name}.md").write_text(page(report, args.name))
    print(page(report, args.name))


if __name__ == "__main__":
    main()
