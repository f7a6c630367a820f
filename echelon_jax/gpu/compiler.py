"""Compile a program for a GPU on a machine without one, in a process of its own, because XLA reads its flags before JAX starts."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from echelon_jax.config import EnvConfig
from echelon_jax.gpu import flags, target
from echelon_jax.native import choice
from echelon_jax.sim.widths import ENVIRONMENT_VARIABLE

# Without a device XLA cannot try kernels out, so it must take its first guess.
DEVICELESS = flags.Flag("xla_gpu_autotune_level", "0", "there is no device to try kernels on")
ROOT = Path(__file__).resolve().parents[2]


class CompileFailed(Exception):
    """The program does not compile for this GPU; the message is XLA's."""


class NoCompiler(Exception):
    """The compiler's wheels are missing; the message says which and how to get them."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to compile.

    Attributes:
        target: name of the GPU, one of `target.targets()`.
        program: one of `programs.NAMES`.
        env: fields of `EnvConfig`.
        arenas: side by side.
        train: fields of the training preset `gpu` to override.
        graphs: whether loops and conditionals are put into CUDA graphs.
        kernels: what runs the simulation, `xla` or `native` (docs/kernels.md).
    """

    target: str
    program: str
    env: dict[str, Any]
    arenas: int
    train: dict[str, Any] = dataclasses.field(default_factory=dict)
    graphs: bool = False
    kernels: str = "xla"

    @classmethod
    def of(cls, config: EnvConfig, **fields: Any) -> Request:
        """Return a request for a game."""
        return cls(env=dataclasses.asdict(config), **fields)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What a compile left.

    Attributes:
        dump: directory of XLA's texts.
        facts: sizes, seconds, versions; see `worker.compile_here`.
    """

    dump: Path
    facts: dict[str, Any]


def xla_flags(graphs: bool, dump: Path, users: str) -> str:
    """Return XLA_FLAGS of the compiling process: the product's, the user's, and what a compile without a device needs."""
    wanted: Iterable[flags.Flag] = (*flags.GPU_FLAGS, *(flags.GRAPH_FLAGS if graphs else ()), DEVICELESS)
    return f"{flags.merged(users, wanted)} --xla_dump_to={dump} --xla_dump_hlo_as_text"


def environment(graphs: bool, dump: Path, kernels: str = "xla") -> dict[str, str]:
    """Return the environment of the compiling process."""
    path = [str(ROOT), target.wheel_directory() or "", os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "JAX_PLATFORMS": "cpu",  # what is not compiled for the target runs here
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # a program out of the cache would dump nothing
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join(folder for folder in path if folder),
        choice.ENVIRONMENT_VARIABLE: kernels,
        ENVIRONMENT_VARIABLE: os.environ.get(ENVIRONMENT_VARIABLE, "gpu"),  # loop widths, whatever runs the tracing
        "XLA_FLAGS": xla_flags(graphs, dump, os.environ.get("XLA_FLAGS", "")),
    }


def compile_program(request: Request, directory: Path) -> Compiled:
    """Compile a program for a GPU into `directory`, which gets XLA's dump and `facts.json`.

    Raises:
        NoCompiler: if the compiler's wheels are missing.
        CompileFailed: with XLA's message.
        ValueError: for a field of the request out of range.
    """
    target.target_text(request.target)
    lacks = target.missing()
    if lacks is not None:
        raise NoCompiler(lacks)
    dump = directory / "dump"
    dump.mkdir(parents=True, exist_ok=True)
    (directory / "request.json").write_text(json.dumps(dataclasses.asdict(request)))
    command = [sys.executable, "-m", "echelon_jax.gpu.worker", str(directory)]
    done = subprocess.run(
        command, env=environment(request.graphs, dump, request.kernels), capture_output=True, text=True, check=False
    )
    answer = directory / "facts.json"
    if not answer.is_file():
        raise CompileFailed(f"the compiling process ended with status {done.returncode}: {_last_line(done.stderr)}")
    facts = json.loads(answer.read_text())
    if "refused" in facts:
        raise ValueError(facts["refused"])
    if "failed" in facts:
        raise CompileFailed(facts["failed"])
    return Compiled(dump, facts)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
