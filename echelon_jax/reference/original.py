"""The original's observation, actions and reward as one implementation of reference/interface.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.reference.modern.memory import ObservationMemory
from echelon_jax.reference.observation import observe
from echelon_jax.reference.rewards import reward_components
from echelon_jax.reference.simulator import set_ewar
from echelon_jax.reference.state import Event

if TYPE_CHECKING:
    from echelon_jax.reference.environment import Arena

# Components of an action after the nine base ones.
PREFERENCES = slice(9, 14)
SORT = slice(14, 17)
HOSTILE_ONLY = 17
SIZE = 18


class OriginalObservation:
    """The observation of docs/spec/environment.md 2; it remembers nothing."""

    def first_memory(self, config: EnvConfig) -> ObservationMemory | None:
        """Return None: there is no memory."""
        return None

    def observe(self, arena: Arena) -> tuple[np.ndarray, list[list[int]], list[int]]:
        """Return observations, contact slots and the viewers with a non-finite entry."""
        return observe(arena.scene())


class OriginalActions:
    """The actions of docs/spec/environment.md 1."""

    points_at_contacts = True

    def size(self, config: EnvConfig) -> int:
        """Return 18 components."""
        return SIZE

    def decide(self, arena: Arena, clean: np.ndarray) -> None:
        """Set focus, EWAR and, for dead mechs too, the sorting of contacts."""
        self.set_focus(arena, clean)
        set_ewar(arena.battle, clean.tolist())
        if arena.config.observation_control:
            arena.sort_mode = [int(i) for i in np.argmax(clean[:, SORT], axis=1)]
            arena.hostile_only = [bool(v) for v in clean[:, HOSTILE_ONLY] > 0]

    def set_focus(self, arena: Arena, clean: np.ndarray) -> None:
        """Target preference to focus target, by the slots of the last observation (docs/spec/environment.md 1.3)."""
        for mech in arena.battle.mechs:
            mech.focus_target = None
            if not (mech.alive and arena.config.target_selection):
                continue
            preferences = clean[mech.index, PREFERENCES]
            slot = int(np.argmax(preferences))
            target = arena.contact_slots[mech.index][slot]
            if preferences[slot] > 0 and target >= 0:
                other = arena.battle.mechs[target]
                if other.alive and other.team != mech.team:
                    mech.focus_target = target


class OriginalReward:
    """The reward of docs/spec/environment.md 3."""

    def components(
        self, arena: Arena, before: Sequence[float | None], ticks: tuple[float, float], events: Sequence[Event]
    ) -> list[list[float]]:
        """Return the components of every mech."""
        map_side = float(max(arena.battle.world.size[:2]))
        return reward_components(arena.battle.mechs, events, arena.zone, before, ticks, map_side)
