"""A compiled program as XLA prints it: instructions, how many bytes they touch, and which functions of the project made them."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

PACKAGE = f"{Path(__file__).resolve().parents[1]}/"
WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}
WIDTHS |= {"s64": 8, "u64": 8, "f64": 8, "c64": 8}
_SHAPE = re.compile(r"\b(" + "|".join(WIDTHS) + r")\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_OPERAND = re.compile(r"%([\w.\-]+)")
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')


def arrays_of(text: str) -> tuple[tuple[str, int], ...]:
    """Return dtype and number of entries of each array of a shape as XLA prints it, `f32[256,10]{1,0}` or a tuple of such."""
    return tuple((kind, math.prod(int(n) for n in sizes.split(",") if n)) for kind, sizes in _SHAPE.findall(text))


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction of a program.

    Attributes:
        name, opcode: as printed.
        arrays: dtype and entries of each array of the result.
        operands: names of the instructions it reads.
        trips: iterations of a loop, where XLA knows them.
        frames: the project's functions on whose behalf it runs, outermost first; what is defined
            inside a function counts as that function.
    """

    name: str
    opcode: str
    arrays: tuple[tuple[str, int], ...]
    operands: tuple[str, ...]
    trips: int | None
    frames: tuple[str, ...]

    @property
    def output(self) -> int:
        """Bytes of the result; of a matrix product without the library's workspace."""
        skip = "s8" if self.opcode == "custom-call" and len(self.arrays) > 1 else ""
        return sum(WIDTHS[kind] * entries for kind, entries in self.arrays if kind != skip)


def is_ours(file: str, package: str = PACKAGE) -> bool:
    """Return whether a source file is one of the project's, those that only look at programs left out."""
    return file.startswith(package) and not file.startswith(f"{package}gpu/")


def _tables(text: str) -> dict[str, dict[int, str]]:
    """The tables of source positions that stand in front of a module."""
    found = {}
    for name in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
        match = re.search(rf"^{name}\n(.*?)\n\n", text, re.S | re.M)
        rows = [line.split(" ", 1) for line in match.group(1).splitlines()] if match else []
        found[name] = {int(number): rest for number, rest in rows}
    return found


def _fields(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", text)}


class Frames:
    """From the number of a stack frame to the project's functions."""

    def __init__(self, text: str, package: str = PACKAGE) -> None:
        """Read the tables of a program; `package` is the project's directory when it was compiled."""
        tables = _tables(text)
        files, functions = tables["FileNames"], tables["FunctionNames"]
        self._parent: dict[int, int] = {}
        self._own: dict[int, str | None] = {}
        frames = {number: _fields(row) for number, row in tables["StackFrames"].items()}
        # Some versions print a parent's number one too high, so that the first frame is its own parent.
        shift = 1 if frames.get(1, {}).get("parent_frame_id") == 1 else 0
        for number, row in frames.items():
            location = _fields(tables["FileLocations"][row["file_location_id"]])
            ours = is_ours(files[location["file_name_id"]].strip('"'), package)
            name = functions[location["function_name_id"]].strip('"').split(".<locals>")[0]
            self._own[number] = name if ours else None
            self._parent[number] = row.get("parent_frame_id", 0) - shift
        self._known: dict[int, tuple[str, ...]] = {0: ()}

    def of(self, number: int) -> tuple[str, ...]:
        """Return the project's functions of a frame, outermost first, repetitions left out."""
        if number not in self._own:
            return ()
        if number not in self._known:
            before = self.of(self._parent[number])
            own = self._own[number]
            self._known[number] = before if own is None or before[-1:] == (own,) else (*before, own)
        return self._known[number]


def read_instructions(text: str, package: str = PACKAGE) -> dict[str, Instruction]:
    """Return the instructions of a program by name; XLA's names are unique within a module."""
    frames = Frames(text, package)
    found: dict[str, Instruction] = {}
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, shape, opcode, rest = match.groups()
        frame, trips = _FRAME.search(rest), _TRIPS.search(rest)
        found[name] = Instruction(
            name=name,
            opcode=opcode,
            arrays=arrays_of(shape),
            operands=tuple(_OPERAND.findall(rest.split("), ", 1)[0])),
            trips=int(trips.group(1)) if trips else None,
            frames=frames.of(int(frame.group(1))) if frame else (),
        )
    return found
