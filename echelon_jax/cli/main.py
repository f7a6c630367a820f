"""The `echelon` command: subcommands, and errors as one sentence with a non-zero exit status."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import Annotated, Any

import tyro

from echelon_jax.cli.commands import BY_NAME, COMMANDS
from echelon_jax.cli.errors import UsageError
from echelon_jax.terminal import lenient_output

INTERRUPTED, NOBODY_READS = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0; 1 for a check that failed; 2 for wrong input (one sentence on standard error); 130 after Ctrl-C and 141 when whoever
    read the output has gone, which is what a shell says of any program then.
    """
    lenient_output()
    try:
        with _colours_as_asked():
            command = parsed(sys.argv[1:] if argv is None else list(argv))
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


def parsed(argv: Sequence[str]) -> Any:
    """Return the command that the arguments ask for; ends the process after a help text or at a flag that does not exist.

    Only the module of that command is imported. For `echelon --help` and for a wrong name none is.
    """
    if argv and argv[0] in BY_NAME:
        kind, prog, rest = BY_NAME[argv[0]].load(), f"echelon {argv[0]}", argv[1:]
        return tyro.cli(kind, prog=prog, args=list(rest), config=(tyro.conf.OmitArgPrefixes,))
    whole = any(argument.startswith("--tyro-") for argument in argv)  # a script for completion names every flag
    kinds = [
        Annotated[
            command.load() if whole else dataclasses.make_dataclass(command.kind, []),
            tyro.conf.subcommand(command.name, description=command.text),
        ]
        for command in COMMANDS
    ]
    every: Any = reduce(or_, kinds)
    text = (
        "Mech combat in JAX: train, evaluate, rate, measure. "
        "Exit status: 0 done, 1 a check failed, 2 wrong input, 130 interrupted (docs/commands.md)."
    )
    return tyro.cli(every, prog="echelon", description=text, args=list(argv), config=(tyro.conf.OmitArgPrefixes,))


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
