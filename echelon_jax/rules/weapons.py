"""Weapons and who carries them on which trigger (docs/spec/rules.md 5.1, 5.2)."""

from __future__ import annotations

from typing import NamedTuple

from echelon_jax.rules.mechs import HEAVY, LIGHT, MEDIUM, SCOUT

LASER, FLAMER, MISSILE, SMOKE, GAUSS, AUTOCANNON, PAINTER = range(7)
WEAPON_NAMES = ("laser", "flamer", "missile", "smoke", "gauss", "autocannon", "painter")


class Weapon(NamedTuple):
    """Numbers of one weapon: voxels, seconds, degrees, voxels per second."""

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


WEAPONS = (
    Weapon("laser", 8.0, 14.0, 0.0, 22.0, 0.6, 120.0),
    Weapon("flamer", 4.5, 4.0, 0.0, 10.0, 0.15, 90.0),
    Weapon("missile", 50.0, 40.0, 15.0, 45.0, 3.0, 180.0, 12.0, 2.5, 0.5),
    Weapon("smoke", 20.0, 0.0, 0.0, 10.0, 5.0, 180.0, 15.0, 4.0, 1.0),
    Weapon("gauss", 20.0, 50.0, 60.0, 15.0, 4.0, 60.0, 40.0, 1.5, 0.5),
    Weapon("autocannon", 12.0, 8.0, 5.0, 6.0, 0.2, 90.0, 25.0),
    Weapon("painter", 10.0, 0.0, 0.0, 5.0, 1.0, 60.0),
)

# Action components that act as triggers.
PRIMARY, VENT, SECONDARY, TERTIARY, SPECIAL = 4, 5, 6, 7, 8

# For each weapon, the trigger that fires it by mech class (absent: not carried).
TRIGGERS: dict[int, dict[int, int]] = {
    LASER: {LIGHT: SECONDARY, MEDIUM: PRIMARY, HEAVY: PRIMARY},
    FLAMER: {LIGHT: PRIMARY},
    MISSILE: {HEAVY: SECONDARY},
    SMOKE: {SCOUT: SPECIAL, LIGHT: SPECIAL, MEDIUM: SPECIAL, HEAVY: SPECIAL},
    GAUSS: {HEAVY: TERTIARY},
    AUTOCANNON: {MEDIUM: TERTIARY},
    PAINTER: {SCOUT: PRIMARY, LIGHT: TERTIARY, MEDIUM: TERTIARY},
}
