"""Speed of training in two versions of the project, by turns: `python benchmarks/versions.py --before TREE [--now TREE]`.

A tree is a checkout (`git worktree add TREE COMMIT`). Each version compiles its program in a process of its own. Then the
two make updates one after the other, so that other work on the machine slows both alike. CPU seconds count. `--program` is one of
PROGRAMS. That of 28 November 2026 is the default and plays the original's game, because the defaults of the revised game have
changed over time. `preset` compares the `cpu` preset of each version, which must have one.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = {
    "original": "the original's game, 60x60, 32 arenas of 64 decisions, 4 epochs, network original, XLA",
    "train": "the program of `echelon bench --which train` with every gradient step done, native kernels",
    "preset": "the cpu preset on one device, native kernels",
}


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def original() -> tuple[Any, Any]:
    """The environment and the configuration of the program `original`, in versions before the redesign too."""
    from echelon_jax.config import EnvConfig
    from echelon_jax.env.environment import Echelon

    try:
        from echelon_jax.training.config import TrainConfig
    except ImportError:  # before the redesign
        from echelon_jax.learn.config import TrainConfig  # type: ignore[import-not-found,no-redef]

    sizes = {"arenas": 32, "rollout_steps": 64, "epochs": 4, "minibatches": 4, "hidden": 128, "lstm": 128}
    return Echelon(EnvConfig.original(size_x=60, size_y=60)), TrainConfig(**sizes, network="original")


def train() -> tuple[Any, Any]:
    """The environment and the configuration of the program `train`; without a limit to the KL every update costs the same."""
    from echelon_jax.config import EnvConfig
    from echelon_jax.env.environment import Echelon
    from echelon_jax.training.config import TrainConfig

    sizes = {"arenas": 64, "rollout_steps": 128, "epochs": 4, "minibatches": 4, "hidden": 128, "lstm": 128}
    env = Echelon(EnvConfig.original(size_x=60, size_y=60), kernels="native")
    return env, TrainConfig(**sizes, target_kl=0.0, updates=1000)


def preset() -> tuple[Any, Any]:
    """The environment and the configuration of the program `preset`."""
    from echelon_jax.config import EnvConfig
    from echelon_jax.env.environment import Echelon
    from echelon_jax.training.reward_weights import preset_for

    config = EnvConfig.revised(size_x=40, size_y=40, comm_dim=0)
    return Echelon(config, kernels="native"), preset_for("cpu", config, kernels="native", devices=1)


def play(program: str) -> None:
    """The process of one version: compile, say how many env-steps an update has, and make one for each line that comes in."""
    import jax

    from echelon_jax.env.autoreset import AutoReset
    from echelon_jax.worldgen.bank import bank_seeds, generate_worlds

    try:
        from echelon_jax.training.trainer import make_train
    except ImportError:  # before the redesign
        from echelon_jax.learn.trainer import make_train  # type: ignore[import-not-found,no-redef]

    env, config = {"original": original, "train": train, "preset": preset}[program]()
    params = env.params(env.make_bank(generate_worlds(env.config, bank_seeds(0, 0, 0, 16))))
    trainer: Any = make_train(AutoReset(env), config)
    state = trainer.init(jax.random.key(0), params)
    call = (trainer.run_updates if hasattr(trainer, "run_updates") else trainer.launch).lower(state, params).compile()
    state, metrics = call(state, params)
    jax.block_until_ready(metrics)
    print(config.arenas * config.rollout_steps * config.updates_per_call, flush=True)
    for _ in sys.stdin:
        begun = cpu_seconds()
        state, metrics = call(state, params)
        jax.block_until_ready(metrics)
        print(cpu_seconds() - begun, flush=True)


def begin(tree: Path, program: str) -> subprocess.Popen[str]:
    """Start the process of the version in `tree`."""
    environment = os.environ | {"PYTHONPATH": str(tree), "JAX_PLATFORMS": "cpu", "NPROC": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--play", "--program", program]
    return subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def spread(values: list[float]) -> str:
    """Median, quartiles and extremes as text."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"median {middle:.4g}, quartiles {low:.4g} and {high:.4g}, from {min(values):.4g} to {max(values):.4g}"


def compare(trees: dict[str, Path], updates: int, program: str) -> None:
    """Make the updates by turns, and print env-steps per CPU second of each version and the ratio of neighbours."""
    versions = {name: begin(tree, program) for name, tree in trees.items()}
    steps: dict[str, int] = {}
    for name, version in versions.items():
        assert version.stdout is not None
        ready = version.stdout.readline().strip()
        if not ready.isdigit():
            raise SystemExit(f"the version {name} did not start")
        steps[name] = int(ready)
    seconds: dict[str, list[float]] = {name: [] for name in versions}
    for number in range(updates):
        for name in sorted(versions, reverse=number % 2 == 1):
            version = versions[name]
            assert version.stdin is not None and version.stdout is not None
            print("go", file=version.stdin, flush=True)
            seconds[name].append(float(version.stdout.readline()))
    for version in versions.values():
        assert version.stdin is not None
        version.stdin.close()
        version.wait()
    for name, used in seconds.items():
        print(f"{name}: env-steps per CPU second {spread([steps[name] / s for s in used])}")
    print(f"now / before: {spread([b / n for b, n in zip(seconds['before'], seconds['now'], strict=True)])}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of training in two versions of the project, by turns.")
    parser.add_argument("--before", type=Path, help="checkout of the earlier version")
    parser.add_argument("--now", type=Path, default=Path(__file__).resolve().parents[1], help="by default this one")
    parser.add_argument(
        "--program", choices=PROGRAMS, default="original", help="; ".join(f"{k}: {v}" for k, v in PROGRAMS.items())
    )
    parser.add_argument("--updates", type=int, default=25, help="of each version, 2 or more")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.play:
        play(asked.program)
    elif asked.before is None or not (asked.before / "echelon_jax").is_dir():
        parser.error(f"--before must be a checkout with a folder echelon_jax, got {asked.before}")
    elif asked.updates < 2:
        parser.error(f"--updates must be 2 or more, got {asked.updates}")
    else:
        compare({"before": asked.before.resolve(), "now": asked.now.resolve()}, asked.updates, asked.program)


if __name__ == "__main__":
    main()
