"""The original's observation, actions and reward as implementations of the interface."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import Decision
from echelon_jax.env.interface import Condition, Piece, Reading, Rule
from echelon_jax.env.layout import CONTACT_GROUP, CONTACTS, Layout
from echelon_jax.env.observed import Observed
from echelon_jax.env.original import actions, layout, observation, rewards
from echelon_jax.env.rewards import Rewards, Transition
from echelon_jax.env.state import EnvState, ObservationMemory, RewardWeights
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.widths import LoopWidths

EWAR_LEVELS = (-1.0, 0.25, 1.0)  # a scout's secondary component by its choice: off, ECM, ECCM


@dataclasses.dataclass(frozen=True)
class OriginalObservation:
    """Five contact slots, sound, a local map, the map at reset (docs/spec/environment.md 2)."""

    @property
    def reading(self) -> Reading:
        """Contacts are the slots. The one-hot of its class shows whether the mech lives."""
        return Reading("telemetry", ("local_map",), (CONTACT_GROUP,), "used", None, CONTACT_GROUP, "hull")

    def layout(self, config: EnvConfig) -> Layout:
        """Return the table of every entry."""
        return layout.observation_layout(config)

    def observe(
        self, config: EnvConfig, rules: SimRules, state: EnvState, contact_slots: bool, widths: LoopWidths | None = None
    ) -> Observed:
        """Return what every mech sees, always with the contact slots."""
        return observation.observe(config, rules, state, widths)

    def remembers_sightings(self, config: EnvConfig) -> bool:
        """It keeps no memory."""
        return False

    def first_memory(
        self,
        config: EnvConfig,
        position: Float32[Array, "arenas mechs 3"],
        known: Bool[Array, "arenas mechs mechs"] | None,
    ) -> ObservationMemory | None:
        """It keeps no memory."""
        return None

    def later_memory(
        self, memory: ObservationMemory, yaw: Float32[Array, "arenas mechs"], new_yaw: Float32[Array, "arenas mechs"]
    ) -> ObservationMemory:
        """Return the memory unchanged."""
        return memory

    def is_class(self, config: EnvConfig, classes: set[int]) -> Condition:
        """Read the one-hot of the hull."""
        hull = self.layout(config)["hull"].offset
        return Condition("any", tuple(hull + c for c in sorted(classes)))

    def weapon_ready(self, config: EnvConfig, weapon: int) -> tuple[Condition, ...]:
        """There are no conditions: weapons share cooldown entries here, so the entries do not show which weapon is ready."""
        return ()

    def target_known(self, config: EnvConfig, slot: int) -> Rule:
        """The contact slot is used and its mech is hostile."""
        table = self.layout(config)
        hostile = table[f"contact_{slot}/relation"].offset + 1
        return ((Condition("any", (table[f"contact_{slot}/used"].offset,)), Condition("any", (hostile,))),)

    def loudness(self, sound: np.ndarray) -> np.ndarray:
        """Undo the logarithm of the sound entries."""
        return np.expm1(sound * observation.SOUND_SCALE)


@dataclasses.dataclass(frozen=True)
class OriginalActions:
    """Nine base components, five target preferences, four observation controls, the message (docs/spec/environment.md 1)."""

    @property
    def points_at_contacts(self) -> bool:
        """Targets are contact slots."""
        return True

    @property
    def triggers(self) -> tuple[str, ...]:
        """The five triggers and the contact filter."""
        return ("primary", "vent", "secondary", "tertiary", "special", "hostile_only")

    @property
    def sort_modes(self) -> int:
        """Contacts can be ordered in three ways."""
        return len(layout.SORT_MODES)

    def layout(self, config: EnvConfig) -> Layout:
        """Return the table of every component."""
        return layout.action_layout(config)

    def target_slots(self, config: EnvConfig) -> int:
        """The contact slots."""
        return CONTACTS

    def pieces(self, config: EnvConfig) -> tuple[Piece, ...]:
        """A scout's EWAR choice overrides its secondary component, on which it has no weapon."""
        triggers = [Piece("sign", "trigger", name) for name in self.triggers[:-1]]
        triggers[2] = Piece("switch", "trigger", "secondary", levels=EWAR_LEVELS)
        message = [Piece("tanh", "message", "message")] if config.comm_dim else []
        return (
            Piece("tanh", "throttle", "forward"),
            *triggers,
            Piece("choice", "target", "target_preference", first=1, off=-1.0),
            Piece("choice", "sort", "sort_mode", off=-1.0),
            Piece("sign", "trigger", "hostile_only"),
            *message,
        )

    def decide(self, config: EnvConfig, state: EnvState, actions_: Float32[Array, "arenas mechs actions"]) -> Decision:
        """Read sanitised actions."""
        return actions.decide(config, state, actions_)

    def from_original(
        self,
        config: EnvConfig,
        actions_: Float32[Array, "arenas mechs original"],
        target: Int32[Array, "arenas mechs"],
    ) -> Float32[Array, "arenas mechs actions"]:
        """Return the action unchanged."""
        return actions_


@dataclasses.dataclass(frozen=True)
class OriginalReward:
    """The original's reward (docs/spec/environment.md 3.3)."""

    @property
    def pays_at_time_up(self) -> bool:
        """It pays no result, so a game that time cuts off still has a value after its end."""
        return False

    @property
    def weights_type(self) -> type:
        """Its weights are RewardWeights."""
        return RewardWeights

    def default_weights(self, config: EnvConfig, gamma: float) -> RewardWeights:
        """Return the original's weights, which are the same for every configuration."""
        return rewards.original_rewards()

    def check_weights(self, config: EnvConfig, weights: RewardWeights, gamma: float) -> None:
        """Allow all numbers."""

    def rewards(self, config: EnvConfig, weights: RewardWeights, made: Transition) -> Rewards:
        """Return the rewards of one decision step."""
        return rewards.rewards(config, weights, made)
