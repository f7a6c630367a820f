"""What the native simulation costs beside XLA's: `python benchmarks/kernels.py` (docs/kernels.md).

Compiles three programs with each kind of kernels, each from nothing: the simulation of the default game alone under random
actions, its decision step with observations and resets, and a whole update of the preset `cpu`. Then it runs the two kinds by
turns in one process. Prints one line of JSON per program and kind: wall and CPU seconds of compiling, and CPU microseconds per
environment step (best and median of the turns).
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
from echelon_jax.env.interfaces import action_layout, actions_of
from echelon_jax.env.state import EnvParams
from echelon_jax.jax_setup import set_up_jax
from echelon_jax.native.call import simulate_natively
from echelon_jax.native.choice import KERNELS
from echelon_jax.sim.noise import sample_noise
from echelon_jax.sim.step import simulate
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.training.trainer import make_train
from echelon_jax.worldgen.bank import generate_worlds


def step_program(env: Echelon, params: EnvParams, arenas: int, decisions: int) -> tuple[Any, tuple[Any, ...], int]:
    """The steps of an environment that resets itself, with what they start from and how many environment steps they are."""
    resetting, shape = AutoReset(env), (arenas, env.config.num_mechs, action_layout(env.config).size)
    state, _ = jax.jit(resetting.reset_batch)(jax.random.split(jax.random.key(0), arenas), params)

    def decide(state: Any, key: Array) -> tuple[Any, Array]:
        actions = jax.random.uniform(key, shape, minval=-1.0)
        state, step = resetting.step_batch(jax.random.split(key, arenas), state, actions, params)
        return state, step.observation.sum() + step.reward.sum()

    def play(state: Any, key: Array) -> tuple[Any, Array]:
        return jax.lax.scan(decide, state, jax.random.split(key, decisions))

    options = compiling.for_long_runs()
    return jax.jit(play, donate_argnums=0, compiler_options=options), (state, jax.random.key(1)), arenas * decisions


def simulation_program(
    env: Echelon, params: EnvParams, arenas: int, decisions: int
) -> tuple[Any, tuple[Any, ...], int]:
    """The simulation alone, likewise: no zone, no end of an episode, nothing observed."""
    config, shape = env.config, (arenas, env.config.num_mechs, action_layout(env.config).size)
    start, _ = jax.jit(env.reset_batch)(jax.random.split(jax.random.key(0), arenas), params)

    def decide(sim: Any, key: Array) -> tuple[Any, Array]:
        decision = actions_of(config).decide(
            config, start.replace(sim=sim), jax.random.uniform(key, shape, minval=-1.0)
        )
        draws = sample_noise(config, jax.random.split(key, arenas))
        given = config, params.rules, sim.replace(mechs=decision.mechs), decision.commands, draws
        sim = simulate_natively(*given) if env.kernels == "native" else simulate(*given)
        return sim, sim.tally.took_damage.sum()

    def play(sim: Any, key: Array) -> tuple[Any, Array]:
        return jax.lax.scan(decide, sim, jax.random.split(key, decisions))

    options = compiling.for_long_runs()
    return jax.jit(play, compiler_options=options), (start.sim, jax.random.key(1)), arenas * decisions


def update_program(env: Echelon, params: EnvParams, config: TrainConfig) -> tuple[Any, tuple[Any, ...], int]:
    """An update of a training run, likewise."""
    trainer = make_train(AutoReset(env), config)
    state = trainer.init(jax.random.key(0), params)
    return trainer.run_updates, (state, params), config.arenas * config.rollout_steps


ALONE = {"simulation": simulation_program, "step": step_program}


def main() -> None:
    """Compile, run by turns and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arenas", type=int, default=64)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--decisions", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--programs", nargs="+", default=["simulation", "step", "update"])
    given = parser.parse_args()
    set_up_jax(1)
    game = EnvConfig(size_x=given.size, size_y=given.size)
    worlds = generate_worlds(game, range(16))
    config = TrainConfig.cpu(arenas=given.arenas, devices=1, bank_size=16, teacher="")
    for program in given.programs:
        told: dict[str, dict[str, Any]] = {}
        runs: dict[str, tuple[Any, list[Any], int]] = {}
        for kernels in KERNELS:
            env = Echelon(game, kernels=kernels)
            params = env.params(env.make_bank(worlds), rewards=reward_weights(config, game))
            if program in ALONE:
                function, arguments, steps = ALONE[program](env, params, given.arenas, given.decisions)
            else:
                function, arguments, steps = update_program(env, params, config)
            lowered = function.lower(*arguments)
            wall, cpu = time.perf_counter(), time.process_time()
            compiled = lowered.compile()
            told[kernels] = {
                "compile_wall_s": round(time.perf_counter() - wall, 1),
                "compile_cpu_s": round(time.process_time() - cpu, 1),
            }
            runs[kernels] = compiled, list(arguments), steps
        spent: dict[str, list[float]] = {kernels: [] for kernels in KERNELS}
        for turn in range(given.rounds):
            for kernels, (compiled, arguments, steps) in runs.items():
                if program in ALONE:
                    arguments[1] = jax.random.key(turn)
                cpu = time.process_time()
                arguments[0], _ = jax.block_until_ready(compiled(*arguments))
                spent[kernels].append((time.process_time() - cpu) * 1e6 / steps)
        for kernels, times in spent.items():
            step = {"us_best": round(min(times), 1), "us_median": round(statistics.median(times), 1)}
            print(json.dumps({"program": program, "kernels": kernels, **told[kernels], **step}), flush=True)


if __name__ == "__main__":
    main()
