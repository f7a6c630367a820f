"""Timers of both simulators: the float64 seconds of the reference for every count of substeps of a row."""

from __future__ import annotations

from functools import cache

from echelon_jax.reference.state import Mech
from echelon_jax.rules import constants as k
from echelon_jax.rules.timers import decrements
from echelon_jax.rules.weapons import MISSILE, SMOKE, WEAPONS, Timer, on_timer, timed_weapon

_DURATIONS = {
    "fallen": k.FALLEN_DURATION,
    "suppressed": k.SUPPRESSION_DURATION,
    "ams_cooldown": k.AMS_COOLDOWN,
    "painted": k.PAINT_DURATION,
}

_WEAPON_TIMERS = {f"{timer.value}_cooldown": timer for timer in Timer}


@cache
def residues(duration: float, dt: float) -> tuple[float, ...]:
    """The float64 seconds a timer set to `duration` shows with c decrements to go, for c = 0, 1, ...

    Source: docs/spec/rules.md 1.2.
    """
    left, shown = float(duration), [float(duration)]
    while left > 0:
        left = max(0.0, left - dt)
        shown.append(left)
    return tuple(reversed(shown))


@cache
def ages(dt: float, count: int) -> tuple[float, ...]:
    """The float64 age of a shot after 0 to `count` updates: dt added again and again."""
    shown = [0.0]
    for _ in range(count):
        shown.append(shown[-1] + dt)
    return tuple(shown)


class OutsideTheRulesError(ValueError):
    """A state that no game can reach, such as a timer above what the rules set it to."""


def duration_of(field: str, mech_class: int, was_smoke: bool) -> float:
    """Seconds to which the rules set a timer of a row; 0 for a kinetic weapon that the class lacks."""
    if field == "tube_cooldown":
        return WEAPONS[SMOKE if was_smoke else MISSILE].cooldown
    if field in _WEAPON_TIMERS:
        timer = _WEAPON_TIMERS[field]
        if timer is Timer.KINETIC and on_timer(mech_class, timer) is None:
            return 0.0
        # Random states hold running laser and painter timers of mechs that carry neither.
        return WEAPONS[timed_weapon(mech_class, timer)].cooldown
    return _DURATIONS[field]


def seconds_of(field: str, count: int, mech: Mech, was_smoke: bool, dt: float) -> float:
    """The float64 seconds that a mech's timer shows with `count` substeps to go.

    Raises:
        OutsideTheRulesError: more substeps than the rules ever set it to.
    """
    shown = residues(duration_of(field, mech.class_id, was_smoke), dt)
    if not 0 <= count < len(shown):
        raise OutsideTheRulesError(f"{field} of {mech.id} must be from 0 to {len(shown) - 1} substeps, got {count}")
    return shown[count]


@cache
def most(field: str, mech_class: int, was_smoke: bool, dt: float) -> int:
    """The most substeps a timer of a row can show."""
    return decrements(duration_of(field, mech_class, was_smoke), dt)
