"""Fuzzed parity: one decision step of random states in the JAX simulator and in the plain reference, every field compared.

`python -m echelon_jax.parity.fuzz --steps 2000 --seed 0` prints counts per field. A step that differs counts as explained only
if one of 64 fixed nudges of its floats by up to 1e-5, given to both simulators, makes both agree in every field: a comparison
that float32 decides otherwise than float64. Any other step is a fault; it is shrunk and written as a test case.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.state import REASONS, STATISTICS, WINNERS, EnvParams, EnvState, Step
from echelon_jax.parity.compare import Agreement, compare, near, same
from echelon_jax.parity.exchange import FLOATS, TIMERS, SlotNoise, stack, to_reference
from echelon_jax.parity.fuzz_cases import Case, make_case
from echelon_jax.parity.golden import Episode, column_words
from echelon_jax.parity.teacher_forced import FieldCount, Stepper
from echelon_jax.reference.environment import Advance, Arena
from echelon_jax.rules.materials import AIR, COLLIDES, OPAQUE
from echelon_jax.rules.mechs import TEAM_NAMES, roster
from echelon_jax.sim.rules import sim_rules

WIDTH = 8  # arenas of the compiled step
NUDGES, NUDGE = 64, 1e-5
CASES = Path("tests") / "data" / "fuzz"


# ---- one step of the reference as a recording -----------------------------------------------------------------------


def _snapshot(arena: Arena) -> dict[str, Any]:
    """The fields of an arena under their recorded names."""
    battle = arena.battle
    mechs = battle.mechs
    names = (*FLOATS, *TIMERS, "took_damage", "dealt_damage", "kills", "died", "was_hit", "alive", "ecm_on", "eccm_on")
    shot = {name: np.array([getattr(mech, name) for mech in mechs]) for name in names}
    shot["pos"] = np.array([mech.pos for mech in mechs], np.float32)
    shot["vel"] = np.array([mech.vel for mech in mechs], np.float32)
    shot["has_damage_dir"] = np.array([mech.last_damage_dir is not None for mech in mechs])
    shot["last_damage_dir"] = np.array([mech.last_damage_dir or (0.0, 0.0, 0.0) for mech in mechs], np.float32)
    for name in ("last_painter", "focus_target"):
        shot[name] = np.array([-1 if getattr(mech, name) is None else getattr(mech, name) for mech in mechs])
    shot["grid_rank"] = np.array([battle.grid.rank(mech.index) for mech in mechs])
    shot["contact_slots"] = np.array(arena.contact_slots)
    shot["contact_sort_mode"] = np.array(arena.sort_mode)
    shot["contact_hostile_only"] = np.array(arena.hostile_only)
    shot["comm_last"] = np.array(arena.messages).reshape(len(mechs), -1)
    shot["zone_score"], shot["tick"] = np.array(arena.scores), np.array(battle.tick)
    return shot


def _shot_rows(arena: Arena, t: int) -> list[list[float]]:
    return [
        [t, -1, s.shooter, -1 if s.target is None else s.target, s.weapon, *s.pos, *s.vel, s.age]
        for s in arena.battle.projectiles
    ]


@dataclasses.dataclass
class Expected:
    """What the reference makes of some cases: a recording whose rows 2 b and 2 b + 1 are case b before and after its step."""

    episode: Episode
    arenas: list[Arena]

    @property
    def rows(self) -> list[int]:
        """The rows before the steps."""
        return list(range(0, 2 * len(self.arenas), 2))


def play_reference(config: EnvConfig, cases: Sequence[Case]) -> Expected:
    """One decision step of every case in the plain reference."""
    rows: list[dict[str, Any]] = []
    arenas: list[Arena] = []
    made: list[Advance] = []
    events: list[list[dict[str, Any]]] = []
    shots: list[list[float]] = []
    clouds: list[list[float]] = []
    smoke: list[np.ndarray] = []
    ids = list(roster(config.num_packs).ids)
    for b, case in enumerate(cases):
        loaded = to_reference(config, case.state)
        arena, before = loaded.arena, _snapshot(loaded.arena)
        step = arena.advance(case.actions, SlotNoise(config, case.noise, loaded))
        rows += [before, _snapshot(arena)]
        arenas.append(arena)
        made.append(step)
        events += [step.events, []]
        shots += _shot_rows(arena, 2 * b + 1)
        clouds += [[2 * b + 1, *cloud.pos, cloud.radius, cloud.life] for cloud in arena.battle.clouds]
        was_smoke = np.array(case.state.sim.mechs.tube_was_smoke)
        for event in step.events:
            if event["type"] in ("smoke_launch", "missile_launch"):
                was_smoke[ids.index(event["shooter"])] = event["type"] == "smoke_launch"
        smoke += [was_smoke, was_smoke]

    data = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    results = {
        "actions": [case.actions for case in cases],
        "rewards": [step.reward for step in made],
        "reward_components": [step.components for step in made],
        "terminated": [step.terminated for step in made],
        "truncated": [step.truncated for step in made],
    }
    data.update({name: np.repeat(np.stack(values), 2, 0) for name, values in results.items()})
    data["obs"] = np.repeat(np.stack([step.observation for step in made]), 2, 0)
    data["projectiles"] = np.array(shots, np.float64).reshape(-1, 12)
    data["smoke"] = np.array(clouds, np.float64).reshape(-1, 6)
    episode = Episode("fuzz", config, data, {"ids": ids, "outcome": None}, events)
    worlds = [arena.battle.world for arena in arenas]
    material = np.stack([world.material.reshape(-1) for world in worlds])
    hp = np.stack([world.hp.reshape(-1) for world in worlds])
    episode.__dict__["grids"] = (np.repeat(material, 2, 0), np.repeat(hp, 2, 0))
    episode.__dict__["tube_smoke"] = np.array(smoke)
    return Expected(episode, arenas)


# ---- one step of the JAX simulator ----------------------------------------------------------------------------------


def original_params(config: EnvConfig) -> EnvParams:
    """The original's weapon numbers and the default weights of the configured reward. There is no bank: a step never reads it."""
    return EnvParams(rules=sim_rules(config), rewards=Echelon(config).default_rewards(), bank=None)  # type: ignore[arg-type]


def compile_step(config: EnvConfig, width: int = WIDTH) -> jax.stages.Compiled:
    """The compiled step (params, state, actions, noise) -> (state, step) for a batch of `width` arenas."""
    env = Echelon(config)
    case = stack([make_case(config, 0)] * width)
    step = jax.jit(lambda params, state, actions, noise: env.step_batch_with_noise(params, state, actions, noise))
    return step.lower(original_params(config), case.state, case.actions, case.noise).compile()


def stepper(config: EnvConfig, compiled: jax.stages.Compiled | None = None, params: EnvParams | None = None) -> Stepper:
    """The step of `WIDTH` arenas under the original's rules, or under `params`."""
    run = compile_step(config) if compiled is None else compiled
    bound = original_params(config) if params is None else params
    return lambda state, actions, noise: run(bound, state, actions, noise)


# ---- comparison -----------------------------------------------------------------------------------------------------


def play(step: Stepper, cases: Sequence[Case]) -> tuple[EnvState, Step]:
    """One decision step of at most `WIDTH` cases in the JAX simulator, as numpy leaves."""
    full = stack([*cases, *[cases[-1]] * (WIDTH - len(cases))])
    result = jax.device_get(step(full.state, full.actions, full.noise))
    return jax.tree.map(lambda leaf: leaf[: len(cases)], result)  # type: ignore[no-any-return]


def fields_of(
    step: Stepper, config: EnvConfig, cases: Sequence[Case], events: Counter[str] | None = None
) -> dict[str, Agreement]:
    """Agreement of the two simulators in every field, for at most `WIDTH` cases; `events` is told what happened in them."""
    expected = play_reference(config, cases)
    if events is not None:
        events.update(event["type"] for made in expected.episode.events for event in made)
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


def explained(step: Stepper, config: EnvConfig, case: Case, nudges: int = NUDGES) -> bool:
    """Whether both simulators agree on one of the nudged versions of a case."""
    for start in range(0, nudges, WIDTH):
        cases = [nudged(case, i) for i in range(start, min(start + WIDTH, nudges))]
        if agreeing(fields_of(step, config, cases), len(cases)).any():
            return True
    return False


# ---- a run ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Found:
    """A step that differs: the seed of its case, the fields, and whether a nudge explains it."""

    seed: int
    fields: list[str]
    explained: bool


@dataclasses.dataclass
class Result:
    """Counts of a run: steps, rows of living mechs, events by type, per field, and every step that differs."""

    steps: int = 0
    mech_rows: int = 0
    fields: dict[str, FieldCount] = dataclasses.field(default_factory=dict)
    found: list[Found] = dataclasses.field(default_factory=list)
    events: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def unexplained(self) -> list[Found]:
        """The faults."""
        return [f for f in self.found if not f.explained]


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
        fields = fields_of(step, config, cases, result.events)
        close = agreeing(fields, len(cases))
        why = np.zeros(len(cases), bool)
        for b in (int(i) for i in np.flatnonzero(~close)):
            why[b] = explained(step, config, cases[b], nudges)
            result.found.append(Found(some[b], differing(fields, b), bool(why[b])))
        _count(result, cases, fields, why, close)
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


# ---- small cases ----------------------------------------------------------------------------------------------------


def _edits(config: EnvConfig, case: Case) -> Iterator[Callable[[Case], Case]]:
    """Ways to make a case smaller, coarse ones first."""

    def on_sim(**parts: Any) -> Callable[[Case], Case]:
        def edit(c: Case) -> Case:
            sim = c.state.sim
            new = {name: change(getattr(sim, name)) for name, change in parts.items()}
            return c.replace(state=c.state.replace(sim=sim.replace(**new)))  # type: ignore[attr-defined, no-any-return]

        return edit

    def without(values: np.ndarray, where: Any, value: Any = 0) -> np.ndarray:
        copy = np.array(values)
        copy[where] = value
        return copy

    everyone = np.ones(config.num_mechs, bool)
    shape = (config.size_z, config.size_y, config.size_x)
    yield on_sim(projectiles=lambda p: p.replace(alive=np.zeros_like(p.alive)))
    yield on_sim(smoke=lambda s: s.replace(life=np.zeros_like(s.life)))
    yield lambda c: c.replace(actions=without(c.actions, everyone))  # type: ignore[attr-defined, no-any-return]
    blocks = [(slice(1, None), slice(None), slice(None))]
    blocks += [
        (slice(None), slice(y, y + 8), slice(x, x + 8)) for y in range(0, shape[1], 8) for x in range(0, shape[2], 8)
    ]
    for block in blocks:
        box = np.zeros(shape, bool)
        box[block] = True
        yield on_sim(grid=lambda g, box=box: _cleared(config, g, box.reshape(-1)))
    for m in range(config.num_mechs):
        yield on_sim(mechs=lambda v, m=m: v.replace(alive=without(v.alive, m, False)))
    for s in np.flatnonzero(case.state.sim.projectiles.alive):
        yield on_sim(projectiles=lambda p, s=s: p.replace(alive=without(p.alive, s, False)))
    for s in np.flatnonzero(case.state.sim.smoke.life):
        yield on_sim(smoke=lambda v, s=s: v.replace(life=without(v.life, s)))
    for m in range(config.num_mechs):
        yield lambda c, m=m: c.replace(actions=without(c.actions, m))


def _cleared(config: EnvConfig, grid: Any, box: np.ndarray) -> Any:
    material = np.where(box, AIR, grid.material).astype(np.uint8)
    return grid.replace(
        material=material,
        hp=np.where(box, 0, grid.hp).astype(np.int16),
        collides=column_words(material[None], COLLIDES, config)[0],
        opaque=column_words(material[None], OPAQUE, config)[0],
    )


def shrink(step: Stepper, config: EnvConfig, case: Case, nudges: int = WIDTH) -> Case:
    """A smaller case that still differs, and that no nudge explains; the same case if there is none."""

    def fails(c: Case) -> bool:
        return not agreeing(fields_of(step, config, [c]), 1)[0] and not explained(step, config, c, nudges)

    for edit in list(_edits(config, case)):
        smaller = edit(case)
        if fails(smaller):
            case = smaller
    return case


def save_case(path: Path, config: EnvConfig, case: Case) -> None:
    """Write a case as one npz file: the configuration and every leaf by its path."""
    leaves = {jax.tree_util.keystr(where): leaf for where, leaf in jax.tree_util.tree_leaves_with_path(case)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, config=np.array(json.dumps(dataclasses.asdict(config))), **leaves)


def load_case(path: Path) -> tuple[EnvConfig, Case]:
    """Read what `save_case` wrote; a field that the file is too old to hold is zero."""
    with np.load(path) as file:
        config = EnvConfig.original(**json.loads(str(file["config"])))
        like = make_case(config, 0)
        names = {jax.tree_util.keystr(where): leaf for where, leaf in jax.tree_util.tree_leaves_with_path(like)}
        leaves = [file[name] if name in file.files else np.zeros_like(leaf) for name, leaf in names.items()]
    case = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return config, case


# ---- command --------------------------------------------------------------------------------------------------------


def table(result: Result) -> str:
    """Counts per field as text."""
    lines = [f"{'field':24}{'values':>10}{'exact':>10}{'close':>8}{'explained':>11}{'faults':>8}{'largest':>11}"]
    for name, f in result.fields.items():
        lines.append(
            f"{name:24}{f.rows:10}{f.exact:10}{f.within_tolerance:8}{f.explained:11}{f.unexplained:8}{f.largest:11.1e}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; exit code 1 if a fault was found."""
    parser = argparse.ArgumentParser(description="Fuzzed parity of the JAX simulator against the plain reference.")
    parser.add_argument("--steps", type=int, default=1000, help="decision steps to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    parser.add_argument("--packs", type=int, default=1, help="packs of five mechs a team")
    parser.add_argument("--mode", choices=("full", "partial"), default="full", help="observation mode")
    parser.add_argument("--size", type=int, default=40, help="edge of the map")
    parser.add_argument("--out", type=Path, default=CASES, help="where shrunk faults are written")
    parser.add_argument("--faults", type=int, default=3, help="stop after so many faults")
    args = parser.parse_args(argv)
    config = EnvConfig.original(size_x=args.size, size_y=args.size, num_packs=args.packs, observation_mode=args.mode)
    step, began = stepper(config), time.monotonic()
    seeds = range(args.seed, args.seed + args.steps)
    result = run(config, seeds, step, stop=lambda r: len(r.unexplained) >= args.faults)
    print(table(result))
    print("events:", ", ".join(f"{count} {name}" for name, count in result.events.most_common()))
    for found in result.found:
        print(f"seed {found.seed}: {'explained' if found.explained else 'FAULT'}: {', '.join(found.fields)}")
    for found in result.unexplained[: args.faults]:
        small = shrink(step, config, make_case(config, found.seed))
        path = args.out / f"{args.mode}_{args.packs}_{found.seed}.npz"
        save_case(path, config, small)
        print(f"seed {found.seed}: shrunk case in {path}: {', '.join(differing(fields_of(step, config, [small]), 0))}")
    print(
        f"{result.steps} steps, {result.mech_rows} mech steps, {len(result.found) - len(result.unexplained)} explained, "
        f"{len(result.unexplained)} faults, {time.monotonic() - began:.0f} s"
    )
    return 1 if result.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
