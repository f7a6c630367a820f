"""What XLA will launch: its own listing of thunks (kernels, copies, loops, CUDA graphs), as a tree.

XLA writes the listing into the dump directory (`--xla_dump_to`). In it a line is indented under what runs it; a loop's condition
comes first, then `body:`, and a conditional has a list per branch.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

from echelon_jax.gpu.hlo import PACKAGE, Instruction, read_instructions

LISTINGS = (
    "thunk_sequence_after_thunk_passes.txt",
    "thunk_sequence.txt",
)  # the first only where a pass changed something
PRODUCTS = ("kGemm", "kCublasLtMatmul")
KERNELS = (
    *PRODUCTS,
    *("kCustomKernel", "kKernel", "kCustomCall", "kCuDnn", "kMemzero", "kMemset32BitValue"),
    *("kCubSort", "kConvolution", "kFft", "kTriangularSolve", "kCholesky"),
)
COPIES = ("kCopy",)
GROUPS = ("kCommandBuffer", "kDynamicSliceFusion", "kSequential", "kAsyncStart", "kAsyncDone")
_LINE = re.compile(r"^(\d+): (\w+)\s*(?:\[(.*?)\])?\s*(.*)$")
_BRANCH = re.compile(r"^(?:false_branch|true_branch|branch_?\s*\d+).*:$")
_EMPTY = re.compile(r" *No thunks\.")  # is printed without an end of line


class UnknownListing(Exception):
    """The dump does not look as this version of the reader knows it."""


@dataclasses.dataclass
class Thunk:
    """One entry of the listing.

    Attributes:
        kind: XLA's name of it.
        instruction: of the program, where XLA says which one it runs.
        condition, body: of a loop.
        children: of a CUDA graph or another group.
        branches: of a conditional.
        bytes: that it moves, by `moved_bytes`.
        flops: of a matrix product, by `product_flops`.
        phase: set by `phases.attribute`.
    """

    kind: str
    number: int
    instruction: Instruction | None = None
    condition: list[Thunk] = dataclasses.field(default_factory=list)
    body: list[Thunk] = dataclasses.field(default_factory=list)
    children: list[Thunk] = dataclasses.field(default_factory=list)
    branches: list[list[Thunk]] = dataclasses.field(default_factory=list)
    bytes: float = 0.0
    flops: float = 0.0
    phase: str = ""

    @property
    def frames(self) -> tuple[str, ...]:
        """The project's functions on whose behalf it runs."""
        return self.instruction.frames if self.instruction else ()

    @property
    def trips(self) -> int | None:
        """Iterations of a loop that XLA knows."""
        return self.instruction.trips if self.instruction else None

    @property
    def inner(self) -> list[list[Thunk]]:
        """All lists of thunks that this one runs."""
        return [self.children, self.condition, self.body, *self.branches]


def listing_of(dump: Path) -> Path:
    """Return the listing of the largest program in a dump directory.

    Raises:
        UnknownListing: if there is none.
    """
    for name in LISTINGS:
        found = sorted(dump.glob(f"*.{name}"), key=lambda path: path.stat().st_size)
        if found:
            return found[-1]
    raise UnknownListing(
        f"XLA wrote no listing of thunks ({LISTINGS[-1]}): this reader does not know this version of jaxlib"
    )


def read_names(text: str) -> dict[tuple[str, int], str]:
    """Return the instruction's name of each thunk by kind and number."""
    names = {}
    for block in text.split("thunk_metadata {")[1:]:
        name, number = re.search(r'profile_annotation: "([^"]*)"', block), re.search(r"thunk_id: (\d+)", block)
        kind = re.search(r'thunk_kind: "(\w+)"', block)
        if name and kind:
            names[kind.group(1), int(number.group(1)) if number else 0] = name.group(1)
    return names


def moved_bytes(instruction: Instruction, program: dict[str, Instruction]) -> float:
    """Return an estimate of the bytes that a kernel reads and writes.

    What is written in place (scatters, updates of slices) moves three times its smaller operands. Otherwise it is the output and
    the operands, of which one much larger than the output is gathered or sliced, so counts twice the output, but for reductions.
    """
    small, large = 8 << 20, 40 << 20
    sizes = [program[name].output for name in instruction.operands if name in program]
    if any(word in instruction.name for word in ("scatter", "dynamic_update_slice", "dynamic-update-slice")):
        written = sorted(sizes)[:-1] if len(sizes) > 1 else sizes
        return 3.0 * sum(size for size in written if size < small)
    output, reduces = instruction.output, "reduce" in instruction.name
    read = sum(size if size <= 4 * max(output, 1) or (reduces and size < large) else 2 * output for size in sizes)
    return float(output + read)


def product_flops(instruction: Instruction, program: dict[str, Instruction]) -> float:
    """Return the floating-point operations of a matrix product [m, k] x [k, n]: 2 m n k, where k^2 = (mk)(kn) / (mn)."""
    entries = [sum(n for _, n in program[name].arrays) for name in instruction.operands[:2] if name in program]
    output = instruction.arrays[0][1] if instruction.arrays else 0
    if len(entries) < 2 or not output:
        return 0.0
    return 2.0 * output * math.sqrt(entries[0] * entries[1] / output)


def parse(text: str, names: dict[tuple[str, int], str], program: dict[str, Instruction]) -> list[Thunk]:
    """Return the outermost thunks of a listing.

    Raises:
        UnknownListing: for a line of unknown form.
    """
    root = Thunk("root", -1)
    open_lists: list[tuple[int, list[Thunk], Thunk]] = [
        (-1, root.children, root)
    ]  # indentation of the owner, list, owner
    last: tuple[int, Thunk] | None = None
    for line in _EMPTY.sub("", text).splitlines():
        word, indent = line.strip(), len(line) - len(line.lstrip())
        if not word:
            continue
        if word == "condition:":  # stands at the margin, right behind its loop
            assert last is not None
            open_lists.append((last[0], last[1].condition, last[1]))
            continue
        branch = _BRANCH.match(word)
        if word == "body:" or branch:
            # Belongs to the innermost owner that is indented less.
            while open_lists[-1][0] >= indent:
                open_lists.pop()
            at, _, owner = open_lists[-1]
            if branch:
                owner.branches.append([])
                open_lists.append((at, owner.branches[-1], owner))
            else:
                open_lists[-1] = (at, owner.body, owner)
            continue
        match = _LINE.match(word)
        if match is None:
            raise UnknownListing(f"a line of XLA's listing of thunks is of unknown form: {word[:80]!r}")
        number, kind = int(match.group(1)), match.group(2)
        while open_lists[-1][0] >= indent:
            open_lists.pop()
        name = names.get((kind, number), "")
        thunk = Thunk(kind, number, program.get(name))
        if thunk.instruction is not None and kind in KERNELS + COPIES:
            thunk.bytes = moved_bytes(thunk.instruction, program)
            thunk.flops = product_flops(thunk.instruction, program) if kind in PRODUCTS else 0.0
        open_lists[-1][1].append(thunk)
        last = (indent, thunk)
        if kind in GROUPS or kind == "kConditional":
            open_lists.append((indent, thunk.children, thunk))
    return root.children


@dataclasses.dataclass(frozen=True)
class Dump:
    """The largest program of a dump directory.

    Attributes:
        stem: what the names of its files begin with.
        program: its instructions by name.
        thunks: what it launches, outermost.
    """

    stem: str
    program: dict[str, Instruction]
    thunks: list[Thunk]


def read_dump(dump: Path, package: str = PACKAGE) -> Dump:
    """Read XLA's dump directory; `package` is the project's directory when the program was compiled.

    Raises:
        UnknownListing: if it is not as XLA wrote it when this reader was made.
    """
    listing = listing_of(dump)
    stem = listing.name.split(".thunk_sequence")[0]
    programs = list(dump.glob(f"{stem}*gpu_after_optimizations.txt"))
    metadata = dump / f"{stem}.thunk_metadata.txt"
    if len(programs) != 1 or not metadata.is_file():
        raise UnknownListing(f"XLA's dump lacks the program or the metadata of {stem}")
    program = read_instructions(programs[0].read_text(), package)
    thunks = parse(listing.read_text(), read_names(metadata.read_text()), program)
    if not thunks:
        raise UnknownListing(f"XLA's listing of thunks of {stem} is empty")
    return Dump(stem, program, thunks)
