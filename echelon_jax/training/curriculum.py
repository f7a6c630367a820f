"""A curriculum: numbers of the game that change at given updates. Nothing is compiled again.

    "0 fire=0.2; 100 fire=0.6 reward_zone=0.3; 300 fire=1"

From update 100 on the scripted opponent fires with probability 0.6 and the zone pays 0.3. A number that a stage does not name
keeps its value. Everything is a function of the update number, so a resumed run goes on as an uninterrupted one. Another map,
team size or kind of opponent is another program and so another run, which `--start-from` begins with the policy of this one.
"""

from __future__ import annotations

import dataclasses
import math

REWARD_WEIGHTS = ("approach", "zone", "damage", "kill", "assist", "death", "win", "loss", "draw", "shutdown")
NAMES = ("fire", *(f"reward_{name}" for name in REWARD_WEIGHTS))


@dataclasses.dataclass(frozen=True)
class Stage:
    """The values that hold from `update` on, by name (one of NAMES)."""

    update: int
    values: dict[str, float]


def parse(text: str) -> tuple[Stage, ...]:
    """Return the stages of a text in the order of their updates. An empty text has none.

    Raises:
        ValueError: one sentence that names what cannot be read.
    """
    stages: list[Stage] = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        first, *settings = part.split()
        if not first.isdigit():
            raise ValueError(f"curriculum must give each stage its first update, a whole number, got {first!r}")
        if stages and int(first) <= stages[-1].update:
            raise ValueError(f"curriculum must be in order of updates, got {first} after {stages[-1].update}")
        values = {}
        for setting in settings:
            name, equals, number = setting.partition("=")
            if not equals or name not in NAMES:
                raise ValueError(f"curriculum must set name=number with a name of {', '.join(NAMES)}, got {setting!r}")
            values[name] = _number(name, number)
        if not values:
            raise ValueError(f"curriculum must set something in each stage, got nothing at update {first}")
        stages.append(Stage(int(first), values))
    return tuple(stages)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"curriculum must set {name} to a number, got {text!r}") from None
    low, high = (0.0, 1.0) if name == "fire" else (-1000.0, 1000.0)
    if not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"curriculum must set {name} to a number from {low:g} to {high:g}, got {text!r}")
    return value


def values_at(stages: tuple[Stage, ...], update: int) -> dict[str, float]:
    """Return all values that the stages up to an update have set; updates count from 0."""
    found: dict[str, float] = {}
    for stage in stages:
        if stage.update <= update:
            found.update(stage.values)
    return found
