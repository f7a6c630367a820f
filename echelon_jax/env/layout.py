"""Layout tables: vectors whose entries have names, places, units and bounds.

The code that builds a vector lays out its parts in the order of its table. Documentation, normaliser and tests read the same
table, so an entry is described once. The tables themselves are in `original/layout.py` and `modern/layout.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

CONTACTS = 5
CONTACT_GROUP = "contact"  # slots of an observation that are contacts, and not mechs of the roster
KINDS = ("flag", "continuous", "one_hot", "map")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One named run of numbers.

    Attributes:
        name: unique; parts of a block are written `block/part`.
        offset, size: place in the vector.
        meaning: one line.
        unit: what the number is measured in.
        low, high: range, infinite where the original does not clip.
        kind: flag (0 or 1), continuous, one_hot (at most one of `size` is 1) or map (a plane of 0 and 1).
    """

    name: str
    offset: int
    size: int
    meaning: str
    unit: str
    low: float
    high: float
    kind: str

    @property
    def slice(self) -> slice:
        """The entry's place as a slice."""
        return slice(self.offset, self.offset + self.size)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A whole vector as entries that follow each other without a gap."""

    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.entries[-1].offset + self.entries[-1].size

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __getitem__(self, name: str) -> Entry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise ValueError(f"name must be one of {', '.join(e.name for e in self.entries)}, got {name!r}")

    def block(self, name: str) -> slice:
        """The run of all entries whose name is `name` or starts with `name/`.

        Raises:
            ValueError: if there is none.
        """
        inside = [e for e in self.entries if e.name == name or e.name.startswith(name + "/")]
        if not inside:
            raise ValueError(f"block must be a block of the layout, got {name!r}")
        return slice(inside[0].offset, inside[-1].offset + inside[-1].size)

    @property
    def continuous(self) -> np.ndarray:
        """Bool [size]: what a normaliser should scale; flags, one-hots and maps are left alone."""
        return np.concatenate([np.full(e.size, e.kind == "continuous") for e in self.entries])

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest value of every number, float32 [size] each, infinite where there is no limit."""
        low = np.concatenate([np.full(e.size, e.low, np.float32) for e in self.entries])
        high = np.concatenate([np.full(e.size, e.high, np.float32) for e in self.entries])
        return low, high
