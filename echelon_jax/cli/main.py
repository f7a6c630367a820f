"""The `echelon` command: subcommands, and errors as one sentence with a non-zero exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from echelon_jax.cli.arena import ArenaCommand
from echelon_jax.cli.bench import BenchCommand
from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.evaluate import EvaluateCommand
from echelon_jax.cli.export import ExportCommand, ImportCommand
from echelon_jax.cli.parity import ParityCommand
from echelon_jax.cli.runs import RunsCommand
from echelon_jax.cli.train import TrainCommand

Command = (
    Annotated[TrainCommand, tyro.conf.subcommand("train")]
    | Annotated[EvaluateCommand, tyro.conf.subcommand("evaluate")]
    | Annotated[RunsCommand, tyro.conf.subcommand("runs")]
    | Annotated[ArenaCommand, tyro.conf.subcommand("arena")]
    | Annotated[BenchCommand, tyro.conf.subcommand("bench")]
    | Annotated[ParityCommand, tyro.conf.subcommand("parity")]
    | Annotated[ExportCommand, tyro.conf.subcommand("export")]
    | Annotated[ImportCommand, tyro.conf.subcommand("import")]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0, 1 for a check that failed, 2 for wrong input (one sentence on standard error)."""
    command = tyro.cli(
        Command,  # type: ignore[arg-type]
        prog="echelon",
        description="Mech combat in JAX: train, evaluate, rate, measure.",
        args=sys.argv[1:] if argv is None else list(argv),
        config=(tyro.conf.OmitArgPrefixes,),
    )
    try:
        return command.run()
    except UsageError as error:
        print(f"echelon: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
