"""Flags and compiler of a GPU: the user's own flags win, and what is missing is said in one sentence."""

import importlib.metadata
import shlex
from pathlib import Path

import pytest

from echelon_jax.cli.common import set_up_jax
from echelon_jax.cli.main import main
from echelon_jax.gpu import flags, target
from echelon_jax.gpu.compiler import environment

FIRST = flags.GPU_FLAGS[0]


def test_the_users_own_flag_replaces_ours_and_nothing_else() -> None:
    mine = f"--{FIRST.name}=true --xla_force_host_platform_device_count=1"
    assert flags.merged(mine) == " ".join([*(flag.text for flag in flags.GPU_FLAGS[1:]), mine])
    assert flags.merged("") == " ".join(flag.text for flag in flags.GPU_FLAGS)


def test_merging_twice_changes_nothing() -> None:
    once = flags.merged("--xla_force_host_platform_device_count=1")
    assert flags.merged(once) == once


def test_no_flag_is_set_where_jax_may_not_use_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags.importlib.util, "find_spec", lambda name: object())
    for platforms, expected in (("cpu", False), ("", True), ("cuda,cpu", True)):
        environ = {"JAX_PLATFORMS": platforms}
        assert flags.set_gpu_flags(environ) is expected
        assert (FIRST.text in environ.get("XLA_FLAGS", "")) is expected


def test_no_flag_is_set_without_a_cuda_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags.importlib.util, "find_spec", lambda name: None)
    assert not flags.gpu_expected({})


def test_every_command_sets_the_flags_before_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "gpu_expected", lambda environ: True)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
    set_up_jax()
    assert flags.os.environ["XLA_FLAGS"] == flags.merged("--xla_force_host_platform_device_count=1")


def test_a_plan_says_whose_a_flag_is() -> None:
    assert flags.described({}) == [(flag.text, flag.why) for flag in flags.GPU_FLAGS]
    mine = f"--{FIRST.name}=true"
    assert (mine, "from XLA_FLAGS") in flags.described({"XLA_FLAGS": mine})


def test_a_dry_run_prints_the_flags(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert main(["train", "--preset", "smoke", "--dry-run"]) == 0
    assert FIRST.text in capsys.readouterr().out


def test_the_compiling_process_gets_the_products_flags_and_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
    environ = environment(graphs=True, dump=tmp_path)
    words = shlex.split(environ["XLA_FLAGS"])
    for word in (
        FIRST.text,
        flags.GRAPH_FLAGS[0].text,
        "--xla_force_host_platform_device_count=1",
        f"--xla_dump_to={tmp_path}",
    ):
        assert word in words
    assert environ["JAX_PLATFORMS"] == "cpu"
    assert environ["JAX_ENABLE_COMPILATION_CACHE"] == "false"


def test_a_missing_compiler_is_one_sentence_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(target.VARIABLE, str(tmp_path))
    present = {found.metadata["Name"] for found in importlib.metadata.distributions()}
    if "jax-cuda12-plugin" in present:
        pytest.skip("the compiler is installed beside JAX itself, so that nothing is missing")
    assert main(["bench", "--compile-for", "h100"]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert f"jax-cuda12-plugin=={importlib.metadata.version('jaxlib')}" in error


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        (["--compile-for", "h1"], "compile-for"),
        (["--compile-for", "h100", "--program", "game"], "program"),
        (["--compile-for", "h100", "--rules", "house"], "rules"),
        (["--compile-for", "h100", "--size", "5"], "size_x"),
        (["--compile-for", "h100", "--arenas", "0"], "arenas"),
        (["--compile-for", "h100", "--trip-steps", "-1"], "trip-steps"),
    ],
)
def test_a_wrong_flag_is_one_sentence_that_names_its_field(
    capsys: pytest.CaptureFixture[str], argv: list[str], field: str
) -> None:
    assert main(["bench", *argv]) == 2
    error = capsys.readouterr().err.strip()
    assert field in error
    assert "\n" not in error


def test_the_h100_is_one_of_the_targets_and_its_comments_are_left_out() -> None:
    assert "h100" in target.targets()
    text = target.target_text("h100")
    assert "core_count: 132" in text
    assert "#" not in text
