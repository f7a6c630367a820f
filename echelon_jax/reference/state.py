"""What a battle consists of: mechs, projectiles, clouds, voxels, clock (docs/spec/rules.md 4)."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import TYPE_CHECKING, Any

from echelon_jax.config import EnvConfig
from echelon_jax.reference.vec import Vec, add, f32, sub
from echelon_jax.reference.world import SmokeCloud, SpatialGrid, VoxelWorld, smoke_clear
from echelon_jax.rules import constants as c
from echelon_jax.rules import mechs as rules

if TYPE_CHECKING:
    from echelon_jax.reference.noise import Noise

Event = dict[str, Any]


@dataclasses.dataclass
class Mech:
    """One mech. Vectors are float32 values, everything else float64; the position is the box's centre.

    Source: docs/spec/rules.md 4.3.
    """

    index: int  # place in the roster; every reference to a mech is such an index
    id: str
    team: int
    pack: int
    pack_row: int
    class_id: int
    pos: Vec
    yaw: float
    hp: float
    leg_hp: float
    vel: Vec = (0.0, 0.0, 0.0)
    heat: float = 0.0
    stability: float = c.MAX_STABILITY
    fallen_time: float = 0.0
    focus_target: int | None = None
    ecm_on: bool = False
    eccm_on: bool = False
    suppressed_time: float = 0.0
    ams_cooldown: float = 0.0
    laser_cooldown: float = 0.0
    missile_cooldown: float = 0.0  # shared by missile and smoke
    tube_was_smoke: bool = False  # what set it
    kinetic_cooldown: float = 0.0  # shared by gauss, autocannon and flamer
    painter_cooldown: float = 0.0
    painted_remaining: float = 0.0
    last_painter: int | None = None
    noise_level: float = 0.0
    alive: bool = True
    # Tallies of the current decision step.
    took_damage: float = 0.0
    dealt_damage: float = 0.0
    kills: int = 0
    # On the own team, oneself included; in the two above as well unless own_team_counts_against is on.
    friendly_damage: float = 0.0
    friendly_kills: int = 0
    # At most what the target had left, on enemies and on the own team; kills of enemies that this mech had painted.
    effective_damage: float = 0.0
    friendly_effective_damage: float = 0.0
    kill_assists: int = 0
    died: bool = False
    was_hit: bool = False
    last_damage_dir: Vec | None = None

    @property
    def spec(self) -> rules.MechClass:
        """The numbers of its class."""
        return rules.MECH_CLASSES[self.class_id]

    @property
    def half(self) -> Vec:
        """Half extents of its box, float32."""
        return _HALF_EXTENTS[self.class_id]

    @property
    def low(self) -> Vec:
        """Lower corner of its box."""
        return sub(self.pos, self.half)

    @property
    def high(self) -> Vec:
        """Upper corner of its box."""
        return add(self.pos, self.half)

    @property
    def facing(self) -> Vec:
        """(cos yaw, sin yaw, 0) in float32."""
        return f32(math.cos(self.yaw)), f32(math.sin(self.yaw)), 0.0

    @property
    def legged(self) -> bool:
        """Its legs are gone."""
        return self.leg_hp <= 0

    @property
    def shutdown(self) -> bool:
        """Too hot to act; no hysteresis."""
        return self.heat > self.spec.heat_cap

    @property
    def fallen(self) -> bool:
        """Knocked down."""
        return self.fallen_time > 0

    def same_pack(self, other: Mech) -> bool:
        """Same team and pack; a mech is in its own pack."""
        return self.team == other.team and self.pack == other.pack

    def clear_tallies(self) -> None:
        """Start a decision step (docs/spec/rules.md 4.3), dead mechs too."""
        self.took_damage, self.dealt_damage, self.kills = 0.0, 0.0, 0
        self.friendly_damage, self.friendly_kills = 0.0, 0
        self.effective_damage, self.friendly_effective_damage, self.kill_assists = 0.0, 0.0, 0
        self.died = self.was_hit = False
        self.last_damage_dir = None


def _half_extents(mech_class: rules.MechClass) -> Vec:
    x, y, z = mech_class.size
    return f32(x / 2), f32(y / 2), f32(z / 2)


_HALF_EXTENTS = tuple(_half_extents(mech_class) for mech_class in rules.MECH_CLASSES)


@dataclasses.dataclass
class Projectile:
    """A shot in flight; its other numbers are those of its weapon."""

    weapon: int
    shooter: int
    target: int | None  # only missiles have one
    pos: Vec
    vel: Vec
    age: float = 0.0
    rolled: frozenset[int] = frozenset()  # defenders that have rolled against it, under ams_one_roll


def make_mechs(num_packs: int, positions: Any, yaws: Any) -> list[Mech]:
    """The full roster with initial values (docs/spec/rules.md 4.2 and 4.3) at positions [N, 3] and yaws [N]."""
    roster = rules.roster(num_packs)
    if len(positions) != roster.size or len(yaws) != roster.size:
        raise ValueError(f"positions and yaws must have {roster.size} rows, got {len(positions)} and {len(yaws)}")
    mechs = []
    for i in range(roster.size):
        spec = rules.MECH_CLASSES[roster.mech_class[i]]
        x, y, z = (f32(float(v)) for v in positions[i])
        mechs.append(
            Mech(
                index=i,
                id=roster.ids[i],
                team=int(roster.team[i]),
                pack=int(roster.pack[i]),
                pack_row=int(roster.pack_row[i]),
                class_id=int(roster.mech_class[i]),
                pos=(x, y, z),
                yaw=float(yaws[i]),
                hp=spec.hp,
                leg_hp=spec.leg_hp,
            )
        )
    return mechs


class Battle:
    """The whole mutable state of the simulation core.

    Args:
        config: sizes, clock and switches.
        world: voxels, which the battle changes.
        mechs: the roster, all of it, in roster order.
    """

    def __init__(self, config: EnvConfig, world: VoxelWorld, mechs: list[Mech]) -> None:
        self.config = config
        self.world = world
        self.mechs = mechs
        self.projectiles: list[Projectile] = []  # in order of launch, which is the order of processing
        self.clouds: list[SmokeCloud] = []  # living clouds only
        self.grid = SpatialGrid()
        self.tick = 0
        self.time_s = 0.0
        self.events: list[Event] = []  # of the current decision step
        self.draws: Noise | None = None  # of the current substep
        for mech in mechs:
            if mech.alive:
                self.grid.place(mech.index, mech.pos)

    def copy(self) -> Battle:
        """An independent copy."""
        twin = Battle(self.config, self.world.copy(), [dataclasses.replace(mech) for mech in self.mechs])
        twin.projectiles = [dataclasses.replace(shot) for shot in self.projectiles]
        twin.clouds = [dataclasses.replace(cloud) for cloud in self.clouds]
        twin.grid = copy.deepcopy(self.grid)
        twin.tick, twin.time_s, twin.events = self.tick, self.time_s, list(self.events)
        return twin

    def living(self) -> list[Mech]:
        """Living mechs in roster order."""
        return [mech for mech in self.mechs if mech.alive]

    def has_los(self, start: Vec, end: Vec) -> bool:
        """Whether neither terrain nor smoke blocks the view between two points (docs/spec/rules.md 3.2)."""
        return smoke_clear(self.clouds, start, end) and self.world.terrain_los(start, end)
