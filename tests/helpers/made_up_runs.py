"""Runs on the host with a made-up call in place of the compiled one: no compiling, no worker process."""

from __future__ import annotations

import json
import os
import signal
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.runs import checkpoint, runner, tree_files
from echelon_jax.runs.runner import Runner
from echelon_jax.training import guard
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import Metrics, no_sums
from echelon_jax.training.ppo import UpdateMetrics
from echelon_jax.worldgen.bank import WorldBankFeeder
from helpers.checkpoint_states import state_at, template

ENV = EnvConfig.original(size_x=20, size_y=20, size_z=8)
CONFIG = TrainConfig(
    network="original", arenas=2, rollout_steps=2, epochs=1, minibatches=1, hidden=4, lstm=4, opponent="random"
)
GAME = {"updates": 12, "bank_size": 2, "bank_swap_every": 3, "bank_swap_size": 1}
CAUSES = len(guard.CAUSES)
PLAIN_FIELDS = [name for name in UpdateMetrics.__dataclass_fields__ if name not in ("part_grad_norm", "worst")]


def metrics_of(update: int, bad: bool = False, failed: bool = False) -> Metrics:
    games = 2.0 + update % 3
    sums = no_sums().replace(episodes=jnp.float32(games), wins=jnp.float32(update % 3))
    steps = {k: jnp.zeros((1, 1, 1) if k.startswith("head_") else (1, 1)) for k in PLAIN_FIELDS}
    causes = jnp.zeros(CAUSES, bool).at[guard.CAUSES.index("kl")].set(bad)
    flags = (jnp.asarray(x) for x in (bad, False, failed))
    told = guard.Report(causes, jnp.zeros(CAUSES, jnp.int32), *flags, jnp.float32(1.0))
    one = Metrics(sums, UpdateMetrics(**steps), *(jnp.float32(0),) * 3, told)
    return jax.tree.map(lambda x: x[None], one)


def call(state: Any, env_params: Any) -> tuple[Any, Metrics]:
    """The next state depends on this one and on the worlds, so that a wrong resume shows."""
    update = int(state.update)
    worlds = jnp.float32(np.asarray(env_params.bank.seed, np.float64).sum() % 1000)
    params = jax.tree.map(lambda x: jnp.sin(x * 1.7 + update + worlds), state.params)
    return state.replace(params=params, update=jnp.int32(update + 1)), metrics_of(update)


def make_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every `Runner` of a test train without compiling and without a worker process."""
    trainer = types.SimpleNamespace(
        network=types.SimpleNamespace(head_names=("action",)),
        guard_names=guard.Names((), (), (), ("action",)),
        init=lambda key, env_params: state_at(0),
        shapes=lambda env_params: template(),
        update=None,
        members=(),
        place=lambda state, env_params: (state, env_params),
    )
    monkeypatch.setattr(runner, "make_train", lambda env, config: trainer)
    monkeypatch.setattr(runner, "WorldBankFeeder", lambda *args, processes: WorldBankFeeder(*args, processes=0))


def run(run_dir: Path, step: Callable[..., Any] = call, **options: Any) -> Runner:
    changed = {k: options.pop(k) for k in list(options) if k in TrainConfig.__dataclass_fields__}
    config = TrainConfig(**{**CONFIG.__dict__, **GAME, **changed})
    options = {"save_every": 2, **options}
    made = Runner(run_dir, config, ENV, compile_call=lambda *_: step, **options)
    made.train()
    return made


def last(run_dir: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The arrays of the last checkpoint and what its manifest says of the run."""
    found = checkpoint.find(run_dir)
    manifest = json.loads((found / "manifest.json").read_text())
    arrays = {p: tree_files.read_flat(found / p) for p in ("policy", "run")}
    flat = {f"{p}{k}": np.asarray(v).tobytes() for p, tree in arrays.items() for k, v in tree.items()}
    return flat, {k: manifest[k] for k in ("update", "bank", "score", "extra")}


def stop_after(count: int) -> Callable[..., Any]:
    """A program that dies, as a crash would, in its n-th call."""
    left = [count]

    def step(state: Any, env_params: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError("crash")
        return call(state, env_params)

    return step


def stop_early(count: int) -> Callable[..., Any]:
    """A program that asks for the run to end after so many calls, as a signal would."""
    left = [count]

    def step(state: Any, env_params: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return call(state, env_params)

    return step
