"""Builds a replay from the record of one arena: the game is simulated again from its seed, actions and keys.

Only small rows leave the batch. Maps and events come from a second simulation of that one arena with the compiled step.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax import __version__, compiling
from echelon_jax.config import SWITCHES, EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout, observation_layout, observe
from echelon_jax.env.layout import CONTACTS, Layout
from echelon_jax.env.state import REASONS, REWARD_COMPONENTS, WINNERS, Bank, EnvParams, EnvState
from echelon_jax.env.trace import SmallState, Trace, small_state, with_small_state
from echelon_jax.policies.heads import Heads
from echelon_jax.replay.detail import make_detail
from echelon_jax.replay.events import EventCollector
from echelon_jax.replay.model import ALIVE, ECCM, ECM, FALLEN, LEGGED, POSE_UNIT, SHUTDOWN, Replay, class_table
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import MECH_CLASSES, roster
from echelon_jax.rules.weapons import WEAPON_NAMES
from echelon_jax.worldgen.bank import WorldArrays, generate_worlds

CHUNK = 32  # decisions looked at side by side
DIGEST_BYTES = 16
CLOSE = 1e-3  # of floats that two programs compute from the same game, per unit of size above 1


class Origin(NamedTuple):
    """The origin of a game, as text for its header."""

    blue: str = "blue"
    red: str = "red"
    title: str = "Echelon game"
    source: str = "game"


class Stepped(NamedTuple):
    """The results of a replay's compiled step besides the state."""

    rewards: jax.Array  # [1, mechs, components]
    over: jax.Array  # [1]


@lru_cache(maxsize=8)
def compiled_step(config: EnvConfig) -> Any:
    """Return `Echelon.step_batch` compiled for one arena, without what nothing in a replay reads, the same one for every use.

    Observations (see `compiled_observation`) and the episode's statistics are left out, so that XLA leaves out what
    only they need; the statistics stay as they were.
    """
    env = Echelon(config, kernels="xla")

    def step(params: EnvParams, keys: Any, state: EnvState, actions: Any) -> tuple[EnvState, Stepped]:
        after, result = env.step_batch(keys, state, actions, params)
        after = after.replace(statistics=state.statistics)
        return after, Stepped(result.info.reward_components, result.episode_over)

    return jax.jit(step, compiler_options=compiling.for_short_runs())


@lru_cache(maxsize=8)
def compiled_observation(config: EnvConfig) -> Any:
    """Return the compiled function from (rules, state) to the mechs' observations, [arenas, mechs, obs]."""
    return jax.jit(
        lambda rules, state: observe(config, rules, state).observation, compiler_options=compiling.for_short_runs()
    )


def game_params(config: EnvConfig, seed: int) -> EnvParams:
    """Return default rules and a bank that holds the one world of `seed`."""
    return world_params(config, generate_worlds(config, [seed]))


def world_params(config: EnvConfig, world: WorldArrays) -> EnvParams:
    """Return default rules and a bank of the given world.

    A bank holds the observations at a reset. If no action depends on them (modern actions in full mode), they are left out,
    because `compiled_observation` makes them anyway. That saves a long compilation.
    """
    env = Echelon(config, kernels="xla")
    if config.actions != "modern" or config.observation_mode != "full":
        return env.params(env.make_bank(world))
    fields = {name: jnp.asarray(field) for name, field in world._asdict().items()}
    worlds, n = world.yaw.shape
    unseen = jnp.zeros((worlds, n, observation_layout(config).size), jnp.float32)
    none = jnp.full((worlds, n, CONTACTS), -1, jnp.int32)
    return env.params(Bank(**fields, observation=unseen, contact_slots=none, known=None))


@lru_cache(maxsize=8)
def _compiled_start(config: EnvConfig) -> Any:
    env = Echelon(config, kernels="xla")
    return jax.jit(
        lambda params, keys: env.reset_batch(keys, params, jnp.zeros(1, jnp.int32))[0],
        compiler_options=compiling.for_short_runs(),
    )


def start_state(config: EnvConfig, params: EnvParams) -> EnvState:
    """Return the start of a game in the first world of the bank, a batch of one."""
    return _compiled_start(config)(params, jax.random.split(jax.random.key(0), 1))


def warm_up(config: EnvConfig, params: EnvParams, observe: bool) -> list[threading.Thread]:
    """Start compiling what `make_replay` (and `play_game` with `observe`) will need, beside the caller's own work.

    Join the threads before the first use; a program whose compilation failed here is compiled again there and says why.
    """
    state = start_state(config, params)

    def detail() -> None:
        states = jax.tree.map(lambda x: jnp.repeat(x, CHUNK, 0), state)
        actions = jnp.zeros((CHUNK, config.num_mechs, action_layout(config).size), jnp.float32)
        make_detail(config)(params.rules, states, actions, jax.random.split(jax.random.key(0), CHUNK))

    def seen() -> None:
        compiled_observation(config)(params.rules, state)

    threads = [threading.Thread(target=job, daemon=True) for job in ((detail, seen) if observe else (detail,))]
    for thread in threads:
        thread.start()
    return threads


class Resimulated(NamedTuple):
    """One decision of the second simulation."""

    before: EnvState  # a batch of one
    after: EnvState
    rewards: np.ndarray  # [mechs, components]
    deviation: float  # largest difference of a float before the decision from the recorded state
    corrected: bool  # the state reached was not close to the recorded one, which was put in its place


def resimulate(
    config: EnvConfig, params: EnvParams, actions: np.ndarray, keys: np.ndarray, recorded: SmallState | None = None
) -> Iterator[Resimulated]:
    """Play a game again in the first world of the bank, decision by decision.

    Args:
        actions: float32 [decisions, mechs, actions].
        keys: uint32 [decisions, 2], the words of each decision's key.
        recorded: rows of the states before each decision, perhaps of another program, whose floats may round differently. Where
            the state reached is not close to one (integers equal, floats within CLOSE), the recorded one is put in its place.
    """
    step = compiled_step(config)
    state = start_state(config, params)
    for d in range(len(actions)):
        gap, corrected = 0.0, False
        if recorded is not None:
            wanted = jax.tree.map(lambda x: x[d], recorded)  # noqa: B023
            gap = deviation(jax.device_get(small_state(state, 0)), wanted)
            corrected = gap > CLOSE
            if corrected:
                state = with_small_state(state, jax.tree.map(lambda x: jnp.asarray(x)[None], wanted))
        key = jax.random.wrap_key_data(jnp.asarray(keys[d]))[None]
        after, result = step(params, key, state, jnp.asarray(actions[d])[None])
        yield Resimulated(state, after, np.asarray(result.rewards[0]), gap, corrected)
        state = after


def same(a: Any, b: Any) -> bool:
    """Whether two trees of numpy arrays agree in every value."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def deviation(a: Any, b: Any) -> float:
    """Return the largest difference of two trees of numpy arrays, per unit of size above 1; infinite where integers differ."""
    largest = 0.0
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if np.array_equal(x, y):
            continue
        if not np.issubdtype(x.dtype, np.floating):
            return math.inf
        gap = np.abs(np.float64(x) - y) / np.maximum(1.0, np.abs(y))
        largest = max(largest, float(np.nan_to_num(gap, nan=math.inf).max()))
    return largest


def digest(state: EnvState) -> np.ndarray:
    """uint8 [16]: a BLAKE2b hash of everything in a batch of one, maps included."""
    mill = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for leaf in jax.tree.leaves(jax.device_get((small_state(state, 0), state.sim.grid))):
        mill.update(np.ascontiguousarray(leaf).tobytes())
    return np.frombuffer(mill.digest(), np.uint8)


def games_of(trace: Trace) -> list[Trace]:
    """Return the whole games of a stacked trace (leading axis: decisions): begun at their start and played to their end."""
    host = jax.tree.map(np.asarray, trace)
    start, games = None, []
    for d in np.flatnonzero(host.running):
        if host.before.step_count[d] == 0:
            start = d
        if host.ends[d] and start is not None:
            games.append(jax.tree.map(lambda x: x[start : d + 1], host))  # noqa: B023
            start = None
    return games


def make_replay(
    config: EnvConfig, trace: Trace, origin: Origin | None = None, world: WorldArrays | None = None, chunk: int = CHUNK
) -> Replay:
    """Return the replay of one game.

    Args:
        config: the game's configuration; rules are the default ones.
        trace: its decisions from the first on, stacked, of `env.trace.trace_of`; see `games_of`.
        origin: names for the header.
        world: the map as a bank of one; generated from the recorded seed without it.
        chunk: decisions examined side by side.

    Raises:
        ValueError: the trace is empty or does not begin with a game.
    """
    host: Trace = jax.tree.map(np.asarray, trace)
    if not len(host.actions) or int(host.before.step_count[0]):
        raise ValueError("trace must hold a game from its first decision on")
    seed = int(host.seed[0])
    params = game_params(config, seed) if world is None else world_params(config, world)
    build = _Building(config, params, host, chunk)
    build.play()
    return build.replay(seed, origin or Origin())


@dataclasses.dataclass
class _Building:
    config: EnvConfig
    params: EnvParams
    trace: Trace
    chunk: int
    collector: EventCollector = dataclasses.field(init=False)
    smalls: list[SmallState] = dataclasses.field(default_factory=list)
    digests: list[np.ndarray] = dataclasses.field(default_factory=list)
    corrected: int = 0
    deviation: float = 0.0  # largest of the decisions that were close
    mismatches: int = 0  # decisions whose substeps, one shot at a time, did not end in the state of the whole step
    material: np.ndarray = dataclasses.field(init=False)

    def play(self) -> None:
        """Simulate the game again and examine its decisions in chunks."""
        self.collector = EventCollector(self.config)
        waiting: list[Resimulated] = []
        t = self.trace
        for d, resimulated in enumerate(
            resimulate(self.config, self.params, np.asarray(t.actions), np.asarray(t.key), t.before)
        ):
            if d == 0:
                shape = (self.config.size_z, self.config.size_y, self.config.size_x)
                self.material = np.asarray(resimulated.before.sim.grid.material[0]).reshape(shape)
            self._keep(resimulated.before)
            self.corrected += resimulated.corrected
            self.deviation = max(self.deviation, 0.0 if resimulated.corrected else resimulated.deviation)
            waiting.append(resimulated)
            if len(waiting) == self.chunk:
                self._add_details(d + 1 - len(waiting), waiting)
                waiting = []
        self._keep(resimulated.after)
        if waiting:
            self._add_details(len(t.actions) - len(waiting), waiting)

    def _keep(self, state: EnvState) -> None:
        self.smalls.append(jax.device_get(small_state(state, 0)))
        self.digests.append(digest(state))

    def _add_details(self, first: int, resimulated: list[Resimulated]) -> None:
        # A chunk that is not full repeats its last decision, so that one program serves all.
        rows = [min(i, len(resimulated) - 1) for i in range(self.chunk)]
        states = jax.tree.map(lambda *x: jnp.concatenate(x), *[resimulated[i].before for i in rows])
        actions = jnp.asarray(self.trace.actions[[first + i for i in rows]])
        keys = jax.random.wrap_key_data(jnp.asarray(self.trace.key[[first + i for i in rows]]))
        after, detail = jax.device_get(make_detail(self.config)(self.params.rules, states, actions, keys))
        for i, one in enumerate(resimulated):
            reached = jax.device_get(one.after.sim)
            whole = jax.tree.map(lambda x: x[0], reached.replace(tally=None))
            detailed = jax.tree.map(lambda x: x[i], after.replace(tally=None))  # noqa: B023
            self.mismatches += not same(whole, detailed)
            material = np.asarray(one.before.sim.grid.material[0])
            self.collector.take(first + i, self.smalls[first + i], material, detail, i)

    def replay(self, seed: int, origin: Origin) -> Replay:
        """Return the replay."""
        config, t = self.config, self.trace
        frames: SmallState = jax.tree.map(lambda *x: np.stack(x), *self.smalls)
        cap = np.array([MECH_CLASSES[c].heat_cap for c in roster(config.num_packs).mech_class], np.float32)
        arrays = frame_arrays(frames, cap)
        poses = max(config.size_x, config.size_y) * POSE_UNIT < 32767
        arrays |= self.collector.arrays(poses)
        arrays |= {
            "material": self.material,
            "zone": np.asarray(self.params.bank.zone[0]),
            "actions": np.asarray(t.actions, np.float32),
            "keys": np.asarray(t.key, np.uint32),
            "digest": np.stack(self.digests),
            "rewards": np.asarray(t.rewards, np.float32),
        }
        if t.observation is not None:
            arrays["observation"] = np.asarray(t.observation, np.float16)
        if t.probability is not None:
            arrays["probability"] = np.asarray(t.probability, np.float16)
        if t.value is not None:
            arrays["value"] = np.asarray(t.value, np.float32)
        over = bool(frames.episode_over[-1])
        header = header_of(config, seed, origin) | {
            "winner": WINNERS[int(frames.winner[-1])] if over else None,
            "reason": REASONS[int(frames.reason[-1])],
            "choices": [] if t.probability is None else list(Heads(config).choices),
            "corrected_decisions": self.corrected,
            "largest_deviation": self.deviation,
            "detail_mismatches": self.mismatches,
        }
        return Replay(header, arrays)


def frame_arrays(frames: SmallState, heat_cap: np.ndarray) -> dict[str, np.ndarray]:
    """Return the per-frame arrays of a replay from stacked rows."""
    m = frames.mechs
    flags = np.zeros(m.alive.shape, np.uint8)
    for on, bit in (
        (m.alive, ALIVE),
        (m.fallen > 0, FALLEN),
        (m.leg_hp <= 0, LEGGED),
        (m.heat > heat_cap, SHUTDOWN),
        (m.ecm_on, ECM),
        (m.eccm_on, ECCM),
    ):
        flags |= np.where(on, bit, 0).astype(np.uint8)
    return {
        **{name: getattr(m, name) for name in ("position", "velocity", "yaw", "hp", "leg_hp", "heat", "stability")},
        "flags": flags,
        "painted": m.painted.astype(np.int16),
        "suppressed": m.suppressed.astype(np.int16),
        "focus": m.focus.astype(np.int16),
        "score": np.asarray(frames.score + frames.score_carry, np.float32),
    }


def table(layout: Layout) -> list[list[Any]]:
    """Return a layout as rows of name, offset, size."""
    return [[entry.name, entry.offset, entry.size] for entry in layout]


def header_of(config: EnvConfig, seed: int, origin: Origin) -> dict[str, Any]:
    """Return the plain values of a replay that do not depend on the course of its game."""
    who = roster(config.num_packs)
    switches = [getattr(config, name) for name in SWITCHES]
    return {
        "format": "echelon-replay",
        "made_by": f"echelon-jax {__version__}, jax {jax.__version__}",
        "game": dataclasses.asdict(config),
        "rules": "revised" if all(switches) else "mixed" if any(switches) else "original",
        "seed": seed,
        "decision_seconds": config.decision_seconds,
        "substeps": config.substeps,
        "score_to_win": config.score_to_win,
        "smoke_radius": k.SMOKE_CLOUD_RADIUS,
        "ewar_radius": k.EWAR_RADIUS,
        "names": [origin.blue[:200], origin.red[:200]],
        "title": origin.title[:200],
        "source": origin.source[:200],
        "mechs": [
            {"id": who.ids[i], "team": int(who.team[i]), "class": int(who.mech_class[i])} for i in range(who.size)
        ],
        "classes": class_table(),
        "weapons": list(WEAPON_NAMES),
        "reward_components": list(REWARD_COMPONENTS),
        "action_layout": table(action_layout(config)),
        "observation_layout": table(observation_layout(config)),
    }
