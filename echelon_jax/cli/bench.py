"""`echelon bench`: speed of the environment alone and of fused training, by a fixed definition.

5 against 5 on 60x60x20, full observation, original rules, resets included. `env` plays uniform random actions on both
sides; `train` is the whole fused update with hidden 128, 128 steps, 4 epochs, 4 minibatches against the scripted
opponent. An env-step is one decision of one arena. A mech-step is one decision of one mech; there are ten per env-step. A tick
is one substep of one arena; there are five per env-step.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from echelon_jax.cli.common import set_up_jax
from echelon_jax.cli.compile_for import compile_for
from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.env.interfaces import action_layout
from echelon_jax.native.choice import chosen_kernels
from echelon_jax.system import peak_megabytes

if TYPE_CHECKING:
    from rich.console import Console

BENCHES = ("env", "train")
SIZE = 60
STEPS_PER_CALL = 32


@dataclasses.dataclass(frozen=True)
class BenchCommand:
    """Measure env-steps, mech-steps and ticks per second, compile time and peak memory."""

    which: tuple[str, ...] = BENCHES
    """What to measure: `env`, `train` or both."""
    arenas: int = 256
    """Arenas of the environment benchmark."""
    train_arenas: int = 64
    """Arenas of the training benchmark; a multiple of 4."""
    seconds: float = 20.0
    """Shortest measuring time per benchmark in seconds, after compiling and a warm-up."""
    json: bool = False
    """Print JSON instead of a table."""
    threads: int = 1
    """XLA's CPU threads; 0 leaves the choice to XLA."""
    kernels: str | None = None
    """What runs the simulation: `xla` (the default), `native`, which needs a compiler, or `auto` (docs/kernels.md)."""
    compile_for: str | None = None
    """Measure nothing; compile for this GPU (`h100`), which need not be here, and count what it would run (docs/gpu.md)."""
    program: str = "env"
    """What to compile for it: `env` (a step), `policy` (a decision), `update` (the learner's) or `train` (the fused call)."""
    rules: str = "original"
    """Rule set of what is compiled for it, `original` or `revised`."""
    size: int = SIZE
    """Edge of its map."""
    packs: int = 1
    """Its packs per team."""
    graphs: bool = False
    """Put its loops and conditionals into CUDA graphs."""
    trip_steps: int = 0
    """Decision steps played here to count iterations of loops whose end is data; with 0 a count made before is taken."""

    def run(self) -> int:
        """Measure and print; returns the exit status.

        Raises:
            UsageError: a flag out of range.
        """
        for name in self.which:
            if name not in BENCHES:
                raise UsageError(f"which must be made of {', '.join(BENCHES)}, got {name!r}")
        if self.arenas < 1:
            raise UsageError(f"arenas must be a whole number from 1, got {self.arenas}")
        if self.compile_for is not None:
            game = (self.rules, self.size, self.packs, self.arenas)
            set_up_jax(self.threads, kernels="xla")  # what is compiled for is not what runs here
            kernels = checked(chosen_kernels, self.kernels)
            return compile_for(self.compile_for, self.program, *game, self.graphs, self.trip_steps, self.json, kernels)
        if self.train_arenas < 4 or self.train_arenas % 4:
            raise UsageError(f"train-arenas must be a multiple of 4 minibatches, got {self.train_arenas}")
        if not self.seconds > 0:
            raise UsageError(f"seconds must be above 0, got {self.seconds}")
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # compile time is part of what is measured
        set_up_jax(self.threads, kernels=self.kernels)
        import jax

        jax.config.update("jax_enable_compilation_cache", False)
        report: dict[str, Any] = {
            "machine": {
                "processor": _processor(),
                "cores": os.cpu_count(),
                "xla_threads": self.threads,
                "device": jax.devices()[0].device_kind,
                "jax": jax.__version__,
                "python": platform.python_version(),
            }
        }
        if "env" in self.which:
            report["env"] = bench_env(self.arenas, self.seconds)
        if "train" in self.which:
            report["train"] = bench_train(self.train_arenas, self.seconds)
        if self.json:
            print(json.dumps(report, indent=1))
        else:
            print_table(report)
        return 0


def bench_env(arenas: int, seconds: float) -> dict[str, float]:
    """The environment alone under uniform random actions."""
    import jax
    import jax.numpy as jnp

    from echelon_jax.config import EnvConfig
    from echelon_jax.env.autoreset import AutoReset
    from echelon_jax.env.environment import Echelon
    from echelon_jax.worldgen.bank import bank_seeds, generate_worlds

    config = EnvConfig.original(size_x=SIZE, size_y=SIZE)
    env = Echelon(config)
    resetting = AutoReset(env)
    params = env.params(env.make_bank(generate_worlds(config, bank_seeds(0, 0, 0, 64))))

    def call(state: Any, params: Any, key: Any) -> Any:
        def one(state: Any, key: Any) -> tuple[Any, Any]:
            env_key, action_key = jax.random.split(key)
            shape = (arenas, config.num_mechs, action_layout(config).size)
            actions = jax.random.uniform(action_key, shape, jnp.float32, -1.0, 1.0)
            state, step = resetting.step_batch(jax.random.split(env_key, arenas), state, actions, params)
            # Every result is used, so that nothing is optimised away.
            used = step.observation.sum() + step.reward.sum() + step.final_observation[:, 0, 0].sum()
            return state, (used, step.episode_over.sum())

        state, (used, ended) = jax.lax.scan(one, state, jax.random.split(key, STEPS_PER_CALL))
        return state, used.sum(), ended.sum()

    state, _ = jax.jit(env.reset_batch)(jax.random.split(jax.random.key(0), arenas), params)
    key = jax.random.key(1)
    compiled, trace_seconds, compile_seconds = _compile(jax.jit(call, donate_argnums=0), state, params, key)
    carry = [state]

    def run(i: int) -> None:
        carry[0], used, _ = compiled(carry[0], params, jax.random.fold_in(key, i))
        used.block_until_ready()

    rate = _measure(run, arenas * STEPS_PER_CALL, seconds, warm_up=8)
    return {
        "arenas": arenas,
        **rate,
        **_units(rate, config),
        "trace_seconds": trace_seconds,
        "compile_seconds": compile_seconds,
        "peak_memory_mib": _peak_memory_mib(),
        "program_temporaries_mib": compiled.memory_analysis().temp_size_in_bytes / 2**20,
    }


def bench_train(arenas: int, seconds: float) -> dict[str, float]:
    """Fused training: rollout, advantages and update in one program."""
    import jax

    from echelon_jax.config import EnvConfig
    from echelon_jax.env.autoreset import AutoReset
    from echelon_jax.env.environment import Echelon
    from echelon_jax.training.config import TrainConfig
    from echelon_jax.training.trainer import make_train
    from echelon_jax.worldgen.bank import bank_seeds, generate_worlds

    config = EnvConfig.original(size_x=SIZE, size_y=SIZE)
    env = Echelon(config)
    params = env.params(env.make_bank(generate_worlds(config, bank_seeds(0, 0, 0, 64))))
    train_config = TrainConfig(arenas=arenas, rollout_steps=128, epochs=4, minibatches=4, hidden=128, lstm=128)
    trainer = make_train(AutoReset(env), train_config)
    state = trainer.init(jax.random.key(0), params)
    compiled, trace_seconds, compile_seconds = _compile(trainer.run_updates, state, params)
    carry = [state]

    def run(i: int) -> None:
        carry[0], metrics = compiled(carry[0], params)
        jax.block_until_ready(metrics)

    rate = _measure(run, train_config.decisions_per_update, seconds, warm_up=1)
    return {
        "arenas": arenas,
        **rate,
        **_units(rate, config),
        "trace_seconds": trace_seconds,
        "compile_seconds": compile_seconds,
        "peak_memory_mib": _peak_memory_mib(),
        "program_temporaries_mib": compiled.memory_analysis().temp_size_in_bytes / 2**20,
    }


def _compile(function: Any, *args: Any) -> tuple[Any, float, float]:
    start = time.perf_counter()
    lowered = function.lower(*args)
    traced = time.perf_counter()
    compiled = lowered.compile()
    return compiled, traced - start, time.perf_counter() - traced


def _measure(run: Callable[[int], None], steps_per_run: int, seconds: float, warm_up: int) -> dict[str, float]:
    for i in range(warm_up):
        run(i)
    runs, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        run(warm_up + runs)
        runs += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    steps = runs * steps_per_run
    return {
        "env_steps": steps,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "env_steps_per_wall_second": steps / wall,
        "env_steps_per_cpu_second": steps / cpu,
    }


def _units(rate: dict[str, float], config: Any) -> dict[str, float]:
    out = {}
    for per in ("wall_second", "cpu_second"):
        out[f"mech_steps_per_{per}"] = rate[f"env_steps_per_{per}"] * config.num_mechs
        out[f"ticks_per_{per}"] = rate[f"env_steps_per_{per}"] * config.substeps
    return out


def _peak_memory_mib() -> float:
    """Peak resident memory of this process so far, 0 where the system does not say; on a GPU, peak device memory."""
    import jax

    stats = jax.devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 2**20
    return peak_megabytes() or 0.0


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def print_table(report: dict[str, Any], console: Console | None = None) -> None:
    """Print the machine and a column for each benchmark."""
    from echelon_jax.terminal import PlainConsole, number_table

    console = console or PlainConsole()
    for name, value in report["machine"].items():
        console.print(f"{name.replace('_', ' ')}: {value}")
    console.print()
    names = [name for name in BENCHES if name in report]
    table = number_table("", names)
    for row in report[names[0]]:
        table.add_row(row, *(f"{report[name][row]:,.1f}" for name in names))
    console.print(table)
