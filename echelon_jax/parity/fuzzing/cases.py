"""Random cases for the fuzzed parity: any state the rules allow, actions and draws, each a function of (config, seed).

Worlds hold every material with any hit points; mechs are damaged, hot, fallen, legged, airborne, painted, overlapping, at
every border and above the map; shots and clouds are in flight. What the rules cannot reach is left out: timers beyond their
start values, more shots than a launcher's cooldown allows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.beginning import Maps, fresh_state
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.state import EnvState, ObservationMemory
from echelon_jax.parity.exchange import row_of
from echelon_jax.parity.recorded.maps import column_words, local_map, telemetry
from echelon_jax.parity.timers import most
from echelon_jax.rules import materials as mat
from echelon_jax.rules.mechs import HEAVY, MECH_CLASSES, SCOUT, roster
from echelon_jax.rules.timers import decrements, moves
from echelon_jax.rules.weapons import BALLISTIC, HITSCAN, MISSILE, SMOKE, WEAPONS, barrel_of
from echelon_jax.sim.noise import Noise, sample_noise
from echelon_jax.sim.rules import sim_rules
from echelon_jax.sim.slots import BARREL, TUBE, slots
from echelon_jax.sim.state import Grid, Mechs, Projectiles, SimState, Smoke

MATERIALS = np.array(
    [mat.SOLID, mat.LAVA, mat.WATER, mat.DEBRIS_FIELD, mat.SOLID_DEBRIS, mat.GLASS, mat.REINFORCED, mat.FOLIAGE, 200]
)
HIT_POINTS = np.array([0, 0, 1, 8, 10, 20, 25, 40, 50, 60, 100, 200, 1000])
_TIMERS = (
    "fallen",
    "suppressed",
    "ams_cooldown",
    "laser_cooldown",
    "tube_cooldown",
    "kinetic_cooldown",
    "painter_cooldown",
    "painted",
)


class Case(flax.struct.PyTreeNode):
    """One decision step to be made by both simulators; numpy leaves without an arena axis."""

    state: EnvState
    actions: np.ndarray
    noise: Noise


def make_case(config: EnvConfig, seed: int) -> Case:
    """The case of a seed: the same for ever under one version of this file."""
    rng = np.random.default_rng([seed, config.num_packs, config.size_x, config.size_z])
    sim = _sim(config, rng)
    return Case(_state(config, rng, sim), _actions(config, rng), _noise(config, rng))


@cache
def _blank(config: EnvConfig) -> tuple[EnvState, Noise]:
    """A fresh arena and some draws. A case takes the fields from here that it does not choose."""
    n, columns = config.num_mechs, config.size_x * config.size_y
    shapes = {"hp": (columns * config.size_z, np.int16), "telemetry": (256, np.uint8), "occupancy": (columns, np.uint8)}
    shapes |= {"material": (columns * config.size_z, np.uint8)}
    shapes |= {"collides": (columns, np.uint32), "opaque": (columns, np.uint32)}
    maps = Maps(**{name: jnp.zeros((1, size), kind) for name, (size, kind) in shapes.items()})
    zeros = jnp.zeros((1, n))
    unseen = jnp.full((1, n, 5), -1, jnp.int32)
    spawns = jnp.zeros((1, 3)), jnp.zeros((1, n, 3)), zeros, jnp.zeros(1, jnp.int32), unseen
    state = fresh_state(config, sim_rules(config), maps, *spawns)
    return row_of(state, 0), row_of(sample_noise(config, jax.random.split(jax.random.key(0), 1)), 0)


def _changed(tree: Any, **fields: Any) -> Any:
    return tree.replace(**fields)


# ---- world ----------------------------------------------------------------------------------------------------------


def _grid(config: EnvConfig, rng: np.random.Generator) -> Grid:
    shape = (config.size_z, config.size_y, config.size_x)
    material = np.zeros(shape, np.uint8)
    material[0] = mat.DIRT
    sprinkle = rng.random(shape) < rng.choice([0.0, 0.01, 0.03, 0.15])
    material[sprinkle] = rng.choice(MATERIALS, int(sprinkle.sum()))
    for _ in range(rng.integers(0, 40)):  # buildings, pools, walls, low steps
        low = [int(rng.integers(0, n)) for n in shape]
        low[0] = int(rng.choice([0, 0, 0, 1, low[0]]))
        size = rng.integers(1, [6, 9, 9])
        if rng.random() < 0.3:
            low[0], size[0] = 0, 1
        box = tuple(slice(a, a + int(b)) for a, b in zip(low, size, strict=True))
        material[box] = rng.choice(MATERIALS) if rng.random() < 0.85 else mat.AIR
    hp = np.where(material == mat.AIR, 0, rng.choice(HIT_POINTS, shape))
    odd = rng.random(shape) < 0.02  # hp out of step with ids
    hp[odd] = rng.choice(HIT_POINTS, int(odd.sum()))
    flat = material.reshape(1, -1)
    return _changed(
        _blank(config)[0].sim.grid,
        material=flat[0],
        hp=hp.reshape(-1).astype(np.int16),
        collides=column_words(flat, mat.COLLIDES, config)[0],
        opaque=column_words(flat, mat.OPAQUE, config)[0],
    )


# ---- mechs ----------------------------------------------------------------------------------------------------------


def _positions(config: EnvConfig, rng: np.random.Generator, half: np.ndarray) -> np.ndarray:
    """Centres within the borders: around one fight, anywhere, at borders and corners, on the floor, high, above the map."""
    n, size = len(half), np.array([config.size_x, config.size_y, config.size_z], float)
    low, high = half[:, :2].astype(float), size[:2] - half[:, :2]
    fight = rng.uniform([4, 4], size[:2] - 4)
    spread = rng.choice([2.5, 4.0, 7.0, 40.0])
    xy = fight + rng.uniform(-spread, spread, (n, 2))
    border = rng.random((n, 2)) < rng.choice([0.02, 0.1, 0.5])
    xy = np.where(border, np.where(rng.random((n, 2)) < 0.5, -1e3, 1e3), xy)
    whole = rng.random((n, 1)) < 0.05
    xy = np.clip(np.where(whole, np.round(xy * 64) / 64, xy), low, high)
    z = half[:, 2] + np.select(
        [rng.random(n) < p for p in (rng.choice([0.3, 0.95]), 0.5, 0.6, 0.6)],
        [np.zeros(n), rng.uniform(0, 0.02, n), rng.uniform(0, 8, n), rng.uniform(0, size[2], n)],
        rng.uniform(size[2] - 3, size[2] + 6, n),
    )
    return np.concatenate([xy, z[:, None]], -1).astype(np.float32)


def _yaws(rng: np.random.Generator, position: np.ndarray, team: np.ndarray) -> np.ndarray:
    """Half of the mechs look at an enemy, more or less; the rest anywhere, a little beyond pi too."""
    yaw = rng.uniform(-3.4, 3.4, len(team))
    for i in np.flatnonzero(rng.random(len(team)) < 0.6):
        d = position[rng.choice(np.flatnonzero(team != team[i]))] - position[i]
        yaw[i] = np.arctan2(d[1], d[0]) + rng.normal() * rng.choice([0.0, 0.05, 0.2])
    return yaw.astype(np.float32)


def _mechs(config: EnvConfig, rng: np.random.Generator) -> Mechs:
    who = roster(config.num_packs)
    n, classes = who.size, [MECH_CLASSES[c] for c in who.mech_class]

    def table(name: str) -> np.ndarray:
        return np.array([getattr(c, name) for c in classes])

    half = np.array([c.size for c in classes]).astype(np.float32) / 2
    position = _positions(config, rng, half)
    velocity = np.concatenate([rng.uniform(-7, 7, (n, 2)), rng.uniform(-12, 12, (n, 1))], -1)
    velocity *= rng.random((n, 1)) < 0.6
    velocity[:, 2] = np.where(rng.random(n) < 0.5, rng.uniform(-0.9, 0.9, n), velocity[:, 2])
    hp = table("hp") * rng.choice([1.0, 0.5, 0.05], n, p=[0.4, 0.4, 0.2]) * rng.uniform(0.02, 1.0, n)
    alive = rng.random(n) < rng.choice([1.0, 0.9, 0.6])
    leg_hp = table("leg_hp") * np.where(rng.random(n) < 0.25, rng.uniform(-0.3, 0.0, n), rng.uniform(0, 1, n))
    heat = table("heat_cap") * rng.choice([0.0, 0.4, 0.98, 1.2], n, p=[0.35, 0.35, 0.2, 0.1]) * rng.uniform(0.8, 1.2, n)
    stability = np.where(rng.random(n) < 0.15, 0.0, rng.uniform(0, 100, n))
    scout = who.mech_class == SCOUT
    smoke = (rng.random(n) < 0.5) | (who.mech_class != HEAVY)
    timers = {}
    for name in _TIMERS:
        top = np.array([most(name, int(c), bool(s), config.dt) for c, s in zip(who.mech_class, smoke, strict=True)])
        near_end = rng.random(n) < 0.4
        count = np.where(near_end, rng.integers(0, 6, n), rng.integers(0, top + 1))
        rare = {"fallen": 0.15, "suppressed": 0.3, "painted": 0.5}.get(name, 0.35)
        timers[name] = np.where(rng.random(n) < rare, np.minimum(count, top), 0).astype(np.int32)
    painter = np.array([rng.choice(np.flatnonzero(who.team != t)) for t in who.team])
    painter = np.where((timers["painted"] > 0) | (rng.random(n) < 0.2), painter, -1)
    ecm = scout & (rng.random(n) < 0.5)
    return _changed(
        _blank(config)[0].sim.mechs,
        position=position,
        velocity=velocity.astype(np.float32),
        yaw=_yaws(rng, position, who.team),
        hp=np.where(alive, hp, -hp * (rng.random(n) < 0.5)).astype(np.float32),
        leg_hp=leg_hp.astype(np.float32),
        heat=heat.astype(np.float32),
        stability=stability.astype(np.float32),
        loudness=(rng.uniform(0, 25, n) * (rng.random(n) < 0.7)).astype(np.float32),
        alive=alive,
        tube_was_smoke=smoke,
        last_painter=painter.astype(np.int32),
        focus=np.full(n, -1, np.int32),
        ecm_on=ecm,
        eccm_on=scout & ~ecm & (rng.random(n) < 0.5),
        insertion_index=rng.permutation(n).astype(np.int32),
        **timers,
    )


# ---- shots and clouds -----------------------------------------------------------------------------------------------


def _shots(config: EnvConfig, rng: np.random.Generator, mechs: Mechs) -> Projectiles:
    """Shots near their targets or anywhere, outside the map too. Cooldowns of full launchers are set so that none is lost."""
    table, who = slots(config), roster(config.num_packs)
    count, dt = table.count, config.dt
    classes = who.mech_class[table.mech]
    tube = table.launcher == TUBE
    missile = tube & np.isin(classes, list(WEAPONS[MISSILE].triggers)) & (rng.random(count) < 0.75)
    barrels = [barrel_of(int(c)) for c in classes]
    barrel = np.array([BALLISTIC[0] if w is None else w for w in barrels])
    weapon = np.where(tube, np.where(missile, MISSILE, SMOKE), barrel).astype(np.int32)
    alive = rng.random(count) < rng.choice([0.0, 0.1, 0.25, 0.7])
    last = np.array([moves(WEAPONS[w].range / WEAPONS[w].speed, dt) for w in weapon])
    age = np.where(rng.random(count) < 0.2, last - rng.integers(0, 4, count), rng.integers(0, last + 1)).astype(
        np.int32
    )

    target = np.array([rng.choice(np.flatnonzero(who.team != who.team[m])) for m in table.mech])
    aim = mechs.position[target].astype(float)
    speed = np.array([WEAPONS[w].speed for w in weapon])[:, None]
    direction = rng.normal(size=(count, 3)) * [1, 1, rng.choice([0.2, 1.0])] + 1e-6
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    size = np.array([config.size_x, config.size_y, config.size_z], float)
    anywhere = rng.random((count, 1)) < 0.3
    position = np.where(
        anywhere,
        rng.uniform(-3, size + 3, (count, 3)),
        aim - direction * speed * dt * rng.uniform(0, 6, (count, 1)) + rng.normal(size=(count, 3)) * 0.5,
    )
    position[:, 2] = np.where(rng.random(count) < 0.95, np.maximum(position[:, 2], 0.15), position[:, 2])
    for m, launcher in {(int(m), int(w)) for m, w in zip(table.mech, table.launcher, strict=True)}:
        own = np.flatnonzero((table.mech == m) & (table.launcher == launcher))
        if not alive[own].all():
            continue
        longest = decrements(WEAPONS[int(weapon[own[0]])].cooldown, dt)
        if launcher == BARREL and longest <= config.substeps:
            age[own[0]] = max(int(age[own[0]]), last[own[0]] + 1 - longest)  # gone before the next can leave
            mechs.kinetic_cooldown[m] = longest
        elif launcher == BARREL:
            mechs.kinetic_cooldown[m] = max(int(mechs.kinetic_cooldown[m]), config.substeps + 1)
        else:
            mechs.tube_cooldown[m] = max(int(mechs.tube_cooldown[m]), config.substeps + 1)
    return _changed(
        _blank(config)[0].sim.projectiles,
        alive=alive,
        weapon=weapon,
        target=np.where(missile, target, -1).astype(np.int32),
        position=position.astype(np.float32),
        velocity=(direction * speed).astype(np.float32),
        age=age,
        order=rng.permutation(count).astype(np.int32),
        rolled=_rolled(config, rng, missile),
    )


def _rolled(config: EnvConfig, rng: np.random.Generator, missile: np.ndarray) -> np.ndarray:
    """Defenders that have rolled against missiles in flight; nobody where the rules do not remember it."""
    if not config.ams_one_roll:
        return np.zeros(len(missile), np.uint8)
    bits = rng.random((len(missile), config.num_packs)) < 0.3
    return np.where(missile, (bits << np.arange(config.num_packs)).sum(-1), 0).astype(np.uint8)


def _clouds(config: EnvConfig, rng: np.random.Generator, mechs: Mechs, shots: Projectiles) -> Smoke:
    """Clouds that leave each mech room for its shells in flight and one more."""
    table, n = slots(config), config.num_mechs
    life = np.zeros((n, table.clouds), np.int32)
    share = rng.choice([0.0, 0.01, 0.1])
    for m in range(n):
        shells = int((shots.alive & (shots.weapon == SMOKE) & (table.mech == m)).sum())
        for c in range(max(0, table.clouds - 1 - shells)):
            if rng.random() < share:
                life[m, c] = rng.integers(1, 201) if rng.random() < 0.8 else rng.integers(1, 6)
    near = mechs.position[rng.integers(0, n, life.size)] + rng.normal(size=(life.size, 3)) * 4
    return _changed(_blank(config)[0].sim.smoke, position=near.astype(np.float32), life=life.reshape(-1))


def _sim(config: EnvConfig, rng: np.random.Generator) -> SimState:
    mechs = _mechs(config, rng)
    shots = _shots(config, rng, mechs)
    smoke = _clouds(config, rng, mechs, shots)
    return _changed(_blank(config)[0].sim, mechs=mechs, projectiles=shots, smoke=smoke, grid=_grid(config, rng))


# ---- the rest -------------------------------------------------------------------------------------------------------


def _state(config: EnvConfig, rng: np.random.Generator, sim: SimState) -> EnvState:
    who, n, mechs = roster(config.num_packs), config.num_mechs, sim.mechs
    heat_cap = np.array([MECH_CLASSES[c].heat_cap for c in who.mech_class], np.float32)
    last = config.max_steps - 1
    steps = np.int32(rng.choice([last, rng.integers(10, last)], p=[0.05, 0.95]))
    score = rng.uniform(0, config.score_to_win - 1, 2)
    if rng.random() < 0.05:
        score[rng.integers(2)] = config.score_to_win - 0.1
    middle = rng.uniform([6, 6], [config.size_x - 6, config.size_y - 6])
    if rng.random() < 0.6:
        near = mechs.position[rng.integers(n), :2] + rng.uniform(-4, 4, 2)
        middle = np.clip(near, 0, [config.size_x, config.size_y])
    seen = [rng.permutation(np.delete(np.arange(n), i))[:5] for i in range(n)]
    return _changed(
        _blank(config)[0],
        sim=_changed(sim, tick=np.array(steps * config.substeps, np.int32)),
        arena_map=_changed(
            _blank(config)[0].arena_map,
            zone=np.array([*middle, rng.uniform(3, 12)], np.float32),
            occupancy=local_map(sim.grid.material, config),
            telemetry=telemetry(sim.grid.material, config),
        ),
        messages=rng.uniform(-1, 1, (n, config.comm_dim)).astype(np.float32),
        sort_mode=rng.integers(0, 3, n).astype(np.int32),
        hostile_only=rng.random(n) < 0.3,
        contact_slots=np.where(rng.random((n, 5)) < 0.8, np.array(seen), -1).astype(np.int32),
        score=score.astype(np.float32),
        step_count=np.array(steps, np.int32),
        memory=_memory(config, rng, mechs),
        was_fallen=mechs.fallen > 0,
        was_legged=mechs.leg_hp <= 0,
        was_shutdown=mechs.heat > heat_cap,
    )


def _memory(config: EnvConfig, rng: np.random.Generator, mechs: Mechs) -> ObservationMemory | None:
    """What the modern observation remembers: sightings of any age near where the others are, or far, or none."""
    blank = _blank(config)[0].memory
    if blank is None:
        return None
    n = config.num_mechs
    turn = rng.uniform(-0.6, 0.6, n).astype(np.float32)
    if config.observation_mode == "full":
        return _changed(blank, turn=turn)  # type: ignore[no-any-return]
    seen = rng.random((n, n)) < rng.choice([0.0, 0.5, 1.0], p=[0.1, 0.6, 0.3])
    np.fill_diagonal(seen, False)
    age = np.where(seen, rng.integers(0, 60, (n, n)), -1).astype(np.int32)
    size = [config.size_x, config.size_y, config.size_z]
    position = mechs.position[None] + rng.normal(size=(n, n, 3)) * rng.choice([0.5, 8.0])
    position = np.where(seen[..., None], np.clip(position, 0.5, np.array(size) - 0.5), 0.0).astype(np.float32)
    return _changed(blank, turn=turn, age=age, last_seen=position)  # type: ignore[no-any-return]


def _actions(config: EnvConfig, rng: np.random.Generator) -> np.ndarray:
    """Per mech: uniform, saturated, zero, all triggers pressed, out of range or not finite."""
    shape = (config.num_mechs, action_layout(config).size)
    actions = rng.uniform(-1, 1, shape)
    kind = rng.random(len(actions))
    actions = np.where((kind < 0.3)[:, None], np.sign(actions), actions)
    actions[kind > 0.92] = 0.0
    eager = rng.random(len(actions)) < 0.5
    actions[eager, 4:9] = np.abs(actions[eager, 4:9])
    actions[eager, 5] = -1.0
    wild = rng.random(shape) < 0.003
    actions[wild] = rng.choice([np.nan, np.inf, -np.inf, 3.0, -3.0], int(wild.sum()))
    return actions.astype(np.float32)


def _noise(config: EnvConfig, rng: np.random.Generator) -> Noise:
    table, s, n = slots(config), config.substeps, config.num_mechs
    height = rng.random((s, n, len(HITSCAN)))
    height = np.where(rng.random(height.shape) < 0.3, height * 0.12, height)  # more leg hits than by chance
    noise = Noise(
        ams=rng.random((s, len(table.heavy), table.max_ring, config.num_packs)).astype(np.float32),
        hit_height=height.astype(np.float32),
        move_order=np.stack([rng.permutation(n) for _ in range(s)]).astype(np.int32),
    )
    if config.fair_order:
        order = np.stack([rng.permutation(n) for _ in range(s)]).astype(np.int32)
        noise = noise.replace(fire_order=order, wreck=rng.random((s, n)).astype(np.float32))  # type: ignore[attr-defined]
    return noise
