"""Several learners in one program: each is what it would have been alone, and all do the same number of updates."""

import json
import threading
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.fake_env import CountingAgent, FakeEnv
from helpers.small_runs import PARAMS, TRAIN

from echelon_jax.cli.main import main
from echelon_jax.runs import seeds
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.seeds import SharedCall, seed_directories, shared_program
from echelon_jax.training.trainer import make_train


def leaves(tree: object) -> list[np.ndarray]:
    def raw(x: jax.Array) -> jax.Array:
        return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return [np.asarray(raw(x)) for x in jax.tree.leaves(tree)]


@pytest.mark.slow
def test_a_learner_among_several_is_what_it_is_alone() -> None:
    trainer = make_train(FakeEnv(), TRAIN, CountingAgent())
    keys = [jax.random.key(seed) for seed in (0, 1)]
    alone = [trainer.run_updates(trainer.init(key, PARAMS), PARAMS) for key in keys]
    together = shared_program(trainer, 2)(tuple(trainer.init(key, PARAMS) for key in keys), (PARAMS, PARAMS))
    for mine, shared in zip(alone, together, strict=True):
        for a, b in zip(leaves(mine), leaves(shared), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    assert any((a != b).any() for a, b in zip(leaves(together[0]), leaves(together[1]), strict=True))


def counting_program(trainer: object, count: int) -> object:
    """Stands for the compiled program: adds one to every state."""
    compiled = lambda states, params: tuple((state + 1, "metrics") for state in states)  # noqa: E731
    return types.SimpleNamespace(lower=lambda *a: types.SimpleNamespace(compile=lambda: compiled))


def play(shared: SharedCall, number: int, runner: types.SimpleNamespace, out: dict[int, object], fails: bool) -> None:
    try:
        call = shared.compile_call(number)(object(), 0, None)  # type: ignore[arg-type]
        state = 0
        while not runner.stopped and state < 50:
            if fails and state == 3:
                shared.abort()
                return
            state, _ = call(state, None)
            if number == 0 and state == 5:
                shared.stopping = True
        out[number] = state
    except CheckpointError as error:
        out[number] = error


def run_threads(monkeypatch: pytest.MonkeyPatch, failing: int | None = None) -> dict[int, object]:
    monkeypatch.setattr(seeds, "shared_program", counting_program)
    shared, out = SharedCall(3), {}
    for _ in range(3):
        runner = types.SimpleNamespace(stopped=False)
        runner.stop = lambda runner=runner: setattr(runner, "stopped", True)
        shared.runners.append(runner)  # type: ignore[arg-type]
    threads = [
        threading.Thread(target=play, args=(shared, i, runner, out, i == failing))
        for i, runner in enumerate(shared.runners)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    return out


def test_a_stop_ends_all_learners_after_the_same_call(monkeypatch: pytest.MonkeyPatch) -> None:
    out = run_threads(monkeypatch)
    assert set(out.values()) in ({6}, {5})  # one call may have begun when the stop came
    assert len(out) == 3


def test_no_learner_waits_for_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    out = run_threads(monkeypatch, failing=1)
    assert sorted(out) == [0, 2]
    assert all(isinstance(error, CheckpointError) for error in out.values())


def test_seeds_and_time_parts_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--seeds", "2", "--time-parts"]) == 2
    assert "time-parts" in capsys.readouterr().err


@pytest.mark.slow
def test_every_seed_is_an_ordinary_run(tmp_path: Path) -> None:
    flags = ["train", "--preset", "smoke", "--updates", "2", "--eval-games", "0", "--validation-every", "0"]
    assert main([*flags, "--seeds", "2", "--run-dir", str(tmp_path)]) == 0
    for number, run_dir in enumerate(seed_directories(tmp_path, 2)):
        assert json.loads((run_dir / "config.json").read_text())["train"]["seed"] == number
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        assert [line["update"] for line in lines] == [1, 2]
        assert (run_dir / "checkpoints" / "00000002" / "manifest.json").is_file()
    assert main(["train", "--resume", "--run-dir", str(tmp_path / "seed1"), "--updates", "3", "--eval-games", "0"]) == 0
    assert main(["train", "--resume", "--seeds", "2", "--run-dir", str(tmp_path), "--eval-games", "0"]) == 2
