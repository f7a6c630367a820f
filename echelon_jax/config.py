"""Static configuration of an arena: sizes, clock and switches. Frozen and hashable; a different value is a new compile."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from echelon_jax.rules.formation import formation_pitch, smallest_map, smallest_rows

OBSERVATION_MODES = ("full", "partial")
INTERFACE_FIELDS = ("observation", "actions", "reward")
INTERFACES = ("original", "modern")  # what those may be
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
MAX_HEIGHT = 32  # a column of voxels is one uint32 word


def _require(ok: bool, field: str, allowed: str, value: object) -> None:
    if not ok:
        raise ValueError(f"{field} must be {allowed}, got {value!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """Everything about an arena that is compiled in; by default the revised game, `EnvConfig.original()` is the original's.

    Attributes:
        size_x, size_y, size_z: map size in voxels. x and y at least 20, and y at least 4 + 7 per pack (4 + 8 with
            spawn_without_overlap), so that two formations fit; terrain_on_small_maps asks for more (28 for one pack);
            z from 8 to 32.
        num_packs: packs of five mechs per team, 1 to 8.
        dt: seconds per substep.
        substeps: substeps per decision step.
        max_episode_seconds: time limit of an episode.
        observation_mode: "full" (every living mech is visible) or "partial" (radar, paint, heat, emissions, sight).
        comm_dim: numbers in a message, 0 to 64; 0 removes messages from action and observation.
        target_selection, ewar, observation_control, communication: the original's four enable switches.
        voxel_size_m: edge of a voxel in metres; scales gravity only.
        clearance_z: levels counted by the local obstacle map.
        spawn_without_overlap ... tie_is_draw: the revised rules, one switch each, on by default; see docs/differences.md.
        observation, actions, reward: "modern" (the default) or "original".

    Raises:
        ValueError: naming the field and its allowed values.
    """

    size_x: int = 40
    size_y: int = 40
    size_z: int = 20
    num_packs: int = 1
    dt: float = 0.05
    substeps: int = 5
    max_episode_seconds: float = 60.0
    observation_mode: str = "full"
    comm_dim: int = 8
    target_selection: bool = True
    ewar: bool = True
    observation_control: bool = True
    communication: bool = True
    voxel_size_m: float = 1.0
    clearance_z: int = 4
    spawn_without_overlap: bool = True
    true_voxel_hp: bool = True
    honour_focus: bool = True
    fair_order: bool = True
    own_team_counts_against: bool = True
    clamp_before_collision: bool = True
    shots_end_at_border: bool = True
    smoke_opens: bool = True
    ceiling: bool = True
    ams_one_roll: bool = True
    zone_on_the_ground: bool = True
    fair_zone: bool = True
    terrain_on_small_maps: bool = True
    corridors_complete: bool = True
    tie_is_draw: bool = True
    observation: str = "modern"
    actions: str = "modern"
    reward: str = "modern"

    def __post_init__(self) -> None:
        for field in ("size_x", "size_y"):
            value = getattr(self, field)
            _require(_is_int(value) and 20 <= value <= 1000, field, "a whole number from 20 to 1000", value)
        _require(
            _is_int(self.size_z) and 8 <= self.size_z <= MAX_HEIGHT,
            "size_z",
            f"a whole number from 8 to {MAX_HEIGHT}",
            self.size_z,
        )
        _require(
            _is_int(self.num_packs) and 1 <= self.num_packs <= 8,
            "num_packs",
            "a whole number from 1 to 8",
            self.num_packs,
        )
        _require(
            _is_number(self.dt) and 0.005 <= self.dt <= 0.2, "dt", "a number of seconds from 0.005 to 0.2", self.dt
        )
        _require(
            _is_int(self.substeps) and 1 <= self.substeps <= 50,
            "substeps",
            "a whole number from 1 to 50",
            self.substeps,
        )
        _require(
            _is_number(self.max_episode_seconds) and 0 < self.max_episode_seconds <= 3600,
            "max_episode_seconds",
            "a number above 0 and at most 3600",
            self.max_episode_seconds,
        )
        _require(
            self.observation_mode in OBSERVATION_MODES,
            "observation_mode",
            f"one of {', '.join(OBSERVATION_MODES)}",
            self.observation_mode,
        )
        _require(
            _is_int(self.comm_dim) and 0 <= self.comm_dim <= 64,
            "comm_dim",
            "a whole number from 0 to 64",
            self.comm_dim,
        )
        for field in ("target_selection", "ewar", "observation_control", "communication", *SWITCHES):
            _require(isinstance(getattr(self, field), bool), field, "true or false", getattr(self, field))
        for field in INTERFACE_FIELDS:
            _require(getattr(self, field) in INTERFACES, field, f"one of {', '.join(INTERFACES)}", getattr(self, field))
        _require(
            _is_number(self.voxel_size_m) and self.voxel_size_m > 0,
            "voxel_size_m",
            "a number above 0",
            self.voxel_size_m,
        )
        _require(
            _is_int(self.clearance_z) and 1 <= self.clearance_z <= 5,
            "clearance_z",
            "a whole number from 1 to 5, the height of the carved lanes",
            self.clearance_z,
        )
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
        """The original game to the letter: every switch off, its observation, actions and reward; `overrides` change fields.

        Example:
            >>> EnvConfig.original(size_x=60, size_y=60).fair_zone
            False
        """
        letter = dict.fromkeys(SWITCHES, False) | dict.fromkeys(INTERFACE_FIELDS, "original")
        return cls(**{**letter, **overrides})

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
    def action_size(self) -> int:
        """Components of one mech's action: 9 base, 5 target preferences, 4 observation controls, the message.

        Modern: 9 base, a target preference per hostile and one for none, 3 of EWAR, the message.
        """
        if self.actions == "modern":
            return 13 + self.team_size + self.comm_dim
        return 18 + self.comm_dim

    @property
    def observation_size(self) -> int:
        """Entries of one mech's observation; modern: 31 for each other mech, 678 in planes, the rest about the mech itself."""
        if self.observation == "modern":
            return 145 + 31 * (self.num_mechs - 1) + 678 + 5 * self.comm_dim
        return 549 + 5 * self.comm_dim

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
