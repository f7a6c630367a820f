"""The modern observation, actions and reward as implementations of the interface."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import Decision
from echelon_jax.env.interface import Condition, Piece, Reading, Rule
from echelon_jax.env.layout import Layout
from echelon_jax.env.modern import actions, layout, observation, rewards
from echelon_jax.env.observed import Observed
from echelon_jax.env.rewards import Rewards, Transition
from echelon_jax.env.state import EnvState, ModernRewardWeights, ObservationMemory
from echelon_jax.rules.mechs import PACK_CLASSES, PACK_SIZE
from echelon_jax.rules.weapons import MISSILE, SMOKE, WEAPONS, Timer
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.widths import LoopWidths

# For each weapon: entries of the observation that must have run out before it fires, and the weapons whose cooldown they count.
# A mech has one weapon on a timer, except on the tube.
COOLDOWNS: dict[int, tuple[tuple[str, int], ...]] = {
    number: (("missile_cooldown", MISSILE), ("smoke_cooldown", SMOKE))
    if weapon.timer is Timer.TUBE
    else ((f"{weapon.timer.value}_cooldown", number),)
    for number, weapon in enumerate(WEAPONS)
}
COOLDOWN_SLACK = 1e-3  # share of a cooldown; covers the rounding of the entry


@dataclasses.dataclass(frozen=True)
class ModernObservation:
    """Everything that a mech can know, in its own frame, with one slot for every other mech."""

    @property
    def reading(self) -> Reading:
        """Friends, hostiles, shots and clouds are the slots; an entry says whether the mech lives."""
        kinds = ("friend", "hostile", "shot", "cloud")
        return Reading("shared_map", ("local", "map"), kinds, "known", "nearness", "hostile", "self/alive")

    def layout(self, config: EnvConfig) -> Layout:
        """Return the table of every entry."""
        return layout.observation_layout(config)

    def observe(
        self, config: EnvConfig, rules: SimRules, state: EnvState, contact_slots: bool, widths: LoopWidths | None = None
    ) -> Observed:
        """Return what every mech sees, and the memory with it."""
        return observation.observe(config, rules, state, contact_slots, widths)

    def remembers_sightings(self, config: EnvConfig) -> bool:
        """In partial mode a mech remembers where it last saw the others."""
        return config.observation_mode == "partial"

    def first_memory(
        self,
        config: EnvConfig,
        position: Float32[Array, "arenas mechs 3"],
        known: Bool[Array, "arenas mechs mechs"] | None,
    ) -> ObservationMemory | None:
        """Return the memory of the mechs of `known` at their positions."""
        return observation.first_memory(config, position, known)

    def later_memory(
        self, memory: ObservationMemory, yaw: Float32[Array, "arenas mechs"], new_yaw: Float32[Array, "arenas mechs"]
    ) -> ObservationMemory:
        """Return the memory one decision older."""
        return observation.older(memory, yaw, new_yaw)

    def is_class(self, config: EnvConfig, classes: set[int]) -> Condition:
        """Read the one-hot of the place in the pack."""
        row = self.layout(config)["self/pack_row"].offset
        return Condition("any", tuple(row + i for i in range(PACK_SIZE) if PACK_CLASSES[i] in classes))

    def weapon_ready(self, config: EnvConfig, weapon: int) -> tuple[Condition, ...]:
        """The mech is not shut down, and the weapon cools down within the decision."""
        table = self.layout(config)
        conditions = [Condition("none", (table["self/shutdown"].offset,))]
        for name, timed in COOLDOWNS[weapon]:
            limit = np.float32(config.decision_seconds / WEAPONS[timed].cooldown + COOLDOWN_SLACK)
            conditions.append(Condition("at_most", (table[f"self/{name}"].offset,), float(limit)))
        return tuple(conditions)

    def target_known(self, config: EnvConfig, slot: int) -> Rule:
        """The hostile slot holds a known mech."""
        return ((Condition("any", (self.layout(config)[f"hostile_{slot}/known"].offset,)),),)

    def loudness(self, sound: np.ndarray) -> np.ndarray:
        """Undo L / (1 + L)."""
        return sound / (1.0 - sound)


@dataclasses.dataclass(frozen=True)
class ModernActions:
    """Nine base components, a target among all hostile slots or none, three-way EWAR, the message."""

    @property
    def points_at_contacts(self) -> bool:
        """Targets are mechs, not contact slots."""
        return False

    @property
    def triggers(self) -> tuple[str, ...]:
        """The five triggers."""
        return ("primary", "vent", "secondary", "tertiary", "special")

    @property
    def sort_modes(self) -> int:
        """Every mech has its own slot, so there is nothing to order."""
        return 0

    def layout(self, config: EnvConfig) -> Layout:
        """Return the table of every component."""
        return layout.action_layout(config)

    def target_slots(self, config: EnvConfig) -> int:
        """One slot for each hostile mech."""
        return config.team_size

    def pieces(self, config: EnvConfig) -> tuple[Piece, ...]:
        """Target and EWAR are one-hots, "none" and "off" included."""
        message = [Piece("tanh", "message", "message")] if config.comm_dim else []
        return (
            Piece("tanh", "throttle", "forward"),
            *(Piece("sign", "trigger", name) for name in self.triggers),
            Piece("choice", "target", "target_preference"),
            Piece("choice", "ewar", "ewar"),
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
        """Return the modern action that means the same."""
        return actions.from_original(config, actions_, target)


@dataclasses.dataclass(frozen=True)
class ModernReward:
    """The modern reward: the result of the game, and small hints towards it (docs/rewards.md)."""

    @property
    def pays_at_time_up(self) -> bool:
        """The result is paid in every case."""
        return True

    @property
    def weights_type(self) -> type:
        """Its weights are ModernRewardWeights."""
        return ModernRewardWeights

    def default_weights(self, config: EnvConfig, gamma: float) -> ModernRewardWeights:
        """Return weights scaled to the size and length of the game."""
        return rewards.modern_rewards(config, gamma)

    def check_weights(self, config: EnvConfig, weights: ModernRewardWeights, gamma: float) -> None:
        """Refuse a discount other than PPO's, and a win so small that farming pays more.

        Raises:
            ValueError: naming what does not hold.
        """
        rewards.check_gamma(weights, gamma)
        rewards.check_result(config, weights)

    def rewards(self, config: EnvConfig, weights: ModernRewardWeights, made: Transition) -> Rewards:
        """Return the rewards of one decision step."""
        return rewards.rewards(config, weights, made)
