"""New projectiles: start points and velocities of what was fired, written into the slots.

Source: docs/spec/rules.md 5.9, 5.11, 6.1.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import BALLISTIC, FALLING, MISSILE, SMOKE, barrel_of
from echelon_jax.sim.geometry import length3
from echelon_jax.sim.queues import at
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.slots import BARREL, TUBE, slots
from echelon_jax.sim.state import Mechs, Projectiles, SimState

# Where two mechs stand in the packed number of a turn, above five flags.
_TARGET_SHIFT, _AIM_SHIFT, _MECH = 8, 16, 0xFF
_SHOTS_PER_MECH = 3  # ranks in the launch order: missile, kinetic, smoke


class Launch(flax.struct.PyTreeNode):
    """What each mech fired in one firing phase. Offsets run from the shooter's centre to its target's."""

    missile: Bool[Array, "*batch"]
    missile_target: Int32[Array, "*batch"]
    missile_offset: Float32[Array, "*batch 3"]
    kinetic: Bool[Array, "*batch"]
    kinetic_offset: Float32[Array, "*batch 3"]
    kinetic_aimed: Bool[Array, "*batch"]
    smoke: Bool[Array, "*batch"]
    smoke_offset: Float32[Array, "*batch 3"]
    smoke_aimed: Bool[Array, "*batch"]
    facing: Float32[Array, "*batch 3"]


def packed(flags: tuple[Array, ...], targets: tuple[Array, ...]) -> Int32[Array, " arenas"]:
    """Five flags and two mechs as one number: what a turn fired, stacked over the turns without a copy per field."""
    word = jnp.zeros(flags[0].shape, jnp.int32)
    for bit, flag in enumerate(flags):
        word = word | (flag.astype(jnp.int32) << bit)
    return word | (targets[0] << _TARGET_SHIFT) | (targets[1] << _AIM_SHIFT)


def launched(mechs: Mechs, word: Int32[Array, "arenas mechs"]) -> Launch:
    """What each mech fired, from its packed number; nobody moved or turned since."""
    missile, kinetic, aimed, smoke, smoke_aimed = ((word >> bit) & 1 == 1 for bit in range(5))
    missile_target = (word >> _TARGET_SHIFT) & _MECH
    position = mechs.position

    def offset(target: Int32[Array, "arenas mechs"]) -> Float32[Array, "arenas mechs 3"]:
        return at(position, target) - position

    return Launch(
        missile=missile,
        missile_target=missile_target,
        missile_offset=offset(missile_target),
        kinetic=kinetic,
        kinetic_offset=offset((word >> _AIM_SHIFT) & _MECH),
        kinetic_aimed=aimed,
        smoke=smoke,
        smoke_offset=offset(jnp.maximum(mechs.focus, 0)),
        smoke_aimed=smoke_aimed,
        facing=jnp.stack([jnp.cos(mechs.yaw), jnp.sin(mechs.yaw), jnp.zeros_like(mechs.yaw)], -1),
    )


def _raise(v: Float32[Array, "*batch 3"], by: Float32[Array, "*batch"]) -> Float32[Array, "*batch 3"]:
    return jnp.stack([v[..., 0], v[..., 1], v[..., 2] + by], -1)


def _barrels(config: EnvConfig) -> np.ndarray:
    """int32 [mechs]: the ballistic weapon of each mech; any for a mech without one, which fires none."""
    carried = [barrel_of(int(mech_class)) for mech_class in roster(config.num_packs).mech_class]
    return np.array([BALLISTIC[0] if weapon is None else weapon for weapon in carried], np.int32)


def _velocities(
    config: EnvConfig, rules: SimRules, fired: Launch
) -> tuple[Float32[Array, "arenas mechs 3"], Float32[Array, "arenas mechs 3"], Float32[Array, "arenas mechs 3"]]:
    """Launch velocities of missile, kinetic shot and smoke of every mech."""
    ones = jnp.ones(fired.missile.shape, jnp.float32)
    n = fired.missile_offset / (length3(fired.missile_offset) + 1e-6)[..., None]
    n = _raise(n, k.MISSILE_VERTICAL_COMPONENT * ones)
    missile = rules.speed[MISSILE] * n / length3(n)[..., None]

    barrels = _barrels(config)
    falls = jnp.asarray(np.isin(barrels, FALLING))
    speed = rules.speed[barrels]
    muzzle = k.BARREL_HEIGHT_FRACTION * rules.half[:, 2]
    aim = _raise(fired.kinetic_offset, -muzzle * ones)
    distance = length3(aim)
    flight = distance / speed
    drop = jnp.where(falls, 0.5 * rules.gravity * flight * flight, 0.0)  # of the original's, only the gauss slug falls
    lofted = _raise(aim, drop)
    norm = jnp.where(falls, length3(lofted) + 1e-6, distance)
    straight = speed[:, None] * lofted / jnp.maximum(norm, 1e-6)[..., None]
    aimed = fired.kinetic_aimed & (distance > 1e-6)
    kinetic = jnp.where(aimed[..., None], straight, speed[:, None] * fired.facing)

    level = _raise(fired.smoke_offset, -fired.smoke_offset[..., 2])
    length = length3(level)
    towards = level / jnp.maximum(length, 1e-6)[..., None]
    smoke = rules.speed[SMOKE] * jnp.where((fired.smoke_aimed & (length > 1e-6))[..., None], towards, fired.facing)
    return missile, kinetic, smoke


def launch(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    fired: Launch,
    turn_rank: Int32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """Put everything that was fired into its launcher's first free slot; shots without one are counted in `lost_shots`.

    `turn_rank` is the rank of each mech in the order of firing; roster order without it.
    """
    table, p = slots(config), state.projectiles
    missile, kinetic, smoke = _velocities(config, rules, fired)
    owner = table.mech
    is_tube = jnp.asarray(table.launcher == TUBE)
    fires_tube, fires_barrel = fired.missile | fired.smoke, fired.kinetic
    fires = jnp.where(is_tube, fires_tube[:, owner], fires_barrel[:, owner])
    # Free rings before this one in the same launcher: a slot is taken by the first of them.
    same = (owner[:, None] == owner[None, :]) & (table.launcher[:, None] == table.launcher[None, :])
    earlier = jnp.asarray(same & (table.ring[None, :] < table.ring[:, None]))
    earlier_free = (earlier & ~p.alive[:, None, :]).any(-1)
    spawns = fires & ~p.alive & ~earlier_free

    tubes = jnp.asarray(np.isin(np.arange(config.num_mechs), owner[table.launcher == TUBE]))
    barrels = jnp.asarray(np.isin(np.arange(config.num_mechs), owner[table.launcher == BARREL]))
    wanted = (fires_tube & tubes).sum(-1, dtype=jnp.int32) + (fires_barrel & barrels).sum(-1, dtype=jnp.int32)
    lost = wanted - spawns.sum(-1, dtype=jnp.int32)

    as_missile = is_tube & fired.missile[:, owner]
    kinetic_weapon = jnp.asarray(_barrels(config)[owner])
    weapon = jnp.where(is_tube, jnp.where(as_missile, MISSILE, SMOKE), kinetic_weapon).astype(jnp.int32)
    velocity = jnp.where(
        is_tube[:, None],
        jnp.where(as_missile[..., None], missile[:, owner], smoke[:, owner]),
        kinetic[:, owner],
    )
    half_z = rules.half[owner, 2]
    above = jnp.where(
        is_tube,
        jnp.where(as_missile, half_z + k.MISSILE_SPAWN_OFFSET, half_z),
        k.BARREL_HEIGHT_FRACTION * half_z,
    )
    position = _raise(state.mechs.position[:, owner], above)
    turn = jnp.where(is_tube, jnp.where(as_missile, 0, 2), 1)
    fired_as = owner if turn_rank is None else turn_rank[:, owner]
    order = (state.tick[:, None] * config.num_mechs + fired_as) * _SHOTS_PER_MECH + turn
    return state.replace(
        projectiles=Projectiles(
            alive=p.alive | spawns,
            weapon=jnp.where(spawns, weapon, p.weapon),
            target=jnp.where(spawns, jnp.where(as_missile, fired.missile_target[:, owner], -1), p.target),
            position=jnp.where(spawns[..., None], position, p.position),
            velocity=jnp.where(spawns[..., None], velocity, p.velocity),
            age=jnp.where(spawns, 0, p.age),
            order=jnp.where(spawns, order, p.order),
            rolled=jnp.where(spawns, jnp.uint8(0), p.rolled) if config.ams_one_roll else p.rolled,
        ),
        lost_shots=state.lost_shots + lost,
    )
