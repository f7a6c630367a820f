"""Recorded episodes: load a row into the reference, replay teacher-forced or free-running, compare every field.

The layout of a recorded file is described in the golden set's own README.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.reference.environment import Advance, Arena
from echelon_jax.reference.noise import MissingDraw, Tape
from echelon_jax.reference.rewards import Zone, status_flags
from echelon_jax.reference.state import Battle, Mech, Projectile, make_mechs
from echelon_jax.reference.vec import vec
from echelon_jax.reference.world import SmokeCloud, VoxelWorld

FLOAT_FIELDS = (
    "yaw",
    "hp",
    "leg_hp",
    "heat",
    "stability",
    "fallen_time",
    "suppressed_time",
    "ams_cooldown",
    "laser_cooldown",
    "missile_cooldown",
    "kinetic_cooldown",
    "painter_cooldown",
    "painted_remaining",
    "noise_level",
    "took_damage",
    "dealt_damage",
)
VECTOR_FIELDS = ("pos", "vel")
INTEGER_FIELDS = ("kills", "alive", "died", "was_hit", "ecm_on", "eccm_on")
INDEX_FIELDS = ("last_painter", "focus_target")  # -1 for none
OBSERVATION_TOLERANCE = 1e-6


class Episode:
    """The contents of one recorded file: `arrays` by name, `meta`, `events` per step, the config and the zone."""

    def __init__(self, path: str | pathlib.Path) -> None:
        with np.load(path) as data:
            self.arrays: dict[str, np.ndarray] = {name: data[name] for name in data.files}
        self.name = pathlib.Path(path).stem
        self.meta: dict[str, Any] = json.loads(bytes(self.arrays["meta"]))
        self.events: list[list[dict[str, Any]]] = json.loads(bytes(self.arrays["events"]))
        self.config = config_of(self.meta["env_config"])
        zone = self.meta["world_meta"]["capture_zone"]
        self.zone = Zone(zone["center"][0], zone["center"][1], zone["radius"])
        self._shots = _by_step(self.arrays["projectiles"])
        self._clouds = _by_step(self.arrays["smoke"])
        self._edits = _by_step(self.arrays["voxel_edits"])

    @property
    def steps(self) -> int:
        """Decision steps recorded."""
        return len(self.arrays["actions"])

    def tape(self) -> Tape:
        """The recorded draws."""
        orders = self.arrays["move_order"]
        return Tape(orders.reshape(-1, orders.shape[-1]), self.arrays["laser_draws"], self.arrays["ams_draws"])

    def projectiles(self, t: int) -> list[Projectile]:
        """The projectiles in flight after step t, in processing order."""
        return [
            Projectile(int(r[4]), int(r[2]), None if r[3] < 0 else int(r[3]), vec(r[5:8]), vec(r[8:11]), float(r[11]))
            for r in self._shots.get(t, [])
        ]

    def clouds(self, t: int) -> list[SmokeCloud]:
        """Living clouds after step t."""
        return [SmokeCloud(vec(r[1:4]), float(r[4]), float(r[5])) for r in self._clouds.get(t, [])]

    def edits(self, t: int) -> list[tuple[tuple[int, int, int], int, float]]:
        """((z, y, x), material, hp) of every voxel that step t changed."""
        return [((int(r[1]), int(r[2]), int(r[3])), int(r[4]), float(r[5])) for r in self._edits.get(t, [])]

    def start_world(self) -> VoxelWorld:
        """The grid before step 1."""
        return VoxelWorld(self.arrays["voxels0"], self.arrays["voxel_hp0"])

    def world(self, t: int) -> VoxelWorld:
        """The grid after step t."""
        world = self.start_world()
        for step in range(1, t + 1):
            self.apply_edits(world, step)
        return world

    def apply_edits(self, world: VoxelWorld, t: int) -> None:
        """Bring a grid from step t - 1 to step t."""
        for cell, material, hp in self.edits(t):
            world.material[cell] = material
            world.hp[cell] = hp

    def arena(self, t: int, world: VoxelWorld | None = None) -> Arena:
        """The arena after step t, every field loaded.

        Args:
            t: row, 0 to `steps`.
            world: the grid after step t, if the caller has it; it is not copied.
        """
        if not 0 <= t <= self.steps:
            raise ValueError(f"t must be from 0 to {self.steps}, got {t}")
        a = self.arrays
        mechs = make_mechs(self.config.num_packs, a["pos"][t], a["yaw"][t])
        for mech in mechs:
            self._load_mech(mech, t)
        battle = Battle(self.config, self.world(t) if world is None else world, mechs)
        # Grid order: arrivals cell by cell; the order across cells does not matter.
        for mech in mechs:
            battle.grid.remove(mech.index)
        for i in np.argsort(a["grid_rank"][t], kind="stable"):
            if mechs[i].alive:
                battle.grid.place(int(i), mechs[i].pos)
        battle.projectiles, battle.clouds = self.projectiles(t), self.clouds(t)
        battle.tick, battle.time_s = int(a["tick"][t]), float(a["time_s"][t])
        arena = Arena(self.config, battle, self.zone, self.start_world())
        arena.step_count = t
        arena.scores = [float(v) for v in a["zone_score"][t]]
        arena.messages = [[float(v) for v in row] for row in a["comm_last"][t]] if "comm_last" in a else arena.messages
        arena.sort_mode = [int(v) for v in a["contact_sort_mode"][t]]
        arena.hostile_only = [bool(v) for v in a["contact_hostile_only"][t]]
        arena.contact_slots = [[int(v) for v in row] for row in a["contact_slots"][t]]
        # The recorder filled the transition memories after a scenario's own set-up too: no transition at step 1.
        arena.flags_before = [status_flags(mech) for mech in mechs]
        return arena

    def _load_mech(self, mech: Mech, t: int) -> None:
        a, i = self.arrays, mech.index
        for name in FLOAT_FIELDS:
            setattr(mech, name, float(a[name][t, i]))
        for name in VECTOR_FIELDS:
            setattr(mech, name, vec(a[name][t, i]))
        for name in INTEGER_FIELDS:
            setattr(mech, name, int(a[name][t, i]) if name == "kills" else bool(a[name][t, i]))
        for name in INDEX_FIELDS:
            setattr(mech, name, None if a[name][t, i] < 0 else int(a[name][t, i]))
        mech.last_damage_dir = vec(a["last_damage_dir"][t, i]) if a["has_damage_dir"][t, i] else None


def config_of(recorded: dict[str, Any]) -> EnvConfig:
    """The configuration of a recorded episode, with the original's field names translated."""
    world = recorded["world"]
    return EnvConfig.original(
        size_x=world["size_x"],
        size_y=world["size_y"],
        size_z=world["size_z"],
        voxel_size_m=world["voxel_size_m"],
        clearance_z=world["connectivity_clearance_z"],
        num_packs=recorded["num_packs"],
        dt=recorded["dt_sim"],
        substeps=recorded["decision_repeat"],
        max_episode_seconds=recorded["max_episode_seconds"],
        observation_mode=recorded["observation_mode"],
        comm_dim=recorded["comm_dim"],
        target_selection=recorded["enable_target_selection"],
        ewar=recorded["enable_ewar"],
        observation_control=recorded["enable_obs_control"],
        communication=recorded["enable_comm"],
    )


def _by_step(rows: np.ndarray) -> dict[int, list[np.ndarray]]:
    grouped: dict[int, list[np.ndarray]] = {}
    for row in rows:
        grouped.setdefault(int(row[0]), []).append(row)
    return grouped


# ---- comparison -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Count:
    """Values of one field, or events of one type: all, equal to the last bit, within tolerance, different."""

    rows: int = 0
    exact: int = 0
    within_tolerance: int = 0
    different: int = 0

    def add(self, equal: Any, close: Any) -> None:
        """Count values by whether each is equal, and whether each is close."""
        equal, close = np.atleast_1d(equal), np.atleast_1d(close)
        self.rows += equal.size
        self.exact += int(equal.sum())
        self.within_tolerance += int((close & ~equal).sum())
        self.different += int((~close & ~equal).sum())


@dataclasses.dataclass
class Report:
    """The result of a replay.

    Attributes:
        steps: decision steps compared.
        mismatches: one line for each thing that differs: any integer, flag, event or shape, any float beyond its
            tolerance (0: every bit counts; observations 1e-6).
        largest: the largest absolute difference seen per float field, 0.0 where every bit agreed.
        stopped: why a replay ended early, or None.
        fields: counts of values by field.
        events: counts of events by type; one that has any other number, or is missing, is different.
    """

    steps: int = 0
    mismatches: list[str] = dataclasses.field(default_factory=list)
    largest: dict[str, float] = dataclasses.field(default_factory=dict)
    stopped: str | None = None
    fields: dict[str, Count] = dataclasses.field(default_factory=dict)
    events: dict[str, Count] = dataclasses.field(default_factory=dict)

    def count(self, name: str, equal: Any, close: Any) -> None:
        """Add values to the counts of a field."""
        self.fields.setdefault(name, Count()).add(equal, close)

    def floats(self, where: str, name: str, got: Any, expected: Any, tolerance: float = 0.0) -> None:
        """Compare numbers; NaN never agrees."""
        g, e = np.asarray(got, np.float64), np.asarray(expected, np.float64)
        if g.shape != e.shape:
            self.count(name, False, False)
            self.mismatches.append(f"{where} {name}: shape {g.shape}, recorded {e.shape}")
            return
        difference = np.abs(g - e)
        self.count(name, difference == 0, difference <= tolerance)
        worst = float(difference.max()) if difference.size else 0.0
        self.largest[name] = max(self.largest.get(name, 0.0), worst)
        if not worst <= tolerance:
            at = np.unravel_index(int(difference.argmax()), difference.shape)
            self.mismatches.append(f"{where} {name}{[int(i) for i in at]}: {g[at]!r}, recorded {e[at]!r}")

    def exact(self, where: str, name: str, got: Any, expected: Any, field: str = "") -> None:
        """Compare anything else; counted under `field`, by default the name."""
        if isinstance(got, np.ndarray) or isinstance(expected, np.ndarray):
            g, e = np.asarray(got), np.asarray(expected)
            equal = g == e if g.shape == e.shape else np.array(False)
            self.count(field or name, equal, equal)
            if not equal.all():
                self.mismatches.append(f"{where} {name}: {g.tolist()}, recorded {e.tolist()}")
            return
        self.count(field or name, got == expected, got == expected)
        if got != expected:
            self.mismatches.append(f"{where} {name}: {got!r}, recorded {expected!r}")


def compare_state(report: Report, episode: Episode, t: int, arena: Arena, world: VoxelWorld) -> None:
    """Compare every field of the state after step t; `world` is the recorded grid of that step."""
    a, battle, where = episode.arrays, arena.battle, f"step {t}"
    mechs = battle.mechs
    for name in (*FLOAT_FIELDS, *VECTOR_FIELDS):
        report.floats(where, name, [getattr(mech, name) for mech in mechs], a[name][t])
    for name in INTEGER_FIELDS:
        report.exact(where, name, np.array([int(getattr(mech, name)) for mech in mechs]), a[name][t].astype(int))
    for name in INDEX_FIELDS:
        indices = [-1 if getattr(mech, name) is None else getattr(mech, name) for mech in mechs]
        report.exact(where, name, np.array(indices), a[name][t])
    struck = np.array([mech.last_damage_dir is not None for mech in mechs])
    report.exact(where, "has_damage_dir", struck, a["has_damage_dir"][t])
    blows = [mech.last_damage_dir or (0.0, 0.0, 0.0) for mech in mechs]
    report.floats(
        where, "last_damage_dir", blows, np.where(a["has_damage_dir"][t][:, None], a["last_damage_dir"][t], 0)
    )
    report.exact(where, "grid_rank", np.array([battle.grid.rank(mech.index) for mech in mechs]), a["grid_rank"][t])

    shots, recorded = battle.projectiles, episode.projectiles(t)
    names = [(s.weapon, s.shooter, s.target) for s in shots]
    report.exact(where, "projectiles", names, [(s.weapon, s.shooter, s.target) for s in recorded])
    if len(shots) == len(recorded):
        numbers = [(*s.pos, *s.vel, s.age) for s in shots]
        report.floats(where, "projectile floats", numbers, [(*s.pos, *s.vel, s.age) for s in recorded])
    clouds = [(*cloud.pos, cloud.radius, cloud.life) for cloud in battle.clouds]
    report.floats(where, "smoke", clouds, [(*cloud.pos, cloud.radius, cloud.life) for cloud in episode.clouds(t)])

    for name, got, expected in (
        ("voxels", battle.world.material, world.material),
        ("voxel hp", battle.world.hp, world.hp),
    ):
        differ = np.argwhere(got != expected)
        report.count(name, not len(differ), not len(differ))  # one row a step
        if len(differ):
            cell = tuple(int(i) for i in differ[0])
            report.mismatches.append(
                f"{where} {name}: {len(differ)} differ, [z, y, x] = {cell}: {got[cell]}, recorded {expected[cell]}"
            )
    report.exact(where, "tick", battle.tick, int(a["tick"][t]))
    report.floats(where, "time_s", battle.time_s, a["time_s"][t])
    report.floats(where, "zone_score", arena.scores, a["zone_score"][t])
    if "comm_last" in a:
        report.floats(where, "comm_last", arena.messages, a["comm_last"][t])
    report.exact(where, "contact_sort_mode", np.array(arena.sort_mode), a["contact_sort_mode"][t])
    report.exact(where, "contact_hostile_only", np.array(arena.hostile_only), a["contact_hostile_only"][t])
    report.exact(where, "contact_slots", np.array(arena.contact_slots), a["contact_slots"][t])


def compare_step(report: Report, episode: Episode, t: int, made: Advance) -> None:
    """Compare the results of step t: observation, rewards, the original's flags, events."""
    a, where = episode.arrays, f"step {t}"
    report.floats(where, "obs", made.observation, a["obs"][t], OBSERVATION_TOLERANCE)
    report.floats(where, "rewards", made.reward.astype(np.float32), a["rewards"][t - 1])
    recorded = a["reward_components"][t - 1]  # the original has no pay for a shutdown, the last of our components
    report.floats(where, "components", made.components[:, : recorded.shape[1]].astype(np.float32), recorded)
    report.exact(where, "terminated", made.terminated, a["terminated"][t - 1])
    report.exact(where, "truncated", made.truncated, a["truncated"][t - 1])
    compare_events(report, where, made.events, episode.events[t - 1])


def compare_events(report: Report, where: str, got: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Compare two lists of events: order, types, field names, values; floats by every bit."""
    report.exact(where, "event types", [e["type"] for e in got], [e["type"] for e in expected])
    for i, e in enumerate(expected):
        same = i < len(got) and got[i] == e
        report.events.setdefault(e["type"], Count()).add(same, same)
    for i, (g, e) in enumerate(zip(got, expected, strict=False)):
        report.exact(where, f"event {i} fields", sorted(g), sorted(e), "event fields")
        for key in set(g) & set(e):
            if isinstance(e[key], (list, float)):
                report.floats(where, f"event {key}", g[key], e[key])
            else:
                report.exact(where, f"event {i} {key}", g[key], e[key], f"event {key}")


def compare_end(report: Report, episode: Episode, arena: Arena) -> None:
    """Compare the outcome and the statistics of a whole free-running episode."""
    recorded, stats = episode.meta["outcome"], episode.meta["episode_stats"]
    for name, value in stats.items():
        report.floats("end", f"statistic {name}", arena.statistics[name], value)
    if (recorded is None) != (arena.outcome is None):
        report.mismatches.append(f"outcome: {arena.outcome!r}, recorded {recorded!r}")
    elif recorded is not None and arena.outcome is not None:
        report.exact("end", "outcome fields", sorted(arena.outcome), sorted(recorded))
        for name in ("reason", "winner"):
            report.exact("end", name, arena.outcome[name], recorded[name])
        for name in ("hp", "zone_score"):
            for team in ("blue", "red"):
                report.floats("end", f"outcome {name}", arena.outcome[name][team], recorded[name][team])
        report.floats("end", "score to win", arena.outcome["zone_score_to_win"], recorded["zone_score_to_win"])


# ---- replays --------------------------------------------------------------------------------------------------------


def replay(episode: Episode, teacher_forced: bool, steps: int | None = None) -> Report:
    """Replay a recorded episode with its draws and compare every step.

    Args:
        episode: what was recorded.
        teacher_forced: load row t - 1 before every step t; otherwise only row 0, and the end is compared too.
        steps: number of steps to compare; all by default.
    """
    report = Report()
    tape = episode.tape()
    recorded_world = episode.start_world()
    arena = episode.arena(0, episode.start_world())
    report.floats("step 0", "obs", arena.look(), episode.arrays["obs"][0], OBSERVATION_TOLERANCE)
    report.exact("step 0", "contact_slots", np.array(arena.contact_slots), episode.arrays["contact_slots"][0])
    total = episode.steps if steps is None else min(steps, episode.steps)
    for t in range(1, total + 1):
        if teacher_forced and t > 1:
            arena = episode.arena(t - 1, recorded_world.copy())
        episode.apply_edits(recorded_world, t)
        try:
            made = arena.advance(episode.arrays["actions"][t - 1], tape)
        except MissingDraw as missing:
            report.mismatches.append(f"step {t}: {missing}")
            report.stopped = str(missing)
            if teacher_forced:
                continue
            return report
        compare_step(report, episode, t, made)
        compare_state(report, episode, t, arena, recorded_world)
        report.steps += 1
    if not teacher_forced and total == episode.steps:
        compare_end(report, episode, arena)
    return report
