"""The common parts of every hit: rear arcs, leg hits, the paint bonus, the direction of the blow.

Source: docs/spec/rules.md 5.5 to 5.7.
"""

from __future__ import annotations

from echelon_jax.reference.state import Event, Mech
from echelon_jax.reference.vec import Vec, div, dot, f32, flat, norm, sub
from echelon_jax.rules import constants as c

_REAR_COSINE = f32(c.REAR_ARC_COSINE)  # compared in float32


def rear_multiplier(target: Mech, origin: Vec) -> tuple[float, bool]:
    """The damage multiplier, and whether the blow comes from behind (docs/spec/rules.md 5.5)."""
    v = flat(sub(target.pos, origin))
    length = norm(v)
    if length < 1e-6:
        return 1.0, False
    crit = dot(target.facing, div(v, length)) > _REAR_COSINE
    return (c.REAR_ARC_MULTIPLIER, True) if crit else (1.0, False)


def leg_line(target: Mech) -> float:
    """The height below which a blow strikes the legs, float64 (docs/spec/rules.md 5.7 step 4, 6.7 step 2.2)."""
    half_z = target.half[2]
    return f32(target.pos[2] - half_z) + c.LEG_HEIGHT_FRACTION * f32(2.0 * half_z)


def painted_by_pack_of(mechs: list[Mech], target: Mech, viewer: Mech) -> bool:
    """The target is painted, and by a packmate of the viewer or by the viewer (who may be dead)."""
    painter = target.last_painter
    return target.painted_remaining > 0 and painter is not None and mechs[painter].same_pack(viewer)


def paint_bonus(mechs: list[Mech], target: Mech, damage: float, shooter: Mech) -> tuple[float, Event | None]:
    """The damage with its paint bonus, and the assist event if another mech painted (docs/spec/rules.md 5.6)."""
    if not painted_by_pack_of(mechs, target, shooter):
        return damage, None
    painter = mechs[target.last_painter]  # type: ignore[index]
    bonus = c.PAINT_BONUS * damage
    assist = {"type": "assist", "painter": painter.id, "shooter": shooter.id, "damage": bonus}
    return damage + bonus, assist if painter is not shooter else None


def record_effect(shooter: Mech, target: Mech, damage: float) -> None:
    """Count the damage of the coming hit, at most what the target has left (modern reward)."""
    worth = min(damage, max(target.hp, 0.0))
    if target.team == shooter.team:
        shooter.friendly_effective_damage += worth
    else:
        shooter.effective_damage += worth


def record_direction(target: Mech, towards: Vec) -> None:
    """Remember the unit vector from the target towards a point, unless it is closer than 0.1."""
    v = sub(towards, target.pos)
    length = norm(v)
    if length > f32(0.1):
        target.last_damage_dir = div(v, length)
