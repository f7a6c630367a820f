"""Wrong input to the commands: one sentence that names the field, exit status 2, before anything is compiled."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from echelon_jax.cli import common
from echelon_jax.cli.common import settled_kernels
from echelon_jax.cli.main import main
from echelon_jax.native.call import load
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.sinks import append_line

ROOT = Path(__file__).resolve().parents[2]


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Run a command that must fail and return its one sentence."""
    assert main(list(argv)) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("echelon: ")
    assert "\n" not in error
    return error


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        (["train", "--size", "10"], "size_x"),
        (["train", "--packs", "0"], "num_packs"),
        (["train", "--packs", "3", "--size", "20"], "size_y"),
        (["train", "--rules", "house"], "rules"),
        (["train", "--mode", "blind"], "observation_mode"),
        (["train", "--preset", "huge"], "preset"),
        (["train", "--network", "transformer"], "network"),
        (["train", "--arenas", "7"], "arenas"),
        (["train", "--arenas", "6", "--minibatches", "4"], "minibatches"),
        (["train", "--updates", "0"], "updates"),
        (["train", "--updates", "60", "--bank-swap-every", "10", "--bank-swap-size", "5"], "bank_size"),
        (["train", "--seeds", "0"], "seeds"),
        (["train", "--reward-win", "1"], "win"),
        (["train", "--rules", "original", "--reward-win", "1"], "reward_win"),
        (["train", "--reward-zone", "0.9"], "win + death - draw"),
        (["train", "--curriculum", "0 reward_zone=0.9"], "curriculum must fit the game's reward from update 0 on"),
        (["runs", "nowhere"], "nowhere"),
        (["train", "--gamma", "1.5"], "gamma"),
        (["train", "--save-every", "0"], "save-every"),
        (["train", "--eval-games", "3"], "eval-games"),
        (["train", "--resume"], "run-dir"),
        (["bench", "--which", "sound"], "which"),
        (["bench", "--train-arenas", "6"], "train-arenas"),
    ],
)
def test_a_wrong_flag_is_one_sentence_that_names_its_field(
    capsys: pytest.CaptureFixture[str], argv: list[str], field: str
) -> None:
    assert field in refused(capsys, *argv)


def test_an_unknown_flag_exits_non_zero(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--arena-count", "8"])
    assert stopped.value.code not in (0, None)
    assert "arena-count" in capsys.readouterr().err


def test_a_missing_checkpoint_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no checkpoint" in refused(capsys, "evaluate", str(tmp_path / "nowhere"))
    assert "`echelon arena match scripted:expert OTHER`" in refused(capsys, "evaluate", "scripted:expert")


def test_a_foreign_directory_is_not_a_checkpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "neither a checkpoint" in refused(capsys, "evaluate", str(tmp_path))


def test_a_damaged_manifest_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": ')
    assert "manifest" in refused(capsys, "evaluate", str(tmp_path))


def test_a_newer_checkpoint_format_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 999}))
    assert "format 999" in refused(capsys, "evaluate", str(tmp_path))


def test_an_unknown_opponent_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "opponents" in refused(capsys, "evaluate", str(tmp_path), "--opponents", "champion")


def test_a_run_directory_that_cannot_be_made_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    assert "cannot write" in refused(capsys, "train", "--preset", "smoke", "--run-dir", str(file / "run"))


def test_an_existing_run_is_not_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "already holds a run" in refused(capsys, "train", "--preset", "smoke", "--run-dir", str(tmp_path))
    assert (tmp_path / "config.json").read_text() == "{}"


def test_the_gpu_preset_says_in_one_sentence_that_there_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert "needs a GPU" in refused(capsys, "train", "--preset", "gpu")


@pytest.mark.parametrize("command", [["train", "--preset", "smoke"], ["evaluate", "zoo:recruit"], ["bench"], ["watch"]])
def test_unknown_kernels_are_refused_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if command == ["watch"]:  # has no flag of its own, so the variable says it
        monkeypatch.setenv("ECHELON_KERNELS", "fast")
    else:
        command = [*command, "--kernels", "fast"]
    said = refused(capsys, *command)
    assert "must be" in said and "native, got 'fast'" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("compiler", "expected"), [("found", "native"), ("missing", "xla"), ("broken", "xla")])
def test_automatic_kernels_are_native_where_they_can_be_built(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, expected: str
) -> None:
    if compiler == "found" and shutil.which("g++") is None:
        pytest.skip("no g++ here")
    if compiler == "missing":
        monkeypatch.setenv("PATH", "")
    if compiler != "found":
        monkeypatch.setenv("ECHELON_NATIVE_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    if compiler == "broken":
        monkeypatch.setenv("CXX", shutil.which("false") or "/bin/false")
    assert settled_kernels("auto") == expected
    assert ("Native kernels are faster, but kernels must be xla" in capsys.readouterr().err) == (expected == "xla")


def test_automatic_kernels_are_xla_where_a_gpu_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "gpu_expected", lambda: True)
    assert settled_kernels("auto") == "xla"


def test_native_kernels_without_a_compiler_are_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.cache_clear()
    monkeypatch.setenv("ECHELON_NATIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ECHELON_KERNELS", "xla")  # put back afterwards, whatever the command sets
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    run = tmp_path / "run"
    said = refused(capsys, "train", "--preset", "smoke", "--kernels", "native", "--run-dir", str(run))
    assert "kernels must be xla on a machine without a C++ compiler" in said
    assert not run.exists()


def test_train_py_and_evaluate_py_are_the_same_commands() -> None:
    for door, command in (("train.py", "train"), ("evaluate.py", "evaluate")):
        shown = subprocess.run(
            [sys.executable, str(ROOT / door), "--help"], capture_output=True, text=True, timeout=120, cwd=ROOT
        )
        assert shown.returncode == 0
        assert f"echelon {command}" in shown.stdout


def test_the_console_command_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["echelon"] == "echelon_jax.cli.main:main"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_one_sentence() -> None:
    with pytest.raises(CheckpointError, match="No space left"):
        append_line(Path("/dev/full"), {"update": 1})
