"""Which phase uses how much of a program's scratch memory, from XLA's assignment of values to buffers."""

from __future__ import annotations

import re
from pathlib import Path

from echelon_jax.gpu.hlo import Instruction
from echelon_jax.gpu.phases import phase_of

_ALLOCATION = re.compile(r"^allocation \d+: size \d+, (.*):$")
_VALUE = re.compile(r"^ value: <\d+ ([\w.\-]+)\S* .*\(size=(\d+),offset=(\d+)\)")


def covered(ranges: list[tuple[int, int]]) -> int:
    """Return how many bytes are in at least one of the ranges [start, end)."""
    total, reached = 0, 0
    for start, end in sorted(ranges):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def scratch_by_phase(text: str, program: dict[str, Instruction]) -> dict[str, int]:
    """Return the bytes of the temporary allocation that each phase's values take; phases use the same bytes one after another.

    Args:
        text: XLA's buffer assignment.
        program: instructions by name.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    temporary = False
    for line in text.splitlines():
        allocation = _ALLOCATION.match(line)
        if allocation:
            temporary = "preallocated-temp" in allocation.group(1)
        value = _VALUE.match(line) if temporary else None
        if value:
            name, size, offset = value.group(1), int(value.group(2)), int(value.group(3))
            instruction = program.get(name)
            phase = phase_of(instruction.frames if instruction else ())
            ranges.setdefault(phase, []).append((offset, offset + size))
    return {phase: covered(parts) for phase, parts in ranges.items()}


def read_scratch(dump: Path, stem: str, program: dict[str, Instruction]) -> dict[str, int]:
    """Return `scratch_by_phase` of a program in a dump directory, nothing where XLA wrote no assignment."""
    found = list(dump.glob(f"{stem}*gpu_after_optimizations-buffer-assignment.txt"))
    return scratch_by_phase(found[0].read_text(), program) if len(found) == 1 else {}
