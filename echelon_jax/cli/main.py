"""The `echelon` command: subcommands, and errors as one sentence with a non-zero exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import tyro

from echelon_jax.cli.arena import ArenaCommand
from echelon_jax.cli.bench import BenchCommand
from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.evaluate import EvaluateCommand
from echelon_jax.cli.export import ExportCommand, ImportCommand
from echelon_jax.cli.parity import ParityCommand
from echelon_jax.cli.replay import ReplayCommand
from echelon_jax.cli.runs import RunsCommand
from echelon_jax.cli.train import TrainCommand
from echelon_jax.cli.watch import WatchCommand
from echelon_jax.terminal import lenient_output

INTERRUPTED, NOBODY_READS = 130, 141

Command = (
    Annotated[TrainCommand, tyro.conf.subcommand("train")]
    | Annotated[EvaluateCommand, tyro.conf.subcommand("evaluate")]
    | Annotated[WatchCommand, tyro.conf.subcommand("watch")]
    | Annotated[ReplayCommand, tyro.conf.subcommand("replay")]
    | Annotated[RunsCommand, tyro.conf.subcommand("runs")]
    | Annotated[ArenaCommand, tyro.conf.subcommand("arena")]
    | Annotated[BenchCommand, tyro.conf.subcommand("bench")]
    | Annotated[ParityCommand, tyro.conf.subcommand("parity")]
    | Annotated[ExportCommand, tyro.conf.subcommand("export")]
    | Annotated[ImportCommand, tyro.conf.subcommand("import")]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0; 1 for a check that failed; 2 for wrong input (one sentence on standard error); 130 after Ctrl-C and 141 when whoever
    read the output has gone, which is what a shell says of any program then.
    """
    lenient_output()
    with _colours_as_asked():
        command = tyro.cli(
            Command,  # type: ignore[arg-type]
            prog="echelon",
            description="Mech combat in JAX: train, evaluate, rate, measure. "
            "Exit status: 0 done, 1 a check failed, 2 wrong input, 130 interrupted (docs/commands.md).",
            args=sys.argv[1:] if argv is None else list(argv),
            config=(tyro.conf.OmitArgPrefixes,),
        )
    try:
        status = command.run()
        sys.stdout.flush()
    except UsageError as error:
        print(f"echelon: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _leave_output()
        return NOBODY_READS
    except KeyboardInterrupt:
        print("echelon: interrupted", file=sys.stderr)
        return INTERRUPTED
    return status


@contextmanager
def _colours_as_asked() -> Iterator[None]:
    """Let help texts follow NO_COLOR (https://no-color.org), which tyro does not read: it leaves a dumb terminal uncoloured."""
    terminal = os.environ.get("TERM")
    if os.environ.get("NO_COLOR"):
        os.environ["TERM"] = "dumb"
    try:
        yield
    finally:
        if terminal is None:
            os.environ.pop("TERM", None)
        else:
            os.environ["TERM"] = terminal


def _leave_output() -> None:
    """Let Python flush what is left into nothing at its end, instead of failing once more."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
