"""Upkeep of a mech, deaths and wrecks (docs/spec/rules.md 8.1 to 8.4, 8.6, 8.7)."""

from __future__ import annotations

import math
import zlib

from echelon_jax.reference.damage import painted_by_pack_of
from echelon_jax.reference.state import Battle, Event, Mech
from echelon_jax.reference.vec import Cell, norm
from echelon_jax.rules import constants as c
from echelon_jax.rules import materials as m
from echelon_jax.rules.weapons import VENT

TIMERS = (
    "laser_cooldown",
    "missile_cooldown",
    "kinetic_cooldown",
    "painter_cooldown",
    "painted_remaining",
    "suppressed_time",
    "ams_cooldown",
)


def upkeep(battle: Battle, mech: Mech, action: list[float]) -> None:
    """One mech's upkeep, phase 3 of a substep. A mech killed by a hazard still finishes its own upkeep.

    Source: docs/spec/rules.md 9.2.
    """
    dt = battle.config.dt
    # a: timers (docs/spec/rules.md 8.4)
    for timer in TIMERS:
        setattr(mech, timer, max(0.0, getattr(mech, timer) - dt))
    # b: heat of electronic warfare (docs/spec/rules.md 8.1)
    if not mech.shutdown:
        if mech.ecm_on:
            mech.heat += c.ECM_HEAT * dt
        if mech.eccm_on:
            mech.heat += c.ECCM_HEAT * dt
    # c: hazards (docs/spec/rules.md 8.2)
    hazards(battle, mech)
    # d: knockdown and stability (docs/spec/rules.md 8.3)
    stability(mech, dt)
    # e: vent, f: dissipation (docs/spec/rules.md 8.1)
    if not mech.shutdown and action[VENT] > 0:
        mech.heat = max(0.0, mech.heat - c.VENT_MULTIPLIER * mech.spec.heat_dissipation * dt)
    mech.heat = max(0.0, mech.heat - mech.spec.heat_dissipation * dt)


def foot_material(battle: Battle, mech: Mech) -> int:
    """The material of the foot cell: the one under the centre of the box's bottom (docs/spec/rules.md 8.2)."""
    x, y, _ = mech.pos
    return battle.world.voxel((int(x), int(y), int(mech.low[2])))


def hazards(battle: Battle, mech: Mech) -> None:
    """Lava, debris fields and water under a mech (docs/spec/rules.md 8.2)."""
    dt = battle.config.dt
    material = foot_material(battle, mech)
    if material == m.WATER:
        mech.heat = max(0.0, mech.heat - c.WATER_COOLING * dt)
    elif material in (m.LAVA, m.DEBRIS_FIELD):
        lava = material == m.LAVA
        hurt = (c.LAVA_DAMAGE if lava else c.DEBRIS_DAMAGE) * dt
        mech.heat += (c.LAVA_HEAT if lava else c.DEBRIS_HEAT) * dt
        mech.hp -= hurt
        mech.took_damage += hurt
        kill_if_dead(battle, mech, "lava" if lava else "debris")


def stability(mech: Mech, dt: float) -> None:
    """Fallen time, knockdown or regeneration (docs/spec/rules.md 8.3)."""
    if mech.fallen:
        mech.fallen_time -= dt
        if mech.fallen_time <= 0:
            mech.fallen_time = 0.0
            mech.stability = c.STAND_UP_FRACTION * c.MAX_STABILITY
    elif mech.stability <= 0:
        mech.fallen_time = c.FALLEN_DURATION
        mech.vel = (0.0, 0.0, 0.0)
    else:
        penalty = 0.0
        cap = c.MAX_STABILITY
        if mech.legged:
            penalty += c.LEGGED_REGEN_PENALTY
            cap *= c.LEGGED_STABILITY_MULTIPLIER
        if norm(mech.vel) > c.MOVING_SPEED_THRESHOLD:
            penalty += c.MOVING_REGEN_PENALTY
        if mech.suppressed_time > 0:
            penalty += c.SUPPRESSED_REGEN_PENALTY
        regen = c.STABILITY_REGEN * dt * max(c.MIN_REGEN_FACTOR, 1.0 - penalty)
        mech.stability = min(cap, mech.stability + regen)


def kill_if_dead(battle: Battle, mech: Mech, credit: Mech | str) -> None:
    """Death handling, at once: the credit goes to a mech, dead or alive, or to the name of a hazard.

    Source: docs/spec/rules.md 8.6.
    """
    if mech.hp > 0 or not mech.alive:
        return
    mech.alive = False
    mech.died = True
    battle.grid.remove(mech.index)
    name = credit.id if isinstance(credit, Mech) else credit
    event: Event = {"type": "kill", "shooter": name, "target": mech.id}
    battle.events.append(event)
    if isinstance(credit, Mech):
        credit.friendly_kills += credit.team == mech.team
        if painted_by_pack_of(battle.mechs, mech, credit) and mech.last_painter != credit.index:
            battle.mechs[mech.last_painter].kill_assists += 1  # type: ignore[index]
        if without_credit(battle, credit, mech):
            event["credited"] = False
        else:
            credit.kills += 1
    leave_wreck(battle, mech)


def without_credit(battle: Battle, shooter: Mech, target: Mech) -> bool:
    """The switch own_team_counts_against denies credit for a target of the shooter's team; the original gives it (Q11)."""
    return battle.config.own_team_counts_against and shooter.team == target.team


def wreck_cells(battle: Battle, mech: Mech) -> tuple[Cell, Cell]:
    """Lower and upper (exclusive) cell of the wreck of a mech (docs/spec/rules.md 8.7 step 1)."""
    low, high, size = mech.low, mech.high, battle.world.size
    lo = tuple(max(0, math.floor(v)) for v in low)
    hi = tuple(min(n, math.ceil(v)) for v, n in zip(high, size, strict=True))
    return (lo[0], lo[1], lo[2]), (hi[0], hi[1], hi[2])


def wreck_roll(mech: Mech, lo: Cell, hi: Cell) -> float:
    """The roll in [0, 1) that decides a wreck's material: a hash of the mech's name and place.

    Source: docs/spec/rules.md 8.7 step 2.
    """
    text = ":".join([mech.id, mech.spec.name, *(str(i) for i in (*lo, *hi))])
    return zlib.crc32(text.encode()) / 2.0**32


def leave_wreck(battle: Battle, mech: Mech) -> None:
    """Fill the box of a dead mech with debris, sparing other living mechs (docs/spec/rules.md 8.7).

    The hp of the cells stays (Q5), or becomes the material's under true_voxel_hp.
    """
    lo, hi = wreck_cells(battle, mech)
    if battle.config.fair_order:
        assert battle.draws is not None
        roll = battle.draws.wreck(mech.index)
    else:
        roll = wreck_roll(mech, lo, hi)
    solid = roll < mech.spec.solid_wreck_probability
    material = m.SOLID_DEBRIS if solid else m.DEBRIS_FIELD
    boxes = [(other.low, other.high) for other in battle.mechs if other.alive and other is not mech]
    for z in range(lo[2], hi[2]):
        for y in range(lo[1], hi[1]):
            for x in range(lo[0], hi[0]):
                if battle.world.material[z, y, x] not in (m.AIR, m.DIRT):
                    continue
                if not any(
                    low[0] < x + 1 and high[0] > x and low[1] < y + 1 and high[1] > y and low[2] < z + 1 and high[2] > z
                    for low, high in boxes
                ):
                    battle.world.material[z, y, x] = material
                    if battle.config.true_voxel_hp:
                        battle.world.hp[z, y, x] = m.TABLE_HP[material]
