"""The interface between the game and its players, in three parts: observation, actions and reward.

`original/` and `modern/` each hold one implementation of every part. A third one is a folder with the same three classes. A
configuration names it by its import path (`observation="my_package.my_module:MY_OBSERVATION"`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import Decision
from echelon_jax.env.layout import Layout
from echelon_jax.env.observed import Observed
from echelon_jax.env.rewards import Rewards, Transition
from echelon_jax.env.state import EnvState, ObservationMemory
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.widths import LoopWidths

GAUSSIAN, BERNOULLI, CATEGORICAL = "gaussian", "bernoulli", "categorical"


class Condition(NamedTuple):
    """A condition on entries of an observation.

    Attributes:
        kind: "any" (an entry is above 0), "none" (no entry is above 0), or "at_most" (the first entry is at most `limit`).
        entries: indices in the observation.
        limit: the limit of "at_most".
    """

    kind: str
    entries: tuple[int, ...]
    limit: float = 0.0


Rule = tuple[tuple[Condition, ...], ...]  # alternatives; one holds where all its conditions do
ALWAYS: Rule = ((),)
NEVER: Rule = ()


class Reading(NamedTuple):
    """How a network reads an observation, by names of its layout table.

    Attributes:
        shared_block: block of the whole-map planes that all mechs of a side see alike.
        plane_blocks: blocks of the other planes.
        slot_kinds: groups of equal slots, which are named `KIND_0`, `KIND_1` and so on.
        slot_used: entry of a slot that is 1 if the slot holds something.
        slot_nearness: entry of a slot that says how near it is; None if there is none.
        target_slots: the group from which targets are chosen.
        alive: entry of which one number is above 0 if and only if the mech lives.
    """

    shared_block: str
    plane_blocks: tuple[str, ...]
    slot_kinds: tuple[str, ...]
    slot_used: str
    slot_nearness: str | None
    target_slots: str
    alive: str


class Piece(NamedTuple):
    """One run of components of an action, and the head that makes it.

    Attributes:
        kind: "tanh" (squashed numbers), "sign" (a trigger: 1 or -1), "choice" (1 for the chosen component, `off` for the
            others), or "switch" (a trigger whose value a choice overrides: level i if choice i > 0 is taken).
        head: name of the head.
        entry: name of the action's entry.
        first: for "choice", the first choice that has a component; earlier ones have none.
        off: for "choice", the value of the components that are not chosen.
        levels: for "switch", the component's value for each choice of the head "ewar".
    """

    kind: str
    head: str
    entry: str
    first: int = 0
    off: float = 0.0
    levels: tuple[float, ...] = ()


@runtime_checkable
class ObservationInterface(Protocol):
    """An observation: what mechs see, and how a network reads it. Implementations are frozen and hashable."""

    @property
    def reading(self) -> Reading:
        """How a network reads the observation."""
        ...

    def layout(self, config: EnvConfig) -> Layout:
        """Return the table of every entry of a mech's observation."""
        ...

    def observe(
        self, config: EnvConfig, rules: SimRules, state: EnvState, contact_slots: bool, widths: LoopWidths | None
    ) -> Observed:
        """Return what every mech sees in a state, with the original's contact slots if `contact_slots` is true.

        `widths` are the widths of the loops, which change no result.
        """
        ...

    def remembers_sightings(self, config: EnvConfig) -> bool:
        """Return whether the memory holds who has seen whom. If so, a bank stores who sees whom at the start."""
        ...

    def first_memory(
        self,
        config: EnvConfig,
        position: Float32[Array, "arenas mechs 3"],
        known: Bool[Array, "arenas mechs mechs"] | None,
    ) -> ObservationMemory | None:
        """Return the memory at the start of an episode; None if the observation keeps nothing."""
        ...

    def later_memory(
        self, memory: ObservationMemory, yaw: Float32[Array, "arenas mechs"], new_yaw: Float32[Array, "arenas mechs"]
    ) -> ObservationMemory:
        """Return the memory one decision later; meanwhile yaws changed from `yaw` to `new_yaw`."""
        ...

    def is_class(self, config: EnvConfig, classes: set[int]) -> Condition:
        """Return the condition that the mech is of one of the classes."""
        ...

    def weapon_ready(self, config: EnvConfig, weapon: int) -> tuple[Condition, ...]:
        """Return the conditions for a carried weapon to fire within the decision, as far as the observation shows them."""
        ...

    def target_known(self, config: EnvConfig, slot: int) -> Rule:
        """Return the rule that a slot holds a living, known hostile."""
        ...

    def loudness(self, sound: Any) -> Any:
        """Return the loudness of the entries of the sound block, on a scale on which quadrants add up."""
        ...


@runtime_checkable
class ActionInterface(Protocol):
    """The meaning of actions. Implementations are frozen and hashable."""

    @property
    def points_at_contacts(self) -> bool:
        """Whether targets are the original's contact slots."""
        ...

    @property
    def triggers(self) -> tuple[str, ...]:
        """Entries that are read by their sign."""
        ...

    @property
    def sort_modes(self) -> int:
        """Number of orders of contacts to choose from; 0 without such a choice."""
        ...

    def layout(self, config: EnvConfig) -> Layout:
        """Return the table of every component of a mech's action."""
        ...

    def target_slots(self, config: EnvConfig) -> int:
        """Return the number of slots among which a target is chosen."""
        ...

    def pieces(self, config: EnvConfig) -> tuple[Piece, ...]:
        """Return the pieces of an action, which the choices of the heads fill, in the order of its components."""
        ...

    def decide(self, config: EnvConfig, state: EnvState, actions: Float32[Array, "arenas mechs actions"]) -> Decision:
        """Return the meaning of sanitised actions for the simulation and for the next observation."""
        ...

    def from_original(
        self,
        config: EnvConfig,
        actions: Float32[Array, "arenas mechs original"],
        target: Int32[Array, "arenas mechs"],
    ) -> Float32[Array, "arenas mechs actions"]:
        """Return the action that means the same as an original one whose wanted target is a mech (-1: none)."""
        ...


@runtime_checkable
class RewardInterface(Protocol):
    """The reward of a decision step. Implementations are frozen and hashable."""

    @property
    def pays_at_time_up(self) -> bool:
        """Whether the result of a game is also paid when time runs out; if so, no value is added after that end."""
        ...

    @property
    def weights_type(self) -> type:
        """The class of its weights."""
        ...

    def default_weights(self, config: EnvConfig, gamma: float) -> Any:
        """Return the default weights as a pytree of float32 numbers; `gamma` is PPO's discount."""
        ...

    def check_weights(self, config: EnvConfig, weights: Any, gamma: float) -> None:
        """Refuse numbers that break a bound of this reward, before anything is traced.

        Raises:
            ValueError: naming the bound.
        """
        ...

    def rewards(self, config: EnvConfig, weights: Any, made: Transition) -> Rewards:
        """Return the rewards of one decision step."""
        ...
