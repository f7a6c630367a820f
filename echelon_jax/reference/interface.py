"""What an observation, actions and a reward are in the reference: the counterpart of env/interface.py for one arena."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.reference.modern.memory import ObservationMemory
from echelon_jax.reference.state import Event

if TYPE_CHECKING:
    from echelon_jax.reference.environment import Arena


class Observation(Protocol):
    """How mechs see an arena."""

    def first_memory(self, config: EnvConfig) -> ObservationMemory | None:
        """Return the memory at the start of an episode; None for an observation without one."""

    def observe(self, arena: Arena) -> tuple[np.ndarray, list[list[int]], list[int]]:
        """Return observations float32 [N, O], contact slots (mech indices, -1 empty), and viewers with a non-finite entry."""


class Actions(Protocol):
    """How the numbers of an action become commands beyond the nine base components.

    Attributes:
        points_at_contacts: whether a target is chosen by a contact slot of the original's observation.
    """

    points_at_contacts: bool

    def size(self, config: EnvConfig) -> int:
        """Return the components of an action without the message, which comes last."""

    def decide(self, arena: Arena, clean: np.ndarray) -> None:
        """Set focus, electronic warfare and the sorting of contacts from sanitised actions float32 [N, A]."""


class Reward(Protocol):
    """What a decision step pays."""

    def components(
        self, arena: Arena, before: Sequence[float | None], ticks: tuple[float, float], events: Sequence[Event]
    ) -> list[list[float]]:
        """Return the terms of every mech's reward.

        Args:
            arena: the arena after the step.
            before: each mech's distance to the zone before the step, in voxels; None for the dead.
            ticks: of this step, for blue and red: 1 or a share of it for the team that holds the zone, else 0.
            events: what happened during the step.
        """
