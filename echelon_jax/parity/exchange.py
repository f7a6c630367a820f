"""State exchange between the JAX simulator and the plain reference, and one source of draws for both.

A row is an `EnvState` of numpy leaves without the arena axis. Whatever a row holds that the reference does not have (slot
numbers, values of insertion indices, overflow counters, counts of events) comes back from the row it was loaded from.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.state import REASONS, STATISTICS, WINNERS, EnvState
from echelon_jax.parity.recorded.golden import counters, whole
from echelon_jax.parity.recorded.maps import column_words
from echelon_jax.parity.timers import ages, residues, seconds_of
from echelon_jax.reference.environment import Arena
from echelon_jax.reference.modern.memory import ObservationMemory
from echelon_jax.reference.rewards import Zone
from echelon_jax.reference.state import Battle, Mech, Projectile, make_mechs
from echelon_jax.reference.vec import vec
from echelon_jax.reference.world import SmokeCloud, VoxelWorld
from echelon_jax.rules import constants as k
from echelon_jax.rules.materials import COLLIDES, OPAQUE
from echelon_jax.rules.mechs import TEAM_NAMES
from echelon_jax.rules.weapons import HITSCAN, MISSILE, SMOKE
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.slots import BARREL, TUBE, slots

# A field of the reference's mechs and the row's name for it.
FLOATS = {
    "yaw": "yaw",
    "hp": "hp",
    "leg_hp": "leg_hp",
    "heat": "heat",
    "stability": "stability",
    "noise_level": "loudness",
}
TIMERS = {
    "fallen_time": "fallen",
    "suppressed_time": "suppressed",
    "ams_cooldown": "ams_cooldown",
    "laser_cooldown": "laser_cooldown",
    "missile_cooldown": "tube_cooldown",
    "kinetic_cooldown": "kinetic_cooldown",
    "painter_cooldown": "painter_cooldown",
    "painted_remaining": "painted",
}
# A deed that the modern observation tells of, and the row's count of it.
DEEDS = {
    "laser_hit": "laser_hits",
    "missile_launch": "missile_launches",
    "kinetic_fire": "kinetic_fires",
    "smoke_launch": "smoke_launches",
    "paint": "paints",
}


@dataclasses.dataclass
class Loaded:
    """A reference arena and which slots its shots and clouds have in the row; `shots` and `clouds` are found by identity."""

    arena: Arena
    shots: list[tuple[Projectile, int]]
    clouds: list[tuple[SmokeCloud, int]]


def row_of(state: Any, arena: int) -> Any:
    """One arena of a batch (an `EnvState`, a `Noise`, ...) as numpy leaves without the arena axis."""
    return jax.tree.map(lambda leaf: np.array(leaf[arena]), state)


def stack(rows: list[Any]) -> Any:
    """A batch of rows, as numpy leaves with a leading arena axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


# ---- JAX to reference -----------------------------------------------------------------------------------------------


def to_reference(config: EnvConfig, row: EnvState) -> Loaded:
    """The arena of a row, every field loaded; the row is not changed by what happens to the arena.

    Raises:
        OutsideTheRulesError: if a timer stands where the rules cannot have put it.
    """
    sim, shape = row.sim, (config.size_z, config.size_y, config.size_x)
    world = VoxelWorld(np.array(sim.grid.material).reshape(shape), np.array(sim.grid.hp).reshape(shape))
    mechs = make_mechs(config.num_packs, sim.mechs.position, sim.mechs.yaw)
    for mech in mechs:
        _load_mech(mech, row, config.dt)
    battle = Battle(config, world, mechs)
    for mech in mechs:
        battle.grid.remove(mech.index)
    for i in np.argsort(sim.mechs.insertion_index, kind="stable"):  # grid order: arrivals
        if mechs[i].alive:
            battle.grid.place(int(i), mechs[i].pos)
    shots = _load_shots(config, row)
    clouds = _load_clouds(config, row)
    battle.projectiles, battle.clouds = [shot for shot, _ in shots], [cloud for cloud, _ in clouds]
    battle.tick = int(sim.tick)
    battle.time_s = ages(config.dt, battle.tick)[-1]

    x, y, radius = (float(v) for v in row.arena_map.zone)
    arena = Arena(config, battle, Zone(x, y, radius, config.zone_on_the_ground), world)
    arena.occupancy = np.array(row.arena_map.occupancy).reshape(shape[1:]).astype(bool)
    arena.telemetry = np.array(row.arena_map.telemetry).astype(np.float32)
    arena.step_count = int(row.step_count)
    arena.scores = [float(s) + float(c) for s, c in zip(row.score, row.score_carry, strict=True)]
    arena.messages = [[float(v) for v in message] for message in row.messages]
    arena.sort_mode = [int(v) for v in row.sort_mode]
    arena.hostile_only = [bool(v) for v in row.hostile_only]
    arena.contact_slots = [[int(v) for v in seen] for seen in row.contact_slots]
    arena.deeds = [{kind for kind, name in DEEDS.items() if getattr(sim.tally, name)[i] > 0} for i in range(len(mechs))]
    if row.memory is not None:
        arena.memory = _load_memory(row.memory)
    flags = zip(row.was_fallen, row.was_legged, row.was_shutdown, strict=True)
    arena.flags_before = [(bool(fallen), bool(legged), bool(hot)) for fallen, legged, hot in flags]
    for name, counts in zip(STATISTICS, row.statistics, strict=True):
        for team, value in zip(TEAM_NAMES, counts, strict=True):
            arena.statistics[f"{name}_{team}"] = float(value)
    return Loaded(arena, shots, clouds)


def _load_memory(memory: Any) -> ObservationMemory:
    """What the modern observation remembers, of a row."""
    turn = [float(v) for v in memory.turn]
    if memory.age is None or memory.last_seen is None:
        return ObservationMemory(turn)
    ages_ = [[int(v) for v in seen] for seen in memory.age]
    return ObservationMemory(turn, ages_, [[vec(position) for position in row] for row in memory.last_seen])


def _index(value: Any) -> int | None:
    return None if value < 0 else int(value)


def _load_mech(mech: Mech, row: EnvState, dt: float) -> None:
    """Fill one mech of the roster from a row (numpy leaves)."""
    m, tally, i = row.sim.mechs, row.sim.tally, mech.index
    for name, source in FLOATS.items():
        setattr(mech, name, float(getattr(m, source)[i]))
    for name, source in TIMERS.items():
        count = int(getattr(m, source)[i])
        setattr(mech, name, seconds_of(source, count, mech, bool(m.tube_was_smoke[i]), dt))
    mech.pos, mech.vel = vec(m.position[i]), vec(m.velocity[i])
    mech.tube_was_smoke = bool(m.tube_was_smoke[i])
    mech.last_painter, mech.focus_target = _index(m.last_painter[i]), _index(m.focus[i])
    mech.alive, mech.ecm_on, mech.eccm_on = bool(m.alive[i]), bool(m.ecm_on[i]), bool(m.eccm_on[i])
    mech.took_damage, mech.dealt_damage = float(tally.took_damage[i]), float(tally.dealt_damage[i])
    mech.friendly_damage, mech.friendly_kills = float(tally.friendly_damage[i]), int(tally.friendly_kills[i])
    mech.kills, mech.died, mech.was_hit = int(tally.kills[i]), bool(tally.died[i]), bool(tally.was_hit[i])
    mech.last_damage_dir = vec(tally.damage_direction[i]) if tally.has_damage_direction[i] else None


def _load_shots(config: EnvConfig, row: EnvState) -> list[tuple[Projectile, int]]:
    """Living shots in processing order, with their slots."""
    p, owner = row.sim.projectiles, slots(config).mech
    living = [int(s) for s in np.argsort(p.order, kind="stable") if p.alive[s]]
    return [
        (
            Projectile(
                int(p.weapon[s]),
                int(owner[s]),
                _index(p.target[s]),
                vec(p.position[s]),
                vec(p.velocity[s]),
                ages(config.dt, int(p.age[s]))[-1],
                _rolled(config, int(p.target[s]), int(p.rolled[s])),
            ),
            s,
        )
        for s in living
    ]


def _defenders(config: EnvConfig, target: int) -> list[int]:
    """The heavies of a target's team, by pack: what the bits of `rolled` stand for."""
    heavy = slots(config).heavy
    return [int(i) for i in heavy if (i >= config.team_size) == (target >= config.team_size)]


def _rolled(config: EnvConfig, target: int, bits: int) -> frozenset[int]:
    return frozenset(i for pack, i in enumerate(_defenders(config, target)) if bits >> pack & 1)


def _load_clouds(config: EnvConfig, row: EnvState) -> list[tuple[SmokeCloud, int]]:
    smoke, shown = row.sim.smoke, residues(k.SMOKE_CLOUD_LIFE, config.dt)
    return [
        (SmokeCloud(vec(smoke.position[c]), k.SMOKE_CLOUD_RADIUS, shown[int(smoke.life[c])]), int(c))
        for c in np.flatnonzero(smoke.life > 0)
    ]


# ---- reference to JAX -----------------------------------------------------------------------------------------------


def to_row(config: EnvConfig, loaded: Loaded, template: EnvState) -> EnvState:
    """The row of an arena that was loaded from `template`: the same bits for an arena that nothing happened to.

    Floats are rounded to float32. Shots launched since take free slots of their launchers, clouds free slots anywhere;
    counts of events and of overflows are the template's.

    Raises:
        ValueError: if a launcher has more shots, or the arena more clouds, than the row has slots.
    """
    row = jax.tree.map(np.array, template)
    arena, battle = loaded.arena, loaded.arena.battle
    sim = row.sim
    for mech in battle.mechs:
        _save_mech(mech, row, config.dt)
    _save_insertion_order(battle, row)
    _save_shots(config, loaded, row)
    _save_clouds(config, loaded, row)
    sim.grid.material[:] = battle.world.material.reshape(-1)
    sim.grid.hp[:] = whole(battle.world.hp.reshape(-1))
    sim.grid.collides[:] = column_words(sim.grid.material[None], COLLIDES, config)[0]
    sim.grid.opaque[:] = column_words(sim.grid.material[None], OPAQUE, config)[0]
    sim.tick[...], row.step_count[...] = battle.tick, arena.step_count
    row.messages[:] = np.array(arena.messages, np.float32).reshape(row.messages.shape)
    row.sort_mode[:], row.hostile_only[:] = arena.sort_mode, arena.hostile_only
    row.contact_slots[:] = arena.contact_slots
    if row.memory is not None and arena.memory is not None:
        row.memory.turn[:] = arena.memory.turn
        if arena.memory.age is not None:
            row.memory.age[:], row.memory.last_seen[:] = arena.memory.age, arena.memory.last_seen
    row.was_fallen[:], row.was_legged[:], row.was_shutdown[:] = np.array(arena.flags_before).T
    for team in range(2):
        if arena.scores[team] != float(row.score[team]) + float(row.score_carry[team]):
            row.score[team] = arena.scores[team]
            row.score_carry[team] = arena.scores[team] - float(row.score[team])
    for i, name in enumerate(STATISTICS):
        row.statistics[i] = [arena.statistics[f"{name}_{team}"] for team in TEAM_NAMES]
    if arena.outcome is not None:
        row.episode_over[...] = True
        row.reason[...] = REASONS.index(arena.outcome["reason"])
        row.winner[...] = WINNERS.index(arena.outcome["winner"])
    return row


def _save_mech(mech: Mech, row: EnvState, dt: float) -> None:
    m, tally, i = row.sim.mechs, row.sim.tally, mech.index
    for name, target in FLOATS.items():
        getattr(m, target)[i] = getattr(mech, name)
    for name, target in TIMERS.items():
        getattr(m, target)[i] = counters(np.array(getattr(mech, name)), dt)
    m.tube_was_smoke[i] = mech.tube_was_smoke
    m.position[i], m.velocity[i] = mech.pos, mech.vel
    m.last_painter[i] = -1 if mech.last_painter is None else mech.last_painter
    m.focus[i] = -1 if mech.focus_target is None else mech.focus_target
    m.alive[i], m.ecm_on[i], m.eccm_on[i] = mech.alive, mech.ecm_on, mech.eccm_on
    tally.took_damage[i], tally.dealt_damage[i] = mech.took_damage, mech.dealt_damage
    tally.friendly_damage[i], tally.friendly_kills[i] = mech.friendly_damage, mech.friendly_kills
    tally.kills[i], tally.died[i], tally.was_hit[i] = mech.kills, mech.died, mech.was_hit
    tally.has_damage_direction[i] = mech.last_damage_dir is not None
    if mech.last_damage_dir is not None:
        tally.damage_direction[i] = mech.last_damage_dir


def _save_insertion_order(battle: Battle, row: EnvState) -> None:
    """Keep the insertion indices of a row as long as they give the grid's order; otherwise number the mechs anew."""
    index = row.sim.mechs.insertion_index
    lists = [members for members in battle.grid.cells.values() if members]
    if all((np.diff(index[members]) > 0).all() for members in lists):
        return
    order = [mech for members in lists for mech in members]
    index[order] = np.arange(len(order))
    row.sim.next_insertion_index[...] = len(index)


def _save_shots(config: EnvConfig, loaded: Loaded, row: EnvState) -> None:
    p, battle = row.sim.projectiles, loaded.arena.battle
    assign_slots(config, loaded)
    slots = [_find(loaded.shots, shot) for shot in battle.projectiles]
    p.alive[:] = False
    for shot, slot in zip(battle.projectiles, slots, strict=True):
        p.alive[slot], p.weapon[slot] = True, shot.weapon
        p.target[slot] = -1 if shot.target is None else shot.target
        p.position[slot], p.velocity[slot] = shot.pos, shot.vel
        p.age[slot] = round(shot.age / config.dt)
        defenders = _defenders(config, int(p.target[slot]))
        p.rolled[slot] = sum(1 << pack for pack, i in enumerate(defenders) if i in shot.rolled)
    if not (np.diff(p.order[slots]) > 0).all():
        p.order[slots] = np.arange(len(slots))


def _save_clouds(config: EnvConfig, loaded: Loaded, row: EnvState) -> None:
    smoke, battle = row.sim.smoke, loaded.arena.battle
    known = [(cloud, c) for cloud, c in loaded.clouds if any(cloud is other for other in battle.clouds)]
    free = [c for c in range(len(smoke.life)) if c not in {c for _, c in known}]
    smoke.life[:] = 0
    for cloud in battle.clouds:
        slot = next((c for other, c in known if other is cloud), None)
        if slot is None:
            if not free:
                raise ValueError(f"clouds must be at most {len(smoke.life)}, got {len(battle.clouds)}")
            slot = free.pop(0)
        smoke.position[slot], smoke.life[slot] = cloud.pos, counters(np.array(cloud.life), config.dt)


def _find(pairs: list[tuple[Projectile, int]], shot: Projectile) -> int:
    return next(slot for other, slot in pairs if other is shot)


def assign_slots(config: EnvConfig, loaded: Loaded) -> None:
    """Forget shots that are gone and give each new one the first free slot of its launcher, as a launch does."""
    table, battle = slots(config), loaded.arena.battle
    loaded.shots = [(shot, s) for shot, s in loaded.shots if any(shot is other for other in battle.projectiles)]
    for shot in battle.projectiles:
        if any(shot is other for other, _ in loaded.shots):
            continue
        launcher = TUBE if shot.weapon in (MISSILE, SMOKE) else BARREL
        taken = {s for _, s in loaded.shots}
        own = np.flatnonzero((table.mech == shot.shooter) & (table.launcher == launcher))
        free = [int(s) for s in own if int(s) not in taken]
        if not free:
            raise ValueError(f"shots in flight of mech {shot.shooter} must be at most {len(own)} from one launcher")
        loaded.shots.append((shot, free[0]))


# ---- draws ----------------------------------------------------------------------------------------------------------


class SlotNoise:
    """The draws of a `Noise` row behind the reference's interface: both simulators look up the same numbers.

    Args:
        config: of the arena.
        noise: one row, numpy leaves without the arena axis.
        loaded: the arena that will ask; its shots are followed from slot to slot.
    """

    def __init__(self, config: EnvConfig, noise: Noise, loaded: Loaded) -> None:
        self._config, self._noise, self._loaded = config, noise, loaded
        self._first = loaded.arena.battle.tick + 1
        self._now = 0

    def start_substep(self, tick: int) -> None:
        """Turn to the draws of a tick; what was launched in the substep before gets its slots."""
        self._now = tick - self._first
        assign_slots(self._config, self._loaded)

    def ams(self, shooter: int, projectile: Projectile, defender: int) -> float:
        """The roll of a defender's pack against the slot of a missile."""
        table, slot = slots(self._config), _find(self._loaded.shots, projectile)
        pack = self._loaded.arena.battle.mechs[defender].pack
        return float(self._noise.ams[self._now, table.heavy_of[shooter], table.ring[slot], pack])

    def hit_height(self, shooter: int, weapon: int) -> float:
        """The height of a hitscan hit."""
        return float(self._noise.hit_height[self._now, shooter, HITSCAN.index(weapon)])

    def move_order(self, living: list[int]) -> list[int]:
        """The permutation of all mechs, with the living kept."""
        return [int(i) for i in self._noise.move_order[self._now] if int(i) in living]

    def fire_order(self, living: list[int]) -> list[int]:
        """The permutation of all mechs, with the living kept."""
        assert self._noise.fire_order is not None
        return [int(i) for i in self._noise.fire_order[self._now] if int(i) in living]

    def wreck(self, mech: int) -> float:
        """The roll of a mech's wreck."""
        assert self._noise.wreck is not None
        return float(self._noise.wreck[self._now, mech])
