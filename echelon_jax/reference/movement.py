"""Rotation, velocity and integration of one mech (docs/spec/rules.md 7)."""

from __future__ import annotations

import math

from echelon_jax.reference.state import Battle, Mech
from echelon_jax.reference.status import foot_material
from echelon_jax.reference.vec import Vec, add, clip, f32, lift, mul, norm, sub, wrap_angle
from echelon_jax.rules import constants as c
from echelon_jax.rules import materials as m

FORWARD, STRAFE, VERTICAL, YAW_RATE = range(4)


def move(battle: Battle, mech: Mech, action: list[float]) -> None:
    """Move one living mech in phase 6 of a substep. A fallen mech only falls, with the zero action."""
    if mech.fallen:
        accelerate(battle, mech, [0.0] * len(action))
        integrate(battle, mech)
        mech.noise_level = 0.0
        return
    if not mech.shutdown:  # docs/spec/rules.md 7.1: before movement, so the velocity uses the new yaw
        turn = clip(action[YAW_RATE], -1.0, 1.0) * mech.spec.max_yaw_rate * battle.config.dt
        mech.yaw = wrap_angle(mech.yaw + turn)
    accelerate(battle, mech, action)
    integrate(battle, mech)
    # loudness: speed times the noise factor of the class (docs/spec/rules.md 8.5)
    mech.noise_level = norm(mech.vel) * mech.spec.loudness_factor


def accelerate(battle: Battle, mech: Mech, action: list[float]) -> None:
    """The new velocity; in shutdown the mech coasts (docs/spec/rules.md 7.2, 7.3)."""
    dt, gravity, spec = battle.config.dt, battle.config.gravity, mech.spec
    if mech.shutdown:
        mech.vel = mul(lift(mech.vel, -gravity * dt), c.VELOCITY_DAMPING)
        return
    forward, strafe, vertical = (clip(action[i], -1.0, 1.0) for i in (FORWARD, STRAFE, VERTICAL))  # 1
    length = math.hypot(forward, strafe)
    if length > 1.0:
        forward, strafe = forward / length, strafe / length
    scale = 1.0  # 2
    if mech.legged:
        scale *= c.LEGGED_SPEED_MULTIPLIER
    if foot_material(battle, mech) == m.WATER:
        scale *= c.WATER_SPEED_MULTIPLIER
    facing = mech.facing  # 3
    right = (-facing[1], facing[0], 0.0)  # +90 degrees (Q33)
    level = mul(add(mul(facing, forward), mul(right, strafe)), spec.max_speed * scale)
    jet = vertical * spec.max_jet_accel * (c.LEGGED_JET_MULTIPLIER if mech.legged else 1.0)  # 4
    climb = f32(mech.vel[2] + f32((jet - gravity) * dt))
    mech.vel = mul((level[0], level[1], climb), c.VELOCITY_DAMPING)  # 5


def blocked(battle: Battle, mech: Mech, pos: Vec) -> bool:
    """Whether the mech's box at `pos` hits the world or strictly overlaps another living mech.

    Source: docs/spec/rules.md 7.4.
    """
    low, high = sub(pos, mech.half), add(pos, mech.half)
    if battle.world.box_hits(low, high):
        return True
    for other in battle.mechs:
        if other is mech or not other.alive:
            continue
        o_low, o_high = other.low, other.high
        if (
            low[0] < o_high[0]
            and high[0] > o_low[0]
            and low[1] < o_high[1]
            and high[1] > o_low[1]
            and low[2] < o_high[2]
            and high[2] > o_low[2]
        ):
            return True
    return False


def integrate(battle: Battle, mech: Mech) -> None:
    """Move along x, then y, each with a step-up, then z; clamp last (docs/spec/rules.md 7.4, Q4).

    Under clamp_before_collision a move is cut at the edge before it is tested; under ceiling nothing rises above the top.
    """
    config, dt = battle.config, f32(battle.config.dt)
    hx, hy, hz = mech.half
    size_x, size_y, size_z = battle.world.size
    last = (f32(size_x - hx), f32(size_y - hy))
    pos = mech.pos
    for axis in (0, 1):  # 1, 2
        tried = list(pos)
        tried[axis] = f32(pos[axis] + f32(mech.vel[axis] * dt))
        if config.clamp_before_collision:
            tried[axis] = clip(tried[axis], mech.half[axis], last[axis])
        level: Vec = (tried[0], tried[1], tried[2])
        raised = lift(level, c.STEP_UP_HEIGHT)
        if not blocked(battle, mech, level):
            pos = level
        elif (
            abs(mech.vel[2]) < c.STEP_UP_SPEED_GATE
            and not blocked(battle, mech, raised)
            and not (config.ceiling and f32(raised[2] + hz) > size_z)
        ):
            pos = raised
        else:
            mech.vel = (0.0, mech.vel[1], mech.vel[2]) if axis == 0 else (mech.vel[0], 0.0, mech.vel[2])
    fallen: Vec = (pos[0], pos[1], f32(pos[2] + f32(mech.vel[2] * dt)))  # 3: no partial move, no step-up
    # Who is above the top already, where a state put it, may still fall.
    too_high = config.ceiling and mech.vel[2] > 0 and f32(fallen[2] + hz) > size_z
    if not blocked(battle, mech, fallen) and not too_high:
        pos = fallen
    else:
        mech.vel = (mech.vel[0], mech.vel[1], 0.0)
    mech.pos = (clip(pos[0], hx, last[0]), clip(pos[1], hy, last[1]), max(pos[2], hz))  # 4, 5
    battle.grid.place(mech.index, mech.pos)  # 6
