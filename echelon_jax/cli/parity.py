"""`echelon parity`: compare this library with recordings of the original and with its plain reference, field by field."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import sys
from pathlib import Path

from echelon_jax.cli.common import set_up_jax
from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.parity.fuzzing.shapes import pair_of_turn
from echelon_jax.terminal import PlainConsole

SECTIONS = ("episodes", "queries", "worlds")
MAX_WIDTH = 4096
MAX_FUZZ = 10_000_000


@dataclasses.dataclass(frozen=True)
class ParityCommand:
    """Compare with recordings of the original, with the plain reference, or both; exit status 1 if anything is unexplained.

    `golden` and `fuzz` may be combined; `reference` needs `golden`.
    """

    golden: Path | None = None
    """Folder of the recordings, which holds `episodes`, `queries` and `worlds`; without it nothing is compared with recordings."""
    fuzz: int = 0
    """Number of random decision steps to compare in both simulators, over the two shapes that ECHELON_FUZZ_TURN selects."""
    reference: bool = False
    """Follow the recorded episodes with the plain reference on its own, from the first row to the end."""
    files: tuple[str, ...] = ()
    """Episodes to compare, by name or shell pattern; all if none is given."""
    sections: tuple[str, ...] = SECTIONS
    """What to compare: any of `episodes`, `queries`, `worlds`."""
    json: bool = False
    """Print JSON instead of tables."""
    width: int = 64
    """Number of arenas in one batch."""
    threads: int = 1
    """XLA's CPU threads; 0 leaves the choice to XLA."""
    kernels: str | None = None
    """What runs the simulation: `xla` (the default), `native`, which needs a compiler, or `auto` (docs/kernels.md)."""

    def run(self) -> int:
        """Compare and print; returns 0 when all agrees or is explained, 1 when not.

        Raises:
            UsageError: a flag out of range, or recordings that are not there.
        """
        chosen = self.select()
        if self.fuzz:
            checked(pair_of_turn)
        set_up_jax(self.threads, kernels=self.kernels)
        from echelon_jax.parity.comparison import compare_all

        errors = PlainConsole(stderr=True)

        def progress(line: str) -> None:
            errors.print(line, style="dim", markup=False)

        report = compare_all(chosen, self.width, progress, self.fuzz, self.reference)
        report.whole_set = not self.files
        if self.json:
            json.dump(report.as_dict(), sys.stdout, indent=2)
            sys.stdout.write("\n")
        else:
            report.show(PlainConsole())
        return 1 if report.failures() else 0

    def select(self) -> dict[str, list[Path]]:
        """The files of each section that was asked for.

        Raises:
            UsageError: naming the flag that cannot be satisfied.
        """
        if not 0 <= self.fuzz <= MAX_FUZZ:
            raise UsageError(f"fuzz must be a whole number of steps from 0 to {MAX_FUZZ}, got {self.fuzz}")
        if self.golden is None:
            if self.reference:
                raise UsageError("reference needs golden, a folder of recordings to follow")
            if not self.fuzz:
                raise UsageError(
                    "parity needs golden (a folder of recordings), fuzz (a number of random steps), or both"
                )
            return {}
        if not self.golden.is_dir():
            raise UsageError(f"golden must be a folder of recordings, got {str(self.golden)!r}")
        if not 1 <= self.width <= MAX_WIDTH:
            raise UsageError(f"width must be a whole number from 1 to {MAX_WIDTH}, got {self.width}")
        unknown = [name for name in self.sections if name not in SECTIONS]
        if unknown or not self.sections:
            raise UsageError(f"sections must be any of {', '.join(SECTIONS)}, got {', '.join(unknown) or 'none'}")
        if self.files and "episodes" not in self.sections:
            raise UsageError("files choose among the episodes, which sections leave out")
        if self.reference and "episodes" not in self.sections:
            raise UsageError("reference follows the episodes, which sections leave out")
        chosen = {name: sorted((self.golden / name).glob("*.npz")) for name in SECTIONS if name in self.sections}
        for pattern in self.files:
            if not any(fnmatch.fnmatch(path.stem, pattern) for path in chosen["episodes"]):
                raise UsageError(f"files must name recorded episodes, none matches {pattern!r}")
        if self.files:
            chosen["episodes"] = [
                path for path in chosen["episodes"] if any(fnmatch.fnmatch(path.stem, p) for p in self.files)
            ]
        for name, paths in chosen.items():
            if not paths:
                raise UsageError(f"golden must hold .npz files in {name}, found none in {str(self.golden)!r}")
        return chosen
