"""The meaning of every number of the original's observation and action: no other file names its slices.

Source: docs/spec/environment.md 1.1, 2.
"""

from __future__ import annotations

import math
from functools import cache

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import CONTACTS, Entry, Layout
from echelon_jax.rules.mechs import CLASS_NAMES, PACK_SIZE

LOCAL_MAP_SIDE = 11
TELEMETRY_SIDE = 16
SORT_MODES = ("closest", "biggest", "most_damaged")
_Part = tuple[str, int, str, str, float, float, str]  # name, size, meaning, unit, low, high, kind
_INF = math.inf

# One contact (docs/spec/environment.md 2.6); vectors in world axes.
CONTACT_ROW: tuple[_Part, ...] = (
    ("offset", 3, "position relative to the viewer", "longest map side", -1.0, 1.0, "continuous"),
    ("velocity", 3, "velocity relative to the viewer", "10 voxels/s", -_INF, _INF, "continuous"),
    ("heading", 2, "sine and cosine of its yaw", "", -1.0, 1.0, "continuous"),
    ("hp", 1, "hit points left", "share of full", 0.0, 1.0, "continuous"),
    ("heat", 1, "heat", "share of the cap", 0.0, 2.0, "continuous"),
    ("stability", 1, "stability", "share of full", 0.0, 1.0, "continuous"),
    ("fallen", 1, "knocked down", "", 0.0, 1.0, "flag"),
    ("legged", 1, "legs destroyed", "", 0.0, 1.0, "flag"),
    ("relation", 3, "friendly, hostile, neutral (never)", "", 0.0, 1.0, "one_hot"),
    ("hull", 4, ", ".join(CLASS_NAMES), "", 0.0, 1.0, "one_hot"),
    ("painted", 1, "painted by the viewer's pack", "", 0.0, 1.0, "flag"),
    ("used", 1, "the slot holds a contact", "", 0.0, 1.0, "flag"),
    ("ballistic_pitch", 1, "pitch of a gauss shot that would hit it", "45 degrees", -1.0, 1.0, "continuous"),
    ("closing_speed", 1, "speed of approach, positive when nearing", "10 voxels/s", -1.0, 1.0, "continuous"),
    ("crossing", 1, "share of its velocity across the line of sight", "", 0.0, 1.0, "continuous"),
)

# The viewer itself, its team and the objective (docs/spec/environment.md 2.12).
SCALARS: tuple[_Part, ...] = (
    ("targeted", 1, "a living enemy within 8 voxels sees the mech", "", 0.0, 1.0, "flag"),
    ("under_fire", 1, "hit during the last decision step", "", 0.0, 1.0, "flag"),
    ("painted", 1, "painted by anyone", "", 0.0, 1.0, "flag"),
    ("shutdown", 1, "heat above the cap", "", 0.0, 1.0, "flag"),
    ("critical_heat", 1, "heat above 85 % of the cap", "", 0.0, 1.0, "flag"),
    ("hp", 1, "hit points left", "share of full", 0.0, 1.0, "continuous"),
    ("heat", 1, "heat", "share of the cap", 0.0, 2.0, "continuous"),
    ("heat_headroom", 1, "heat left to the cap", "share of the cap", 0.0, 1.0, "continuous"),
    ("stability_risk", 1, "stability lost", "share of full", 0.0, 1.0, "continuous"),
    ("damage_forward", 1, "direction of the last hit of the step, forward part", "", -1.0, 1.0, "continuous"),
    ("damage_lateral", 1, "direction of the last hit, part to the left", "", -1.0, 1.0, "continuous"),
    ("damage_up", 1, "direction of the last hit, upward part", "", -1.0, 1.0, "continuous"),
    ("incoming_missile", 1, "a missile in flight homes on the mech", "", 0.0, 1.0, "flag"),
    ("sensor_quality", 1, "sensor quality", "1.5", 0.0, 1.0, "continuous"),
    ("jam", 1, "strongest enemy jamming", "", 0.0, 1.0, "continuous"),
    ("ecm_on", 1, "own jammer works", "", 0.0, 1.0, "flag"),
    ("eccm_on", 1, "own sensor support works", "", 0.0, 1.0, "flag"),
    ("suppressed", 1, "suppression left", "1.2 s", 0.0, 1.0, "continuous"),
    ("ams_cooldown", 1, "until the anti-missile system is ready", "1 s", 0.0, 1.0, "continuous"),
    ("velocity", 3, "own velocity in world axes, 0 while shut down", "10 voxels/s", -_INF, _INF, "continuous"),
    ("laser_cooldown", 1, "until the laser is ready", "0.6 s", 0.0, 1.0, "continuous"),
    ("tube_cooldown", 1, "until missile and smoke are ready", "3 s", 0.0, 1.0, "continuous"),
    ("kinetic_cooldown", 1, "until gauss, autocannon or flamer is ready", "4 s", 0.0, 1.0, "continuous"),
    ("painter_cooldown", 1, "until the painter is ready", "1 s", 0.0, 1.0, "continuous"),
    ("in_zone", 1, "inside the capture zone", "", 0.0, 1.0, "flag"),
    ("zone_offset", 2, "zone centre relative to the mech, world axes", "longer map side", -1.0, 1.0, "continuous"),
    ("altitude", 1, "minus the height of the mech's centre", "longer map side", -_INF, 0.0, "continuous"),
    ("zone_radius", 1, "radius of the zone", "longer map side", 0.0, 1.0, "continuous"),
    ("control", 1, "own minus enemy tonnage in the zone over their sum", "", -1.0, 1.0, "continuous"),
    ("own_score", 1, "own zone score", "score that wins", 0.0, 1.0, "continuous"),
    ("enemy_score", 1, "enemy zone score", "score that wins", 0.0, 1.0, "continuous"),
    ("time", 1, "time since the start", "time limit", 0.0, 1.0, "continuous"),
    ("sort_mode", 3, "order of contacts in force: " + ", ".join(SORT_MODES), "", 0.0, 1.0, "one_hot"),
    ("hostile_only", 1, "only hostile contacts are shown", "", 0.0, 1.0, "flag"),
)

_SOUND = ("front_left", "front_right", "rear_left", "rear_right")


def _laid_out(parts: list[_Part]) -> Layout:
    entries, offset = [], 0
    for name, size, meaning, unit, low, high, kind in parts:
        entries.append(Entry(name, offset, size, meaning, unit, low, high, kind))
        offset += size
    return Layout(tuple(entries))


def _prefixed(block: str, parts: tuple[_Part, ...]) -> list[_Part]:
    return [(f"{block}/{name}", *rest) for name, *rest in parts]  # type: ignore[misc]


@cache
def observation_layout(config: EnvConfig) -> Layout:
    """The observation of one mech, all entries in order.

    Example:
        >>> observation_layout(EnvConfig.original())["own/in_zone"].offset
        576
    """
    parts: list[_Part] = []
    for slot in range(CONTACTS):
        parts += _prefixed(f"contact_{slot}", CONTACT_ROW)
    if config.comm_dim:
        for row in range(PACK_SIZE):
            meaning = f"message of place {row} of the own pack"
            parts.append((f"message/{row}", config.comm_dim, meaning, "", -1.0, 1.0, "continuous"))
    cells = LOCAL_MAP_SIDE**2
    parts.append(("local_map", cells, "walls around, rows forward, columns to the left", "", 0.0, 1.0, "map"))
    parts.append(
        ("telemetry", TELEMETRY_SIDE**2, "walls of the whole map, rows along y, columns along x", "", 0.0, 1.0, "map")
    )
    for quadrant in _SOUND:
        parts.append((f"sound/{quadrant}", 1, "loudness heard from there", "5 nepers", 0.0, _INF, "continuous"))
    parts.append(("hull", len(CLASS_NAMES), ", ".join(CLASS_NAMES), "", 0.0, 1.0, "one_hot"))
    parts += _prefixed("own", SCALARS)
    return _laid_out(parts)


@cache
def action_layout(config: EnvConfig) -> Layout:
    """The action of one mech, all components in order; everything lies in [-1, 1].

    Example:
        >>> action_layout(EnvConfig.original()).size
        26
    """
    parts: list[_Part] = [
        ("forward", 1, "throttle along the facing", "top speed", -1.0, 1.0, "continuous"),
        ("strafe", 1, "throttle to the left", "top speed", -1.0, 1.0, "continuous"),
        ("vertical", 1, "jets, scout and light", "full thrust", -1.0, 1.0, "continuous"),
        ("yaw_rate", 1, "turning, positive is counter-clockwise", "top turn rate", -1.0, 1.0, "continuous"),
        ("primary", 1, "trigger above 0: painter, flamer, laser, laser by class", "", -1.0, 1.0, "flag"),
        ("vent", 1, "above 0: vent heat", "", -1.0, 1.0, "flag"),
        (
            "secondary",
            1,
            "trigger above 0: laser (light), missile (heavy); scout: ECM above 0, ECCM above 0.5",
            "",
            -1.0,
            1.0,
            "flag",
        ),
        (
            "tertiary",
            1,
            "trigger above 0: painter (light), autocannon and painter (medium), gauss (heavy)",
            "",
            -1.0,
            1.0,
            "flag",
        ),
        ("special", 1, "trigger above 0: smoke", "", -1.0, 1.0, "flag"),
        (
            "target_preference",
            CONTACTS,
            "focus the contact slot of the largest, if above 0",
            "",
            -1.0,
            1.0,
            "continuous",
        ),
        (
            "sort_mode",
            len(SORT_MODES),
            "order contacts by the largest: " + ", ".join(SORT_MODES),
            "",
            -1.0,
            1.0,
            "continuous",
        ),
        ("hostile_only", 1, "above 0: show hostile contacts only", "", -1.0, 1.0, "flag"),
    ]
    if config.comm_dim:
        parts.append(("message", config.comm_dim, "message to the own pack", "", -1.0, 1.0, "continuous"))
    return _laid_out(parts)
