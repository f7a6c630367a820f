"""What all parts of the modern observation share: the axes of a mech, whom it sees, shares of timers."""

from __future__ import annotations

import dataclasses
import math

from echelon_jax.reference.state import Mech
from echelon_jax.rules.timers import decrements
from echelon_jax.rules.weapons import (
    MAX_AIMED_RANGE,
    TOP_SHOT_SPEED,
)

SIGHT_RANGE = MAX_AIMED_RANGE  # voxels up to which sight is looked at for its own sake
NEAR = 8.0  # voxels at which nearness is a half
SPEED, SHOT_SPEED, AGE = 10.0, TOP_SHOT_SPEED, 10.0  # voxels/s, voxels/s, s
TINY = 1e-6


class Frame:
    """The axes of a mech."""

    def __init__(self, mech: Mech) -> None:
        self.cos, self.sin = math.cos(mech.yaw), math.sin(mech.yaw)

    def turn(self, x: float, y: float) -> tuple[float, float]:
        """Parts forward and to the left of a vector of the map."""
        return x * self.cos + y * self.sin, y * self.cos - x * self.sin


def direction(x: float, y: float, length: float) -> tuple[float, float]:
    """Cosine and sine of a bearing; straight above counts as straight ahead."""
    return (x / length, y / length) if length > TINY else (1.0, 0.0)


def share(seconds: float, duration: float, dt: float) -> float:
    """The share that is left of a timer that was set to `duration`: whole substeps over whole substeps."""
    return decrements(seconds, dt) / max(decrements(duration, dt), 1)


def part(value: float, full: float) -> float:
    """A value as a part of what is full; below one nothing counts as full."""
    return value / max(1.0, full)


@dataclasses.dataclass
class View:
    """One mech's view of the others: who is seen now, and to whom the line of sight is clear within `SIGHT_RANGE`."""

    seen: set[int]
    clear: set[int]
    quality: tuple[float, float, float]
