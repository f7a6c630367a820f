"""Learning comparisons: several variants of training, several seeds each, equal environment steps, evaluated by games.

    python benchmarks/learning.py networks
    python benchmarks/learning.py ablations --seeds 0 1 2
    python benchmarks/learning.py rules
    python benchmarks/learning.py long --games 200
    python benchmarks/learning.py goal --seeds 0 1 2 3 4 --games 400

Trains one run per variant and seed: goal and rules with the `cpu` preset as it is, networks with that of earlier versions (60
updates), long with three times those updates, ablations as smaller runs on 28x28 maps. Then it plays evaluation
games of the untrained and of the trained policy against the scripted opponent at its full fire rate, on maps that training never
saw, both sides of each, under the rules it was trained with. Every finished run is kept under --work, so that a comparison that
was cut off goes on where it stopped, and `--variant NAME` lets several processes share one. Writes NAME.json, NAME.png and NAME.md
into --out once all runs are there. `goal --runs RUN ...`, and `rules` so, take finished runs that `echelon train` made.
`goal --before NAME=GOAL.json` puts the same seeds of an earlier goal.json beside them, as another variant.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from echelon_jax.fields import seed_argument
from echelon_jax.jax_setup import set_up_jax
from echelon_jax.runs.devices import processor_cores

# The `cpu` preset that the comparisons were made with, except for `goal`; messages were part of the game then.
EARLIER = {
    "arenas": 64,
    "devices": 1,
    "rollout_steps": 128,
    "updates": 60,
    "bank_size": 32,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate_end": 0.2,
    "entropy_coefficient": 0.003,
    "entropy_end": 1.0,
    "curriculum": "",
    "after_death": 0.0,
    "after_death_start": 0,
    "after_death_ramp": 30,
    "average_decay": 0.0,
    "teacher": "",
}
# The original's network with the numbers that suited it best.
ORIGINAL_NETWORK = {
    **EARLIER,
    "network": "original",
    "learning_rate": 1e-3,
    "entropy_coefficient": 0.001,
    "target_kl": 0.0,
}
# Ablations are many runs, so they are small ones: a quarter of the environment steps, narrower, on 28x28 maps.
SMALL = {
    "arenas": 32,
    "rollout_steps": 64,
    "updates": 60,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate_end": 0.2,
    "bank_size": 16,
}
# 1.5 million environment steps. The result after a mech's death counts only once mechs can fight (docs/results/learning.md).
LONG = {
    **EARLIER,
    "updates": 180,
    "learning_rate_end": 0.1,
    "bank_size": 128,
    "entropy_end": 0.3,
    "after_death": 1.0,
    "after_death_start": 80,
    "after_death_ramp": 40,
}
# The variants of each comparison, as (changes of the training configuration, rules).
COMPARISONS: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "networks": {"modern": (EARLIER, "revised"), "original": (ORIGINAL_NETWORK, "revised")},
    "ablations": {
        "modern": (SMALL, "revised"),
        "no_layer_norm": ({**SMALL, "layer_norm": False}, "revised"),
        "mean_pooling": ({**SMALL, "attention": False}, "revised"),
        "share_after_death": ({**SMALL, "after_death": 1.0}, "revised"),
    },
    "rules": {"revised": ({}, "revised"), "original": ({}, "original")},
    "long": {"modern": (LONG, "revised")},
    "goal": {"modern": ({}, "revised")},
}
PRESETS = {"networks": "cpu", "ablations": "smoke", "rules": "cpu", "long": "cpu", "goal": "cpu"}
# Numbers in a message by rules, in what is compared with today's presets; the others were made with those of the original.
MESSAGES = {"revised": 0, "original": 8}
TODAY = ("goal", "rules")  # comparisons of today's presets, whose runs may also come from `echelon train`
SIZES = {"smoke": 28, "cpu": 40}  # edge of the map by preset, in voxels
TITLES = {
    "networks": "The modern network against the original's",
    "ablations": "What the parts of the modern learner do",
    "rules": "The revised game against the original's",
    "long": "Longer runs",
    "goal": "The CPU preset, seed by seed",
}
SHOWN = {"win_rate": "wins in training", "zone_share": "zone share", "per_episode/damage_learner": "damage per episode"}
JUDGED = {
    "win_rate": "wins",
    "zone_share": "zone share",
    "damage_own": "damage dealt per game",
    "kills_own": "kills per game",
    "return_own": "return per mech",
}
EVALUATION_SEED = 1000
GAMES = 100


def untrained(config: Any, env_config: Any) -> Any:
    """The policy that a run of this configuration starts from."""
    import jax
    import jax.numpy as jnp

    from echelon_jax.policies.normalize import empty_moments
    from echelon_jax.policies.registry import make_network
    from echelon_jax.runs.policy import Policy

    network = make_network(config, env_config)
    params_key, _, _ = jax.random.split(jax.random.key(config.seed), 3)
    moments = jax.tree.map(jnp.asarray, empty_moments(network.features.own_size))
    params = jax.jit(network.init)(params_key)
    return Policy(network, params, moments, config, env_config, update=0, extra={})


def game_of(preset: str, rules: str, comm_dim: int) -> Any:
    """The game of a preset under a rule set."""
    from echelon_jax.config import EnvConfig

    make = EnvConfig.revised if rules == "revised" else EnvConfig.original
    return make(size_x=SIZES[preset], size_y=SIZES[preset], comm_dim=comm_dim)


def run_seed(
    seed: int, preset: str, overrides: dict[str, Any], rules: str, comm_dim: int, games: int, folder: Path
) -> dict[str, Any]:
    """Train one seed of a variant and evaluate it before and after."""
    from echelon_jax.runs.runner import Runner
    from echelon_jax.training.reward_weights import preset_for

    env_config = game_of(preset, rules, comm_dim)
    config = preset_for(preset, env_config, **{"validation_every": 0, **overrides, "seed": seed}).validate()
    resume = (folder / "checkpoints").exists()
    Runner(folder, config, env_config, resume=resume).train()
    before = judged(untrained(config, env_config), games)
    return {**measured(folder, games), "untrained": before}


def judged(policy: Any, games: int) -> dict[str, Any]:
    """Evaluation games of a policy against the scripted opponent."""
    from echelon_jax.evaluation.matches import evaluate

    row = evaluate(policy, "scripted", games=games, arenas=games, seed=EVALUATION_SEED).against["scripted"]
    return {key: row[key] for key in (*JUDGED, "win_rate_low", "win_rate_high")}


def measured(folder: Path, games: int) -> dict[str, Any]:
    """Curve, cost and evaluation games of a finished run; the games are kept beside it for the next call."""
    from echelon_jax.runs.checkpoint import load_policy

    policy = load_policy(folder)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    keys = ("update", "env_steps", "env_steps_per_second", "env_steps_per_cpu_second", "seconds/compile", *SHOWN)
    curve = [{key: line.get(key) for key in keys} for line in map(json.loads, lines)]
    # From the lines, so that a run that was cut off and resumed costs all that it cost; compiling is not in them.
    steps = policy.config.decisions_per_update * policy.config.updates_per_call
    cpu = sum(steps / point["env_steps_per_cpu_second"] for point in curve)
    wall = sum(steps / point["env_steps_per_second"] for point in curve)
    trained = judged(policy, games)
    return {"seed": policy.config.seed, "cpu_seconds": cpu, "wall_seconds": wall, "curve": curve, "trained": trained}


def given_run(folder: Path, preset: str, games: int, variants: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """The variant of a run of the preset that `echelon train` made, and what it did.

    Args:
        variants: rules by variant.

    Raises:
        SystemExit: it is no finished run of the preset under one of the rules.
    """
    from echelon_jax.runs.checkpoint import CheckpointError, load_policy
    from echelon_jax.training.reward_weights import preset_for

    try:
        policy = load_policy(folder)
    except CheckpointError as error:
        raise SystemExit(f"runs must be runs of `echelon train`: {error}") from error
    games_of = {name: game_of(preset, rules, MESSAGES[rules]) for name, rules in variants.items()}
    names = [name for name, game in games_of.items() if game == policy.env_config]
    if not names:
        raise SystemExit(
            f"runs must be of the {preset} preset's game, {' or '.join(variants.values())}, and {folder} is not"
        )
    free = ("seed", "devices", "kernels", "validation_every", "validation_games", "validation_opponents", "guard")
    want, have = preset_for(preset, policy.env_config), policy.config
    other = [
        f.name
        for f in dataclasses.fields(want)
        if f.name not in free and getattr(want, f.name) != getattr(have, f.name)
    ]
    if other or policy.update != want.updates:
        raise SystemExit(
            f"runs must be finished runs of the {preset} preset, and {folder} differs in {', '.join(other) or 'updates'}"
        )
    file = folder / f"goal-{games}.json"
    if not file.exists():
        print(f"{folder}: {games} games", flush=True)
        file.write_text(json.dumps(measured(folder, games)))
    return names[0], dict(json.loads(file.read_text()))


def earlier_runs(told: str, games: int, seeds: list[int]) -> dict[str, list[dict[str, Any]]]:
    """The first variant of an earlier report, from NAME=FILE, by the name and the report's commit.

    Raises:
        SystemExit: it is no such report, or one of other games or seeds.
    """
    name, sign, file = told.partition("=")
    try:
        report = json.loads(Path(file).read_text()) if sign else {}
        runs, its_games = next(iter(report["variants"].values())), report["games"]
        commit = report["commit"] or "unknown"
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise SystemExit(f"before must be NAME=FILE with a report of this command, got {told!r}") from error
    if its_games != games or [run["seed"] for run in runs] != sorted(seeds):
        raise SystemExit(f"before must be a report of {games} games a run and the same seeds, and {file} is not")
    return {f"{name} ({commit[:7]})": runs}


def draw(variants: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """One panel per number: the mean over the seeds of each variant and the range between them."""
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(SHOWN), figsize=(5 * len(SHOWN), 3.6))
    for axis, (key, title) in zip(axes, SHOWN.items(), strict=True):
        for name, runs in variants.items():
            steps = np.array([point["env_steps"] for point in runs[0]["curve"]])
            rows = np.array([[np.nan if p[key] is None else p[key] for p in run["curve"]] for run in runs], float)
            [line] = axis.plot(steps, np.nanmean(rows, 0), label=name)
            axis.fill_between(steps, np.nanmin(rows, 0), np.nanmax(rows, 0), alpha=0.2, color=line.get_color())
        axis.set_title(title)
        axis.set_xlabel("environment steps")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def span(values: list[float]) -> str:
    """The range of a few numbers."""
    return f"{min(values):.3g} to {max(values):.3g}"


def paired_difference(first: list[dict[str, Any]], other: list[dict[str, Any]], key: str) -> tuple[float, float, float]:
    """The mean difference of two variants and its 95 % interval, seed by seed: equal seeds share worlds and evaluation maps.

    Student's t over the seeds, so with three seeds only a large difference has an interval without zero.

    Raises:
        ValueError: the seeds of the two are not the same.
    """
    import numpy as np
    from scipy import stats

    if [run["seed"] for run in first] != [run["seed"] for run in other]:
        raise ValueError("a paired difference needs the same seeds in both variants")
    change = np.array([b["trained"][key] - a["trained"][key] for a, b in zip(first, other, strict=True)])
    mean, spread = float(change.mean()), float(change.std(ddof=1) / np.sqrt(len(change)))
    half = float(stats.t.ppf(0.975, len(change) - 1)) * spread
    return mean, mean - half, mean + half


def differences(variants: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Lines of a table: every variant less the first one. Nothing for one variant or one seed."""
    (label, first), *others = variants.items()
    if not others or len(first) < 2:
        return []
    lines = ["", f"Differences to {label}, paired by seed (mean, 95 % by Student's t over the seeds):", ""]
    lines += ["| variant | wins | zone share |", "| --- | --- | --- |"]
    for name, runs in others:
        shown = []
        for key in ("win_rate", "zone_share"):
            mean, low, high = paired_difference(first, runs, key)
            shown.append(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})")
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return lines


def page(name: str, report: dict[str, Any]) -> str:
    """The report as a page of text."""
    from echelon_jax.intervals import wilson

    variants = report["variants"]
    first = next(iter(variants.values()))
    lines = [
        f"# {TITLES[name]}",
        "",
        f"`{report['command']}`: {first[0]['curve'][-1]['env_steps']:,} environment steps per run, {len(first)} seeds, "
        f"{report['games']} evaluation games per policy",
        "against the scripted opponent at its full fire rate, on maps that training never saw, each from both sides.",
        "Ranges are over the seeds; the interval is of all seeds' games together (Wilson, 95 %).",
        "",
        f"![curves]({name}.png)",
        "",
        "| variant | " + " | ".join(JUDGED.values()) + " | wins, all seeds | CPU s a run | wall s a run |",
        "| --- |" + " --- |" * (len(JUDGED) + 3),
    ]
    rows = {key: ("trained", runs) for key, runs in variants.items()}
    if all("untrained" in run for run in first):
        rows = {"untrained": ("untrained", first), **rows}
    for label, (when, runs) in rows.items():
        games = report["games"] * len(runs)
        wins = sum(run[when]["win_rate"] for run in runs) * report["games"]
        low, high = wilson(wins, games)
        spans = [span([run[when][key] for run in runs]) for key in JUDGED]
        times = [
            "" if when == "untrained" or key not in runs[0] else span([round(run[key]) for run in runs])
            for key in ("cpu_seconds", "wall_seconds")
        ]
        wins_text = f"{wins / games:.1%} ({low:.1%} to {high:.1%})"
        lines.append(f"| {label} | " + " | ".join([*spans, wins_text, *times]) + " |")
    lines += ["", "| variant | seed | wins (Wilson, 95 %) | zone share |", "| --- | --- | --- | --- |"]
    for label, runs in variants.items():
        for run in runs:
            result = run["trained"]
            low, high = result["win_rate_low"], result["win_rate_high"]
            shown = f"{result['win_rate']:.1%} ({low:.1%} to {high:.1%})"
            lines.append(f"| {label} | {run['seed']} | {shown} | {result['zone_share']:.2f} |")
    lines += differences(variants)
    if report.get("commit"):
        lines += ["", f"Commit {report['commit']}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", choices=sorted(COMPARISONS))
    parser.add_argument("--seeds", type=seed_argument, nargs="+", default=[0, 1, 2])
    parser.add_argument("--preset", help="instead of the comparison's own: cpu, and smoke for ablations")
    parser.add_argument("--updates", type=int, help="of each run instead of the preset's")
    parser.add_argument("--variant", nargs="+", help="train only these, for another process to put together")
    parser.add_argument("--games", type=int, default=GAMES)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--work", type=Path, default=Path("runs/learning"))
    parser.add_argument(
        "--runs",
        type=Path,
        nargs="+",
        default=[],
        help="goal, rules: these runs of `echelon train` instead of new ones",
    )
    parser.add_argument("--before", metavar="NAME=FILE", help="goal: an earlier goal.json, to compare with")
    parser.add_argument("--threads", type=int, help="XLA's; by default 1, and XLA's own choice for goal")
    args = parser.parse_args()
    preset = args.preset or PRESETS[args.comparison]
    goal = args.comparison == "goal"  # on all cores, as the command `train` does it
    threads = (0 if goal else 1) if args.threads is None else args.threads
    set_up_jax(threads, processor_cores() if goal else 1)
    from echelon_jax.runs.description import git_revision
    from echelon_jax.training.config import TrainConfig

    if args.before and not goal:
        parser.error("--before goes with goal only")
    if args.runs and args.comparison not in TODAY:
        parser.error("--runs goes with goal and rules only: the other comparisons train what they compare")
    wanted = COMPARISONS[args.comparison]
    more = {} if args.updates is None else {"updates": args.updates}
    found: dict[str, list[dict[str, Any]]] = {}
    if args.runs:
        for folder in args.runs:
            name, run = given_run(folder, preset, args.games, {name: rules for name, (_, rules) in wanted.items()})
            found.setdefault(name, []).append(run)
        seeds = {name: sorted(run["seed"] for run in runs) for name, runs in found.items()}
        if set(found) != set(wanted) or len(set(map(tuple, seeds.values()))) != 1:
            parser.error(f"--runs must be the same seeds of {' and '.join(wanted)}, got {seeds}")
        found = {name: sorted(found[name], key=lambda run: run["seed"]) for name in wanted}
        args.seeds, wanted = next(iter(seeds.values())), {}
    # Read before the hours of training, so that a wrong one is told at once.
    earlier = earlier_runs(args.before, args.games, args.seeds) if args.before else {}
    for name, (overrides, rules) in wanted.items():
        overrides = {**overrides, **more}
        comm_dim = MESSAGES[rules] if args.comparison in TODAY else MESSAGES["original"]
        config = dataclasses.asdict(TrainConfig.preset(preset, **overrides))  # a preset changes from version to version
        changes = json.dumps({**config, "comm_dim": comm_dim}, sort_keys=True)
        mark = hashlib.sha256(changes.encode()).hexdigest()[:12]
        directory = args.work / f"{preset}_{rules}_{mark}"  # the same run serves several comparisons
        for seed in args.seeds:
            file = directory / f"seed{seed}.json"
            if not file.exists() and (args.variant is None or name in args.variant):
                print(f"{name}, seed {seed}: training", flush=True)
                run = run_seed(seed, preset, overrides, rules, comm_dim, args.games, directory / f"seed{seed}")
                file.write_text(json.dumps(run))
            if file.exists():
                found.setdefault(name, []).append(json.loads(file.read_text()))
    if any(len(found.get(name, [])) < len(args.seeds) for name in wanted):
        print("not all runs are there yet")
        return
    found |= earlier
    seeds = " ".join(map(str, args.seeds))
    updates = "" if args.updates is None else f" --updates {args.updates}"
    games = "" if args.games == GAMES else f" --games {args.games}"
    which = f"--runs {' '.join('RUN' for _ in args.runs)}" if args.runs else f"--seeds {seeds}{updates}"
    before = f" --before {args.before}" if args.before else ""
    command = f"python benchmarks/learning.py {args.comparison} {which}{games}{before}"
    report = {"preset": preset, "commit": git_revision(), "games": args.games, "command": command, "variants": found}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{args.comparison}.json").write_text(json.dumps(report))
    draw(found, args.out / f"{args.comparison}.png")
    text = page(args.comparison, report)
    (args.out / f"{args.comparison}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
