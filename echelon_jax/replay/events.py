"""Events, tracks, clouds and voxel edits of a game, made on the host from the details of its decisions."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.replay.detail import Effect, SubstepDetail
from echelon_jax.replay.model import (
    EVENT,
    HAZARD,
    LEG,
    PAINTED,
    POSE_UNIT,
    REAR,
    TRACK_UNIT,
    TURN_UNIT,
    EventRow,
    event_arrays,
)
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import MECH_CLASSES, roster
from echelon_jax.rules.weapons import BALLISTIC, FLAMER, HITSCAN, LASER, MISSILE, PAINTER, SMOKE, WEAPONS, carried_by
from echelon_jax.sim.slots import slots

# What multiplies a hit's damage, by what happened; all products differ, so a damage tells which of them it was.
_FACTORS = [
    (rear * leg * paint, r * REAR | g * LEG | p * PAINTED)
    for (r, rear), (g, leg), (p, paint) in itertools.product(
        ((0, 1.0), (1, k.REAR_ARC_MULTIPLIER)),
        ((0, 1.0), (1, k.LEG_HIT_BODY_MULTIPLIER)),
        ((0, 1.0), (1, 1.0 + k.PAINT_BONUS)),
    )
]


def hit_flags(damage: float, base: float) -> int:
    """Return how a hit of `base` came to `damage`: bits REAR, LEG, PAINTED of the nearest product of multipliers."""
    if base <= 0:
        return 0
    return min(_FACTORS, key=lambda entry: abs(damage - base * entry[0]))[1]


def split_beams(damage: float, laser: float, flamer: float) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return (damage, flags) of a laser and a flamer hit of one light on one mech in one substep, from their sum.

    Both come from the same side and under the same paint; only the legs are drawn for each. The sums of all cases differ.
    """
    cases = [
        ((laser * a, bits_a), (flamer * b, bits_b))
        for a, bits_a in _FACTORS
        for b, bits_b in _FACTORS
        if bits_a & ~LEG == bits_b & ~LEG
    ]
    return min(cases, key=lambda pair: abs(damage - pair[0][0] - pair[1][0]))


@dataclasses.dataclass
class Track:
    """A projectile on its way: a point per substep from its launch on."""

    weapon: int
    shooter: int
    target: int
    start: int
    points: list[np.ndarray]


@dataclasses.dataclass
class EventCollector:
    """Collects the events of a game from the details of its decisions, in order."""

    config: EnvConfig
    events: list[EventRow] = dataclasses.field(default_factory=list)
    edits: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    tracks: list[Track] = dataclasses.field(default_factory=list)
    clouds: list[list[Any]] = dataclasses.field(default_factory=list)  # slot, start, end, position
    poses: list[np.ndarray] = dataclasses.field(default_factory=list)
    _flying: dict[int, Track] = dataclasses.field(default_factory=dict)

    def take(self, decision: int, before: Any, material: np.ndarray, detail: SubstepDetail, row: int) -> None:
        """Take one decision.

        Args:
            decision: its number from 0.
            before: the game's `SmallState` row before it, numpy.
            material: uint8 [voxels] before it.
            detail: numpy details of a chunk of decisions; `row` is this one's.
        """
        mechs = before.mechs
        cap = np.array([c.heat_cap for c in _classes(self.config)], np.float32)
        position = mechs.position
        status = {"fallen": mechs.fallen > 0, "legged": mechs.leg_hp <= 0, "shutdown": mechs.heat > cap}
        life = before.smoke.life
        for s in range(self.config.substeps):
            time = decision * self.config.substeps + s + 1
            one = _at(detail, s, row)
            for mech in np.flatnonzero(one.hazard >= 0).tolist():
                self._add(time, "kill", -1, HAZARD, mech, 0, float(one.hazard[mech]), position[mech])
            self._shots(time, one)
            self._turns(time, one, position)
            self._launches(time, one)
            self._status(time, one, status)
            life = self._smoke(time, one, life)
            changed = np.flatnonzero(one.material != material)
            self.edits += [(time, int(v), int(one.material[v])) for v in changed]
            material, position = one.material, one.position
            status = {name: getattr(one, name) for name in status}
            self.poses.append(np.concatenate([one.position, one.yaw[:, None]], -1))

    def _add(self, time: int, kind: str, weapon: int, a: int, b: int, flags: int, amount: float, at: Any) -> None:
        self.events.append((time, EVENT[kind], weapon, int(a), int(b), flags, amount, np.asarray(at, np.float32)))

    def _hurt(self, time: int, kind: str, weapon: int, shooter: int, victim: int, effect: Effect, at: Any) -> None:
        damage = float(effect.hp_lost[victim])
        flags = hit_flags(damage, WEAPONS[weapon].damage) if kind != "splash" else 0
        self._add(time, kind, weapon, shooter, victim, flags, damage, at)

    def _follow(self, time: int, weapon: int, shooter: int, victim: int, effect: Effect, at: Any) -> None:
        """Assist and kill that come with a hit."""
        if kind_of_help := np.flatnonzero(effect.assists > 0).tolist():
            self._add(time, "assist", weapon, kind_of_help[0], victim, 0, 0.0, at)
        if effect.died[victim]:
            self._add(time, "kill", weapon, shooter, victim, 0, 0.0, at)

    def _shots(self, time: int, one: SubstepDetail) -> None:
        table = slots(self.config)
        for i in np.flatnonzero(one.shots.valid):
            shot = _at(one.shots, int(i))
            slot, shooter = int(shot.slot), int(table.mech[shot.slot])
            track = self._flying.get(slot)
            weapon = int(shot.weapon)
            gone = shot.ended or shot.intercepted or shot.impact
            end = shot.point if shot.impact else shot.start
            if track is not None:
                track.points.append(np.asarray(end if gone else one.shot_position[slot]))
                if gone:
                    self.tracks.append(self._flying.pop(slot))
            if shot.intercepted:
                self._add(time, "intercept", weapon, shot.defender, shooter, 0, 0.0, end)
            elif shot.impact:
                self._impact(time, shot, weapon, shooter)
            elif shot.ended:
                self._add(time, "expired", weapon, shooter, -1, 0, 0.0, end)

    def _impact(self, time: int, shot: Any, weapon: int, shooter: int) -> None:
        effect, victim = shot.effect, int(shot.victim)
        counts = shot.direct and not (weapon == SMOKE and self.config.smoke_opens)
        if counts:
            self._hurt(time, "hit", weapon, shooter, victim, effect, shot.point)
            self._follow(time, weapon, shooter, victim, effect, shot.point)
        elif not shot.direct:
            self._add(time, "impact", weapon, shooter, -1, 0, 0.0, shot.point)
        if weapon == SMOKE:
            self._add(time, "cloud", weapon, shooter, -1, 0, k.SMOKE_CLOUD_RADIUS, shot.centre)
        if shot.exploded:
            for other in np.flatnonzero(effect.hp_lost > 0).tolist():
                if not (counts and other == victim):
                    self._hurt(time, "splash", weapon, shooter, int(other), effect, shot.centre)
                    if effect.died[other]:
                        self._add(time, "kill", weapon, shooter, other, 0, 0.0, shot.centre)
            self._add(time, "explosion", weapon, shooter, -1, 0, WEAPONS[weapon].splash_radius, shot.centre)

    def _turns(self, time: int, one: SubstepDetail, position: np.ndarray) -> None:
        mech_class = roster(self.config.num_packs).mech_class
        for i in range(len(one.turns.mech)):
            turn = _at(one.turns, i)
            mech, effect = int(turn.mech), turn.effect
            for weapon, damage, flags, victim in _beams(turn, carried_by(int(mech_class[mech]), HITSCAN)):
                self._add(time, "beam", weapon, mech, victim, flags, damage, position[victim])
                self._follow(time, weapon, mech, victim, effect, position[victim])
            half = 0.5 * _classes(self.config)[mech].size[2]
            if turn.missile:
                muzzle = _raised(position[mech], half + k.MISSILE_SPAWN_OFFSET)
                self._add(time, "missile", MISSILE, mech, turn.missile_target, 0, 0.0, muzzle)
            if turn.kinetic:
                muzzle = _raised(position[mech], k.BARREL_HEIGHT_FRACTION * half)
                self._add(time, "kinetic", carried_by(int(mech_class[mech]), BALLISTIC)[0], mech, -1, 0, 0.0, muzzle)
            for victim in np.flatnonzero(effect.painted).tolist():
                self._add(time, "paint", PAINTER, mech, victim, 0, 0.0, position[victim])
            if turn.smoke:
                self._add(time, "smoke", SMOKE, mech, -1, 0, 0.0, _raised(position[mech], half))

    def _launches(self, time: int, one: SubstepDetail) -> None:
        table = slots(self.config)
        for slot in np.flatnonzero(one.launched).tolist():
            weapon, target = int(one.shot_weapon[slot]), int(one.shot_target[slot])
            first = np.asarray(one.shot_position[slot])
            self._flying[slot] = Track(weapon, int(table.mech[slot]), target, time, [first])

    def _status(self, time: int, one: SubstepDetail, status: dict[str, np.ndarray]) -> None:
        names = {"fallen": ("knockdown", "stood_up"), "shutdown": ("shutdown", "restarted"), "legged": ("legged", "")}
        for name, (begins, ends) in names.items():
            was, now = status[name], getattr(one, name)
            for mech in np.flatnonzero((was != now) & one.alive).tolist():
                kind = begins if now[mech] else ends
                if kind:
                    self._add(time, kind, -1, -1, mech, 0, 0.0, one.position[mech])

    def _smoke(self, time: int, one: SubstepDetail, life: np.ndarray) -> np.ndarray:
        for slot in np.flatnonzero(one.smoke_life > np.maximum(life - 1, 0)).tolist():
            for cloud in self.clouds:
                if cloud[0] == slot and cloud[2] > time:
                    cloud[2] = time
            self.clouds.append([slot, time, time + int(one.smoke_life[slot]), one.smoke_position[slot]])
        return np.asarray(one.smoke_life)

    def arrays(self, poses: bool) -> dict[str, np.ndarray]:
        """Return everything collected as a replay's arrays."""
        tracks = sorted([*self.tracks, *self._flying.values()], key=lambda t: t.start)
        points = [np.stack(t.points) for t in tracks]
        edits = np.array(self.edits, np.int32).reshape(-1, 3)
        out = event_arrays(self.events) | {
            "edit_time": edits[:, 0].copy(),
            "edit_voxel": edits[:, 1].copy(),
            "edit_material": edits[:, 2].astype(np.uint8),
            "track_weapon": np.array([t.weapon for t in tracks], np.int8),
            "track_shooter": np.array([t.shooter for t in tracks], np.int16),
            "track_target": np.array([t.target for t in tracks], np.int16),
            "track_start": np.array([t.start for t in tracks], np.int32),
            "track_points": np.array([len(p) for p in points], np.int32),
            "track_position": steps(np.concatenate(points) if points else np.zeros((0, 3)), TRACK_UNIT),
            "cloud_start": np.array([c[1] for c in self.clouds], np.int32),
            "cloud_end": np.array([c[2] for c in self.clouds], np.int32),
            "cloud_position": np.array([c[3] for c in self.clouds], np.float32).reshape(-1, 3),
        }
        if poses:
            out["pose"] = pose_steps(np.stack(self.poses))
        return out


def steps(values: np.ndarray, unit: float) -> np.ndarray:
    """Return lengths in voxels as int16 steps; beyond the range they stop at its ends."""
    return np.clip(np.rint(values * unit), -32768, 32767).astype(np.int16)


def pose_steps(poses: np.ndarray) -> np.ndarray:
    """Return [substeps, mechs, (x, y, z, yaw)] as int16 steps; the yaw wraps around."""
    turn = np.rint(np.asarray(poses[..., 3:], np.float64) * TURN_UNIT).astype(np.int64).astype(np.int16)
    return np.concatenate([steps(poses[..., :3], POSE_UNIT), turn], -1)


def _raised(position: np.ndarray, by: float) -> np.ndarray:
    return position + np.array([0.0, 0.0, by], np.float32)


def _classes(config: EnvConfig) -> list[Any]:
    return [MECH_CLASSES[c] for c in roster(config.num_packs).mech_class]


def _at(tree: Any, *index: int) -> Any:
    """The detail of one row: leading axes indexed; shots and turns have a further axis of their own before the row."""
    if isinstance(tree, SubstepDetail):
        s, row = index
        own = {}
        for field in dataclasses.fields(tree):
            value = getattr(tree, field.name)
            if field.name in ("shots", "turns"):
                own[field.name] = _map(lambda x: x[s, :, row], value)
            else:
                own[field.name] = value[s, row]
        return SubstepDetail(**own)
    return _map(lambda x: x[index[0]], tree)


def _map(function: Any, tree: Any) -> Any:
    fields = {f.name: getattr(tree, f.name) for f in dataclasses.fields(tree)}
    return type(tree)(
        **{n: _map(function, v) if dataclasses.is_dataclass(v) else function(v) for n, v in fields.items()}
    )


def _beams(turn: Any, carried: tuple[int, ...]) -> list[tuple[int, float, int, int]]:
    """The hitscan shots of one turn as (weapon, damage, flags, target), of a mech that carries one weapon or laser and flamer."""
    if not turn.beams:
        return []
    hurt = np.flatnonzero(turn.effect.hp_lost > 0).tolist()
    lost = turn.effect.hp_lost
    if turn.beams == 1:
        weapon = carried[0] if len(carried) == 1 else LASER if turn.laser else FLAMER
        return [(weapon, float(lost[v]), hit_flags(float(lost[v]), WEAPONS[weapon].damage), v) for v in hurt]
    if len(hurt) == 1:
        laser, flamer = split_beams(float(lost[hurt[0]]), WEAPONS[LASER].damage, WEAPONS[FLAMER].damage)
        return [(LASER, *laser, hurt[0]), (FLAMER, *flamer, hurt[0])]
    # Two targets: the flamer heats its own more.
    cold, hot = sorted(hurt, key=lambda v: float(turn.effect.heat_gained[v]))
    pairs = ((LASER, cold), (FLAMER, hot))
    return [(w, float(lost[v]), hit_flags(float(lost[v]), WEAPONS[w].damage), v) for w, v in pairs]
