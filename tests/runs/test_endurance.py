"""Two thousand updates in one process with all that a run does around them: memory does not grow; times are printed, not judged."""

from __future__ import annotations

import time
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.fake_env import CONFIG, CountingAgent, FakeEnv, fake_params

from echelon_jax.runs.checkpoint import snapshot
from echelon_jax.runs.guard_log import GuardLog
from echelon_jax.runs.saver import Saver
from echelon_jax.runs.sinks import JsonLines, Sinks, TensorBoard
from echelon_jax.system import peak_megabytes, resident_megabytes
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import summarize
from echelon_jax.training.trainer import make_train

TRAIN = TrainConfig(
    network="original", arenas=8, rollout_steps=8, updates=2000, epochs=1, minibatches=1, hidden=8, lstm=8
)
QUARTER = TRAIN.updates // 4
SAVE_EVERY = 20


@pytest.mark.slow
def test_memory_does_not_grow_over_two_thousand_updates(tmp_path: Path) -> None:
    trainer = make_train(FakeEnv(), TRAIN, CountingAgent())
    well = fake_params(death_rate=0.02, decided_rate=0.02)
    state = trainer.init(jax.random.key(0), well)
    log = GuardLog(tmp_path, trainer.guard_names, print)
    memory, seconds = [], []
    with Sinks([JsonLines(tmp_path), TensorBoard(tmp_path, 0)]) as sinks, Saver(tmp_path) as saver:
        for update in range(1, TRAIN.updates + 1):
            if update % QUARTER == 1:
                began = time.perf_counter()
            state, device_metrics = trainer.run_updates(state, well)
            metrics = jax.tree.map(np.asarray, device_metrics)
            line = {"update": update, **summarize([metrics], CONFIG.team_size, ["action"], "random")}
            sinks.write(line | log.take(metrics.guard, update))
            if update % SAVE_EVERY == 0:
                saver.save(snapshot(state, TRAIN, CONFIG, score=0.5))
            if update % QUARTER == 0:
                memory.append(resident_megabytes())
                seconds.append((time.perf_counter() - began) / QUARTER)
    assert trainer.run_updates._cache_size() == 1  # type: ignore[attr-defined]
    print(
        f"\nMiB after each quarter {[round(m) for m in memory]}, peak {peak_megabytes():.0f};"
        f" ms per update {[round(1e3 * s, 1) for s in seconds]}"
    )
    assert memory[-1] - memory[0] < 0.02 * memory[0]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 4  # three and the best
