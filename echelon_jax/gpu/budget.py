"""The budget of launches: what the compiled programs may need at most, in a file whose numbers only fall.

The file holds, per program, a history of entries. The last one counts; a new entry may be lower than the one before, never higher.

    python -m echelon_jax.gpu.budget            # compile and compare
    python -m echelon_jax.gpu.budget --lower    # and write what is lower as a new entry
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from echelon_jax.config import EnvConfig
from echelon_jax.gpu.compiler import CompileFailed, NoCompiler, Request
from echelon_jax.gpu.report import compile_and_describe
from echelon_jax.gpu.target import DATA

FILE = DATA / "budget.json"
NUMBERS = ("launches", "host_synchronised_loops")
TARGET, SIZE = "h100", 60


@dataclasses.dataclass(frozen=True)
class Budgeted:
    """A program with a budget: its name in the file, and what it is."""

    name: str
    program: str
    rules: str
    arenas: int
    kernels: str = "xla"

    def request(self) -> Request:
        """Return what to compile."""
        config: EnvConfig = getattr(EnvConfig, self.rules)(size_x=SIZE, size_y=SIZE)
        return Request.of(config, target=TARGET, program=self.program, arenas=self.arenas, kernels=self.kernels)


PROGRAMS = (
    Budgeted("environment, original rules, 256 arenas", "env", "original", 256),
    Budgeted("environment, revised rules, native kernels, 256 arenas", "env", "revised", 256, "native"),
    Budgeted("fused training call, native kernels, 64 arenas", "train", "revised", 64, "native"),
    Budgeted("modern policy, 256 arenas", "policy", "revised", 256),
    Budgeted("league of eight policies, 256 arenas", "league", "revised", 256),
    Budgeted("learner's update, modern policy, 256 arenas", "update", "revised", 256),
)


def read_budget(path: Path = FILE) -> dict[str, list[dict[str, Any]]]:
    """Return the history of every program."""
    return json.loads(path.read_text())


def risen(history: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for every number of a history that an entry raises."""
    return [
        f"{number} rises from {before[number]} to {after[number]}"
        for before, after in itertools.pairwise(history)
        for number in NUMBERS
        if after[number] > before[number]
    ]


def measured(program: Budgeted) -> dict[str, Any]:
    """Compile a program and return its numbers; a loop whose trip count is data counts as one iteration each time it is entered.

    `host_checks` also counts conditionals: how often a decision step waits for the host. The budget does not bound it.
    """
    report = compile_and_describe(program.request())
    return {
        "launches": round(report["total"]["launches"]),
        "host_synchronised_loops": report["host_synchronised_loops"],
        "host_checks": report["total"]["host_checks"],
        "jaxlib": report["versions"]["jaxlib"],
    }


def exceeded(now: dict[str, Any], allowed: dict[str, Any]) -> list[str]:
    """Return a sentence for every number above its budget."""
    return [
        f"{number} are {now[number]}, the budget is {allowed[number]}"
        for number in NUMBERS
        if now[number] > allowed[number]
    ]


def main(argv: list[str] | None = None) -> int:
    """Compile all programs, print their numbers against the budget; 1 where one is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m echelon_jax.gpu.budget", description=__doc__)
    parser.add_argument("--lower", action="store_true", help="write what is lower as a new entry")
    lower = parser.parse_args(argv).lower
    history, status = read_budget(), 0
    for program in PROGRAMS:
        entries = history.setdefault(program.name, [])
        try:
            now = measured(program)
        except (NoCompiler, CompileFailed) as error:
            print(f"{program.name}: {error}", file=sys.stderr)
            return 1
        wrong = exceeded(now, entries[-1]) if entries else []
        print(f"{program.name}: {now['launches']} launches, {now['host_synchronised_loops']} host-synchronised loops")
        for sentence in wrong:
            print(f"  {sentence}", file=sys.stderr)
            status = 1
        if lower and not wrong and (not entries or any(now[n] < entries[-1][n] for n in NUMBERS)):
            entries.append(now)
            FILE.write_text(json.dumps(history, indent=1) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
