"""Recorded episodes of the original as states, actions and draws of this library (golden README).

Row t is the state after t decision steps; actions[t] and `noise_for(episode, [t])` lead from row t to row t + 1.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.state import STATISTICS, ArenaMap, EnvState
from echelon_jax.parity.recorded.maps import column_words, local_map, telemetry
from echelon_jax.rules.materials import COLLIDES, OPAQUE
from echelon_jax.rules.mechs import MECH_CLASSES, PACK_SIZE, roster
from echelon_jax.rules.weapons import MISSILE, SMOKE
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.slots import BARREL, TUBE, slots
from echelon_jax.sim.state import Grid, Mechs, Projectiles, SimState, Smoke, Tally

# Columns of the `projectiles` and `smoke` tables.
SHOT_T, SHOT_UID, SHOT_SHOOTER, SHOT_TARGET, SHOT_WEAPON = 0, 1, 2, 3, 4
SHOT_POSITION, SHOT_VELOCITY, SHOT_AGE = 5, 8, 11
CLOUD_T, CLOUD_POSITION, CLOUD_RADIUS, CLOUD_LIFE = 0, 1, 4, 5
# A draw that the recording lacks must change nothing by itself: no interception, a hit on the body.
NO_INTERCEPTION, BODY_HIT = 1.0, 0.5


@dataclasses.dataclass(frozen=True)
class Episode:
    """One recorded episode: its configuration and every array of the file, as recorded.

    Attributes:
        name: file name without its suffix.
        config: the configuration of the episode, with the original's rules.
        data: the file's arrays by name.
        meta: world, ids, outcome and statistics as recorded.
        events: per decision step the list of events; events[t] led from row t to row t + 1.
    """

    name: str
    config: EnvConfig
    data: dict[str, np.ndarray]
    meta: dict[str, Any]
    events: list[list[dict[str, Any]]]

    @property
    def steps(self) -> int:
        """Decision steps recorded; rows are 0 to `steps`."""
        return len(self.data["actions"])

    @cached_property
    def grids(self) -> tuple[np.ndarray, np.ndarray]:
        """Material uint8 and hit points int16 [rows, voxels] of every row."""
        material0, hp0 = self.data["voxels0"], self.data["voxel_hp0"]
        _, height, width = material0.shape
        material = np.repeat(material0.reshape(1, -1), self.steps + 1, 0)
        hp = np.repeat(whole(hp0).reshape(1, -1), self.steps + 1, 0)
        edits = self.data["voxel_edits"]
        for t in range(1, self.steps + 1):
            material[t], hp[t] = material[t - 1], hp[t - 1]
            rows = edits[edits[:, 0] == t]
            z, y, x = (rows[:, i].astype(int) for i in (1, 2, 3))
            cell = (z * height + y) * width + x
            material[t, cell] = rows[:, 4]
            hp[t, cell] = whole(rows[:, 5])
        return material, hp

    @cached_property
    def tube_smoke(self) -> np.ndarray:
        """[rows, mechs] whether the last shot from the tube was smoke (and not a missile)."""
        index = {name: i for i, name in enumerate(self.meta["ids"])}
        smoke = np.zeros((self.steps + 1, self.config.num_mechs), bool)
        for t, events in enumerate(self.events):
            smoke[t + 1] = smoke[t]
            for event in events:
                if event["type"] in ("smoke_launch", "missile_launch"):
                    smoke[t + 1, index[event["shooter"]]] = event["type"] == "smoke_launch"
        return smoke


def whole(values: np.ndarray) -> np.ndarray:
    """Voxel hit points as int16.

    Raises:
        ValueError: if one is not a whole number from 0 to 32767.
    """
    result = np.round(values).astype(np.int16)
    if not np.array_equal(result, values):
        raise ValueError("voxel hit points must be whole numbers from 0 to 32767")
    return result


def episode_config(env_config: dict[str, Any]) -> EnvConfig:
    """The original's configuration record as an `EnvConfig`."""
    world = env_config["world"]
    return EnvConfig.original(
        size_x=world["size_x"],
        size_y=world["size_y"],
        size_z=world["size_z"],
        voxel_size_m=float(world["voxel_size_m"]),
        clearance_z=world["connectivity_clearance_z"],
        num_packs=env_config["num_packs"],
        dt=env_config["dt_sim"],
        substeps=env_config["decision_repeat"],
        max_episode_seconds=float(env_config["max_episode_seconds"]),
        observation_mode=env_config["observation_mode"],
        comm_dim=env_config["comm_dim"],
        target_selection=env_config["enable_target_selection"],
        ewar=env_config["enable_ewar"],
        observation_control=env_config["enable_obs_control"],
        communication=env_config["enable_comm"],
    )


def load_episode(path: str | Path) -> Episode:
    """Read one recorded episode.

    Raises:
        ValueError: if the file is not a recorded episode.
    """
    path = Path(path)
    with np.load(path) as file:
        data = {key: file[key] for key in file.files}
    missing = [key for key in ("meta", "events", "actions", "voxels0", "pos") if key not in data]
    if missing:
        raise ValueError(f"{path.name} must be a recorded episode, it lacks {', '.join(missing)}")
    meta = json.loads(data.pop("meta").tobytes())
    events = json.loads(data.pop("events").tobytes())
    return Episode(path.stem, episode_config(meta["env_config"]), data, meta, events)


def counters(seconds: np.ndarray, dt: float) -> np.ndarray:
    """Timers in float64 seconds as substeps: how often `dt` can be subtracted until they read zero.

    Source: docs/spec/rules.md 1.2.
    """
    left = np.array(seconds, np.float64)
    count = np.zeros(left.shape, np.int32)
    while (running := left > 0).any():
        count += running
        left = np.maximum(left - dt, 0.0)
    return count


def shots_at(episode: Episode, t: int) -> np.ndarray:
    """Rows of the projectile table in flight after step t, in processing order."""
    table = episode.data["projectiles"]
    return table[table[:, SHOT_T] == t]


def clouds_at(episode: Episode, t: int) -> np.ndarray:
    """Rows of the smoke table alive after step t."""
    table = episode.data["smoke"]
    return table[table[:, CLOUD_T] == t]


def shot_slots(episode: Episode, t: int) -> list[int]:
    """The slot of each row of `shots_at(episode, t)`: the first free one of its launcher.

    Raises:
        ValueError: if a launcher has more shots in flight than slots.
    """
    table = slots(episode.config)
    taken: set[int] = set()
    result = []
    for row in shots_at(episode, t):
        launcher = TUBE if int(row[SHOT_WEAPON]) in (MISSILE, SMOKE) else BARREL
        own_slots = np.flatnonzero((table.mech == int(row[SHOT_SHOOTER])) & (table.launcher == launcher))
        free = [int(s) for s in own_slots if int(s) not in taken]
        if not free:
            raise ValueError(f"{episode.name} row {t}: mech {int(row[SHOT_SHOOTER])} has too many shots in flight")
        taken.add(free[0])
        result.append(free[0])
    return result


def _projectiles(episode: Episode, ts: Sequence[int]) -> Projectiles:
    shape = (len(ts), slots(episode.config).count)
    alive, order = np.zeros(shape, bool), np.zeros(shape, np.int32)
    weapon, target, age = np.zeros(shape, np.int32), np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
    position, velocity = np.zeros((*shape, 3), np.float32), np.zeros((*shape, 3), np.float32)
    for b, t in enumerate(ts):
        for number, (slot, row) in enumerate(zip(shot_slots(episode, t), shots_at(episode, t), strict=True)):
            alive[b, slot], order[b, slot] = True, number
            weapon[b, slot], target[b, slot] = row[SHOT_WEAPON], row[SHOT_TARGET]
            position[b, slot] = row[SHOT_POSITION : SHOT_POSITION + 3]
            velocity[b, slot] = row[SHOT_VELOCITY : SHOT_VELOCITY + 3]
            age[b, slot] = round(row[SHOT_AGE] / episode.config.dt)
    parts = (alive, weapon, target, position, velocity, age, order, np.zeros(shape, np.uint8))
    return Projectiles(*(jnp.asarray(part) for part in parts))


def _smoke(episode: Episode, ts: Sequence[int]) -> Smoke:
    """Clouds in slots. Their owners are not recorded, so they are spread evenly, and every mech keeps room for a new one."""
    n, per_mech = episode.config.num_mechs, slots(episode.config).clouds
    deal = np.arange(n * per_mech).reshape(n, per_mech).T.reshape(-1)
    position = np.zeros((len(ts), n * per_mech, 3), np.float32)
    life = np.zeros((len(ts), n * per_mech), np.int32)
    for b, t in enumerate(ts):
        rows = clouds_at(episode, t)
        if len(rows) > n * (per_mech - 1):
            raise ValueError(f"{episode.name} row {t}: loads at most {n * (per_mech - 1)} clouds, got {len(rows)}")
        where = deal[: len(rows)]
        position[b, where] = rows[:, CLOUD_POSITION : CLOUD_POSITION + 3]
        life[b, where] = counters(rows[:, CLOUD_LIFE], episode.config.dt)
    return Smoke(jnp.asarray(position), jnp.asarray(life))


def _mechs(episode: Episode, ts: Sequence[int]) -> Mechs:
    rows = np.asarray(ts)

    def real(name: str) -> jnp.ndarray:
        return jnp.asarray(episode.data[name][rows].astype(np.float32))

    def timer(name: str) -> jnp.ndarray:
        return jnp.asarray(counters(episode.data[name][rows], episode.config.dt))

    def index(name: str) -> jnp.ndarray:
        return jnp.asarray(episode.data[name][rows].astype(np.int32))

    def flag(name: str) -> jnp.ndarray:
        return jnp.asarray(episode.data[name][rows].astype(bool))

    return Mechs(
        position=real("pos"),
        velocity=real("vel"),
        yaw=real("yaw"),
        hp=real("hp"),
        leg_hp=real("leg_hp"),
        heat=real("heat"),
        stability=real("stability"),
        loudness=real("noise_level"),
        alive=flag("alive"),
        fallen=timer("fallen_time"),
        suppressed=timer("suppressed_time"),
        ams_cooldown=timer("ams_cooldown"),
        laser_cooldown=timer("laser_cooldown"),
        tube_cooldown=timer("missile_cooldown"),
        tube_was_smoke=jnp.asarray(episode.tube_smoke[rows]),
        kinetic_cooldown=timer("kinetic_cooldown"),
        painter_cooldown=timer("painter_cooldown"),
        painted=timer("painted_remaining"),
        last_painter=index("last_painter"),
        focus=index("focus_target"),
        ecm_on=flag("ecm_on"),
        eccm_on=flag("eccm_on"),
        insertion_index=jnp.maximum(index("grid_rank"), 0),
    )


def _tally(episode: Episode, ts: Sequence[int]) -> Tally:
    """The recorded part of the last step's tallies; counts of events are zero. A step clears all of it first."""
    rows = np.asarray(ts)
    data = episode.data
    zero = jnp.zeros((len(rows), episode.config.num_mechs), jnp.int32)
    return Tally(
        took_damage=jnp.asarray(data["took_damage"][rows].astype(np.float32)),
        dealt_damage=jnp.asarray(data["dealt_damage"][rows].astype(np.float32)),
        kills=jnp.asarray(data["kills"][rows].astype(np.int32)),
        died=jnp.asarray(data["died"][rows]),
        was_hit=jnp.asarray(data["was_hit"][rows]),
        damage_direction=jnp.asarray(data["last_damage_dir"][rows]),
        has_damage_direction=jnp.asarray(data["has_damage_dir"][rows]),
        assists=zero,
        paints=zero,
        laser_hits=zero,
        missile_launches=zero,
        kinetic_fires=zero,
        smoke_launches=zero,
        projectile_hits=zero,
        explosions=zero,
        ams_intercepts=zero,
        friendly_damage=zero.astype(jnp.float32),
        friendly_kills=zero,
    )


def env_states(episode: Episode, ts: Sequence[int]) -> EnvState:
    """Rows `ts` of an episode as a batch of arenas, ready to be stepped with `noise_for(episode, ts)`.

    Statistics start at zero, so that after one step they hold that step's events.
    """
    config, rows, arenas = episode.config, np.asarray(ts), len(ts)
    material, hp = episode.grids[0][rows], episode.grids[1][rows]
    mechs = _mechs(episode, ts)
    ground = episode.data["voxels0"].reshape(-1)
    messages = episode.data.get("comm_last", np.zeros((episode.steps + 1, config.num_mechs, 0)))
    zone = episode.meta["world_meta"]["capture_zone"]
    zeros = jnp.zeros(arenas, jnp.int32)
    heat_cap = np.array([MECH_CLASSES[c].heat_cap for c in roster(config.num_packs).mech_class])

    def same(values: np.ndarray) -> jnp.ndarray:
        return jnp.asarray(np.repeat(values[None], arenas, 0))

    return EnvState(
        sim=SimState(
            mechs=mechs,
            tally=_tally(episode, ts),
            projectiles=_projectiles(episode, ts),
            smoke=_smoke(episode, ts),
            grid=Grid(
                material=jnp.asarray(material),
                hp=jnp.asarray(hp),
                collides=jnp.asarray(column_words(material, COLLIDES, config)),
                opaque=jnp.asarray(column_words(material, OPAQUE, config)),
            ),
            tick=jnp.asarray(episode.data["tick"][rows].astype(np.int32)),
            next_insertion_index=jnp.full(arenas, config.num_mechs, jnp.int32),
            lost_shots=zeros,
            lost_clouds=zeros,
        ),
        arena_map=ArenaMap(
            zone=same(np.array([*zone["center"], zone["radius"]], np.float32)),
            occupancy=same(local_map(ground, config)),
            telemetry=same(telemetry(ground, config)),
            seed=jnp.full(arenas, episode.meta["env_config"].get("seed") or 0, jnp.int32),
        ),
        messages=jnp.asarray(messages[rows].astype(np.float32)),
        sort_mode=jnp.asarray(episode.data["contact_sort_mode"][rows].astype(np.int32)),
        hostile_only=jnp.asarray(episode.data["contact_hostile_only"][rows]),
        contact_slots=jnp.asarray(episode.data["contact_slots"][rows].astype(np.int32)),
        score=jnp.asarray(episode.data["zone_score"][rows].astype(np.float32)),
        score_carry=jnp.zeros((arenas, 2), jnp.float32),
        step_count=jnp.asarray(rows.astype(np.int32)),
        was_fallen=mechs.fallen > 0,
        was_legged=mechs.leg_hp <= 0,
        was_shutdown=jnp.asarray(episode.data["heat"][rows] > heat_cap),
        statistics=jnp.zeros((arenas, len(STATISTICS), 2), jnp.float32),
        episode_over=jnp.zeros(arenas, bool),
        reason=zeros,
        winner=zeros,
    )


def actions_at(episode: Episode, ts: Sequence[int]) -> jnp.ndarray:
    """float32 [arenas, mechs, action] recorded actions that lead from rows `ts` to the next."""
    return jnp.asarray(episode.data["actions"][np.asarray(ts)].astype(np.float32))


def noise_for(episode: Episode, ts: Sequence[int]) -> Noise:
    """The recorded draws of the decision steps from rows `ts`, at the indices where this library reads them.

    A missile in flight at row t keeps its slot, so its rolls have one index. A missile launched within the step takes a
    slot that is free by then, so its rolls go to every slot of its launcher that has no other roll of that tick.
    """
    config, table = episode.config, slots(episode.config)
    s, n = config.substeps, config.num_mechs
    ams = np.full((len(ts), s, len(table.heavy), table.max_ring, config.num_packs), NO_INTERCEPTION, np.float32)
    height = np.full((len(ts), s, n, 2), BODY_HIT, np.float32)
    order = np.zeros((len(ts), s, n), np.int32)
    lasers, rolls = episode.data["laser_draws"], episode.data["ams_draws"]
    for b, t in enumerate(ts):
        for i in range(s):
            moving = [int(m) for m in episode.data["move_order"][t, i] if m >= 0]
            order[b, i] = moving + [m for m in range(n) if m not in moving]
        first = t * s + 1
        for tick, shooter, weapon, u in lasers[(lasers[:, 0] >= first) & (lasers[:, 0] < first + s)]:
            height[b, int(tick) - first, int(shooter), int(weapon)] = u
        ring_of = {
            int(row[SHOT_UID]): int(table.ring[slot])
            for slot, row in zip(shot_slots(episode, t), shots_at(episode, t), strict=True)
        }
        now = rolls[(rolls[:, 0] >= first) & (rolls[:, 0] < first + s)]
        # The missiles already in flight first; what they leave open is for the new ones.
        taken: set[tuple[int, int, int]] = set()
        for loaded in (True, False):
            for tick, uid, defender, u, shooter, _age in now:
                if (int(uid) in ring_of) is not loaded:
                    continue
                i, heavy = int(tick) - first, int(table.heavy_of[int(shooter)])
                pack = int(defender) % config.team_size // PACK_SIZE
                if loaded:
                    ams[b, i, heavy, ring_of[int(uid)], pack] = u
                    taken.add((i, heavy, ring_of[int(uid)]))
                    continue
                for ring in range(table.max_ring):
                    if (i, heavy, ring) not in taken:
                        ams[b, i, heavy, ring, pack] = u
    return Noise(ams=jnp.asarray(ams), hit_height=jnp.asarray(height), move_order=jnp.asarray(order))
