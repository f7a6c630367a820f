"""Terminals, readers, devices, homes and repositories that are not as a command would like them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from echelon_jax import jax_setup
from echelon_jax.cli.evaluate import EvaluateCommand
from echelon_jax.cli.main import main
from echelon_jax.config import EnvConfig
from echelon_jax.runs.description import git_revision
from echelon_jax.runs.progress import Progress
from echelon_jax.terminal import PlainConsole, lenient
from echelon_jax.training.config import TrainConfig
from echelon_jax.worldgen import bank, workers

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["runs/a[/1]", "runs/x[lr=0.001]", "[red]runs[/red]", "runs/:smile:", "runs/[bold]"]


def echelon(*argv: str, stdout: int = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own."""
    code = "import sys; from echelon_jax.cli.main import main; sys.exit(main(sys.argv[1:]))"
    told = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=told, timeout=300)


def a_run(directory: Path) -> Path:
    directory.mkdir(parents=True)
    described = {"train": TrainConfig().__dict__, "env": EnvConfig().__dict__}
    (directory / "config.json").write_text(json.dumps(described))
    return directory


# -- Terminals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_printed_as_it_is_in_lines_tables_and_titles(name: str) -> None:
    out = io.StringIO()
    console = PlainConsole(file=out, width=120)
    table = Table(title=f"{name} after update 3")
    table.add_column(name)
    table.add_row(name)
    console.print(name)
    console.print(table)
    assert out.getvalue().count(name) == 4


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_any_name_shows_its_progress(name: str) -> None:
    out = io.StringIO()
    with Progress(TrainConfig.smoke(), EnvConfig.original(), Path(name), PlainConsole(file=out, width=400)) as progress:
        progress.finished(Path(name) / "checkpoints", stopped=False)
    assert f"into      {name}\n" in out.getvalue() and f"saved {name}/checkpoints" in out.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_terminal_cannot_encode_is_replaced(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    console = PlainConsole(file=stream, width=20)
    table = Table(title="Wähle … ▁▂▃")
    table.add_column("a column that is far too long for this width", no_wrap=True)
    table.add_row("a cell that is far too long for this width")
    console.print(table)
    console.print("done …")
    stream.flush()
    assert b"done ?" in raw.getvalue()


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # the second is that of the locale C
def test_a_name_that_is_no_text_keeps_its_bytes_and_other_signs_are_replaced(errors: str) -> None:
    stream = io.TextIOWrapper(raw := io.BytesIO(), encoding="ascii", errors=errors)
    lenient(stream)
    stream.write("• runs/" + os.fsdecode(b"caf\xe9"))
    stream.flush()
    assert raw.getvalue() == b"? runs/caf\xe9"


def test_a_stream_that_was_told_how_to_encode_keeps_that() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    lenient(stream)
    assert stream.errors == "backslashreplace"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_command_speaks_on_such_a_terminal(tmp_path: Path, encoding: str) -> None:
    a_run(tmp_path / "ü[b]…")
    shown = echelon("runs", str(tmp_path), PYTHONIOENCODING=encoding)
    assert shown.returncode == 0, shown.stderr
    assert "[b]" in shown.stdout.decode(encoding)


# -- Readers --------------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_ends_a_command_quietly(tmp_path: Path) -> None:
    a_run(tmp_path / "run")
    for flags in ([], ["--json"]):  # a table of rich, and plain output
        read, write = os.pipe()
        os.close(read)
        ended = echelon("runs", str(tmp_path), *flags, stdout=write)
        os.close(write)
        assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_reader_that_goes_away_ends_a_help_text_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    ended = echelon("evaluate", "--help", stdout=write)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_run_goes_on_when_nobody_reads_its_progress() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise OSError(5, "Input/output error")

    with Progress(TrainConfig.smoke(), EnvConfig.original(), Path("run"), PlainConsole(file=Gone())) as progress:
        progress.note("nobody hears this")
        progress.note("nor this")
    assert progress.console.quiet


@pytest.mark.parametrize("path", ["/", ".", ".."])
def test_a_path_without_a_name_is_one_sentence(path: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = path if path == "/" else str(tmp_path / path)
    for command in ("evaluate", "export"):
        assert main([command, where]) == 2
        error = capsys.readouterr().err
        assert "neither a checkpoint nor a run directory" in error or "PyTorch" in error


# -- Results are written before anything else can go wrong ----------------------------------------------------------


class Played:
    """An evaluation that has been played."""

    update = 3
    against: dict[str, Any] = {}  # noqa: RUF012

    def report(self) -> dict[str, Any]:
        return {"update": 3}


def test_a_result_is_written_before_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dumb(self: PlainConsole, *args: Any, **options: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(PlainConsole, "print", dumb)
    with pytest.raises(BrokenPipeError):
        EvaluateCommand(policy=Path("run"), out=tmp_path)._report(Played(), None)  # type: ignore[arg-type]
    assert json.loads((tmp_path / "evaluation.json").read_text()) == {"update": 3}


def test_a_result_that_cannot_be_written_is_shown_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from echelon_jax.cli.errors import UsageError

    command = EvaluateCommand(policy=Path("run"), out=tmp_path / "missing")
    with pytest.raises(UsageError, match=r"cannot write to .*missing"):
        command._report(Played(), None)  # type: ignore[arg-type]
    assert "run at update 3" in capsys.readouterr().out


# -- Devices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [{"JAX_PLATFORMS": "cuda"}, {"JAX_PLATFORMS": "nonsense"}, {"JAX_ENABLE_X64": "1"}])
def test_a_device_that_cannot_be_used_is_one_sentence(setting: dict[str, str]) -> None:
    shown = echelon("train", "--dry-run", "--preset", "smoke", **{**setting, "XLA_FLAGS": ""})
    error = shown.stderr.decode()
    [name] = setting
    assert shown.returncode == 2
    assert error.strip().splitlines()[-1].startswith(f"echelon: {name} must ")
    assert "Traceback" not in error


def test_networks_are_not_made_in_64_bits() -> None:
    import jax

    from echelon_jax.policies.registry import make_network

    jax.config.update("jax_enable_x64", True)
    try:
        with pytest.raises(ValueError, match="JAX_ENABLE_X64 must be off"):
            make_network(TrainConfig.smoke(), EnvConfig())
    finally:
        jax.config.update("jax_enable_x64", False)


# -- Homes and caches -----------------------------------------------------------------------------------------------


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert jax_setup.cache_folder() is None


@pytest.mark.parametrize("value", ["", "cache", "./cache"])
def test_a_cache_never_lands_in_the_working_directory(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert jax_setup.cache_folder() == Path("/home/somebody/.cache")


def test_an_absolute_cache_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jax_setup.cache_folder() == tmp_path


def test_a_command_starts_for_a_user_that_the_system_does_not_know(tmp_path: Path) -> None:
    code = "from pathlib import Path; import os; os.environ.pop('HOME', None); os.setuid(54321) if not os.getuid() else 0\n"
    code += "from echelon_jax.jax_setup import set_up_jax; set_up_jax(1); print('works')"
    told = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "JAX_COMPILATION"))}
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**told, "PYTHONPATH": str(ROOT)}, cwd="/"
    )
    if "Permission" in shown.stderr or "No module" in shown.stderr:
        pytest.skip("this interpreter is not readable for another user")
    assert shown.stdout == "works\n", shown.stderr


# -- Daemonic processes ---------------------------------------------------------------------------------------------


@pytest.fixture
def daemonic(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker of multiprocessing.Pool."""
    import multiprocessing

    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]


def test_worlds_are_made_without_workers_where_there_may_be_none(daemonic: None) -> None:
    assert not workers.may_start()
    config = EnvConfig.original(size_x=20, size_y=20, size_z=8)
    alone = bank.generate_worlds(config, range(2))
    assert (bank.generate_worlds(config, range(2), processes=2).material == alone.material).all()
    with bank.WorldBankFeeder(config, 0, 2, 1, processes=1) as feeder:
        worlds, swapped = feeder.whole_bank(), feeder.take(1)
    with bank.WorldBankFeeder(config, 0, 2, 1, processes=0) as feeder:
        assert (feeder.whole_bank().material == worlds.material).all()
        assert (feeder.take(1).material == swapped.material).all()


# -- Repositories ---------------------------------------------------------------------------------------------------


def git(directory: Path, *argv: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    shown = subprocess.run(["git", *names, *argv], cwd=directory, capture_output=True, text=True, check=True)
    return shown.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "theirs.py").write_text("")
    (tmp_path / ".gitignore").write_text(".venv\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "theirs")
    return tmp_path


@pytest.mark.parametrize("folder", [".venv/lib/echelon_jax/runs", "vendored"])
def test_a_package_inside_of_somebody_elses_repository_is_not_at_its_commit(repository: Path, folder: str) -> None:
    package = repository / folder
    package.mkdir(parents=True)
    (package / "description.py").write_text("")
    assert git_revision(package / "description.py") is None


def test_a_package_that_a_repository_tracks_is_at_its_commit(repository: Path) -> None:
    assert git_revision(repository / "theirs.py") == git(repository, "rev-parse", "HEAD")
    (repository / "theirs.py").write_text("changed")
    assert git_revision(repository / "theirs.py") == git(repository, "rev-parse", "HEAD") + "+"


def test_outside_of_git_there_is_no_commit(tmp_path: Path) -> None:
    assert git_revision(tmp_path / "description.py") is None
    assert git_revision(tmp_path / "nowhere" / "description.py") is None
