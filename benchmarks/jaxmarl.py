"""Speed of training beside JaxMARL's own IPPO-RNN on the same game.

    python benchmarks/jaxmarl.py JaxMARL/baselines/IPPO/ippo_rnn_smax.py

Needs what `tools/jaxmarl_baseline.py` needs. Both learners have a memory of 128 units, four epochs and four minibatches, and play
against the scripted opponent. Ours is the `train` benchmark: the `modern` network or, with `--network original`, the original's.
JaxMARL's is a GRU behind one dense layer, which chooses one of a few whole actions. Each trains in a process of its own on one
thread. They make updates by turns, the other one stopped meanwhile, so that other work slows both alike. CPU seconds count.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = 2  # updates that are not counted; the first has compiling in it


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def play(asked: argparse.Namespace) -> None:
    """The process of our learner: make updates for ever and print the CPU seconds so far after each."""
    import jax

    import echelon_jax
    from echelon_jax.training.config import TrainConfig
    from echelon_jax.training.trainer import make_train

    env, params = echelon_jax.make(asked.game, worlds=16, rules=asked.rules)
    sizes = {"arenas": asked.arenas, "rollout_steps": asked.steps, "epochs": 4, "minibatches": 4}
    widths = {"hidden": 128, "lstm": 128, "network": asked.network}
    # JaxMARL does every gradient step, so this learner leaves none out either.
    trainer = make_train(env, TrainConfig(**sizes, **widths, updates=asked.updates, target_kl=0.0))
    state = trainer.init(jax.random.key(0), params)
    while True:
        state, metrics = trainer.run_updates(state, params)
        jax.block_until_ready(metrics)
        print(f"{cpu_seconds():.3f} CPU s", flush=True)


def begin(command: list[str], kernels: str) -> subprocess.Popen[str]:
    """Start a learner's process on one thread."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "NPROC": "1", "ECHELON_KERNELS": kernels}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")
    return subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True)


def after_update(learner: subprocess.Popen[str]) -> float:
    """Let a learner go on until its next update is done, stop it there, and return its CPU seconds so far."""
    assert learner.stdout is not None
    learner.send_signal(signal.SIGCONT)
    for line in learner.stdout:
        found = re.search(r"([\d.]+) CPU s", line)
        if found:
            learner.send_signal(signal.SIGSTOP)
            return float(found[1])
    raise SystemExit("a learner ended before its updates were done")


def compare(asked: argparse.Namespace) -> None:
    """Let both learn by turns and print what they cost."""
    ours = [__file__, str(asked.baseline), "--play"]
    theirs = [str(ROOT / "tools" / "jaxmarl_baseline.py"), str(asked.baseline), "--opponent", "scripted"]
    theirs += ["--name", asked.game, "--seconds", "60"]
    for flag in ("arenas", "steps", "rules"):
        ours += [f"--{flag}", str(getattr(asked, flag))]
        theirs += ["--envs" if flag == "arenas" else f"--{flag}", str(getattr(asked, flag))]
    counted = asked.updates + WARM_UP
    ours += ["--game", asked.game, "--network", asked.network, "--updates", str(counted)]
    learners = {
        "ours": begin(ours, asked.kernels),
        "JaxMARL": begin([*theirs, "--updates", str(counted + 1)], asked.kernels),
    }
    spent: dict[str, list[float]] = {name: [] for name in learners}
    try:
        for turn in range(counted):
            for name in sorted(learners, reverse=turn % 2 == 1):
                spent[name].append(after_update(learners[name]))
    finally:
        for learner in learners.values():
            learner.kill()
    steps = asked.arenas * asked.steps
    each = {
        name: [b - a for a, b in zip(times[WARM_UP - 1 :], times[WARM_UP:], strict=False)]
        for name, times in spent.items()
    }
    for name, seconds in each.items():
        low, middle, high = statistics.quantiles([steps / s for s in seconds], n=4)
        print(f"{name}: env-steps per CPU second median {middle:.0f}, quartiles {low:.0f} and {high:.0f}")
    ratios = [b / a for a, b in zip(each["ours"], each["JaxMARL"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"ours / JaxMARL: median {middle:.3f}, quartiles {low:.3f} and {high:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("baseline", type=Path, help="path of ippo_rnn_smax.py in a checkout of JaxMARL")
    parser.add_argument("--game", default="5v5-40")
    parser.add_argument("--rules", default="revised")
    parser.add_argument("--network", default="modern", help="ours: modern or original")
    parser.add_argument("--kernels", default="native", help="what runs the simulation of both: native or xla")
    parser.add_argument("--arenas", type=int, default=64)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--updates", type=int, default=20, help="that are counted, 2 or more")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not asked.baseline.is_file():
        parser.error(f"baseline must be the path of JaxMARL's ippo_rnn_smax.py, got {asked.baseline}")
    if asked.updates < 2:
        parser.error(f"--updates must be 2 or more, got {asked.updates}")
    if asked.play:
        play(asked)
    else:
        compare(asked)


if __name__ == "__main__":
    main()
