"""The cost model: how often each thunk runs in a launch, and what that costs under named assumptions (data/cost.json).

All times are estimates. A kernel costs its overhead, or half of it plus the time of its bytes or products if that is more. A loop
whose trip count is data asks the host once more than it iterates; a conditional asks once and counts as its more expensive branch.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from echelon_jax.gpu.target import DATA
from echelon_jax.gpu.thunks import COPIES, GROUPS, KERNELS, Thunk

LEVELS = ("low", "mid", "high")  # of the cost
COUNTS = ("kernels", "copies", "graph_nodes", "graph_starts", "host_launches", "host_checks", "graph_checks")


@dataclasses.dataclass(frozen=True)
class Model:
    """Constants of the cost model; each a (low, mid, high) cost.

    Attributes:
        microseconds: of a thing done once, by name.
        memory, cache: bytes per microsecond.
        cache_bytes: up to which a kernel's bytes count as cached.
        flops: operations of matrix products per microsecond.
        source, measured: where the constants are from; `measured` names the card, or is None for assumptions.
    """

    microseconds: Mapping[str, tuple[float, float, float]]
    memory: tuple[float, float, float]
    cache: tuple[float, float, float]
    cache_bytes: float
    flops: tuple[float, float, float]
    source: str
    measured: str | None

    @classmethod
    def read(cls, path: Path | None = None) -> Model:
        """Return the model of a file, by default the package's."""
        data = json.loads((path or DATA / "cost.json").read_text())

        def levels(row: Mapping[str, Any]) -> tuple[float, float, float]:
            low, mid, high = (float(row[level]) for level in LEVELS)
            return low, mid, high

        return cls(
            microseconds={name: levels(row) for name, row in data["microseconds"].items()},
            memory=levels(data["bytes_per_microsecond"]["memory"]),
            cache=levels(data["bytes_per_microsecond"]["cache"]),
            cache_bytes=float(data["cache_bytes"]),
            flops=levels(data["flops_per_microsecond"]),
            source=data["source"],
            measured=data["measured"],
        )

    def kernel(self, thunk: Thunk, in_graph: bool) -> tuple[float, float, float]:
        """Return the microseconds of one run of a kernel or copy. The native simulation takes a time of its own."""
        if thunk.kind == "kCustomCall" and thunk.phase == "simulation":
            return self.microseconds["native_arenas"]
        name = ("graph_copy" if thunk.kind in COPIES else "graph_kernel") if in_graph else "kernel"
        rates = self.cache if thunk.bytes < self.cache_bytes else self.memory

        def one(overhead: float, rate: float, flops: float) -> float:
            return max(overhead, 0.5 * overhead + max(thunk.bytes / rate, thunk.flops / flops))

        low, mid, high = (one(*row) for row in zip(self.microseconds[name], rates, self.flops, strict=True))
        return low, mid, high


@dataclasses.dataclass
class Cost:
    """What a part of a program costs in one launch.

    Attributes:
        counts: how often each of `COUNTS` happens.
        bytes: moved.
        microseconds: low, mid, high.
    """

    counts: dict[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(COUNTS, 0.0))
    bytes: float = 0.0
    microseconds: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])

    def add(self, other: Cost) -> None:
        """Add another part's."""
        for name, number in other.counts.items():
            self.counts[name] += number
        self.bytes += other.bytes
        self.microseconds = [a + b for a, b in zip(self.microseconds, other.microseconds, strict=True)]

    @property
    def launches(self) -> float:
        """Kernels and copies, inside CUDA graphs or not."""
        return self.counts["kernels"] + self.counts["copies"]

    def charge(self, times: float, microseconds: Iterable[float], *names: str) -> None:
        """Count something `times` over under each name, once its microseconds."""
        for name in names:
            self.counts[name] += times
        self.microseconds = [a + times * b for a, b in zip(self.microseconds, microseconds, strict=True)]


@dataclasses.dataclass(frozen=True)
class Loop:
    """One loop of a program.

    Attributes:
        key: the project's functions it is in, by `loop_key`.
        phase: whose it is.
        asks_host: whether its end is data that the host must read at every iteration.
        in_graph: whether it is a node of a CUDA graph.
        entered, iterations: in one launch.
    """

    key: str
    phase: str
    asks_host: bool
    in_graph: bool
    entered: float
    iterations: float


PHASE_ROOTS = ("upkeep", "update_projectiles", "fire", "move", "observe", "write_rows", "Scripted.act")


def loop_key(frames: Iterable[str]) -> str:
    """Return a short name of a place in the project: the functions from the last phase's outermost one on, repetitions left out.

    The same for the frames of a compiled loop and for the stack of callers while it is traced.
    """
    names: list[str] = []
    for frame in frames:
        if frame in PHASE_ROOTS:
            names = []
        if frame in names:  # the callers' stack is repeated for a loop inside a loop
            names = names[: names.index(frame)]
        names.append(frame)
    return "/".join(names)


def is_data_dependent(thunk: Thunk) -> bool:
    """Return whether a loop's trip count is not known to XLA."""
    return thunk.kind == "kWhile" and thunk.trips is None


def loops_asking(thunks: Iterable[Thunk]) -> list[Thunk]:
    """Return the loops whose trip count is data, in order."""
    found: list[Thunk] = []
    for thunk in thunks:
        found += [thunk] if is_data_dependent(thunk) else []
        for inner in thunk.inner:
            found += loops_asking(inner)
    return found


class Count:
    """A walk over the thunks of a program; the result is `phases` and `loops`."""

    def __init__(self, thunks: list[Thunk], model: Model, trips: Mapping[str, float], decisions: int = 1) -> None:
        """Walk.

        Args:
            thunks: outermost thunks, with phases.
            model: constants.
            trips: iterations a decision step of the loops whose trip count is data, by key, all of a key together; a loop that
                is not named iterates once each time, and its key is put into `unknown`.
            decisions: decision steps in a launch.
        """
        self.model, self.trips, self.decisions = model, trips, decisions
        self.phases: dict[str, Cost] = {}
        self.loops: list[Loop] = []
        self.unknown: list[str] = []
        self._alike: dict[str, int] = {}
        for loop in loops_asking(thunks):
            key = loop_key(loop.frames)
            self._alike[key] = self._alike.get(key, 0) + 1
        self._list(thunks, 1.0, False, self.phases, self.loops)

    @property
    def total(self) -> Cost:
        """All phases together."""
        total = Cost()
        for cost in self.phases.values():
            total.add(cost)
        return total

    def _list(
        self, thunks: list[Thunk], times: float, in_graph: bool, into: dict[str, Cost], loops: list[Loop]
    ) -> None:
        for thunk in thunks:
            self._one(thunk, times, in_graph, into, loops)

    def _one(self, thunk: Thunk, times: float, in_graph: bool, into: dict[str, Cost], loops: list[Loop]) -> None:
        cost, kind = into.setdefault(thunk.phase, Cost()), thunk.kind
        check = "graph_check" if in_graph else "host_check"
        if kind in KERNELS + COPIES:
            where = "graph_nodes" if in_graph else "host_launches"
            what = "copies" if kind in COPIES else "kernels"
            cost.charge(times, self.model.kernel(thunk, in_graph), where, what)
            cost.bytes += times * thunk.bytes
        elif kind == "kCommandBuffer":
            cost.charge(times, self.model.microseconds["graph"], "graph_starts", "host_launches")
            self._list(thunk.children, times, True, into, loops)
        elif kind == "kWhile":
            iterations, asks = self._iterations(thunk, times)
            loops.append(Loop(loop_key(thunk.frames), thunk.phase, asks and not in_graph, in_graph, times, iterations))
            if asks or in_graph:
                checks = times + iterations if asks else iterations
                cost.charge(checks, self.model.microseconds[check], f"{check}s")
                self._list(thunk.condition, checks, in_graph, into, loops)
            self._list(thunk.body, iterations, in_graph, into, loops)
        elif kind == "kConditional":
            cost.charge(times, self.model.microseconds[check], f"{check}s")
            tried = []
            for branch in thunk.branches or [thunk.children]:
                costs: dict[str, Cost] = {}
                inner: list[Loop] = []
                self._list(branch, times, in_graph, costs, inner)
                tried.append((sum(part.microseconds[1] for part in costs.values()), costs, inner))
            _, costs, inner = max(tried, key=lambda row: row[0])
            loops += inner
            for phase, part in costs.items():
                into.setdefault(phase, Cost()).add(part)
        elif kind in GROUPS:
            self._list(thunk.children, times, in_graph, into, loops)
        else:  # a kind unknown here is launched on its own
            cost.charge(times, self.model.microseconds["kernel"], "host_launches", "kernels")

    def _iterations(self, thunk: Thunk, times: float) -> tuple[float, bool]:
        """Iterations in a launch, and whether they are data."""
        if thunk.trips is not None:
            return times * thunk.trips, False
        key = loop_key(thunk.frames)
        if key not in self.trips:
            if times and key not in self.unknown:
                self.unknown.append(key)
            return times, True
        return self.trips[key] * self.decisions / self._alike[key], True


def decisions_per_second(arenas: int, decisions: int, microseconds: float) -> float:
    """Return the decisions of arenas per second of a launch that takes so long."""
    return arenas * decisions / microseconds * 1e6
