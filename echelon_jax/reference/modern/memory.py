"""The memory of the modern observation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from echelon_jax.config import EnvConfig
from echelon_jax.reference.state import Mech
from echelon_jax.reference.vec import Vec, wrap_angle


@dataclasses.dataclass
class ObservationMemory:
    """The memory of the observation: each mech's last turn, and in partial mode where it last saw the others.

    Attributes:
        turn: radians to the left during the last decision, per mech.
        age: [viewer][other] decisions since it was seen, -1 never; None in full mode.
        last_seen: [viewer][other] where that was; None in full mode.
    """

    turn: list[float]
    age: list[list[int]] | None = None
    last_seen: list[list[Vec]] | None = None

    @classmethod
    def fresh(cls, config: EnvConfig) -> ObservationMemory:
        """Return a memory in which nobody has seen anybody."""
        n = config.num_mechs
        if config.observation_mode == "full":
            return cls([0.0] * n)
        return cls([0.0] * n, [[-1] * n for _ in range(n)], [[(0.0, 0.0, 0.0)] * n for _ in range(n)])

    def older(self, yaw_before: Sequence[float], mechs: Sequence[Mech]) -> None:
        """Make the memory one decision older."""
        self.turn = [wrap_angle(mech.yaw - before) for before, mech in zip(yaw_before, mechs, strict=True)]
        if self.age is not None:
            self.age = [[age + 1 if age >= 0 else -1 for age in row] for row in self.age]

    def refresh(self, viewer: Mech, other: Mech) -> None:
        """Note that the viewer sees the other now."""
        if self.age is not None and self.last_seen is not None:
            self.age[viewer.index][other.index] = 0
            self.last_seen[viewer.index][other.index] = other.pos
