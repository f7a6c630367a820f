"""The memory that `echelon train --dry-run` estimates against that of the compiled program: `python benchmarks/memory.py`.

Without --time nothing runs: the program is compiled from shapes, here or for a GPU that need not be there (docs/gpu.md). The
update compiles in seconds, the whole training call (--program train) in minutes. Fields of the preset `gpu` are changed by --case,
once for each case:

    python benchmarks/memory.py --case "arenas=256" --case "arenas=256 accumulate=4" --size 100 --packs 2
    python benchmarks/memory.py --program train --compile-for h100 --case "arenas=8192"

With --time the updates run here, by turns on random numbers, and the CPU seconds of each case stand beside those of the first:

    python benchmarks/memory.py --time --case "arenas=64" --case "arenas=64 accumulate=4" --case "arenas=64 remat=true"
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from echelon_jax.config import EnvConfig
from echelon_jax.fields import allowed
from echelon_jax.jax_setup import set_up_jax
from echelon_jax.training.config import TrainConfig

# Which buffers there are is settled before LLVM makes machine code of it, so that most of the compiling can be left out.
NO_LLVM_OPTIMISATION = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
KINDS = ("argument", "output", "alias", "temp")


def fields(text: str) -> dict[str, Any]:
    """Return the fields that a case changes: "arenas=256 remat=true" with values as JSON; a text needs no quotes.

    Raises:
        ValueError: a word is not of the form FIELD=VALUE, or there is no such field.
    """
    told = {}
    for word in text.split():
        name, sign, value = word.partition("=")
        if not sign or name not in allowed(TrainConfig):
            raise ValueError(f"case must be FIELD=VALUE words with fields of TrainConfig, got {word!r}")
        told[name] = value if allowed(TrainConfig)[name].kind is str else json.loads(value)
    return told


def compiled_bytes(program: str, game: EnvConfig, changes: dict[str, Any], target: str | None) -> dict[str, int]:
    """Return the memory of a compiled program as XLA states it: `argument`, `output`, `alias` and `temp`."""
    changes = {"devices": 1, **changes}
    if target is not None:
        from echelon_jax.gpu.compiler import Request, compile_program

        arenas = changes.pop("arenas", TrainConfig.gpu().arenas)
        request = Request.of(game, target=target, program=program, arenas=arenas, train=changes)
        with tempfile.TemporaryDirectory() as folder:
            facts = compile_program(request, Path(folder)).facts["memory_bytes"]
        return {name: facts[name] for name in KINDS}
    from echelon_jax.gpu.programs import make_program

    made = make_program(program, game, changes.pop("arenas", TrainConfig.gpu().arenas), changes)
    told = made.function.lower(*made.arguments).compile().memory_analysis()  # type: ignore[attr-defined]
    return {name: getattr(told, f"{name}_size_in_bytes") for name in KINDS}


def row(program: str, game: EnvConfig, changes: dict[str, Any], target: str | None) -> dict[str, Any]:
    """Return the estimate of a case beside what was compiled, in MiB."""
    import jax

    from echelon_jax.env.shapes import tree_bytes
    from echelon_jax.policies.registry import make_network
    from echelon_jax.runs.memory import needs, update_needs

    began = time.process_time()
    config = TrainConfig.gpu(**{"devices": 1, **changes}).validate()
    if program == "train":
        whole = needs(config, game)
        estimate, parts = whole.total, dict(whole.rows)
    else:
        alone = update_needs(config, game)
        params = jax.eval_shape(make_network(config, game).init, jax.eval_shape(lambda: jax.random.key(0)))
        learner = 3 * tree_bytes(params)  # with Adam's two moments
        estimate, parts = learner + alone.batch + alone.minibatch + alone.activations, vars(alone)
    estimated = time.process_time() - began
    told = compiled_bytes(program, game, changes, target)
    peak = told["argument"] + told["temp"] + max(0, told["output"] - told["alias"])
    return {
        "case": changes,
        "estimate": estimate / 2**20,
        "compiled": peak / 2**20,
        "ratio": estimate / peak,
        "of_compiled": {name: size / 2**20 for name, size in told.items()},
        "of_estimate": {name: size / 2**20 for name, size in parts.items()},
        "cpu_seconds": [estimated, time.process_time() - began - estimated],
    }


def filled(shapes: Any, key: Any) -> Any:
    """Arrays of these shapes: small random numbers, flags that are all set, zeros where there are whole numbers."""
    import jax
    import jax.numpy as jnp

    def one(shape: Any) -> Any:
        if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
            return jax.random.clone(key)
        if jnp.issubdtype(shape.dtype, jnp.floating):
            return 0.1 * jax.random.normal(key, shape.shape, shape.dtype)
        return jnp.ones(shape.shape, bool) if shape.dtype == bool else jnp.zeros(shape.shape, shape.dtype)

    return jax.block_until_ready(jax.tree.map(one, shapes))


def timed(game: EnvConfig, cases: list[dict[str, Any]], turns: int) -> list[dict[str, Any]]:
    """Run the update of every case by turns; return its CPU seconds, and their ratio to those of the first case."""
    import jax

    from echelon_jax.gpu.programs import make_program

    programs = []
    for changes in cases:
        # No step is left out, however large a step on random numbers is.
        wanted = {"devices": 1, "target_kl": 0.0, **changes}
        made = make_program("update", game, wanted.pop("arenas", TrainConfig.gpu().arenas), wanted)
        programs.append((made.function.lower(*made.arguments).compile(), made.arguments))  # type: ignore[attr-defined]
    spent: list[list[float]] = [[] for _ in cases]
    for turn in range(turns + 1):
        for number, (run, shapes) in enumerate(programs):
            arguments = filled(shapes, jax.random.key(turn))
            began = time.process_time()
            jax.block_until_ready(run(*arguments))
            if turn:  # the first run of a program meets cold memory
                spent[number].append(time.process_time() - began)
    ratios = [[a / b for a, b in zip(own, spent[0], strict=True)] for own in spent]
    return [
        {
            "case": case,
            "cpu_seconds": statistics.median(own),
            "ratio": statistics.median(ratio),
            "ratios": sorted(ratio),
        }
        for case, own, ratio in zip(cases, spent, ratios, strict=True)
    ]


def main() -> None:
    """Print a line of JSON for each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", choices=("update", "train"), default="update")
    parser.add_argument(
        "--case", action="append", help='changed fields of the preset gpu, such as "arenas=256 accumulate=4"'
    )
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--packs", type=int, default=1)
    parser.add_argument("--compile-for", default=None, help="a GPU, h100, instead of this machine's CPU")
    parser.add_argument(
        "--time", action="store_true", help="run the updates by turns instead of comparing their memory"
    )
    parser.add_argument("--turns", type=int, default=5, help="of --time that count")
    flags = parser.parse_args()
    if flags.time and (flags.compile_for is not None or flags.program != "update"):
        parser.error("--time goes with the update on this machine: without --compile-for and --program")
    if flags.compile_for is not None:
        os.environ["ECHELON_LOOP_WIDTHS"] = "gpu"  # so that the estimate is that of a GPU too
    elif not flags.time:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {NO_LLVM_OPTIMISATION}".strip()
    set_up_jax(1)
    game = EnvConfig(size_x=flags.size, size_y=flags.size, num_packs=flags.packs)
    cases = []
    for case in flags.case or ["arenas=256"]:
        try:
            cases.append(fields(case))
        except ValueError as error:
            parser.error(str(error))
    if flags.time:
        for told in timed(game, cases, flags.turns):
            print(json.dumps(told), flush=True)
        return
    for changes in cases:
        print(json.dumps(row(flags.program, game, changes, flags.compile_for)), flush=True)


if __name__ == "__main__":
    main()
