"""Zone ticks, rewards and episode statistics (docs/spec/environment.md 3 and 4.5)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from echelon_jax.reference.state import Event, Mech
from echelon_jax.reference.vec import f32
from echelon_jax.rules.mechs import BLUE, RED, TEAM_NAMES

COMPONENTS = ("approach", "zone", "damage", "kill", "assist", "death", "terminal", "shutdown")
STATISTICS = (
    "kills",
    "assists",
    "paints",
    "laser_hits",
    "missile_launches",
    "kinetic_fires",
    "ams_intercepts",
    "damage",
    "knockdowns",
    "legged",
    "shutdowns",
    "bad_actions",
    "bad_obs",
)
APPROACH_WEIGHT = 1.5
APPROACH_DECAY = 0.5
ZONE_WEIGHT = 3.0
DAMAGE_WEIGHT = 0.05
KILL_WEIGHT = 10.0
ASSIST_WEIGHT = 5.0
DEATH_WEIGHT = -1.0
CONTESTED_FACTOR = 2.0
CONTESTED_FLOOR = 0.25
GROUND_REACH = 3.0  # voxels between the zone's ground and the feet of a mech that holds it, where that is required


@dataclasses.dataclass(frozen=True)
class Zone:
    """The capture zone: a disc on the map, of any height unless `grounded` (the switch zone_on_the_ground)."""

    x: float
    y: float
    radius: float
    grounded: bool = False

    def distance(self, mech: Mech) -> float:
        """d_z: horizontal distance of a mech from the centre; differences in float32, hypot in float64."""
        return math.hypot(f32(mech.pos[0] - f32(self.x)), f32(mech.pos[1] - f32(self.y)))

    def holds(self, mech: Mech) -> bool:
        """In zone: alive and strictly inside; fallen, shut down or flying counts, the latter two not where grounded."""
        if self.grounded and (mech.shutdown or mech.pos[2] - mech.half[2] > GROUND_REACH):
            return False
        return mech.alive and self.distance(mech) < self.radius


def tonnage_in_zone(mechs: Sequence[Mech], zone: Zone) -> tuple[float, float]:
    """Tonnes of blue and of red in the zone."""
    tonnes = [0.0, 0.0]
    for mech in mechs:
        if zone.holds(mech):
            tonnes[mech.team] += mech.spec.tonnage
    return tonnes[BLUE], tonnes[RED]


def zone_tick(blue: float, red: float) -> tuple[float, float]:
    """Score ticks of both teams from their tonnage in the zone (docs/spec/environment.md 3.2)."""
    if blue > 0 and red > 0:
        margin = (blue - red) / (blue + red)
        share = 1.0 - CONTESTED_FLOOR
        return CONTESTED_FLOOR + share * max(0.0, margin), CONTESTED_FLOOR + share * max(0.0, -margin)
    return float(blue > 0), float(red > 0)


def reward_components(
    mechs: Sequence[Mech],
    events: Sequence[Event],
    zone: Zone,
    distance_before: Sequence[float | None],
    ticks: tuple[float, float],
    map_side: float,
) -> list[list[float]]:
    """Per mech the components, in the order of COMPONENTS; the reward is their sum.

    Source: docs/spec/environment.md 3.3.

    Args:
        mechs: after the simulation.
        events: of the whole decision step.
        zone: the capture zone.
        distance_before: distance from the zone before the simulation; None for the mechs that were dead.
        ticks: of this step, blue and red.
        map_side: the larger of the map's sides.
    """
    damage, kills, assists, died = _sums(mechs, events)
    members = [sum(zone.holds(m) for m in mechs if m.team == team) for team in (BLUE, RED)]
    tonnes = tonnage_in_zone(mechs, zone)
    contested = tonnes[BLUE] > 0 and tonnes[RED] > 0
    rows = []
    for mech in mechs:
        row = [0.0] * len(COMPONENTS)
        rows.append(row)
        i, before = mech.index, distance_before[mech.index]
        if before is None:  # dead before this step: nothing, even if a shot of its still hits (E30)
            continue
        inside = zone.holds(mech)
        factor = CONTESTED_FACTOR if inside and contested else 1.0
        if inside:
            row[1] = ZONE_WEIGHT * ticks[mech.team]
        elif mech.alive:
            step = APPROACH_WEIGHT * (before - zone.distance(mech)) / map_side
            row[0] = step * APPROACH_DECAY ** members[mech.team]
        row[2] = DAMAGE_WEIGHT * factor * damage[i]
        row[3] = KILL_WEIGHT * factor * kills[i]
        row[4] = ASSIST_WEIGHT * factor * assists[i]
        row[5] = DEATH_WEIGHT * died[i]  # never halved: the dead are not in the zone (E23)
    return rows


def _sums(mechs: Sequence[Mech], events: Sequence[Event]) -> tuple[list[float], list[int], list[int], list[int]]:
    """Damage dealt, kills, assists given and own deaths per mech, from the events; a hit without credit is charged."""
    index = {mech.id: mech.index for mech in mechs}
    damage = [0.0] * len(mechs)
    kills, assists, died = ([0] * len(mechs) for _ in range(3))
    for event in events:
        credited = event.get("credited", True)
        sign = 1 if credited else -1  # charged where own_team_counts_against
        if event["type"] in ("laser_hit", "projectile_hit"):
            damage[index[event["shooter"]]] += sign * event["damage"]
        elif event["type"] == "assist":
            assists[index[event["painter"]]] += 1
        elif event["type"] == "kill":
            died[index[event["target"]]] += 1
            if event["shooter"] in index:  # not a hazard
                kills[index[event["shooter"]]] += sign
    return damage, kills, assists, died


def new_statistics() -> dict[str, float]:
    """The 26 counters of an episode, all zero (docs/spec/environment.md 4.5)."""
    return {f"{name}_{team}": 0.0 for name in STATISTICS for team in TEAM_NAMES}


# Which counter an event adds to, and whose team it counts for.
_COUNTED = {
    "assist": ("assists", "painter"),
    "paint": ("paints", "shooter"),
    "laser_hit": ("laser_hits", "shooter"),
    "missile_launch": ("missile_launches", "shooter"),
    "kinetic_fire": ("kinetic_fires", "shooter"),
    "ams_intercept": ("ams_intercepts", "defender"),
}


def count_events(statistics: dict[str, float], mechs: Sequence[Mech], events: Sequence[Event]) -> None:
    """Add a decision step's events to the counters; a hit or kill without credit adds nothing."""
    team_of = {mech.id: TEAM_NAMES[mech.team] for mech in mechs}
    for event in events:
        kind = event["type"]
        if kind in _COUNTED:
            name, who = _COUNTED[kind]
            statistics[f"{name}_{team_of[event[who]]}"] += 1
        if not event.get("credited", True):
            continue
        if kind in ("laser_hit", "projectile_hit"):
            statistics[f"damage_{team_of[event['shooter']]}"] += event["damage"]
        if kind == "kill" and event["shooter"] in team_of:
            statistics[f"kills_{team_of[event['shooter']]}"] += 1


Flags = tuple[bool, bool, bool]  # fallen, legged, shutdown


def status_flags(mech: Mech) -> Flags:
    """What the transition counters compare at decision boundaries."""
    return mech.fallen, mech.legged, mech.shutdown


def count_transitions(statistics: dict[str, float], mechs: Sequence[Mech], before: Sequence[Flags]) -> None:
    """Count mechs, dead ones too, that are fallen, legged or shut down now and were not after the previous step."""
    for mech, old in zip(mechs, before, strict=True):
        for name, was, now in zip(("knockdowns", "legged", "shutdowns"), old, status_flags(mech), strict=True):
            if now and not was:
                statistics[f"{name}_{TEAM_NAMES[mech.team]}"] += 1
