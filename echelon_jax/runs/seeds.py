"""Several learners in one program: `--seeds N` trains N ordinary runs, RUN/seed0 and so on.

Every learner has its own `Runner` on its own thread, with directory, worlds, metrics and checkpoints. Only the call is shared:
it waits for all of them, runs one program over their stacked states, and returns each its own state. Each directory is that of
an ordinary run with its own seed, which can be resumed and evaluated alone.

The program runs the learners one after the other (`jax.lax.map`). Under `vmap` the simulator's conditions would compute both of
their branches, and its rare loops would run as long as the busiest learner needs.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.env.state import EnvParams
from echelon_jax.fields import check_seed
from echelon_jax.runs import checkpoint
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.directory import read_config
from echelon_jax.runs.progress import Progress
from echelon_jax.runs.runner import Runner, StopOnSignal
from echelon_jax.terminal import PlainConsole
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import Metrics
from echelon_jax.training.trainer import Train, TrainState


def shared_program(trainer: Train, count: int, vmap: bool = False) -> Callable[..., Any]:
    """Return the compiled call of `count` learners, from the tuples (states, env_params) to their (state, metrics).

    With `vmap` it computes the learners side by side instead of in turn. It consumes the states.
    """

    def updates(state: TrainState, env_params: EnvParams) -> tuple[TrainState, Metrics]:
        number = trainer.config.updates_per_call
        return jax.lax.scan(lambda s, _: trainer.update(s, env_params), state, None, number)

    def calls(states: tuple[TrainState, ...], env_params: tuple[EnvParams, ...]) -> tuple[Any, ...]:
        stacked = tuple(jax.tree.map(lambda *x: jnp.stack(x), *trees) for trees in (states, env_params))
        if vmap:
            out = jax.vmap(updates)(*stacked)
        else:
            out = jax.lax.map(lambda one: updates(*one), stacked)
        return tuple(jax.tree.map(lambda x, i=i: x[i], out) for i in range(count))

    options = compiling.for_training(trainer.config.env_steps)
    return jax.jit(calls, donate_argnums=0, compiler_options=options)


class SharedCall:
    """One compiled call for several runs. Each run calls it from its own thread as if it were its own.

    A call returns once all runs have called. All runs wait there when a stop is decided, so all do the same number of updates.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.runners: list[Runner] = []
        self.stopping = False
        self._barrier = threading.Barrier(count, action=self._run_all)
        self._given: list[Any] = [None] * count
        self._results: tuple[Any, ...] = ()
        self._trainer: Train | None = None
        self._program: Any = None

    def compile_call(self, number: int) -> Callable[[Train, TrainState, EnvParams], Callable[..., Any]]:
        """Return the `Runner.compile_call` of run `number`, which shares the compiled program."""

        def compile_shared(trainer: Train, state: TrainState, env_params: EnvParams) -> Callable[..., Any]:
            self._given[number] = state, env_params
            self._trainer = trainer
            self._meet()  # compiles, as nothing is compiled yet

            def run_updates(state: TrainState, env_params: EnvParams) -> tuple[TrainState, Metrics]:
                self._given[number] = state, env_params
                self._meet()
                return self._results[number]  # the next results come only after everybody has called again

            return run_updates

        return compile_shared

    def abort(self) -> None:
        """Release all waiting runs, because one has failed."""
        self._barrier.abort()

    def _meet(self) -> None:
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError as error:
            raise CheckpointError("another of the seeds failed, so this one stops") from error

    def _run_all(self) -> None:
        states, env_params = zip(*self._given, strict=True)
        if self._program is None:
            assert self._trainer is not None
            program: Any = shared_program(self._trainer, self.count)
            self._program = program.lower(states, env_params).compile()
            return
        self._results = self._program(states, env_params)
        if self.stopping:
            for runner in self.runners:
                runner.stop()


def seed_directories(run_dir: Path, count: int) -> list[Path]:
    """Return the directories of the runs of several seeds."""
    return [run_dir / f"seed{i}" for i in range(count)]


def common_update(folders: Sequence[Path]) -> int:
    """Return the last update that the runs in these directories have all saved, 0 if there is none.

    Raises:
        CheckpointError: one of them was told to go further than others, and has.
    """
    saved = [checkpoint.saved_updates(folder) for folder in folders]
    common = max(set[int].intersection(*({0, *updates} for updates in saved)))
    told = {((read_config(folder) or {}).get("train") or {}).get("updates") for folder in folders} - {None}
    if len(told) > 1 and any(updates and updates[-1] > common for updates in saved):
        reached = ", ".join(str(updates[-1] if updates else 0) for updates in saved)
        raise CheckpointError(
            f"the seeds under {folders[0].parent} were told different numbers of updates and have reached {reached}; "
            "resume each alone"
        )
    return common


def train_seeds(
    run_dir: Path,
    config: TrainConfig,
    env_config: EnvConfig,
    count: int,
    on_stop: Callable[[], None] = lambda: None,
    resume: bool = False,
    **options: Any,
) -> list[TrainState]:
    """Train `count` learners with the seeds `config.seed`, `config.seed + 1` and so on, each in a directory of its own.

    `options` are those of `Runner`. SIGINT and SIGTERM end all of them after the call in progress and call `on_stop`.
    `resume` goes on from the last update that all of them have saved: a process that was killed may have saved some of them
    once more than others.

    Raises:
        CheckpointError: as `Runner`, of the first run that failed.
        ValueError: the last seed is larger than a seed may be, or `devices` asks for several.
    """
    check_seed(config.seed + count - 1, "seed + seeds - 1")
    if config.devices > 1:
        raise ValueError(f"devices must be 1 or 0 with several seeds, which share one device, got {config.devices}")
    folders = seed_directories(run_dir, count)
    at = common_update(folders) if resume else None
    shared = SharedCall(count)
    for number, own_dir in enumerate(folders):
        # The learners take turns in one program on one device.
        own = dataclasses.replace(config, seed=config.seed + number, devices=config.devices or 1)
        console = PlainConsole(quiet=number > 0, force_terminal=False)  # one of them speaks
        progress = Progress(own, env_config, own_dir, console)
        own_options = {
            "progress": progress,
            "compile_call": shared.compile_call(number),
            "resume": resume,
            "at": at,
            **options,
        }
        shared.runners.append(Runner(own_dir, own, env_config, **own_options))
    states: list[TrainState | None] = [None] * count
    failures: list[BaseException] = []

    def train(number: int) -> None:
        try:
            states[number] = shared.runners[number].train()
        except BaseException as error:  # noqa: BLE001  raised again below, on the main thread
            failures.append(error)
            shared.abort()

    def stop() -> None:
        shared.stopping = True
        on_stop()

    threads = [threading.Thread(target=train, args=(i,), name=f"seed{i}") for i in range(count)]
    with StopOnSignal(stop, shared.runners[0].progress):
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)  # signals are delivered between these
    if failures:
        raise failures[0]
    return [state for state in states if state is not None]
