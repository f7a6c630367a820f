"""Events by type: how many the recordings have, and how many of them the JAX simulator counted alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from echelon_jax.parity.recorded.compare import EVENT_TALLIES, Agreement
from echelon_jax.parity.recorded.golden import Episode

# The field that counts each type: per mech by the mech of the given role, or per arena.
EVENT_FIELDS = {
    **{kind: (f"events.{name}", role) for name, (kind, role) in EVENT_TALLIES.items()},
    "kill": ("died", "target"),
    "smoke_cloud": ("smoke", ""),
}


@dataclasses.dataclass
class EventCount:
    """Events of one type: those in a count that is equal, in one that agrees within tolerance, and in one that differs."""

    rows: int = 0
    exact: int = 0
    within_tolerance: int = 0
    explained: int = 0
    unexplained: int = 0

    def merge(self, other: EventCount) -> None:
        """Add another count."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def count_events(
    counts: dict[str, EventCount],
    episode: Episode,
    before: Sequence[int],
    fields: dict[str, Agreement],
    explained: np.ndarray,
) -> None:
    """Add the events of the steps from rows `before` to `counts`.

    Args:
        fields: what `compare` found for those steps.
        explained: per step, whether something explains what differs in it.
    """
    index = {name: i for i, name in enumerate(episode.meta["ids"])}
    for b, t in enumerate(before):
        for event in episode.events[t]:
            name, role = EVENT_FIELDS[event["type"]]
            where = (b, index[event[role]]) if role else (b,)
            count = counts.setdefault(event["type"], EventCount())
            count.rows += 1
            if fields[name].equal[where]:
                count.exact += 1
            elif fields[name].close[where]:
                count.within_tolerance += 1
            elif explained[b]:
                count.explained += 1
            else:
                count.unexplained += 1
