"""`echelon train` as a requeue script calls it: one command line starts, goes on and ends a run; a stop is a stop."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.made_up_runs import CONFIG, ENV, GAME, call, make_up, stop_after, stop_early
from helpers.made_up_runs import run as make_run

from echelon_jax.cli import train as train_command
from echelon_jax.cli.main import main
from echelon_jax.cli.train import TrainCommand
from echelon_jax.runs import checkpoint, directory, runner, warm_start
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.weights_and_biases import WeightsAndBiases
from echelon_jax.training.config import TrainConfig

TINY = ["train", "--preset", "smoke", "--rules", "original", "--size", "20", "--size-z", "8", "--network", "original"]
TINY += ["--opponent", "random", "--hidden", "4", "--lstm", "4", "--arenas", "2", "--rollout-steps", "2"]
TINY += ["--epochs", "1", "--minibatches", "1", "--bank-size", "2", "--updates", "4"]
TINY += ["--validation-every", "0"]


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """No compiling; returns the runs that were evaluated."""
    make_up(monkeypatch)
    evaluated: list[Path] = []
    monkeypatch.setattr(TrainCommand, "_evaluate", lambda self, run_dir, config: evaluated.append(run_dir))
    step(monkeypatch, call)
    return evaluated


def step(monkeypatch: pytest.MonkeyPatch, call: Any) -> None:
    """Let the next runs make this call instead of the compiled one."""
    monkeypatch.setattr(runner, "compile_run_updates", lambda *_: call)


def updates(run_dir: Path) -> int:
    return checkpoint.read_manifest(run_dir).update


def test_one_command_line_starts_a_run_requeues_it_and_finds_it_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_up: list[Path]
) -> None:
    run_dir = tmp_path / "run"
    command = [*TINY, "--run-dir", str(run_dir), "--resume", "--save-every", "10"]
    step(monkeypatch, stop_after(2))
    with pytest.raises(MemoryError):
        main(command)  # dies before its first checkpoint
    assert not checkpoint.saved_updates(run_dir)
    step(monkeypatch, stop_early(2))
    assert main(command) == 0 and updates(run_dir) == 2
    step(monkeypatch, call)
    assert main(command) == 0 and updates(run_dir) == 4
    assert main(command) == 0 and updates(run_dir) == 4
    assert made_up == [run_dir, run_dir]


def test_a_bare_resume_where_there_is_no_run_says_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--resume", "--run-dir", str(tmp_path / "typo")]) == 2
    assert "to start a run where there is none, name a --preset" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_a_bare_resume_starts_a_run_that_died_before_its_first_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(monkeypatch, stop_after(0))
    with pytest.raises(MemoryError):
        main([*TINY, "--run-dir", str(tmp_path)])
    step(monkeypatch, call)
    assert main(["train", "--resume", "--run-dir", str(tmp_path)]) == 0
    assert updates(tmp_path) == 4


def test_a_bare_resume_goes_on_to_the_length_that_was_last_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resume = ["train", "--resume", "--run-dir", str(tmp_path / "run")]
    assert main([*TINY, "--run-dir", str(tmp_path / "run")]) == 0
    step(monkeypatch, stop_early(1))
    assert main([*resume, "--updates", "8"]) == 0
    step(monkeypatch, call)
    assert main(resume) == 0
    assert updates(tmp_path / "run") == 8
    capsys.readouterr()
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["planned"] == 8


@pytest.mark.parametrize("start", ["other", "zoo:recruit"])
def test_a_start_from_another_policy_is_remembered_by_the_run_that_must_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    other = tmp_path / start if start == "other" else Path(start)
    monkeypatch.setattr(runner, "load_fitting", lambda path, config, env_config: path)
    monkeypatch.setattr(warm_start, "network_fields", lambda path: {})
    began: list[Path] = []
    monkeypatch.setattr(runner, "warm", lambda state, policy: (began.append(policy), state)[1])
    step(monkeypatch, stop_after(0))
    with pytest.raises(MemoryError):
        main([*TINY, "--run-dir", str(tmp_path / "run"), "--start-from", str(other), "--resume"])
    step(monkeypatch, stop_early(1))
    assert main(["train", "--resume", "--run-dir", str(tmp_path / "run")]) == 0
    assert began == [other] * 2
    step(monkeypatch, call)
    assert main(["train", "--resume", "--run-dir", str(tmp_path / "run")]) == 0
    assert began == [other] * 2  # a checkpoint has its own policy


def test_an_unusable_service_for_metrics_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Any, *args: Any) -> None:
        raise CheckpointError("Weights & Biases cannot be used: No API key configured.")

    monkeypatch.setattr(WeightsAndBiases, "__init__", refuse)
    assert main([*TINY, "--run-dir", str(tmp_path / "run"), "--wandb", "mechs"]) == 2
    assert "No API key" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_run_is_not_evaluated_and_says_how_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_up: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    step(monkeypatch, stop_early(2))
    run_dir = tmp_path / "my run"
    assert main([*TINY, "--run-dir", str(run_dir)]) == 0
    assert made_up == [] and updates(run_dir) == 2
    assert json.loads((run_dir / "summary.json").read_text())["stopped_early"] is True
    shown = capsys.readouterr()
    assert f"echelon evaluate '{run_dir}'" in shown.err
    assert shown.out == f"wrote {run_dir}\n"  # results alone; what is said on the way goes to standard error


def test_a_run_that_is_stopped_in_its_last_call_is_not_evaluated_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_up: list[Path]
) -> None:
    step(monkeypatch, stop_early(4))
    assert main([*TINY, "--run-dir", str(tmp_path)]) == 0
    assert made_up == [] and updates(tmp_path) == 4


def test_a_run_that_is_left_alone_is_evaluated(tmp_path: Path, made_up: list[Path]) -> None:
    assert main([*TINY, "--run-dir", str(tmp_path)]) == 0
    assert made_up == [tmp_path]


@pytest.mark.parametrize("stopped", [False, True])
def test_with_json_standard_output_is_one_document_and_progress_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stopped: bool
) -> None:
    monkeypatch.setattr(TrainCommand, "_evaluate", lambda self, run_dir, config: {"random": {"wins": 3}})
    if stopped:
        step(monkeypatch, stop_early(3))
    run_dir = tmp_path / "run"
    assert main([*TINY, "--run-dir", str(run_dir), "--json"]) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    [run] = told["runs"]
    done = 3 if stopped else 4
    assert (run["run_dir"], run["updates"], run["planned"]) == (str(run_dir), done, 4)
    assert run["env_steps"] == done * 2 * 2  # arenas and steps of a rollout
    assert run["stopped_early"] is stopped
    assert run["evaluation"] == (None if stopped else {"random": {"wins": 3}})
    assert told["cpu_seconds"] > 0
    assert Path(run["paths"]["checkpoint"]) == run_dir / "checkpoints" / f"{done:08}"
    assert all(Path(path).exists() for path in run["paths"].values())
    assert "compiled in" in shown.err


def test_with_json_every_seed_is_a_run_of_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train_seeds(run_dir: Path, config: Any, env_config: Any, count: int, on_stop: Any, **options: Any) -> None:
        for number in range(count):
            make_run(run_dir / f"seed{number}", updates=2 + 2 * number)

    monkeypatch.setattr("echelon_jax.runs.seeds.train_seeds", train_seeds)
    assert main([*TINY, "--run-dir", str(tmp_path), "--seeds", "2", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["run_dir"], run["updates"]) for run in runs] == [
        (str(tmp_path / "seed0"), 2),
        (str(tmp_path / "seed1"), 4),
    ]


def test_with_json_an_error_is_a_sentence_and_no_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--json", "--resume", "--run-dir", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("echelon: run-dir must be")


@pytest.mark.parametrize("stopped", [False, True])
def test_seeds_are_evaluated_only_if_they_were_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_up: list[Path], stopped: bool
) -> None:
    def train_seeds(*args: Any, on_stop: Any, **options: Any) -> list[Any]:
        if stopped:
            on_stop()
        return []

    monkeypatch.setattr("echelon_jax.runs.seeds.train_seeds", train_seeds)
    assert main([*TINY, "--run-dir", str(tmp_path), "--seeds", "2"]) == 0
    assert made_up == ([] if stopped else [tmp_path / "seed0", tmp_path / "seed1"])


def test_ctrl_c_while_compiling_is_a_word_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compiling(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "compile_run_updates", compiling)
    assert main([*TINY, "--run-dir", str(tmp_path / "run")]) == 130
    assert capsys.readouterr().err.endswith("echelon: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run_dir", ["gs://bucket/run", "s3://bucket/run", "file:///tmp/run"])
def test_an_address_is_no_run_directory(run_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--run-dir", run_dir]) == 2
    assert "run-dir must be a directory of this machine" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["started_from", "start_from"])
def test_a_run_that_began_with_another_policy_is_resumed_by_the_command_line(tmp_path: Path, key: str) -> None:
    """What `echelon import` and `--start-from` write into config.json is known when it is read back."""
    config = TrainConfig(**{**CONFIG.__dict__, **GAME})
    told = {"run": "r", key: {"file": "x.pt"} if key == "started_from" else "runs/other"}
    directory.tell(tmp_path, directory.Claim(None, None), config, ENV, told)
    assert TrainCommand(resume=True, run_dir=tmp_path).configurations() == (config, ENV)


@pytest.mark.parametrize("argv", [["--seed", "4294967296"], ["--seed", "-1"], ["--seed", "4294967295", "--seeds", "2"]])
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_seed_that_a_key_cannot_hold_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], dry: list[str]
) -> None:
    assert main([*TINY, "--run-dir", str(tmp_path / "run"), *argv, *dry]) == 2
    assert "must be a whole number from 0 to 4294967295, got" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [["evaluate", "."], ["export", "."], ["arena", "match", "a", "b"], ["arena", "play"]]
)
def test_other_commands_refuse_such_a_seed_too(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--seed", "4294967296"]) == 2
    assert "seed must be a whole number from 0 to 4294967295" in capsys.readouterr().err


def test_the_default_directory_is_a_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("smoke", "smoke-2"):
        fresh = train_command._fresh_directory("smoke")
        assert fresh == Path("runs") / name
        fresh.mkdir(parents=True)


def test_a_second_signal_is_fatal_as_usual(tmp_path: Path) -> None:
    def note(text: str) -> None:
        pass

    stops: list[int] = []
    progress: Any = type("Progress", (), {"note": staticmethod(note)})
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    with runner.StopOnSignal(lambda: stops.append(1), progress):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0)
        assert stops == [1] and signal.getsignal(signal.SIGTERM) == before
