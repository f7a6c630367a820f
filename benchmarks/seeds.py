"""The cost of `--seeds N`: N learners in turn (`lax.map`) or side by side (`vmap`) in one program, compared with one alone.

    python benchmarks/seeds.py --seeds 3

It prints processor seconds per call and learner, the best of some calls each, which are made in turn, and seconds of compiling.
"""

from __future__ import annotations

import argparse
import time

import jax

from echelon_jax.config import RULE_SETS, EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.jax_setup import set_up_jax
from echelon_jax.runs.clock import cpu_seconds
from echelon_jax.runs.seeds import shared_program
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train
from echelon_jax.worldgen.bank import generate_worlds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--arenas", type=int, default=8)
    parser.add_argument("--size", type=int, default=28)
    parser.add_argument("--rules", choices=RULE_SETS, default="revised")
    parser.add_argument("--network", default="modern")
    parser.add_argument("--opponent", default="scripted")
    given = parser.parse_args()
    set_up_jax(1)
    env_config = getattr(EnvConfig, given.rules)(size_x=given.size, size_y=given.size)
    config = TrainConfig.smoke(arenas=given.arenas, network=given.network, opponent=given.opponent)
    env = Echelon(env_config)
    params = env.params(env.make_bank(generate_worlds(env_config, range(config.bank_size))))
    trainer = make_train(AutoReset(env), config)
    programs, states = {}, {}
    for name in ("alone", "lax.map", "vmap"):
        count = 1 if name == "alone" else given.seeds
        start = tuple(trainer.init(jax.random.key(seed), params) for seed in range(count))
        began = time.perf_counter(), cpu_seconds()
        program = shared_program(trainer, count, vmap=name == "vmap").lower(start, (params,) * count).compile()
        print(f"{name}: compiled in {cpu_seconds() - began[1]:.0f} s of processor time", flush=True)
        programs[name], states[name] = program, start
    best: dict[str, float] = {}
    for number in range(given.calls + 1):
        for name, program in programs.items():
            count = len(states[name])
            began_cpu = cpu_seconds()
            out = jax.block_until_ready(program(states[name], (params,) * count))
            spent = (cpu_seconds() - began_cpu) / count
            states[name] = tuple(state for state, _ in out)
            if number:  # the first warms up
                best[name] = min(best.get(name, spent), spent)
    for name, spent in best.items():
        decisions = config.decisions_per_update * config.updates_per_call
        print(f"{name}: {spent:.2f} s per call and learner ({1e6 * spent / decisions:.0f} us per decision of an arena)")


if __name__ == "__main__":
    main()
