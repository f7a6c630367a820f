"""The numbers of the rules as a traced pytree: changing one does not recompile (docs/spec/rules.md 1.4, 4.1, 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules import timers
from echelon_jax.rules.mechs import MECH_CLASSES, MechClass, roster
from echelon_jax.rules.weapons import BLASTING, MAX_SPLASH_RADIUS, SEEKING, WEAPONS, Weapon, checked

MAX_BOX_COLUMNS = 5  # columns a mech's box can touch along one axis; a box of 4.0 or less
_FIXED = ("name", "kind", "timer", "triggers", "falls", "suppresses")  # of a weapon: part of the program, not numbers


class SimRules(flax.struct.PyTreeNode):
    """Per-mech, per-weapon and shared numbers. Weapon arrays are indexed by weapon id, timers are substeps."""

    half: Float32[Array, "mechs 3"]  # half extents of the box
    hit_radius: Float32[Array, " mechs"]
    max_speed: Float32[Array, " mechs"]
    max_yaw_rate: Float32[Array, " mechs"]
    max_jet_accel: Float32[Array, " mechs"]
    max_hp: Float32[Array, " mechs"]
    max_leg_hp: Float32[Array, " mechs"]
    heat_cap: Float32[Array, " mechs"]
    heat_dissipation: Float32[Array, " mechs"]
    tonnage: Float32[Array, " mechs"]
    solid_wreck_probability: Float32[Array, " mechs"]
    loudness_factor: Float32[Array, " mechs"]
    range: Float32[Array, " weapons"]
    damage: Float32[Array, " weapons"]
    stability_damage: Float32[Array, " weapons"]
    weapon_heat: Float32[Array, " weapons"]
    arc_cosine: Float32[Array, " weapons"]  # cosine of half the firing arc
    heat_transfer: Float32[Array, " weapons"]  # to the target of a hitscan hit
    speed: Float32[Array, " weapons"]
    splash_radius: Float32[Array, " weapons"]
    splash_scale: Float32[Array, " weapons"]
    cooldown: Int32[Array, " weapons"]
    moves: Int32[Array, " weapons"]  # updates in which a projectile still moves
    paint_substeps: Int32[Array, ""]
    suppression_substeps: Int32[Array, ""]
    fallen_substeps: Int32[Array, ""]
    ams_substeps: Int32[Array, ""]
    cloud_substeps: Int32[Array, ""]
    gravity: Float32[Array, ""]
    # Static: the longest distance over which the firing phase asks for a line of sight. `range` must stay within it.
    reach: float = flax.struct.field(pytree_node=False, default=k.ONBOARD_LOCK_RANGE)


def sim_rules(
    config: EnvConfig,
    mech_classes: Sequence[MechClass] = MECH_CLASSES,
    weapons: Sequence[Weapon] = WEAPONS,
) -> SimRules:
    """The rules of `config` as arrays, from the game's tables or from changed copies of them.

    Raises:
        ValueError: if a mech is too large for the fixed box windows (4.0 voxels), if a weapon is one that `checked` refuses, or
            if a copy changes more of a weapon than its numbers.
    """
    dt = config.dt
    for c in mech_classes:
        if max(c.size) > MAX_BOX_COLUMNS - 1:
            raise ValueError(f"size of class {c.name} must be at most {MAX_BOX_COLUMNS - 1} voxels, got {c.size}")
    if len(weapons) != len(WEAPONS):
        raise ValueError(f"weapons must be {len(WEAPONS)} rows, one for each of the table, got {len(weapons)}")
    for w, own in zip(checked(weapons), WEAPONS, strict=True):
        for field in _FIXED:
            if getattr(w, field) != getattr(own, field):
                raise ValueError(
                    f"{field} of weapon {own.name} must be {getattr(own, field)}, as in rules/weapons.py, "
                    f"got {getattr(w, field)}"
                )
    classes = [mech_classes[c] for c in roster(config.num_packs).mech_class]

    def mech(values: Sequence[object]) -> Float32[Array, "*_shape"]:
        return jnp.asarray(np.array(values, np.float32))

    def weapon(values: Sequence[float]) -> Float32[Array, " weapons"]:
        return jnp.asarray(np.array(values, np.float32))

    def count(value: object) -> Int32[Array, "*_shape"]:
        return jnp.asarray(np.array(value, np.int32))

    half = np.array([c.size for c in classes], np.float64) / 2
    return SimRules(
        half=mech(list(half)),
        hit_radius=mech(list(half.max(-1))),
        max_speed=mech([c.max_speed for c in classes]),
        max_yaw_rate=mech([c.max_yaw_rate for c in classes]),
        max_jet_accel=mech([c.max_jet_accel for c in classes]),
        max_hp=mech([c.hp for c in classes]),
        max_leg_hp=mech([c.leg_hp for c in classes]),
        heat_cap=mech([c.heat_cap for c in classes]),
        heat_dissipation=mech([c.heat_dissipation for c in classes]),
        tonnage=mech([c.tonnage for c in classes]),
        solid_wreck_probability=mech([c.solid_wreck_probability for c in classes]),
        loudness_factor=mech([c.loudness_factor for c in classes]),
        range=weapon([w.range for w in weapons]),
        damage=weapon([w.damage for w in weapons]),
        stability_damage=weapon([w.stability_damage for w in weapons]),
        weapon_heat=weapon([w.heat for w in weapons]),
        arc_cosine=weapon([float(np.cos(np.deg2rad(w.arc_deg / 2))) for w in weapons]),
        heat_transfer=weapon([w.heat_transfer for w in weapons]),
        speed=weapon([w.speed for w in weapons]),
        splash_radius=weapon([w.splash_radius for w in weapons]),
        splash_scale=weapon([w.splash_scale for w in weapons]),
        cooldown=count([timers.decrements(w.cooldown, dt) for w in weapons]),
        moves=count([timers.moves(w.range / w.speed, dt) if w.speed else 0 for w in weapons]),
        paint_substeps=count(timers.decrements(k.PAINT_DURATION, dt)),
        suppression_substeps=count(timers.decrements(k.SUPPRESSION_DURATION, dt)),
        fallen_substeps=count(timers.decrements(k.FALLEN_DURATION, dt)),
        ams_substeps=count(timers.decrements(k.AMS_COOLDOWN, dt)),
        cloud_substeps=count(timers.decrements(k.SMOKE_CLOUD_LIFE, dt)),
        gravity=jnp.float32(config.gravity),
        reach=max(k.ONBOARD_LOCK_RANGE, *(weapons[w].range for w in SEEKING)),
    )


def one_of(weapon: Int32[Array, "*shots"], numbers: Sequence[int]) -> Bool[Array, "*shots"]:
    """Where a weapon is one of `numbers`."""
    found = jnp.zeros(weapon.shape, bool)
    for number in numbers:
        found = found | (weapon == number)
    return found


def check_rules(rules: SimRules) -> None:
    """Refuse numbers that the fixed windows and bounds of a step would cut off without a word.

    Rules that are traced or abstract are taken as they are.

    Raises:
        ValueError: if a number is too large.
    """
    bounds: dict[str, tuple[Any, Any, Any]] = {
        "half": (rules.half, slice(None), (MAX_BOX_COLUMNS - 1) / 2),
        "splash_radius": (rules.splash_radius, np.array(BLASTING), MAX_SPLASH_RADIUS),
        "range": (rules.range, np.array(SEEKING), rules.reach),
    }
    for name, (values, which, most) in bounds.items():
        if isinstance(values, jax.core.Tracer) or not isinstance(values, jax.Array | np.ndarray):
            continue
        found = float(np.max(np.asarray(values)[which]))
        if found > most:
            raise ValueError(f"{name} of the rules must be at most {most} voxels, got {found}")
