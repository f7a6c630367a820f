"""The parts of an observation, read from its layout table: plain numbers, slots of equal things, and planes.

Indices count in a mech's own part of the observation (`Features.own_of`), which the network reads.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import cache
from typing import NamedTuple

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout, observation_of


class Slots(NamedTuple):
    """A run of `number` slots of `width` entries each, from `start`.

    `flag` is the entry of a slot that says whether it is used. `nearness` is the entry that says how near it is, or None.
    """

    name: str
    start: int
    number: int
    width: int
    flag: int
    nearness: int | None = None

    @property
    def stop(self) -> int:
        """Index of the entry after the last slot."""
        return self.start + self.number * self.width


@dataclasses.dataclass(frozen=True)
class Structure:
    """The parts of a mech's own observation.

    Attributes:
        numbers: runs (start, stop) of everything that is neither a slot nor a plane.
        slots: groups of things of one kind; `targets` names the group from which a target is chosen.
        planes: runs (start, stop) of map planes.
        shared: entries of the planes that an arena's mechs share.
        alive: entries of which one is above 0 if and only if the mech lives.
    """

    numbers: tuple[tuple[int, int], ...]
    slots: tuple[Slots, ...]
    targets: str
    planes: tuple[tuple[int, int], ...]
    shared: int
    alive: tuple[int, int]

    @property
    def number_size(self) -> int:
        """Entries in `numbers`."""
        return sum(stop - start for start, stop in self.numbers)


@cache
def structure_of(config: EnvConfig) -> Structure:
    """Return the structure of the environment's observation."""
    layout = observation_layout(config)
    reading = observation_of(config).reading
    shared = layout.block(reading.shared_block)
    gap = shared.stop - shared.start

    def own(entry: int) -> int:
        return entry if entry < shared.stop else entry - gap

    groups = []
    for kind in reading.slot_kinds:
        count = 0
        while any(entry.name.startswith(f"{kind}_{count}/") for entry in layout):
            count += 1
        first = layout.block(f"{kind}_0")
        groups.append(
            Slots(
                name=kind,
                start=own(first.start),
                number=count,
                width=first.stop - first.start,
                flag=layout[f"{kind}_0/{reading.slot_used}"].offset - first.start,
                nearness=None
                if reading.slot_nearness is None
                else layout[f"{kind}_0/{reading.slot_nearness}"].offset - first.start,
            )
        )
    plane_blocks = [layout.block(name) for name in reading.plane_blocks]
    planes = tuple((own(block.start), own(block.stop - 1) + 1) for block in plane_blocks)
    taken = np.zeros(layout.size - gap, bool)
    for start, stop in (*((group.start, group.stop) for group in groups), *planes):
        taken[start:stop] = True
    numbers, entry = [], 0
    for used, run in itertools.groupby(taken.tolist()):
        length = len(list(run))
        if not used:
            numbers.append((entry, entry + length))
        entry += length
    alive = layout[reading.alive]
    return Structure(
        numbers=tuple(numbers),
        slots=tuple(groups),
        targets=reading.target_slots,
        planes=planes,
        shared=gap,
        alive=(own(alive.offset), own(alive.offset) + alive.size),
    )
