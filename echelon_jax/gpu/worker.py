"""The compiling process: `python -m echelon_jax.gpu.worker DIRECTORY` reads DIRECTORY/request.json and writes facts.json there.

Started by `compiler.compile_program` with XLA_FLAGS set.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jaxlib
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from echelon_jax.config import EnvConfig
from echelon_jax.gpu.programs import make_program
from echelon_jax.gpu.target import architecture, target_text
from echelon_jax.native.call import load

MEMORY = ("argument", "output", "alias", "temp", "generated_code")


def compile_here(request: dict[str, Any]) -> dict[str, Any]:
    """Compile the program of a request for its target and return what is known of it.

    Raises:
        ValueError: for a field out of range.
        jax.errors.JaxRuntimeError: where XLA cannot compile it.
    """
    # All frames, so that a kernel deep inside a loop still names the phase that called it.
    jax.config.update("jax_traceback_in_locations_limit", -1)
    if request["kernels"] == "native":
        load("cuda", architecture(request["target"]))
    program = make_program(request["program"], EnvConfig(**request["env"]), request["arenas"], request["train"])
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=target_text(request["target"]), topology="1x1x1"
    )
    device = SingleDeviceSharding(topology.devices[0])
    arguments = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), program.arguments
    )
    start = time.perf_counter()
    lowered = program.function.trace(*arguments).lower()  # type: ignore[attr-defined]
    traced = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - traced
    analysis = compiled.memory_analysis()
    return {
        "decisions": program.decisions,
        "program_facts": program.facts,
        "memory_bytes": {name: getattr(analysis, f"{name}_size_in_bytes") for name in MEMORY},
        "trace_seconds": traced - start,
        "compile_seconds": seconds,
        "versions": {"jax": jax.__version__, "jaxlib": jaxlib.__version__},
        "xla_flags": [word for word in os.environ["XLA_FLAGS"].split() if not word.startswith("--xla_dump")],
    }


def main(directory: Path) -> int:
    """Compile and write facts.json; a wrong field is `refused`, a failure of XLA `failed`."""
    request = json.loads((directory / "request.json").read_text())
    facts: dict[str, Any]
    try:
        facts = compile_here(request)
    except ValueError as error:
        facts = {"refused": str(error)}
    except jax.errors.JaxRuntimeError as error:
        facts = {"failed": str(error).splitlines()[0]}
    (directory / "facts.json").write_text(json.dumps(facts))
    return 0 if "versions" in facts else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
