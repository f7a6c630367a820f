"""Train with JaxMARL's own IPPO-RNN baseline on the game.

    pip install jaxmarl distrax wandb hydra-core omegaconf
    git clone --depth 1 https://github.com/FLAIROx/JaxMARL
    python tools/jaxmarl_baseline.py JaxMARL/baselines/IPPO/ippo_rnn_smax.py

The baseline's file is not changed: the names by which it makes SMAX and logs are bound to the game and to `print`. Its settings
are those of its own configuration, besides the sizes that are flags here. docs/adaptors.md says what was tried.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
from omegaconf import OmegaConf

from echelon_jax.compat import jaxmarl as adaptor

PACKAGES = ("jaxmarl", "jax", "flax", "optax", "distrax")


def load(path: Path) -> ModuleType:
    """Import the baseline from its file."""
    spec = importlib.util.spec_from_file_location("baseline", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"baseline must be a Python file, got {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Train and print what the baseline logs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("baseline", type=Path, help="path of ippo_rnn_smax.py in a checkout of JaxMARL")
    parser.add_argument("--name", default="5v5-28")
    parser.add_argument("--rules", default="original")
    parser.add_argument("--opponent", default="random")
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0, help="time limit of an episode")
    flags = parser.parse_args()
    if not flags.baseline.is_file():
        sys.exit(f"baseline must be the path of JaxMARL's ippo_rnn_smax.py, got {flags.baseline}")

    env = adaptor.make(
        flags.name, opponent=flags.opponent, rules=flags.rules, discrete=True, max_episode_seconds=flags.seconds
    )
    baseline, begin = load(flags.baseline), time.perf_counter()

    def log(metrics: dict[str, Any]) -> None:
        shown = {name: float(metrics[name]) for name in ("returns", "total_loss", "entropy") if name in metrics}
        told = ", ".join(f"{name} {value:.4f}" for name, value in shown.items())
        wall, cpu = time.perf_counter() - begin, time.process_time()
        print(f"env-step {int(metrics['env_step'])}: {told}, {wall:.0f} s, {cpu:.3f} CPU s", flush=True)

    baseline.HeuristicEnemySMAX = lambda **_: env
    baseline.map_name_to_scenario = lambda _: None
    baseline.wandb = SimpleNamespace(log=log)
    own = OmegaConf.load(flags.baseline.parent / "config" / f"{flags.baseline.stem}.yaml")
    settings: dict[str, Any] = dict(OmegaConf.to_container(own)) | {
        "NUM_ENVS": flags.envs,
        "NUM_STEPS": flags.steps,
        "TOTAL_TIMESTEPS": flags.updates * flags.envs * flags.steps,
        "ENV_KWARGS": {},
    }
    print(", ".join(f"{package} {version(package)}" for package in PACKAGES), flush=True)
    jax.block_until_ready(jax.jit(baseline.make_train(settings))(jax.random.PRNGKey(settings["SEED"])))


if __name__ == "__main__":
    main()
