"""The rules of promotion and retirement after a rating period, as one pure function of the ratings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

ROLES = ("anchor", "commander", "candidate", "retired")


@dataclasses.dataclass(frozen=True)
class Rules:
    """The league's rules.

    An anchor keeps its rating and role for ever and fixes the scale. A candidate is settled once its deviation is small enough.

    Attributes:
        conservatism: deviations by which a rating is lowered before it counts for promotion; 0 trusts the estimate.
        commanders: number of commanders.
        settled_deviation: deviation at which a candidate counts as settled.
        least_rating: lowest lowered rating of a commander.

    Raises:
        ValueError: naming the field and its allowed values.
    """

    conservatism: float = 2.0
    commanders: int = 20
    settled_deviation: float = 90.0
    least_rating: float = 1300.0

    def __post_init__(self) -> None:
        if isinstance(self.commanders, bool) or not isinstance(self.commanders, int) or self.commanders < 1:
            raise ValueError(f"commanders must be a whole number from 1, got {self.commanders!r}")
        for name, least in (("conservatism", 0.0), ("settled_deviation", 1.0), ("least_rating", -math.inf)):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not number or value < least:
                allowed = "a finite number" if least == -math.inf else f"a number from {least:g}"
                raise ValueError(f"{name} must be {allowed}, got {value!r}")


class Standing(NamedTuple):
    """The part of an entry that the rules read."""

    role: str
    rating: float
    deviation: float


class Move(NamedTuple):
    """The index of an entry that changes its role, and the reason in a few words."""

    entry: int
    role: str
    why: str


def moves(standings: Sequence[Standing], rules: Rules) -> list[Move]:
    """Return the changes of roles after a period.

    The seats go to those with the highest lowered rating (rating less `conservatism` deviations) among commanders and settled
    candidates that reach `least_rating`. A commander without a seat is retired. A settled candidate is retired
    when all seats are taken and even its raised rating (rating plus as many deviations) does not reach the last commander's
    lowered rating. Anchors and the retired stay as they are.
    """

    def lowered(i: int) -> float:
        return standings[i].rating - rules.conservatism * standings[i].deviation

    settled = [i for i, s in enumerate(standings) if s.role == "candidate" and s.deviation <= rules.settled_deviation]
    seated = [i for i, s in enumerate(standings) if s.role == "commander"]
    eligible = seated + [i for i in settled if lowered(i) >= rules.least_rating]
    # Of equals the commander keeps its seat, then the earlier entry.
    ranked = sorted(eligible, key=lambda i: (-lowered(i), standings[i].role != "commander", i))
    kept, beyond = ranked[: rules.commanders], ranked[rules.commanders :]
    out = [
        Move(i, "commander", f"lowered rating {lowered(i):.0f} is among the best {rules.commanders}")
        for i in kept
        if standings[i].role == "candidate"
    ]
    out += [
        Move(i, "retired", f"{rules.commanders} have a higher lowered rating than {lowered(i):.0f}")
        for i in beyond
        if standings[i].role == "commander"
    ]
    if len(kept) == rules.commanders:
        threshold = lowered(kept[-1])
        for i in settled:
            raised = standings[i].rating + rules.conservatism * standings[i].deviation
            if i not in kept and raised < threshold:
                out.append(
                    Move(i, "retired", f"raised rating {raised:.0f} lies below the last commander's {threshold:.0f}")
                )
    return out
