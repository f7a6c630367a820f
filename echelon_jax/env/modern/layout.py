"""The meaning of every number of the modern observation and action: no other file names, orders or bounds them.

Vectors are in the mech's own frame: forward, left, up. What is fixed to the map (the whole-map planes) keeps the map's axes,
rows along y and columns along x, and the mech is told its heading. Turning the world by a right angle turns the heading and
the whole-map planes and changes nothing else. The `mirroring` of an entry says how mirroring the world (y becomes size_y - y)
changes it.
"""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import Entry, Layout
from echelon_jax.rules.mechs import CLASS_NAMES, PACK_SIZE, roster
from echelon_jax.rules.weapons import PROJECTILES, TOP_SHOT_SPEED, WEAPON_NAMES

SHOTS, CLOUDS = 4, 2  # most urgent ones shown
LOCAL_SIDE, LOCAL_SPACING = 7, 2  # samples a side of the local planes, and voxels between them
MAP_SIDE = 8  # bins a side of the whole-map planes
QUARTERS = 4  # steps of a share in the whole-map planes
STEPS = 4  # voxels up and down that the step plane tells apart
SHOT_KINDS = PROJECTILES
_SHOT_SPEED = f"{TOP_SHOT_SPEED:g} voxels/s"
EWAR_MODES = ("off", "ecm", "eccm")
MIRRORINGS = ("even", "odd", "paired")
LOCAL_PLANES = ("foot", "body", "opaque", "hazard", "step", "mechs")
OWN_PLANES = ("self", "hostiles")  # of the whole map, a mech's own
SHARED_PLANES = ("blocked", "hazard", "zone", "friends")  # of the whole map, the same for a team


@dataclasses.dataclass(frozen=True)
class ModernEntry(Entry):
    """An entry of a layout that also says how mirroring the world changes it.

    Attributes:
        mirroring: even (stays), odd (changes sign) or paired (takes the value of another entry).
        partner: of a paired entry: the entry whose value it takes; or, for a plane, "columns" or "rows", the axis of the plane
            that is read backwards.
    """

    mirroring: str = "even"
    partner: str = ""


_Part = tuple[
    str, int, str, str, int | float, int | float, str, str
]  # name, size, meaning, unit, low, high, kind, mirroring

# The mech itself.
SELF: tuple[_Part, ...] = (
    ("alive", 1, "the mech lives (a dead one sees zeros)", "", 0, 1, "flag", "even"),
    ("pack_row", PACK_SIZE, "place in the pack: heavy, medium, medium, light, scout", "", 0, 1, "one_hot", "even"),
    ("hp", 1, "hit points left", "share of full", 0, 1, "continuous", "even"),
    ("leg_hp", 1, "leg hit points left", "share of full", 0, 1, "continuous", "even"),
    ("heat", 1, "heat", "share of the cap", 0, 2, "continuous", "even"),
    ("stability", 1, "stability", "share of full", 0, 1, "continuous", "even"),
    ("fallen", 1, "knocked down", "", 0, 1, "flag", "even"),
    ("time_to_stand", 1, "until it stands up", "duration of a fall", 0, 1, "continuous", "even"),
    ("legged", 1, "legs destroyed", "", 0, 1, "flag", "even"),
    ("shutdown", 1, "heat above the cap", "", 0, 1, "flag", "even"),
    ("airborne", 1, "feet off the ground", "", 0, 1, "flag", "even"),
    ("height", 1, "feet over the ground below", "map height", 0, 1, "continuous", "even"),
    ("altitude", 1, "feet over the bottom of the map", "map height", 0, 1, "continuous", "even"),
    ("velocity_forward", 1, "own velocity", "10 voxels/s", -2, 2, "continuous", "even"),
    ("velocity_left", 1, "own velocity", "10 voxels/s", -2, 2, "continuous", "odd"),
    ("velocity_up", 1, "own velocity", "10 voxels/s", -2, 2, "continuous", "even"),
    ("turn_rate", 1, "turn of the last decision, to the left", "own top turn rate", -1, 1, "continuous", "odd"),
    ("top_speed", 1, "class limit", "10 voxels/s", 0, 1, "continuous", "even"),
    ("top_turn_rate", 1, "class limit", "2 rad/s", 0, 1, "continuous", "even"),
    ("jets", 1, "class limit: upward acceleration", "20 voxels/s^2", 0, 1, "continuous", "even"),
    ("full_hp", 1, "class limit: hit points", "200", 0, 2, "continuous", "even"),
    ("heat_cap", 1, "class limit: heat before shutdown", "130", 0, 2, "continuous", "even"),
    ("tonnage", 1, "class limit: weight", "100 t", 0, 2, "continuous", "even"),
    ("laser_cooldown", 1, "until it is ready", "own reload", 0, 1, "continuous", "even"),
    ("missile_cooldown", 1, "until the tube is ready after a missile", "own reload", 0, 1, "continuous", "even"),
    ("smoke_cooldown", 1, "until the tube is ready after a smoke shell", "own reload", 0, 1, "continuous", "even"),
    ("kinetic_cooldown", 1, "gauss, autocannon or flamer, as fitted", "own reload", 0, 1, "continuous", "even"),
    ("painter_cooldown", 1, "until it is ready", "own reload", 0, 1, "continuous", "even"),
    ("ams_cooldown", 1, "until the anti-missile system is ready", "own reload", 0, 1, "continuous", "even"),
    ("painted_time", 1, "paint left on the mech", "duration of paint", 0, 1, "continuous", "even"),
    ("suppressed", 1, "suppression left", "duration of suppression", 0, 1, "continuous", "even"),
    ("sensor_quality", 1, "sensor quality", "1.5", 0, 1, "continuous", "even"),
    ("jam", 1, "strongest enemy jamming", "", 0, 1, "continuous", "even"),
    ("ecm_on", 1, "own jammer works", "", 0, 1, "flag", "even"),
    ("eccm_on", 1, "own sensor support works", "", 0, 1, "flag", "even"),
    ("under_fire", 1, "hit during the last decision", "", 0, 1, "flag", "even"),
    ("damage_taken", 1, "damage of the last decision", "full hit points", 0, 1, "continuous", "even"),
    ("damage_forward", 1, "direction to what hit last", "", -1, 1, "continuous", "even"),
    ("damage_left", 1, "direction to what hit last", "", -1, 1, "continuous", "odd"),
    ("damage_up", 1, "direction to what hit last", "", -1, 1, "continuous", "even"),
    ("incoming_missile", 1, "a missile in flight homes on the mech", "", 0, 1, "flag", "even"),
    ("focus_taken", 1, "the last target preference was accepted", "", 0, 1, "flag", "even"),
    ("beam_fired", 1, "laser or flamer hit during the last decision", "", 0, 1, "flag", "even"),
    ("missile_fired", 1, "missile launched during the last decision", "", 0, 1, "flag", "even"),
    ("kinetic_fired", 1, "gauss or autocannon fired during the last decision", "", 0, 1, "flag", "even"),
    ("smoke_fired", 1, "smoke shell launched during the last decision", "", 0, 1, "flag", "even"),
    ("painter_fired", 1, "painted a mech during the last decision", "", 0, 1, "flag", "even"),
    ("heading_cosine", 1, "cosine of the yaw, for the whole-map planes", "", -1, 1, "continuous", "even"),
    ("heading_sine", 1, "sine of the yaw, for the whole-map planes", "", -1, 1, "continuous", "odd"),
    ("zone_forward", 1, "zone centre relative to the mech", "map diagonal", -1, 1, "continuous", "even"),
    ("zone_left", 1, "zone centre relative to the mech", "map diagonal", -1, 1, "continuous", "odd"),
    ("zone_cosine", 1, "cosine of the bearing of the zone centre", "", -1, 1, "continuous", "even"),
    ("zone_sine", 1, "sine of the bearing of the zone centre, positive to the left", "", -1, 1, "continuous", "odd"),
    ("zone_depth", 1, "distance inside the zone's border, negative outside", "20 voxels", -1, 1, "continuous", "even"),
    ("zone_radius", 1, "radius of the zone", "12 voxels", 0, 1, "continuous", "even"),
    ("in_zone", 1, "inside the capture zone", "", 0, 1, "flag", "even"),
)

# One other mech. The first block shows where it is or was last seen; the second, only what is seen now.
PLACED: tuple[_Part, ...] = (
    ("known", 1, "alive, and seen now or before; the rest of the slot is 0 without it", "", 0, 1, "flag", "even"),
    ("age", 1, "since it was last seen (partial mode)", "10 s", 0, 1, "continuous", "even"),
    ("offset_forward", 1, "position relative to the mech", "map diagonal", -1, 1, "continuous", "even"),
    ("offset_left", 1, "position relative to the mech", "map diagonal", -1, 1, "continuous", "odd"),
    ("offset_up", 1, "position relative to the mech", "map height", -1, 1, "continuous", "even"),
    ("nearness", 1, "8 / (8 + range in voxels)", "", 0, 1, "continuous", "even"),
    ("bearing_cosine", 1, "cosine of its bearing, 1 straight ahead", "", -1, 1, "continuous", "even"),
    ("bearing_sine", 1, "sine of its bearing, positive to the left", "", -1, 1, "continuous", "odd"),
    ("elevation", 1, "sine of its elevation", "", -1, 1, "continuous", "even"),
    ("hull", 4, ", ".join(CLASS_NAMES), "", 0, 1, "one_hot", "even"),
    ("focused", 1, "it is the mech's focus", "", 0, 1, "flag", "even"),
)
SEEN: tuple[_Part, ...] = (
    ("facing_cosine", 1, "cosine of its yaw relative to the mech's", "", -1, 1, "continuous", "even"),
    ("facing_sine", 1, "sine of its yaw relative to the mech's", "", -1, 1, "continuous", "odd"),
    (
        "aim_cosine",
        1,
        "cosine of the mech's bearing as it sees it, 1 when it faces the mech",
        "",
        -1,
        1,
        "continuous",
        "even",
    ),
    ("velocity_forward", 1, "its velocity", "10 voxels/s", -2, 2, "continuous", "even"),
    ("velocity_left", 1, "its velocity", "10 voxels/s", -2, 2, "continuous", "odd"),
    ("velocity_up", 1, "its velocity", "10 voxels/s", -2, 2, "continuous", "even"),
    ("hp", 1, "hit points left", "share of full", 0, 1, "continuous", "even"),
    ("heat", 1, "heat", "share of the cap", 0, 2, "continuous", "even"),
    ("stability", 1, "stability", "share of full", 0, 1, "continuous", "even"),
    ("fallen", 1, "knocked down", "", 0, 1, "flag", "even"),
    ("legged", 1, "legs destroyed", "", 0, 1, "flag", "even"),
    ("shutdown", 1, "heat above the cap", "", 0, 1, "flag", "even"),
    ("painted", 1, "painted by the mech's pack", "", 0, 1, "flag", "even"),
    ("aims", 1, "hostile, and one of its weapons reaches the mech now", "", 0, 1, "flag", "even"),
    ("reached", 1, "hostile, and one of the mech's weapons reaches it now", "", 0, 1, "flag", "even"),
    ("line_of_sight", 1, "neither terrain nor smoke lies between, within 24 voxels", "", 0, 1, "flag", "even"),
    ("in_zone", 1, "inside the capture zone", "", 0, 1, "flag", "even"),
)

# One projectile, one smoke cloud.
SHOT: tuple[_Part, ...] = (
    ("known", 1, "the slot holds a projectile", "", 0, 1, "flag", "even"),
    ("offset_forward", 1, "position relative to the mech", "map diagonal", -1, 1, "continuous", "even"),
    ("offset_left", 1, "position relative to the mech", "map diagonal", -1, 1, "continuous", "odd"),
    ("offset_up", 1, "position relative to the mech", "map height", -1, 1, "continuous", "even"),
    ("nearness", 1, "8 / (8 + range in voxels)", "", 0, 1, "continuous", "even"),
    ("velocity_forward", 1, "velocity", _SHOT_SPEED, -1, 1, "continuous", "even"),
    ("velocity_left", 1, "velocity", _SHOT_SPEED, -1, 1, "continuous", "odd"),
    ("velocity_up", 1, "velocity", _SHOT_SPEED, -1, 1, "continuous", "even"),
    ("kind", len(SHOT_KINDS), ", ".join(WEAPON_NAMES[w] for w in SHOT_KINDS), "", 0, 1, "one_hot", "even"),
    ("hostile", 1, "fired by the other team", "", 0, 1, "flag", "even"),
    ("homing", 1, "homes on the mech", "", 0, 1, "flag", "even"),
)
CLOUD: tuple[_Part, ...] = (
    ("known", 1, "the slot holds a cloud", "", 0, 1, "flag", "even"),
    ("offset_forward", 1, "position relative to the mech", "map diagonal", -1, 1, "continuous", "even"),
    ("offset_left", 1, "position relative to the mech", "map diagonal", -1, 1, "continuous", "odd"),
    ("offset_up", 1, "position relative to the mech", "map height", -1, 1, "continuous", "even"),
    ("nearness", 1, "8 / (8 + range in voxels)", "", 0, 1, "continuous", "even"),
    ("life", 1, "time left", "life of a cloud", 0, 1, "continuous", "even"),
)

# The two teams; "own" is the mech's.
TEAM: tuple[_Part, ...] = (
    ("own_score", 1, "zone score", "score that wins", 0, 1, "continuous", "even"),
    ("enemy_score", 1, "zone score", "score that wins", 0, 1, "continuous", "even"),
    ("own_tick", 1, "zone score gained per second", "", 0, 1, "continuous", "even"),
    ("enemy_tick", 1, "zone score gained per second", "", 0, 1, "continuous", "even"),
    ("own_tonnage", 1, "tonnage in the zone", "the whole team's", 0, 1, "continuous", "even"),
    ("enemy_tonnage", 1, "tonnage in the zone", "the whole team's", 0, 1, "continuous", "even"),
    ("own_living", 1, "living mechs", "the whole team", 0, 1, "continuous", "even"),
    ("enemy_living", 1, "living mechs", "the whole team", 0, 1, "continuous", "even"),
    ("time", 1, "time since the start", "time limit", 0, 1, "continuous", "even"),
)

_QUADRANTS = ("front_left", "front_right", "rear_left", "rear_right")
_OTHER_SIDE = {name: name.replace("left", "R").replace("right", "left").replace("R", "right") for name in _QUADRANTS}
_PLANES = {
    "local/foot": ("a voxel at foot level: stepped over where body is 0", "", 0, 1),
    "local/body": ("a voxel at the level of the raised box: no way through", "", 0, 1),
    "local/opaque": ("a voxel that blocks sight at the level of the mech's centre", "", 0, 1),
    "local/hazard": ("1 lava, -1 water", "", -1, 1),
    "local/step": ("top of the ground over the feet, at most 4 up or down", f"{STEPS} voxels", -1, 1),
    "local/mechs": ("a known mech: 1 friend, -1 hostile", "", -1, 1),
    "map/self": ("the mech", "", 0, 1),
    "map/hostiles": ("a known hostile", "", 0, 1),
    "map/blocked": ("columns that cannot be stepped over from the ground, rounded up", "quarters", 0, QUARTERS),
    "map/hazard": ("columns with lava, rounded up", "quarters", 0, QUARTERS),
    "map/zone": ("touches the zone", "", 0, 1),
    "map/friends": ("living mechs of the own team", "", 0, None),
}


@cache
def slot_mechs(config: EnvConfig) -> np.ndarray:
    """[mechs, mechs - 1] mech shown in each slot of each viewer: the others of its team, then the hostiles, in roster order."""
    team = roster(config.num_packs).team
    everyone = np.arange(config.num_mechs)
    rows = [
        np.concatenate([everyone[(team == team[i]) & (everyone != i)], everyone[team != team[i]]]) for i in everyone
    ]
    return np.stack(rows).astype(np.int32)


def slot_names(config: EnvConfig) -> list[str]:
    """Name of each slot's block, in order."""
    friends, hostiles = config.team_size - 1, config.team_size
    return [f"friend_{i}" for i in range(friends)] + [f"hostile_{i}" for i in range(hostiles)]


def _laid_out(parts: list[tuple]) -> Layout:
    entries, offset = [], 0
    for name, size, meaning, unit, low, high, kind, mirroring, *partner in parts:
        entries.append(
            ModernEntry(name, offset, size, meaning, unit, float(low), float(high), kind, mirroring, *partner)
        )
        offset += size
    return Layout(tuple(entries))


def _prefixed(block: str, parts: tuple[_Part, ...]) -> list[tuple]:
    return [(f"{block}/{part[0]}", *part[1:]) for part in parts]


def _planes(config: EnvConfig, block: str, names: tuple[str, ...], side: int, backwards: str) -> list[tuple]:
    parts = []
    for name in names:
        meaning, unit, low, high = _PLANES[f"{block}/{name}"]
        high = config.team_size if high is None else high
        parts.append((f"{block}/{name}", side * side, meaning, unit, low, high, "map", "paired", backwards))
    return parts


@cache
def observation_layout(config: EnvConfig) -> Layout:
    """The modern observation of one mech, all entries in order: the vector, its own planes, the planes its team shares.

    Example:
        >>> observation_layout(EnvConfig.original(observation="modern"))["self/alive"].offset
        0
    """
    parts = _prefixed("self", SELF)
    for name in slot_names(config):
        parts += _prefixed(name, PLACED) + _prefixed(name, SEEN)
    for i in range(SHOTS):
        parts += _prefixed(f"shot_{i}", SHOT)
    for i in range(CLOUDS):
        parts += _prefixed(f"cloud_{i}", CLOUD)
    for who in ("friends", "hostiles"):
        for quadrant in _QUADRANTS:
            meaning, partner = f"loudness L of {who} there, as L / (1 + L)", f"sound/{who}_{_OTHER_SIDE[quadrant]}"
            parts.append((f"sound/{who}_{quadrant}", 1, meaning, "", 0, 1, "continuous", "paired", partner))
    if config.comm_dim:
        for row in range(PACK_SIZE):
            meaning = f"message of place {row} of the own pack"
            parts.append((f"message/{row}", config.comm_dim, meaning, "", -1, 1, "continuous", "even"))
    parts += _prefixed("team", TEAM)
    parts += _planes(config, "local", LOCAL_PLANES, LOCAL_SIDE, "columns")
    parts += _planes(config, "map", OWN_PLANES, MAP_SIDE, "rows")
    parts += [
        (name.replace("map/", "shared_map/"), *rest)
        for name, *rest in _planes(config, "map", SHARED_PLANES, MAP_SIDE, "rows")
    ]
    return _laid_out(parts)


def vector_size(config: EnvConfig) -> int:
    """Entries before the planes."""
    return observation_layout(config).block("local").start


@cache
def mirror(config: EnvConfig) -> tuple[np.ndarray, np.ndarray]:
    """The change of an observation when the world is mirrored (y becomes size_y - y): `sign * observation[..., source]`.

    Returns source, int [obs], and sign, float32 [obs], both read off the table.
    """
    layout = observation_layout(config)
    source, sign = np.arange(layout.size), np.ones(layout.size, np.float32)
    for entry in layout:
        assert isinstance(entry, ModernEntry)
        if entry.mirroring == "odd":
            sign[entry.slice] = -1.0
        elif entry.partner in ("rows", "columns"):
            side = LOCAL_SIDE if entry.name.startswith("local/") else MAP_SIDE
            plane = source[entry.slice].reshape(side, side)
            source[entry.slice] = (plane[::-1] if entry.partner == "rows" else plane[:, ::-1]).reshape(-1).copy()
        elif entry.mirroring == "paired":
            source[entry.slice] = np.arange(layout[entry.partner].offset, layout[entry.partner].offset + entry.size)
    return source, sign


@cache
def action_layout(config: EnvConfig) -> Layout:
    """The modern action of one mech, all components in order; everything lies in [-1, 1].

    A choice goes to the first of its largest components, so all zeros is no target and no EWAR.

    Example:
        >>> action_layout(EnvConfig.original(actions="modern"))["target_preference"].size
        6
    """
    parts: list[tuple] = [
        ("forward", 1, "throttle along the facing", "top speed", -1, 1, "continuous", "even"),
        ("strafe", 1, "throttle to the left", "top speed", -1, 1, "continuous", "odd"),
        ("vertical", 1, "jets, scout and light", "full thrust", -1, 1, "continuous", "even"),
        ("yaw_rate", 1, "turning to the left", "top turn rate", -1, 1, "continuous", "odd"),
        ("primary", 1, "trigger above 0: painter, flamer, laser, laser by class", "", -1, 1, "flag", "even"),
        ("vent", 1, "above 0: vent heat", "", -1, 1, "flag", "even"),
        ("secondary", 1, "trigger above 0: laser (light), missile (heavy)", "", -1, 1, "flag", "even"),
        (
            "tertiary",
            1,
            "trigger above 0: painter (light), autocannon and painter (medium), gauss (heavy)",
            "",
            -1,
            1,
            "flag",
            "even",
        ),
        ("special", 1, "trigger above 0: smoke", "", -1, 1, "flag", "even"),
        (
            "target_preference",
            1 + config.team_size,
            "focus by the largest: none, then the hostile slots in order",
            "",
            -1,
            1,
            "continuous",
            "even",
        ),
        ("ewar", len(EWAR_MODES), "scout, by the largest: " + ", ".join(EWAR_MODES), "", -1, 1, "continuous", "even"),
    ]
    if config.comm_dim:
        parts.append(("message", config.comm_dim, "message to the own pack", "", -1, 1, "continuous", "even"))
    return _laid_out(parts)
