"""Fuzzed parity: one decision step of random states in the JAX simulator and in the plain reference, every field compared.

A step that differs is a fault unless rounding explains it, in one of two ways. Either only observations differ, and they are
what the reference sees with float32 rays from the very state that the JAX simulator reached; or one of 64 fixed nudges of the
step's floats by up to 1e-5, given to both simulators, makes both agree in every field. Neither excuses a ray cast in the wrong
direction: what hangs on rays must follow from float32 rays in any case (`sight`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.state import REASONS, STATISTICS, WINNERS, EnvParams, EnvState, Step
from echelon_jax.parity.exchange import row_of, stack
from echelon_jax.parity.fuzzing.cases import Case, make_case
from echelon_jax.parity.fuzzing.recording import Expected, play_reference
from echelon_jax.parity.recorded.compare import OBSERVATION_TOLERANCE, Agreement, compare, near, same
from echelon_jax.parity.recorded.event_counts import EventCount, count_events
from echelon_jax.parity.recorded.teacher_forced import FieldCount, Stepper
from echelon_jax.parity.sight import look_in_float32, sight_entries_follow
from echelon_jax.parity.timers import OutsideTheRulesError
from echelon_jax.rules.mechs import TEAM_NAMES
from echelon_jax.sim.rules import sim_rules
from echelon_jax.sim.widths import LoopWidths

WIDTH = 8  # arenas of the compiled step
NUDGES, NUDGE = 64, 1e-5
BY_RAYS, BY_NUDGE, FAULT = "float32 rays", "nudge", ""
SEEN = {"obs", "contact_slots", "memory.age", "memory.last_seen"}  # fields that only show a state


# ---- one step of the JAX simulator ----------------------------------------------------------------------------------


def default_params(config: EnvConfig) -> EnvParams:
    """The default rules and reward weights of a configuration. There is no bank: a step never reads it."""
    return EnvParams(rules=sim_rules(config), rewards=Echelon(config).default_rewards(), bank=None)  # type: ignore[arg-type]


def compile_step(
    config: EnvConfig, width: int = WIDTH, widths: LoopWidths | None = None, kernels: str | None = None
) -> jax.stages.Compiled:
    """The compiled step (params, state, actions, noise) -> (state, step) for a batch of `width` arenas.

    `widths` are those of the step's loops, the backend's without them; `kernels` are what runs the simulation.
    """
    env = Echelon(config, widths, kernels)
    case = stack([make_case(config, 0)] * width)
    step = jax.jit(
        lambda params, state, actions, noise: env.step_batch_with_noise(noise, state, actions, params),
        compiler_options=compiling.as_xla_does(),
    )
    return step.lower(default_params(config), case.state, case.actions, case.noise).compile()


def stepper(config: EnvConfig, compiled: jax.stages.Compiled | None = None, params: EnvParams | None = None) -> Stepper:
    """The step of `WIDTH` arenas under the default rules, or under `params`."""
    run = compile_step(config) if compiled is None else compiled
    bound = default_params(config) if params is None else params
    return lambda state, actions, noise: run(bound, state, actions, noise)


# ---- comparison -----------------------------------------------------------------------------------------------------


def play(step: Stepper, cases: Sequence[Case]) -> tuple[EnvState, Step]:
    """One decision step of at most `WIDTH` cases in the JAX simulator, as numpy leaves."""
    full = stack([*cases, *[cases[-1]] * (WIDTH - len(cases))])
    result = jax.device_get(step(full.state, full.actions, full.noise))
    return jax.tree.map(lambda leaf: leaf[: len(cases)], result)  # type: ignore[no-any-return]


def fields_of(
    step: Stepper, config: EnvConfig, cases: Sequence[Case], expected: Expected | None = None
) -> dict[str, Agreement]:
    """Agreement of the two simulators in every field, for at most `WIDTH` cases; `expected` if the reference has played them."""
    expected = play_reference(config, cases) if expected is None else expected
    state, made = play(step, cases)
    fields = compare(expected.episode, expected.rows, state, made)
    ends = [arena.outcome or {"reason": REASONS[0], "winner": None} for arena in expected.arenas]
    ours = np.asarray(made.info.winner)
    winners = [ours[b] if end["winner"] is None else WINNERS.index(end["winner"]) for b, end in enumerate(ends)]
    counted = [
        [[arena.statistics[f"{name}_{team}"] for team in TEAM_NAMES] for name in STATISTICS]
        for arena in expected.arenas
    ]
    for name in ("friendly_damage", "friendly_kills"):
        theirs = np.array([[getattr(m, name) for m in arena.battle.mechs] for arena in expected.arenas])
        fields[name] = near(getattr(state.sim.tally, name), theirs, 2)
    fields["reason"] = same(made.info.reason, np.array([REASONS.index(end["reason"]) for end in ends]), 1)
    fields["winner"] = same(ours, np.array(winners), 1)
    fields["step_count"] = same(state.step_count, np.array([arena.step_count for arena in expected.arenas]), 1)
    fields["statistics"] = near(state.statistics, np.array(counted), 1)
    memories = [arena.memory for arena in expected.arenas if arena.memory is not None]
    if state.memory is not None:
        fields["memory.turn"] = near(state.memory.turn, np.array([memory.turn for memory in memories]), 2)
        if state.memory.age is not None:
            fields["memory.age"] = same(state.memory.age, np.array([memory.age for memory in memories]), 2)
            fields["memory.last_seen"] = near(
                state.memory.last_seen, np.array([memory.last_seen for memory in memories]), 2
            )
    return fields


def agreeing(fields: dict[str, Agreement], count: int) -> np.ndarray:
    """Per case: every field agrees."""
    return np.all([f.close.reshape(count, -1).all(-1) for f in fields.values()], 0)


def differing(fields: dict[str, Agreement], b: int) -> list[str]:
    """The fields in which case b differs, with the mechs concerned."""
    return [
        f"{name}{np.flatnonzero(~f.close[b]).tolist() if f.per_mech else ''}"
        for name, f in fields.items()
        if not f.close[b].all()
    ]


def nudged(case: Case, number: int) -> Case:
    """The case with its floats moved a little, in the way of this number; a mech is never pushed into the ground."""
    rng = np.random.default_rng([number, 7])
    part, size = (1.0, 0.5, 0.2)[number % 3], NUDGE * (1.0, 0.1)[number // 3 % 2]

    def move(values: np.ndarray) -> np.ndarray:
        change = rng.uniform(-size, size, values.shape) * (rng.random(values.shape) < part)
        return (values.astype(np.float64) + change).astype(np.float32)

    sim = case.state.sim
    mechs, shots = sim.mechs, sim.projectiles
    position = move(mechs.position)
    position[:, 2] = np.maximum(position[:, 2], mechs.position[:, 2])
    heat = np.maximum(move(mechs.heat), 0)
    new = mechs.replace(
        position=position,
        velocity=move(mechs.velocity),
        yaw=move(mechs.yaw),
        hp=np.where(mechs.hp > 0, move(mechs.hp), mechs.hp),
        leg_hp=move(mechs.leg_hp),
        heat=np.where(mechs.heat > 0, heat, mechs.heat),
        stability=np.where(mechs.stability > 0, np.maximum(move(mechs.stability), 0), mechs.stability),
    )
    flying = shots.replace(position=move(shots.position), velocity=move(shots.velocity))
    smoke = sim.smoke.replace(position=move(sim.smoke.position))
    state = case.state.replace(sim=sim.replace(mechs=new, projectiles=flying, smoke=smoke))  # type: ignore[attr-defined]
    return case.replace(state=state)  # type: ignore[attr-defined, no-any-return]


def explanation(step: Stepper, config: EnvConfig, case: Case, nudges: int = NUDGES) -> str:
    """What explains a case that differs: `BY_RAYS`, `BY_NUDGE`, or nothing, which is a `FAULT`."""
    state, made = play(step, [case])
    row, shown = row_of(state, 0), np.asarray(made.observation[0])
    try:
        alike, slots = look_in_float32(config, row)
    except OutsideTheRulesError:  # the simulator reached a state that the reference cannot even hold
        return FAULT
    if not sight_entries_follow(config, shown, alike):
        return FAULT
    names = {name for name, f in fields_of(step, config, [case]).items() if not f.close.all()}
    same_look = np.abs(shown - alike).max() <= OBSERVATION_TOLERANCE and (row.contact_slots == slots).all()
    if names <= SEEN and same_look:
        return BY_RAYS
    for start in range(0, nudges, WIDTH):
        cases = [nudged(case, i) for i in range(start, min(start + WIDTH, nudges))]
        if agreeing(fields_of(step, config, cases), len(cases)).any():
            return BY_NUDGE
    return FAULT


# ---- a run ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Found:
    """A step that differs: the seed of its case, the fields, and what explains it ("" nothing: a fault)."""

    seed: int
    fields: list[str]
    why: str


@dataclasses.dataclass
class Result:
    """Counts of a run: steps, rows of living mechs, per event type, per field, and every step that differs."""

    steps: int = 0
    mech_rows: int = 0
    fields: dict[str, FieldCount] = dataclasses.field(default_factory=dict)
    found: list[Found] = dataclasses.field(default_factory=list)
    events: dict[str, EventCount] = dataclasses.field(default_factory=dict)

    @property
    def unexplained(self) -> list[Found]:
        """The faults."""
        return [f for f in self.found if f.why == FAULT]

    @property
    def explained(self) -> Counter[str]:
        """Steps that differ and are explained, by what explains them."""
        return Counter(f.why for f in self.found if f.why != FAULT)

    def merge(self, other: Result) -> None:
        """Add the counts of another run."""
        self.steps += other.steps
        self.mech_rows += other.mech_rows
        for name, count in other.fields.items():
            self.fields.setdefault(name, FieldCount()).merge(count)
        for kind, events in other.events.items():
            self.events.setdefault(kind, EventCount()).merge(events)
        self.found += other.found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Result:
        """What `dataclasses.asdict` made of a result."""
        return cls(
            data["steps"],
            data["mech_rows"],
            {name: FieldCount(**count) for name, count in data["fields"].items()},
            [Found(**found) for found in data["found"]],
            {kind: EventCount(**count) for kind, count in data["events"].items()},
        )


def run(
    config: EnvConfig,
    seeds: Sequence[int],
    step: Stepper | None = None,
    nudges: int = NUDGES,
    stop: Callable[[Result], bool] = lambda result: False,
) -> Result:
    """Compare the case of every seed; `stop` is asked after each batch."""
    step = stepper(config) if step is None else step
    result = Result()
    for start in range(0, len(seeds), WIDTH):
        some = seeds[start : start + WIDTH]
        cases = [make_case(config, seed) for seed in some]
        expected = play_reference(config, cases)
        fields = fields_of(step, config, cases, expected)
        close = agreeing(fields, len(cases))
        why = np.zeros(len(cases), bool)
        for b in (int(i) for i in np.flatnonzero(~close)):
            because = explanation(step, config, cases[b], nudges)
            why[b] = because != FAULT
            result.found.append(Found(some[b], differing(fields, b), because))
        _count(result, cases, fields, why, close)
        count_events(result.events, expected.episode, expected.rows, fields, why)
        if stop(result):
            break
    return result


def _count(
    result: Result, cases: Sequence[Case], fields: dict[str, Agreement], why: np.ndarray, close: np.ndarray
) -> None:
    living = np.stack([case.state.sim.mechs.alive for case in cases])
    result.steps += len(cases)
    result.mech_rows += int(living.sum())
    for name, field in fields.items():
        counted = living if field.per_mech else np.ones(len(cases), bool)
        result.fields.setdefault(name, FieldCount()).add(field, counted, why, close)
