"""What training costs before its first update once its program is in the compilation cache: `python benchmarks/warm_start.py`.

Traces, lowers and loads the training program of the `cpu` preset some times, each in a process of its own, and prints one line of
JSON per process with the CPU seconds of the three. The first fills the cache where it has to, and says so by its load. To compare
two commits let both print by turns: `PYTHONPATH=TREE python benchmarks/warm_start.py --processes 1`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import jax

from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.jax_setup import set_up_jax
from echelon_jax.native.choice import KERNELS
from echelon_jax.runs.devices import processor_cores
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.reward_weights import preset_for
from echelon_jax.training.trainer import make_train
from echelon_jax.worldgen.bank import generate_worlds


def start(kernels: str, devices: int) -> None:
    """Do once what a run does before its first update, and print what it cost."""
    set_up_jax(1, devices)
    env_config = EnvConfig.revised(size_x=40, size_y=40, comm_dim=0)
    config: TrainConfig = preset_for("cpu", env_config, kernels=kernels, devices=devices, bank_size=16)
    env = Echelon(env_config, kernels=kernels)
    params = env.params(env.make_bank(generate_worlds(env_config, range(config.bank_size))))
    trainer = make_train(AutoReset(env), config)
    state, params = trainer.place(trainer.init(jax.random.key(0), params), params)
    told: dict[str, float] = {}

    def lap(name: str, began: float) -> float:
        now = time.process_time()
        told[name] = round(now - began, 2)
        return now

    began = time.process_time()
    traced = trainer.run_updates.trace(state, params)  # type: ignore[attr-defined]
    at = lap("trace_cpu_s", began)
    lowered = traced.lower()
    at = lap("lower_cpu_s", at)
    lowered.compile()
    lap("load_cpu_s", at)
    lap("all_cpu_s", began)
    print(json.dumps(told), flush=True)


def main() -> None:
    """Start some processes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--kernels", choices=KERNELS, default="native", help="what runs the simulation")
    parser.add_argument("--devices", type=int, default=processor_cores())
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        start(given.kernels, given.devices)
        return
    for _ in range(given.processes):
        arguments = ["--kernels", given.kernels, "--devices", str(given.devices), "--once"]
        subprocess.run([sys.executable, __file__, *arguments], check=True)


if __name__ == "__main__":
    main()
