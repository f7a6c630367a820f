"""A run on the host: makes the worlds, drives the compiled trainer, shows progress, writes metrics and checkpoints.

RUN/config.json        training and environment configuration, versions, git revision
RUN/metrics.jsonl      one line per call (docs/metrics.md); RUN/tensorboard/ holds the same
RUN/summary.json       the updates done, the best and the last figures
RUN/checkpoints/       see `checkpoint`; written in the background
RUN/events.jsonl       the findings of the guard; RUN/guard_report.json when it gave up
RUN/.lock              held by the process that trains
"""

from __future__ import annotations

import hashlib
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.agents.registry import is_zoo_name
from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.reward_terms import term_names
from echelon_jax.env.state import EnvParams
from echelon_jax.intervals import wilson
from echelon_jax.policies.registry import make_network
from echelon_jax.runs import checkpoint, directory, kept
from echelon_jax.runs.checkpoint import Bank, CheckpointError, Manifest
from echelon_jax.runs.clock import CallClock, device_megabytes, time_rollout
from echelon_jax.runs.companion import Companion
from echelon_jax.runs.description import describe, write_summary
from echelon_jax.runs.devices import settled
from echelon_jax.runs.directory import Claim
from echelon_jax.runs.guard_log import GuardLog
from echelon_jax.runs.lock import RunLock
from echelon_jax.runs.progress import Progress
from echelon_jax.runs.ratio_log import RatioLog
from echelon_jax.runs.saver import Saver
from echelon_jax.runs.sinks import JsonLines, Sink, Sinks, TensorBoard, drop_lines_after
from echelon_jax.runs.tree_files import digest
from echelon_jax.runs.validation import MakeValidator, Validations
from echelon_jax.runs.warm_start import load_fitting, warm
from echelon_jax.system import resident_megabytes
from echelon_jax.training import guard
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.curriculum import parse, values_at
from echelon_jax.training.metrics import Metrics, summarize
from echelon_jax.training.reward_weights import check_curriculum, reward_weights, weights_with
from echelon_jax.training.trainer import LinearSchedule, Train, TrainState, make_train
from echelon_jax.worldgen.bank import WorldArrays, WorldBankFeeder, swapped_slice

WINDOW = 5  # calls that the shown rates run over


class Runner:
    """One training run in a directory.

    Args:
        run_dir: the directory of the run, which is made if it does not exist.
        config, env_config: validated configurations.
        resume: continue from the last checkpoint in `run_dir` if there is one; bit for bit as if never interrupted.
        at: the update whose checkpoint `resume` continues from, 0 to start anew; by default the last.
        start_from: a run or checkpoint with whose policy this run begins, instead of with a fresh one; config.json remembers it.
        save_every: most calls that a crash repeats, the one in progress included (`begins_save`).
        keep, keep_best: how many of the last checkpoints stay, and whether the best one stays (docs/reliability.md).
        sinks: makes what metrics go to besides metrics.jsonl and TensorBoard, from the directory and what config.json holds.
        time_parts: measure a rollout alone before training, which compiles a second program.
        validator: makes what plays the validation games; needed where `config.validation_every` is not 0.
        companion: may change the state between calls, and tells metrics; a league needs one.
        compile_call: compiles the call, from the trainer, a state and the parameters of the environment (`seeds` shares one).

    Raises:
        CheckpointError: the directory cannot be written or holds another run, or its checkpoint cannot be used.
    """

    def __init__(
        self,
        run_dir: Path,
        config: TrainConfig,
        env_config: EnvConfig,
        *,
        resume: bool = False,
        at: int | None = None,
        start_from: Path | None = None,
        save_every: int = 10,
        keep: int = 3,
        keep_best: bool = True,
        progress: Progress | None = None,
        sinks: Callable[[Path, dict[str, Any]], Sequence[Sink]] = lambda run_dir, described: (),
        time_parts: bool = False,
        validator: MakeValidator | None = None,
        companion: Companion | None = None,
        compile_call: Callable[[Train, TrainState, EnvParams], Callable[..., Any]] | None = None,
    ) -> None:
        config = settled(config, run_dir, len(jax.devices()))
        self.run_dir, self.config, self.env_config = run_dir, config, env_config
        self.resume, self.at, self.save_every = resume, at, save_every
        self.keep, self.keep_best = keep, keep_best
        self.sinks, self.time_parts, self.companion = sinks, time_parts, companion
        self.compile_call = compile_run_updates if compile_call is None else compile_call
        self.measured: dict[str, float | None] = {"seconds/compile": None, "seconds/rollout": None}
        self.progress = Progress(config, env_config, run_dir) if progress is None else progress
        self.stages = parse(config.curriculum)
        check_curriculum(config, env_config)  # what a reward does not have is said before anything is written
        make_network(config, env_config)  # refuses what does not go together, before anything is written
        self.validations = Validations(validator, config, env_config)
        self.stopped = False
        self.claim = directory.look(run_dir, config, env_config, resume, at)  # refuses before anything is made
        told = None if self.claim.described is None else self.claim.described.get("start_from")
        self.start_from = start_from if start_from is not None or told is None else Path(told)
        self.policy = None
        if self.start_from is not None and self.resumed is None:
            self.policy = load_fitting(self.start_from, config, env_config)

    @property
    def resumed(self) -> Manifest | None:
        """The checkpoint that the run goes on from, None if it starts at update 0."""
        return self.claim.manifest

    def train(self) -> TrainState:
        """Run to the configured number of updates, or until SIGINT or SIGTERM; the state reached is saved in either case."""
        with RunLock(self.run_dir) as lock:
            self.claim = directory.look(self.run_dir, self.config, self.env_config, self.resume, self.at)
            new = self.claim == Claim(None, None)
            self.began = False
            try:
                identity: dict[str, Any] = {"run": uuid.uuid4().hex[:12]}
                if self.start_from is not None:
                    named = is_zoo_name(self.start_from)
                    identity["start_from"] = str(self.start_from if named else self.start_from.absolute())
                self.claim = directory.tell(self.run_dir, self.claim, self.config, self.env_config, identity)
                more = self.sinks(self.run_dir, self.claim.described or describe(self.config, self.env_config))
                return self._train(more)
            except BaseException:
                if new and not self.began:
                    directory.undo(self.run_dir, lock.made)
                raise

    def _train(self, more: Sequence[Sink]) -> TrainState:
        config, env = self.config, Echelon(self.env_config, kernels=self.config.kernels)
        trainer = make_train(AutoReset(env), config)
        self.heads, self.members = trainer.network.head_names, trainer.members
        self.guard_log = GuardLog(self.run_dir, trainer.guard_names, self.progress.note)
        slices, slice_size = self._bank_shape()
        feed = WorldBankFeeder(self.env_config, config.seed, slices, slice_size, processes=1)
        saver = Saver(self.run_dir, keep=self.keep, keep_best=self.keep_best)
        with Sinks(more) as sinks, self.progress, feed as feeder:
            done = 0 if self.resumed is None else self.resumed.update
            self.progress.phase(f"making {config.bank_size} worlds")
            rewards = reward_weights(config, self.env_config)
            worlds = feeder.whole_bank(config.bank_swaps(done))
            self.worlds = _slice_digests(worlds, slices)
            if self.resumed is not None:
                checkpoint.require_same(self.resumed, config, self.env_config, self.claim.run_id, self._bank(done))
            env_params = env.params(env.make_bank(worlds), rewards=rewards)
            del worlds  # the device has them
            state, env_params = trainer.place(self._first_state(trainer, env_params), env_params)
            self.progress.phase("compiling the training program (once, a minute or less)")
            began = time.perf_counter()
            call = self.compile_call(trainer, state, env_params)
            compiling = time.perf_counter() - began
            self.measured["seconds/compile"] = compiling
            if self.time_parts:
                self.progress.phase("measuring a rollout alone")
                self.measured["seconds/rollout"] = time_rollout(
                    trainer.update, state, env_params, self.config.env_steps
                )
            self.progress.compiled(compiling)
            if self.companion is not None:
                remembered = None if self.resumed is None else self.resumed.extra.get("companion")
                state = self.companion.begin(trainer, state, remembered)
            self.began = True
            for name in ("metrics.jsonl", "events.jsonl"):
                drop_lines_after(self.run_dir / name, done)
            kept.drop_after(self.run_dir, done)
            sinks.sinks[:0] = [JsonLines(self.run_dir), TensorBoard(self.run_dir, done)]
            with StopOnSignal(self.stop, self.progress), saver:
                return self._loop(call, state, env, env_params, feeder, slices, slice_size, sinks, saver)

    def _bank_shape(self) -> tuple[int, int]:
        c = self.config
        if not c.bank_swap_every:
            return 1, c.bank_size
        if c.bank_size % c.bank_swap_size:
            raise CheckpointError(
                f"bank_size must be a multiple of bank_swap_size ({c.bank_swap_size}), got {c.bank_size}"
            )
        return c.bank_size // c.bank_swap_size, c.bank_swap_size

    def _first_state(self, trainer: Any, env_params: EnvParams) -> TrainState:
        key = jax.random.key(self.config.seed)
        if self.resumed is not None:
            template = trainer.shapes(env_params)
            state = checkpoint.restore(
                self.resumed.path, template, self.config, self.env_config, lambda: trainer.init(key, env_params)
            )
            if not bool(state.guard.failed):
                return state
            self.progress.note("the guard had given up on this run; it starts again from the learner that was kept")
            return state.replace(guard=guard.again(state.guard))  # type: ignore[attr-defined]
        self.progress.phase("starting the arenas")
        state = trainer.init(key, env_params)
        return state if self.policy is None else warm(state, self.policy)

    def _loop(
        self,
        call: Any,
        state: TrainState,
        env: Echelon,
        env_params: EnvParams,
        feeder: WorldBankFeeder,
        slices: int,
        slice_size: int,
        sinks: Sinks,
        saver: Saver,
    ) -> TrainState:
        config, team, terms = self.config, self.env_config.team_size, term_names(self.env_config)
        window: deque[Metrics] = deque(maxlen=WINDOW)
        extra = {} if self.resumed is None else self.resumed.extra
        games: deque[list[float]] = deque(extra.get("games", []), maxlen=WINDOW)  # wins and games of each call
        clock, started = CallClock(), time.perf_counter()
        ratios = RatioLog(self.run_dir, self.heads, config.ratio_alarm, config.seats // config.arenas)

        def report(at: int, device_metrics: Metrics, told: dict[str, float | None]) -> None:
            """Wait for a call, fetch its metrics, and hand them on. The next call is already running."""
            metrics: Metrics = jax.tree.map(np.asarray, device_metrics)
            wall, cpu = clock.lap()
            window.append(metrics)
            line = {
                "update": at,
                **self._speed(at, wall, cpu),
                **summarize([metrics], team, self.heads, config.opponent, terms, self.members),
                **told,
            }
            played = line["episodes"] or 0.0
            games.append([round((line["win_rate"] or 0.0) * played), played])
            line |= self.guard_log.take(metrics.guard, at)
            line |= self.validations.line(at)
            ratios.take(metrics.update.worst, at)
            sinks.write(line)
            self.progress.advance(at, line, summarize(list(window), team, self.heads, config.opponent, terms))

        def save() -> None:
            wins, played = (sum(column) for column in zip(*games, strict=True)) if games else (0.0, 0.0)
            trained, validated = wilson(wins, int(played))[0], self.validations.score(update)
            saver.save(
                checkpoint.snapshot(
                    state,
                    config,
                    self.env_config,
                    extra={**extra, "games": list(games), **self._remembered()},
                    run=self.claim.run_id,
                    bank=self._bank(update),
                    score=validated if config.validation_every else trained,
                    scored_by=self.validations.scored_by,
                )
            )

        update = int(state.update)
        calls = saved_at = 0
        waiting: tuple[int, Metrics, dict[str, float | None]] | None = None
        while update < config.updates and not self.stopped and not self.guard_log.gave_up:
            if calls > saved_at or self.save_every == 1:
                saver.wait()  # a checkpoint is written beside one call at most; see `begins_save`
            state, env_params = self._staged(update, state, env_params)
            state, metrics = call(state, env_params)
            update += config.updates_per_call
            calls += 1
            # Before new worlds: they wait for the call in progress, whose time is not this one's.
            if waiting is not None:
                report(*waiting)
            swap = config.bank_swaps(update)
            if swap > config.bank_swaps(update - config.updates_per_call):
                start = swapped_slice(swap, slices) * slice_size
                worlds = feeder.take(swap)
                self.worlds[swapped_slice(swap, slices)] = _slice_digests(worlds, 1)[0]
                bank = env.replace_worlds(env_params.bank, start, worlds)
                env_params = env_params.replace(bank=bank)
            if self.companion is not None:
                state = self.companion.after_call(state)
            waiting = update, metrics, {} if self.companion is None else self.companion.metrics()
            validates = self.validations.due(update)
            if validates:
                self.validations.play(state, update)
            saves = validates or begins_save(update, config.updates_per_call, self.save_every)
            if saves and update < config.updates:
                report(*waiting)  # saving waits for the state anyway, and no checkpoint is ahead of its metrics
                waiting = None
                save()
                saved_at = calls
        if waiting is not None:
            report(*waiting)
        if calls or self.resumed is None:
            save()
        written = saver.wait() or checkpoint.find(self.run_dir)
        if self.guard_log.gave_up:
            raise self.guard_log.give_up(state.guard, config, written)
        write_summary(self.run_dir, time.perf_counter() - started, self.stopped)
        self.progress.finished(written, self.stopped)
        return state

    def _staged(self, update: int, state: TrainState, env_params: EnvParams) -> tuple[TrainState, EnvParams]:
        """Apply the curriculum's values at an update."""
        values = values_at(self.stages, update)
        if "fire" in values:
            fire = jnp.float32(values["fire"])
            state = state.replace(opponent_fire=LinearSchedule(fire, jnp.copy(fire), jnp.float32(0.0)))
        if any(name != "fire" for name in values):
            env_params = env_params.replace(rewards=weights_with(self.config, self.env_config, values))
        return state, env_params

    def _remembered(self) -> dict[str, Any]:
        return {} if self.companion is None else {"companion": self.companion.remember()}

    def _bank(self, update: int) -> Bank:
        """Return the worlds of the run after so many updates."""
        swaps = self.config.bank_swaps(update)
        worlds = hashlib.sha256("".join(self.worlds).encode()).hexdigest()[:16]
        return Bank(self.config.seed, swaps, worlds)

    def _speed(self, update: int, wall: float, cpu: float) -> dict[str, float | None]:
        """Time and memory of one call by name."""
        c = self.config
        steps = c.updates_per_call * c.decisions_per_update
        rollout = self.measured["seconds/rollout"]
        return {
            "env_steps": update * c.decisions_per_update,
            "env_steps_per_second": steps / max(wall, 1e-9),
            "env_steps_per_cpu_second": steps / max(cpu, 1e-9),
            **self.measured,
            "seconds/call": wall,
            "seconds/update": None if rollout is None else max(wall / c.updates_per_call - rollout, 0.0),
            "memory/host_mb": resident_megabytes(),
            "memory/device_mb": device_megabytes(),
        }

    def stop(self) -> None:
        """Finish the call in progress, save, and return from `train`."""
        self.stopped = True


def calls_between_saves(save_every: int) -> int:
    """Return the calls from one checkpoint to the next: one fewer than a crash may repeat, at least one (`begins_save`)."""
    return max(save_every - 1, 1)


def begins_save(update: int, per_call: int, save_every: int) -> bool:
    """Return whether a checkpoint is begun after the call that led to `update`.

    A checkpoint is written during the next call, so it begins one call before `save_every` of them are over. Hence at any
    moment no more than `save_every` calls have begun since the last whole checkpoint. The result depends on the update alone,
    so a run that was interrupted and resumed saves at the same updates.
    """
    interval = calls_between_saves(save_every) * per_call
    return update // interval > (update - per_call) // interval


def compile_run_updates(trainer: Train, state: TrainState, env_params: EnvParams) -> Callable[..., Any]:
    """Return the compiled call of one run."""
    program = trainer.run_updates.lower(state, env_params).compile()  # type: ignore[attr-defined]
    # The host puts new worlds and numbers into state and parameters; `place` moves only what lies elsewhere.
    return lambda state, env_params: program(*trainer.place(state, env_params))


class StopOnSignal:
    """SIGINT and SIGTERM call `stop` once. A second signal is fatal as usual. Outside the main thread this does nothing."""

    def __init__(self, stop: Callable[[], None], progress: Progress) -> None:
        self.stop, self.progress = stop, progress
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.progress.note("stopping after this update; once more to stop at once")
        self.stop()
        self.__exit__()

    def __exit__(self, *exc: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _slice_digests(worlds: WorldArrays, slices: int) -> list[str]:
    """A fingerprint of what each slice of a bank holds."""
    size = len(worlds.seed) // slices
    return [digest({k: v[i * size : (i + 1) * size] for k, v in worlds._asdict().items()}) for i in range(slices)]
