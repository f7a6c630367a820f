"""The modern observation, actions and reward as one implementation of reference/interface.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.reference.modern.memory import ObservationMemory
from echelon_jax.reference.modern.observation import observe_modern
from echelon_jax.reference.modern.rewards import modern_components
from echelon_jax.reference.simulator import set_ewar_modes
from echelon_jax.reference.state import Event
from echelon_jax.rules.mechs import BLUE

if TYPE_CHECKING:
    from echelon_jax.reference.environment import Arena

FOCUS = 9  # first of the components that choose a focus: "none", then the hostile slots
EWAR_MODES = 3  # off, ECM, ECCM


class ModernObservation:
    """The modern observation, which remembers in partial mode where it last saw the others."""

    def first_memory(self, config: EnvConfig) -> ObservationMemory | None:
        """Return a memory in which nobody has seen anybody."""
        return ObservationMemory.fresh(config)

    def observe(self, arena: Arena) -> tuple[np.ndarray, list[list[int]], list[int]]:
        """Return observations, contact slots and the viewers with a non-finite entry; refreshes the arena's memory."""
        assert arena.memory is not None
        return observe_modern(arena.scene(), arena.memory, arena.deeds, arena.actions.points_at_contacts)


class ModernActions:
    """The modern actions: a choice of the focus and a choice of the EWAR mode after the nine base components."""

    points_at_contacts = False

    def size(self, config: EnvConfig) -> int:
        """Return the components: nine base ones, "none" and a slot per hostile mech, and the EWAR modes."""
        return FOCUS + 1 + config.team_size + EWAR_MODES

    def decide(self, arena: Arena, clean: np.ndarray) -> None:
        """Set focus and EWAR, each by the largest of its components."""
        self.set_focus(arena, clean)
        first = FOCUS + 1 + arena.config.team_size
        set_ewar_modes(arena.battle, [int(i) for i in np.argmax(clean[:, first : first + EWAR_MODES], axis=1)])

    def set_focus(self, arena: Arena, clean: np.ndarray) -> None:
        """Focus by the largest of "none" and the hostile slots, if that mech lives and (partial mode) was ever seen."""
        mechs, half = arena.battle.mechs, arena.config.team_size
        age = None if arena.memory is None else arena.memory.age
        for mech in mechs:
            mech.focus_target = None
            choice = int(np.argmax(clean[mech.index, FOCUS : FOCUS + 1 + half]))
            if choice == 0 or not (mech.alive and arena.config.target_selection):
                continue
            target = mechs[(choice - 1 + (half if mech.team == BLUE else 0)) % len(mechs)]
            if target.alive and (age is None or age[mech.index][target.index] >= 0):
                mech.focus_target = target.index


class ModernReward:
    """The modern reward (docs/rewards.md)."""

    def components(
        self, arena: Arena, before: Sequence[float | None], ticks: tuple[float, float], events: Sequence[Event]
    ) -> list[list[float]]:
        """Return the terms of every mech with the arena's weights."""
        mechs = arena.battle.mechs
        return modern_components(
            arena.config, arena.weights, mechs, arena.zone, before, ticks, arena.winner, arena.shut_down
        )
