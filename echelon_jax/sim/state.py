"""The state of a batch of arenas as fixed-shape arrays (docs/spec/rules.md 4.3, 2, 6, 12).

Axis names: `arenas` (always leading), `mechs` in roster order (blue 0..n-1, then red), `slots` projectile slots, `clouds`
smoke slots, `voxels` = z*Y*X + y*X + x, `columns` = y*X + x. Positions and velocities are (x, y, z) in voxels and voxels per
second. Timers are whole substeps that count down to 0 (docs/spec/rules.md 1.2).
"""

from __future__ import annotations

import flax.struct
from jaxtyping import Array, Bool, Float32, Int16, Int32, UInt8, UInt32


class Mechs(flax.struct.PyTreeNode):
    """All mechs of a batch of arenas; the dead keep their last values."""

    position: Float32[Array, "arenas mechs 3"]  # centre of the box
    velocity: Float32[Array, "arenas mechs 3"]
    yaw: Float32[Array, "arenas mechs"]  # radians, 0 faces +x, counter-clockwise
    hp: Float32[Array, "arenas mechs"]
    leg_hp: Float32[Array, "arenas mechs"]
    heat: Float32[Array, "arenas mechs"]
    stability: Float32[Array, "arenas mechs"]
    loudness: Float32[Array, "arenas mechs"]
    alive: Bool[Array, "arenas mechs"]
    fallen: Int32[Array, "arenas mechs"]  # substeps until standing up
    suppressed: Int32[Array, "arenas mechs"]
    ams_cooldown: Int32[Array, "arenas mechs"]
    laser_cooldown: Int32[Array, "arenas mechs"]
    tube_cooldown: Int32[Array, "arenas mechs"]  # missile and smoke share it (docs/spec/rules.md 5.11)
    tube_was_smoke: Bool[Array, "arenas mechs"]  # what set it; only its reading in seconds depends on that
    kinetic_cooldown: Int32[Array, "arenas mechs"]  # gauss, autocannon or flamer
    painter_cooldown: Int32[Array, "arenas mechs"]
    painted: Int32[Array, "arenas mechs"]
    last_painter: Int32[Array, "arenas mechs"]  # mech index, -1 for none
    focus: Int32[Array, "arenas mechs"]  # mech index, -1 for none; set once per decision
    ecm_on: Bool[Array, "arenas mechs"]
    eccm_on: Bool[Array, "arenas mechs"]
    insertion_index: Int32[
        Array, "arenas mechs"
    ]  # order of arrival in a cell of the grid of mechs (docs/spec/rules.md 2.6)


class Tally(flax.struct.PyTreeNode):
    """What happened to and through each mech during the current decision step; cleared at its start."""

    took_damage: Float32[Array, "arenas mechs"]
    dealt_damage: Float32[Array, "arenas mechs"]
    kills: Int32[Array, "arenas mechs"]
    died: Bool[Array, "arenas mechs"]
    was_hit: Bool[Array, "arenas mechs"]
    damage_direction: Float32[Array, "arenas mechs 3"]  # unit vector to the last attacker, 0 if none
    has_damage_direction: Bool[Array, "arenas mechs"]
    assists: Int32[Array, "arenas mechs"]  # assist events with this mech as painter
    paints: Int32[Array, "arenas mechs"]
    laser_hits: Int32[Array, "arenas mechs"]  # flamer included
    missile_launches: Int32[Array, "arenas mechs"]
    kinetic_fires: Int32[Array, "arenas mechs"]
    smoke_launches: Int32[Array, "arenas mechs"]
    projectile_hits: Int32[Array, "arenas mechs"]  # direct and splash, by shooter
    explosions: Int32[Array, "arenas mechs"]  # by shooter
    ams_intercepts: Int32[Array, "arenas mechs"]  # by defender
    # On mechs of the own team, oneself included, by shooter. `dealt_damage` and `kills` hold them too unless the switch
    # own_team_counts_against is on.
    friendly_damage: Float32[Array, "arenas mechs"]
    friendly_kills: Int32[Array, "arenas mechs"]
    # Only for the reward "modern". Damage by shooter, at most what the target had left, on enemies and on the own team; kills
    # of enemies painted at that moment, by painter, if of the killer's pack and not the killer.
    effective_damage: Float32[Array, "arenas mechs"] | None = None
    friendly_effective_damage: Float32[Array, "arenas mechs"] | None = None
    kill_assists: Int32[Array, "arenas mechs"] | None = None


class Projectiles(flax.struct.PyTreeNode):
    """Shots in flight. Which mech owns a slot is static (`slots.Slots`); `order` is the processing order."""

    alive: Bool[Array, "arenas slots"]
    weapon: Int32[Array, "arenas slots"]
    target: Int32[Array, "arenas slots"]  # mech index a missile homes on, -1 for none
    position: Float32[Array, "arenas slots 3"]
    velocity: Float32[Array, "arenas slots 3"]
    age: Int32[Array, "arenas slots"]  # updates so far
    order: Int32[Array, "arenas slots"]  # smaller is earlier in the original's list
    # Bit p: the heavy of pack p of the target's team has rolled against this missile (only under ams_one_roll).
    rolled: UInt8[Array, "arenas slots"]


class Smoke(flax.struct.PyTreeNode):
    """Smoke clouds; `clouds` slots per mech, life in substeps, 0 is a free slot."""

    position: Float32[Array, "arenas clouds 3"]
    life: Int32[Array, "arenas clouds"]


class Grid(flax.struct.PyTreeNode):
    """Destructible voxels and, per column, two derived words: bit z set iff the voxel collides, or blocks sight."""

    material: UInt8[Array, "arenas voxels"]
    hp: Int16[Array, "arenas voxels"]
    collides: UInt32[Array, "arenas columns"]
    opaque: UInt32[Array, "arenas columns"]


class SimState(flax.struct.PyTreeNode):
    """Everything the simulation core reads and writes."""

    mechs: Mechs
    tally: Tally
    projectiles: Projectiles
    smoke: Smoke
    grid: Grid
    tick: Int32[Array, " arenas"]  # substeps so far
    next_insertion_index: Int32[Array, " arenas"]
    lost_shots: Int32[Array, " arenas"]  # overflow: shots without a free slot, this episode
    lost_clouds: Int32[Array, " arenas"]  # overflow: clouds that replaced a living one, this episode


class Commands(flax.struct.PyTreeNode):
    """What the simulation reads of the mechs' actions for one decision step (docs/spec/rules.md 5.2, 5.3)."""

    throttle: Float32[Array, "arenas mechs 4"]  # forward, strafe, vertical, yaw rate, each in [-1, 1]
    primary: Bool[Array, "arenas mechs"]
    vent: Bool[Array, "arenas mechs"]
    secondary: Bool[Array, "arenas mechs"]
    tertiary: Bool[Array, "arenas mechs"]
    special: Bool[Array, "arenas mechs"]
