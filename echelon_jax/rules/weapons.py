"""Weapons as data: one row per weapon, read by both simulators, observations, action masks, statistics and documents.

Source: docs/spec/rules.md 5.1, 5.2. How to add a row: docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import CLASS_NAMES, HEAVY, LIGHT, MEDIUM, SCOUT

MAX_SPLASH_RADIUS = 2.5  # voxels; the simulator looks at a fixed window of cells around a blast
MAX_AIMED_RANGE = 24.0  # voxels; how far the modern observation looks for whom a weapon reaches


class Kind(Enum):
    """How a weapon works. A mech fires its weapons in this order of kinds."""

    HITSCAN = "hitscan"  # strikes the nearest candidate at once; costs nothing without one
    HOMING = "homing"  # a missile that turns to its target; needs a lock
    BALLISTIC = "ballistic"  # a shot along the barrel, aimed within a narrow cone; always fires, but not while fallen
    PAINTER = "painter"  # marks the nearest candidate
    SMOKE = "smoke"  # a shell that opens a cloud; always fires


class Timer(Enum):
    """The cooldowns of a mech. One that is running blocks every weapon on it."""

    LASER = "laser"
    TUBE = "tube"  # missile and smoke
    KINETIC = "kinetic"
    PAINTER = "painter"


# Action components that act as triggers.
PRIMARY, VENT, SECONDARY, TERTIARY, SPECIAL = 4, 5, 6, 7, 8
TRIGGER_NAMES = {PRIMARY: "primary", SECONDARY: "secondary", TERTIARY: "tertiary", SPECIAL: "special"}

# Which timers the weapons of a kind may run on.
_TIMERS = {
    Kind.HITSCAN: (Timer.LASER, Timer.KINETIC, Timer.PAINTER),
    Kind.HOMING: (Timer.TUBE,),
    Kind.BALLISTIC: (Timer.KINETIC,),
    Kind.PAINTER: (Timer.PAINTER,),
    Kind.SMOKE: (Timer.TUBE,),
}
# The first rows of the table; recorded games and observations know them by number.
_ORIGINAL = {
    "laser": Kind.HITSCAN,
    "flamer": Kind.HITSCAN,
    "missile": Kind.HOMING,
    "smoke": Kind.SMOKE,
    "gauss": Kind.BALLISTIC,
    "autocannon": Kind.BALLISTIC,
    "painter": Kind.PAINTER,
}
_SINGLE = (Kind.HOMING, Kind.PAINTER, Kind.SMOKE)  # kinds of exactly one weapon
_SHOOTS = (Kind.HOMING, Kind.BALLISTIC, Kind.SMOKE)  # kinds that fire projectiles
# Numbers that a kind has no use for. They must stay 0, so that no entry of the table is ignored without a word.
_UNUSED = {
    Kind.HITSCAN: ("stability_damage", "speed", "splash_radius", "splash_scale", "falls", "suppresses"),
    Kind.HOMING: ("heat_transfer", "falls"),
    Kind.BALLISTIC: ("heat_transfer",),
    Kind.PAINTER: (
        *("damage", "stability_damage", "speed", "splash_radius", "splash_scale"),
        *("heat_transfer", "falls", "suppresses"),
    ),
    Kind.SMOKE: ("heat_transfer", "falls", "suppresses"),
}


class Weapon(NamedTuple):
    """One weapon: its numbers in voxels, seconds, degrees and voxels per second, and how it works.

    Attributes:
        heat: added to the shooter.
        arc_deg: full firing arc of hitscan, homing and painter. A ballistic weapon aims within a cone of its own, and its arc
            only counts in statistics.
        splash_radius: of the blast of a projectile, 0 for none; of the cloud of smoke.
        splash_scale: share of damage and stability damage that a blast deals.
        triggers: the trigger that fires it by mech class; a class without an entry does not carry it.
        heat_transfer: heat that a hitscan hit adds to its target.
        falls: gravity pulls a ballistic shot down, and it is aimed above its target.
        suppresses: a direct hit slows the recovery of stability.
    """

    name: str
    range: float
    damage: float
    stability_damage: float
    heat: float
    cooldown: float
    arc_deg: float
    speed: float = 0.0
    splash_radius: float = 0.0
    splash_scale: float = 0.0
    kind: Kind = Kind.HITSCAN
    timer: Timer = Timer.LASER
    triggers: Mapping[int, int] = MappingProxyType({})
    heat_transfer: float = 0.0
    falls: bool = False
    suppresses: bool = False


def checked(weapons: Sequence[Weapon]) -> tuple[Weapon, ...]:
    """Return the table if the simulators can play it.

    Raises:
        ValueError: naming the weapon, the field and what is allowed.
    """
    if {w.name: w.kind for w in weapons[: len(_ORIGINAL)]} != _ORIGINAL:
        known = ", ".join(f"{name} ({kind.value})" for name, kind in _ORIGINAL.items())
        raise ValueError(f"weapons must begin with {known}, got {', '.join(w.name for w in weapons)}")
    names = [w.name for w in weapons]
    if len(set(names)) < len(names):
        raise ValueError(f"name of each weapon must be its own, got {', '.join(names)}")
    for w in weapons:
        _check_row(w)
    for kind in _SINGLE:
        found = [w.name for w in weapons if w.kind is kind]
        if len(found) != 1:
            raise ValueError(f"kind {kind.value} must be that of exactly one weapon, got {', '.join(found) or 'none'}")
    unused = [timer.value for timer in Timer if all(w.timer is not timer for w in weapons)]
    if unused:
        raise ValueError(f"timer of some weapon must be {' and '.join(unused)}, got none")
    for number, name in enumerate(CLASS_NAMES):
        for timer in Timer:
            on = [w.name for w in weapons if number in w.triggers and w.timer is timer]
            if timer is not Timer.TUBE and len(on) > 1:
                raise ValueError(
                    f"timer {timer.value} must serve at most one weapon of a mech class, got {', '.join(on)} of {name}"
                )
    homing = next(w for w in weapons if w.kind is Kind.HOMING)
    if set(homing.triggers) - {HEAVY}:
        raise ValueError(f"triggers of weapon {homing.name} must name no class but heavy, whose missiles have slots")
    return tuple(weapons)


def _check_row(w: Weapon) -> None:
    """Refuse what one weapon cannot be."""
    for field in ("range", "cooldown", *(("speed",) if w.kind in _SHOOTS else ())):
        if getattr(w, field) <= 0:
            raise ValueError(f"{field} of weapon {w.name} must be above 0, got {getattr(w, field)}")
    for field in _UNUSED[w.kind]:
        if getattr(w, field):
            raise ValueError(
                f"{field} of weapon {w.name} must be 0 for kind {w.kind.value}, which has no use for it, "
                f"got {getattr(w, field)}"
            )
    if w.timer not in _TIMERS[w.kind]:
        allowed = " or ".join(timer.value for timer in _TIMERS[w.kind])
        raise ValueError(f"timer of weapon {w.name} must be {allowed} for kind {w.kind.value}, got {w.timer.value}")
    classes = range(len(CLASS_NAMES))
    if any(c not in classes or trigger not in TRIGGER_NAMES for c, trigger in w.triggers.items()):
        raise ValueError(
            f"triggers of weapon {w.name} must map classes 0 to {len(CLASS_NAMES) - 1} to "
            f"{', '.join(f'{number} ({name})' for number, name in TRIGGER_NAMES.items())}, got {dict(w.triggers)}"
        )
    if w.triggers.get(SCOUT) == SECONDARY:
        raise ValueError(
            f"triggers of weapon {w.name} must not be {SECONDARY} ({TRIGGER_NAMES[SECONDARY]}) for the scout, "
            "which switches its electronic warfare with it"
        )
    if w.kind not in (Kind.HOMING, Kind.SMOKE) and w.range > MAX_AIMED_RANGE:
        raise ValueError(f"range of weapon {w.name} must be at most {MAX_AIMED_RANGE:g} voxels, got {w.range}")
    if w.kind is Kind.SMOKE:
        if w.splash_radius != k.SMOKE_CLOUD_RADIUS:
            raise ValueError(
                f"splash_radius of weapon {w.name} must be that of a cloud, {k.SMOKE_CLOUD_RADIUS:g} voxels, "
                f"got {w.splash_radius}"
            )
    elif w.splash_radius > MAX_SPLASH_RADIUS:
        raise ValueError(
            f"splash_radius of weapon {w.name} must be at most {MAX_SPLASH_RADIUS} voxels, got {w.splash_radius}"
        )
    elif w.splash_radius and not float(w.damage * w.splash_scale).is_integer():
        raise ValueError(
            f"damage of weapon {w.name} times its splash_scale must be a whole number, because voxels have whole hit points, "
            f"got {w.damage * w.splash_scale}"
        )


# The original's weapons keep these numbers in recorded games; a new weapon is known by its place in the table.
LASER, FLAMER, MISSILE, SMOKE, GAUSS, AUTOCANNON, PAINTER = range(7)
WEAPONS = checked(
    (
        Weapon(
            *("laser", 8.0, 14.0, 0.0, 22.0, 0.6, 120.0),
            kind=Kind.HITSCAN,
            timer=Timer.LASER,
            triggers={LIGHT: SECONDARY, MEDIUM: PRIMARY, HEAVY: PRIMARY},
            heat_transfer=6.0,
        ),
        Weapon(
            *("flamer", 4.5, 4.0, 0.0, 10.0, 0.15, 90.0),
            kind=Kind.HITSCAN,
            timer=Timer.KINETIC,
            triggers={LIGHT: PRIMARY},
            heat_transfer=15.0,
        ),
        Weapon(
            *("missile", 50.0, 40.0, 15.0, 45.0, 3.0, 180.0, 12.0, 2.5, 0.5),
            kind=Kind.HOMING,
            timer=Timer.TUBE,
            triggers={HEAVY: SECONDARY},
        ),
        Weapon(
            *("smoke", 20.0, 0.0, 0.0, 10.0, 5.0, 180.0, 15.0, k.SMOKE_CLOUD_RADIUS, 1.0),
            kind=Kind.SMOKE,
            timer=Timer.TUBE,
            triggers={SCOUT: SPECIAL, LIGHT: SPECIAL, MEDIUM: SPECIAL, HEAVY: SPECIAL},
        ),
        Weapon(
            *("gauss", 20.0, 50.0, 60.0, 15.0, 4.0, 60.0, 40.0, 1.5, 0.5),
            kind=Kind.BALLISTIC,
            timer=Timer.KINETIC,
            triggers={HEAVY: TERTIARY},
            falls=True,
        ),
        Weapon(
            *("autocannon", 12.0, 8.0, 5.0, 6.0, 0.2, 90.0, 25.0),
            kind=Kind.BALLISTIC,
            timer=Timer.KINETIC,
            triggers={MEDIUM: TERTIARY},
            suppresses=True,
        ),
        Weapon(
            *("painter", 10.0, 0.0, 0.0, 5.0, 1.0, 60.0),
            kind=Kind.PAINTER,
            timer=Timer.PAINTER,
            triggers={SCOUT: PRIMARY, LIGHT: TERTIARY, MEDIUM: TERTIARY},
        ),
        # A weapon of your own goes here (docs/extending.md).
    )
)


# ---- what others read off the table ----------------------------------------------------------------------------------

WEAPON_NAMES = tuple(w.name for w in WEAPONS)
TRIGGERS: dict[int, Mapping[int, int]] = {number: w.triggers for number, w in enumerate(WEAPONS)}


def _numbers(*kinds: Kind) -> tuple[int, ...]:
    return tuple(number for number, w in enumerate(WEAPONS) if w.kind in kinds)


HITSCAN = _numbers(Kind.HITSCAN)  # a light fires them in this order
BALLISTIC = _numbers(Kind.BALLISTIC)
SEEKING = _numbers(Kind.HITSCAN, Kind.PAINTER)  # need their target in range, arc and sight
PROJECTILES = _numbers(*_SHOOTS)
BLASTING = _numbers(Kind.HOMING, Kind.BALLISTIC)
FALLING = tuple(number for number, w in enumerate(WEAPONS) if w.falls)
SUPPRESSING = tuple(number for number, w in enumerate(WEAPONS) if w.suppresses)
TOP_SHOT_SPEED = max(WEAPONS[number].speed for number in PROJECTILES)  # voxels per second


def carried_by(mech_class: int, weapons: Sequence[int]) -> tuple[int, ...]:
    """Which of some weapons a mech class carries, in the order of the table."""
    return tuple(number for number in weapons if mech_class in WEAPONS[number].triggers)


def barrel_of(mech_class: int) -> int | None:
    """The ballistic weapon of a mech class; the kinetic timer allows one."""
    return next(iter(carried_by(mech_class, BALLISTIC)), None)


def on_timer(mech_class: int, timer: Timer) -> int | None:
    """The weapon of a mech class that runs on a timer other than the tube's, which two share."""
    if timer is Timer.TUBE:
        raise ValueError("timer must be laser, kinetic or painter, got tube, which serves missile and smoke")
    mine = (number for number, w in enumerate(WEAPONS) if w.timer is timer)
    return next(iter(carried_by(mech_class, tuple(mine))), None)


def timed_weapon(mech_class: int, timer: Timer) -> int:
    """The weapon of a mech class on a timer; the first of the table on it for a class that carries none.

    A timer without a weapon stays at 0 in every game, so there it does not matter which weapon that is.
    """
    carried = on_timer(mech_class, timer)
    return next(number for number, w in enumerate(WEAPONS) if w.timer is timer) if carried is None else carried
