"""What compiler options cost and save: `python benchmarks/compiling.py` (echelon_jax/compiling.py, docs/benchmarks.md).

Compiles the decision step of the default game with XLA's own options and with this project's two sets, each from nothing, and
then plays the three by turns, random actions, resets included. Prints one line of JSON per program: wall and CPU seconds of
compiling, and CPU microseconds per environment step (best and median of the turns).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"

import jax
from jaxtyping import Array

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout
from echelon_jax.jax_setup import set_up_jax
from echelon_jax.worldgen.bank import generate_worlds


def main() -> None:
    """Compile, play and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arenas", type=int, default=64)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--decisions", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    set_up_jax(1)
    env = Echelon(EnvConfig(size_x=given.size, size_y=given.size))
    params = env.params(env.make_bank(generate_worlds(env.config, range(16))))
    resetting = AutoReset(env)
    shape = (given.arenas, env.config.num_mechs, action_layout(env.config).size)
    state, _ = jax.jit(resetting.reset_batch)(jax.random.split(jax.random.key(0), given.arenas), params)

    def decide(state: Any, key: Array) -> tuple[Any, Array]:
        actions = jax.random.uniform(key, shape, minval=-1.0)
        state, step = resetting.step_batch(jax.random.split(key, given.arenas), state, actions, params)
        return state, step.observation.sum() + step.reward.sum()

    def play(state: Any, key: Array) -> tuple[Any, Array]:
        return jax.lax.scan(decide, state, jax.random.split(key, given.decisions))

    options = {"XLA's own": {}, "long runs": compiling.for_long_runs(), "short runs": compiling.for_short_runs()}
    programs, told = {}, {}
    for name, chosen in options.items():
        lowered = jax.jit(lambda *a: play(*a), compiler_options=chosen).lower(state, jax.random.key(0))
        wall, cpu = time.perf_counter(), time.process_time()
        programs[name] = lowered.compile()
        told[name] = {
            "compile_wall_s": round(time.perf_counter() - wall, 1),
            "compile_cpu_s": round(time.process_time() - cpu, 1),
        }
    spent: dict[str, list[float]] = {name: [] for name in options}
    for turn in range(given.rounds):
        for name, program in programs.items():
            cpu = time.process_time()
            jax.block_until_ready(program(state, jax.random.key(turn)))
            spent[name].append((time.process_time() - cpu) * 1e6 / given.decisions / given.arenas)
    for name, times in spent.items():
        step = {"step_us_best": round(min(times), 1), "step_us_median": round(statistics.median(times), 1)}
        print(json.dumps({"options": name, **told[name], **step}))


if __name__ == "__main__":
    main()
