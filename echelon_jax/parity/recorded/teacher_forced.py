"""Teacher-forced parity: load a recorded row, step once with the recorded actions and draws, compare with the next row.

Many rows of one configuration are the arenas of one batch of a fixed width, so each configuration compiles once. A row
that disagrees anywhere is run again with its loaded floats nudged by up to 1e-5, in 64 fixed ways. If float32 decided a
comparison otherwise than float64, one of the nudges turns it back. If none reproduces the recorded row in every field, the
numpy reference must (it computes in float64, bit for bit like the original).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.original.rewards import original_rewards
from echelon_jax.env.state import EnvParams, EnvState, Step
from echelon_jax.parity.recorded.compare import Agreement, compare
from echelon_jax.parity.recorded.event_counts import EventCount, count_events
from echelon_jax.parity.recorded.golden import Episode, actions_at, env_states, load_episode, noise_for
from echelon_jax.reference.golden import Episode as ReferenceEpisode
from echelon_jax.reference.golden import Report as ReferenceReport
from echelon_jax.reference.golden import compare_state, compare_step
from echelon_jax.reference.noise import MissingDraw
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.rules import sim_rules
from echelon_jax.sim.widths import LoopWidths

WIDTH = 64  # arenas of the compiled step
NUDGES = 64
NUDGE = 1e-5
BY_NUDGE, BY_REFERENCE, UNEXPLAINED = "nudge", "reference", "unexplained"
Stepper = Callable[[EnvState, jax.Array, Noise], tuple[EnvState, Step]]


@dataclasses.dataclass(frozen=True)
class Difference:
    """One row that did not agree: its episode and number, the fields, and the explanation."""

    episode: str
    row: int  # the step led from this row to the next
    fields: tuple[str, ...]
    mechs: tuple[int, ...]  # that differ in a field of their own
    explanation: str


@dataclasses.dataclass
class FieldCount:
    """Values of one field: equal to the last bit, within tolerance, differing with and without an explanation."""

    rows: int = 0
    exact: int = 0
    within_tolerance: int = 0
    explained: int = 0
    unexplained: int = 0
    largest: float = 0.0  # largest difference in the steps that agree in everything

    def add(
        self, field: Agreement, counted: np.ndarray, explained: np.ndarray, agreeing: np.ndarray | None = None
    ) -> None:
        """Count the values where `counted`.

        `explained` tells which rows have an explanation for what differs; `agreeing` which agree in everything (by
        default those that agree in this field), whose largest difference is kept.
        """
        why = explained[:, None] if field.per_mech else explained
        whole = field.close if agreeing is None else (agreeing[:, None] if field.per_mech else agreeing)
        self.rows += int(counted.sum())
        self.exact += int((field.equal & counted).sum())
        self.within_tolerance += int((~field.equal & field.close & counted).sum())
        self.explained += int((~field.close & why & counted).sum())
        self.unexplained += int((~field.close & ~why & counted).sum())
        self.largest = max(self.largest, float(np.max(field.largest[whole & counted], initial=0.0)))

    def merge(self, other: FieldCount) -> None:
        """Add the counts of another run."""
        self.rows += other.rows
        self.exact += other.exact
        self.within_tolerance += other.within_tolerance
        self.explained += other.explained
        self.unexplained += other.unexplained
        self.largest = max(self.largest, other.largest)


@dataclasses.dataclass
class Result:
    """The result of a teacher-forced run.

    Attributes:
        steps: decision steps compared.
        mech_rows: pairs of a step and a mech that lived before it; every per-mech field counts them.
        agreeing: those that agree in every field.
        fields: counts per field; fields of an arena count steps.
        differences: every step that disagrees anywhere.
        events: recorded events by type, with how our counts of them agree.
    """

    steps: int = 0
    mech_rows: int = 0
    agreeing: int = 0
    fields: dict[str, FieldCount] = dataclasses.field(default_factory=dict)
    differences: list[Difference] = dataclasses.field(default_factory=list)
    events: dict[str, EventCount] = dataclasses.field(default_factory=dict)

    @property
    def unexplained(self) -> int:
        """Steps that disagree and that nothing explains."""
        return sum(d.explanation == UNEXPLAINED for d in self.differences)


def stepper(config: EnvConfig, widths: LoopWidths | None = None) -> Stepper:
    """The jitted decision step of `config` under the original's rules and rewards.

    `widths` are those of the step's loops; the backend's without them.
    """
    env = Echelon(config, widths)
    # A step never reads the bank of worlds.
    params = EnvParams(rules=sim_rules(config), rewards=original_rewards(), bank=None)  # type: ignore[arg-type]
    return jax.jit(
        lambda state, actions, noise: env.step_batch_with_noise(noise, state, actions, params),
        compiler_options=compiling.as_xla_does(),
    )


def _padded(ts: Sequence[int], width: int) -> list[int]:
    return [*ts, *[ts[-1]] * (width - len(ts))]


def replay_rows(step: Stepper, episode: Episode, ts: Sequence[int], width: int) -> dict[str, Agreement]:
    """Agreement of the steps from rows `ts` (at most `width`), in the order given."""
    padded = _padded(ts, width)
    result = step(env_states(episode, padded), actions_at(episode, padded), noise_for(episode, padded))
    state, made = jax.tree.map(lambda leaf: leaf[: len(ts)], jax.device_get(result))
    return compare(episode, ts, state, made)


def nudged(state: EnvState, first: int = 0) -> EnvState:
    """The same row in every arena, each nudged in its own fixed way, by at most `NUDGE`: nudges `first`, `first` + 1, ...

    Heights are only raised: a mech that stands on the ground must not sink into it. Some nudges are sparse or spare a
    kind of number, because a mech may also stand exactly at a wall.
    """
    mechs, shots = state.sim.mechs, state.sim.projectiles
    nudges = range(first, first + mechs.alive.shape[0])
    makers = {i: np.random.default_rng(i) for i in nudges}

    def change(values: jax.Array, spared: int, up: bool = False) -> jax.Array:
        rows = []
        for i, rng in makers.items():
            draw = rng.uniform(0.0 if up else -1.0, 1.0, values.shape[1:])
            on = rng.random(values.shape[1:]) < (1.0, 0.5, 0.2)[i // 4 % 3]
            rows.append(draw * on * NUDGE * (0.1 if i % 2 else 1.0) * (i % 4 != spared))
        return jnp.asarray((np.asarray(values, np.float64) + np.array(rows)).astype(np.float32))

    def height(position: jax.Array, spared: int) -> jax.Array:
        moved = change(position, spared)
        return moved.at[..., 2].set(change(position[..., 2], spared, up=True))

    moved_mechs = mechs.replace(  # type: ignore[attr-defined]
        position=height(mechs.position, 0),
        velocity=change(mechs.velocity, 1),
        yaw=change(mechs.yaw, 1),
        hp=change(mechs.hp, 2),
        leg_hp=change(mechs.leg_hp, 2),
        heat=change(mechs.heat, 2),
        stability=change(mechs.stability, 2),
    )
    moved_shots = shots.replace(  # type: ignore[attr-defined]
        position=change(shots.position, 3), velocity=change(shots.velocity, 3)
    )
    sim = state.sim.replace(mechs=moved_mechs, projectiles=moved_shots)  # type: ignore[attr-defined]
    return state.replace(sim=sim)  # type: ignore[attr-defined]


def agrees_nudged(step: Stepper, episode: Episode, t: int, width: int) -> bool:
    """Whether one of the nudged runs of row `t` reproduces the recorded row in every field."""
    ts = [t] * width
    for first in range(0, NUDGES, width):
        start = nudged(env_states(episode, ts), first)
        state, made = jax.device_get(step(start, actions_at(episode, ts), noise_for(episode, ts)))
        fields = compare(episode, ts, state, made).values()
        every = np.all([f.close.reshape(width, -1).all(-1) for f in fields], 0)
        if every.any():
            return True
    return False


def reference_agrees(path: Path, t: int) -> bool:
    """Whether the numpy reference leads from row `t` to the recorded next row in every field."""
    episode = ReferenceEpisode(path)
    report = ReferenceReport()
    arena = episode.arena(t)
    try:
        made = arena.advance(episode.arrays["actions"][t], episode.tape())
    except MissingDraw:
        return False
    compare_step(report, episode, t + 1, made)
    compare_state(report, episode, t + 1, arena, episode.world(t + 1))
    return not report.mismatches


def check_episode(
    result: Result, step: Stepper, path: Path, width: int = WIDTH, rows: Iterable[int] | None = None
) -> None:
    """Compare the steps of one recorded file (or of the given rows) and add what was found to `result`."""
    episode = load_episode(path)
    wanted = list(range(episode.steps)) if rows is None else list(rows)
    for start in range(0, len(wanted), width):
        ts = wanted[start : start + width]
        fields = replay_rows(step, episode, ts, width)
        close = np.all([f.close.reshape(len(ts), -1).all(-1) for f in fields.values()], 0)
        explained = np.zeros(len(ts), bool)
        for b in (int(i) for i in np.flatnonzero(~close)):
            why = _explain(step, path, episode, ts[b], width)
            explained[b] = why != UNEXPLAINED
            result.differences.append(_difference(episode, ts[b], b, fields, why))
        _count(result, episode, ts, fields, close, explained)


def _explain(step: Stepper, path: Path, episode: Episode, t: int, width: int) -> str:
    if agrees_nudged(step, episode, t, width):
        return BY_NUDGE
    return BY_REFERENCE if reference_agrees(path, t) else UNEXPLAINED


def _difference(episode: Episode, t: int, b: int, fields: dict[str, Agreement], why: str) -> Difference:
    names = tuple(name for name, f in fields.items() if not f.close[b].all())
    mechs = sorted({int(m) for f in fields.values() if f.per_mech for m in np.flatnonzero(~f.close[b])})
    return Difference(episode.name, t, names, tuple(mechs), why)


def _count(
    result: Result,
    episode: Episode,
    ts: Sequence[int],
    fields: dict[str, Agreement],
    agreeing: np.ndarray,
    explained: np.ndarray,
) -> None:
    living = episode.data["alive"][np.asarray(ts)]
    for name, field in fields.items():
        counted = living if field.per_mech else np.ones(len(ts), bool)
        result.fields.setdefault(name, FieldCount()).add(field, counted, explained, agreeing)
    arena = np.all([f.close for f in fields.values() if not f.per_mech], 0)
    mech = np.all([f.close for f in fields.values() if f.per_mech], 0) & arena[:, None]
    result.steps += len(ts)
    result.mech_rows += int(living.sum())
    result.agreeing += int((mech & living).sum())
    count_events(result.events, episode, ts, fields, explained)


def check_files(paths: Sequence[Path], width: int = WIDTH, report: Callable[[str], Any] | None = None) -> Result:
    """Compare every step of every file; files of one configuration share one compiled step.

    Args:
        paths: recorded episodes.
        width: arenas of the compiled step.
        report: is called with one line about each file.
    """
    result = Result()
    by_config: dict[EnvConfig, list[Path]] = {}
    for path in paths:
        by_config.setdefault(load_episode(path).config, []).append(path)
    for config, group in by_config.items():
        step = stepper(config)
        for path in group:
            known = len(result.differences)
            check_episode(result, step, path, width)
            if report is not None:
                report(f"{path.stem}: {len(result.differences) - known} rows differ")
    return result
