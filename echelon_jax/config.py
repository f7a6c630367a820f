"""Static configuration of an arena: sizes, clock and switches. It is hashable, and another value compiles another program."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from echelon_jax.fields import check, documented, field, make_plain
from echelon_jax.plugins import is_import_path
from echelon_jax.rules.formation import formation_pitch, smallest_map, smallest_rows

OBSERVATION_MODES = ("full", "partial")
INTERFACE_FIELDS = ("observation", "actions", "reward")
INTERFACES = ("original", "modern")  # implementations of this package; env/interfaces.py looks them up
RULE_SETS = ("original", "revised")
# Rules of the original that are revised where the switch is on, as it is by default.
SWITCHES = (
    "spawn_without_overlap",
    "true_voxel_hp",
    "honour_focus",
    "fair_order",
    "own_team_counts_against",
    "clamp_before_collision",
    "shots_end_at_border",
    "smoke_opens",
    "ceiling",
    "ams_one_roll",
    "zone_on_the_ground",
    "fair_zone",
    "terrain_on_small_maps",
    "corridors_complete",
    "tie_is_draw",
)
# What each rule set says of the fields in which they differ.
RULES: dict[str, dict[str, Any]] = {
    "original": dict.fromkeys(SWITCHES, False) | dict.fromkeys(INTERFACE_FIELDS, "original") | {"comm_dim": 8},
    "revised": dict.fromkeys(SWITCHES, True) | dict.fromkeys(INTERFACE_FIELDS, "modern") | {"comm_dim": 0},
}
MAX_TERM_WEIGHT = 1000.0
MAX_HEIGHT = 32  # a column of voxels is one uint32 word


class TermText(NamedTuple):
    """One reward term as a configuration names it."""

    name: str  # of the function, which is also the name in the metrics
    path: str  # package.module:name
    weight: float


def parse_reward_terms(text: str) -> tuple[TermText, ...]:
    """Return the reward terms of a text, in its order; no module is imported.

    Raises:
        ValueError: one sentence that names what cannot be read.
    """
    terms: list[TermText] = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        path, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals or not is_import_path(path):
            raise ValueError(
                f"reward_terms must be package.module:function=weight, several divided by semicolons, got {part!r}"
            )
        name = path.partition(":")[2]
        if name in [term.name for term in terms]:
            raise ValueError(f"reward_terms must have names of their own, and {name} is there twice")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not -MAX_TERM_WEIGHT <= weight <= MAX_TERM_WEIGHT:
            limit = f"{MAX_TERM_WEIGHT:g}"
            raise ValueError(f"reward_terms must give {name} a weight from -{limit} to {limit}, got {number!r}")
        terms.append(TermText(name, path, weight))
    return tuple(terms)


def _require(ok: bool, field: str, allowed: str, value: object) -> None:
    if not ok:
        raise ValueError(f"{field} must be {allowed}, got {value!r}")


@documented
@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """Everything about an arena that is compiled in; by default the revised game, `EnvConfig.original()` is the original's.

    Raises:
        ValueError: naming the field and its allowed values.
    """

    size_x: int = field(40, "Size of the map along x, in voxels.", low=20, high=1000)
    size_y: int = field(
        40,
        "Size of the map along y, in voxels; at least 4 + 7 per pack (4 + 8 with `spawn_without_overlap`), so that two"
        " formations fit, and more with `terrain_on_small_maps` (28 for one pack) unless `size_x` gives the room.",
        low=20,
        high=1000,
    )
    size_z: int = field(20, "Height of the map, in voxels.", low=8, high=MAX_HEIGHT)
    num_packs: int = field(1, "Packs of five mechs per team.", low=1, high=8)
    dt: float = field(0.05, "Seconds of a substep.", low=0.005, high=0.2)
    substeps: int = field(5, "Substeps of a decision step.", low=1, high=50)
    max_episode_seconds: float = field(60.0, "Time limit of an episode, in seconds.", above=0, high=3600)
    observation_mode: str = field(
        "full",
        "`full` (every living mech is visible) or `partial` (radar, paint, heat, emissions, sight).",
        choices=OBSERVATION_MODES,
    )
    comm_dim: int = field(
        0,
        "Numbers in a message; 0 removes messages from action and observation.",
        low=0,
        high=64,
    )
    target_selection: bool = field(True, "Mechs choose their target (a switch of the original).")
    ewar: bool = field(True, "Mechs have electronic warfare (a switch of the original).")
    observation_control: bool = field(True, "Mechs choose how they sort what they observe (a switch of the original).")
    communication: bool = field(True, "Mechs send messages to their pack (a switch of the original).")
    voxel_size_m: float = field(1.0, "Edge of a voxel in metres; scales gravity only.", above=0)
    clearance_z: int = field(
        4, "Levels counted by the local obstacle map; at most the height of the carved lanes.", low=1, high=5
    )
    spawn_without_overlap: bool = field(True, "Mechs spawn apart instead of inside each other.")
    true_voxel_hp: bool = field(True, "Voxels have their material's hit points everywhere.")
    honour_focus: bool = field(True, "A focus that a weapon can reach is its target.")
    fair_order: bool = field(True, "Firing order and wreck rolls are drawn.")
    own_team_counts_against: bool = field(True, "Hurting one's own side is charged, not paid.")
    clamp_before_collision: bool = field(True, "Moves are cut at the map edge before the collision test.")
    shots_end_at_border: bool = field(True, "Shots end at the map's border.")
    smoke_opens: bool = field(True, "Smoke shells open at the end of their flight and never count as hits.")
    ceiling: bool = field(True, "No mech rises above the top of the map.")
    ams_one_roll: bool = field(True, "Each ready heavy gets one roll per missile in reach of its point defence.")
    zone_on_the_ground: bool = field(True, "Only a powered mech near the ground holds the zone.")
    fair_zone: bool = field(True, "The zone is about equally far from both teams.")
    terrain_on_small_maps: bool = field(True, "Small maps keep their terrain.")
    corridors_complete: bool = field(True, "Lanes are carved up to the map's low edges.")
    tie_is_draw: bool = field(True, "Equal scores are decided by hit points, then a draw.")
    observation: str = field("modern", "Observation vector.", choices=INTERFACES, importable=True)
    actions: str = field("modern", "Action vector.", choices=INTERFACES, importable=True)
    reward: str = field("modern", "Reward (docs/rewards.md).", choices=INTERFACES, importable=True)
    reward_terms: str = field(
        "",
        'Reward terms of your own with their weights, such as "my_module:spread=0.02; my_module:hold_fire=0.1"'
        " (docs/rewards.md).",
    )

    def __post_init__(self) -> None:
        make_plain(self)
        check(self)
        parse_reward_terms(self.reward_terms)
        pitch = formation_pitch(self.spawn_without_overlap)
        rows = smallest_rows(self.num_packs, pitch)
        _require(self.size_y >= rows, "size_y", f"at least {rows} for {self.num_packs} packs a team", self.size_y)
        wide, deep = smallest_map(self.num_packs, pitch)
        _require(
            not self.terrain_on_small_maps or self.size_y >= deep or self.size_x >= wide,
            "size_y",
            f"at least {deep} (or size_x at least {wide}) with terrain_on_small_maps, to hold a zone between"
            f" two formations of {self.num_packs} packs",
            self.size_y,
        )

    @classmethod
    def original(cls, **overrides: Any) -> EnvConfig:
        """The original game to the letter: every switch off, its observation, actions, messages and reward.

        Example:
            >>> EnvConfig.original(size_x=60, size_y=60).fair_zone
            False
        """
        return cls(**{**RULES["original"], **overrides})

    @classmethod
    def revised(cls, **overrides: Any) -> EnvConfig:
        """The default game, `EnvConfig(**overrides)`, by the name of its rule set."""
        return cls(**overrides)

    @property
    def num_mechs(self) -> int:
        """Mechs of both teams."""
        return 10 * self.num_packs

    @property
    def team_size(self) -> int:
        """Mechs of one team."""
        return 5 * self.num_packs

    @property
    def counts_effective_damage(self) -> bool:
        """Whether damage is also counted as the target's loss, which every reward but the original's may be paid by."""
        return self.reward != "original"

    @property
    def decision_seconds(self) -> float:
        """Simulated seconds of one decision step."""
        return self.dt * self.substeps

    @property
    def max_steps(self) -> int:
        """Decision steps until time is up (docs/spec/environment.md 4.1)."""
        return math.ceil(self.max_episode_seconds / (self.dt * self.substeps))

    @property
    def score_to_win(self) -> float:
        """Zone seconds that win an episode: half its time limit."""
        return self.max_episode_seconds / 2

    @property
    def gravity(self) -> float:
        """Gravity in voxels per second squared."""
        return 9.81 / self.voxel_size_m
