"""Building the native code: what both sides must agree on, and one sentence where it cannot be built."""

import os

import jax
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import sanitise
from echelon_jax.env.interfaces import action_layout, actions_of
from echelon_jax.native import build, choice
from echelon_jax.native.arguments import arguments, fields, number_names, numbers
from echelon_jax.native.header import MAX_MECHS, header
from echelon_jax.parity.exchange import stack
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.rules import constants
from echelon_jax.sim.rules import sim_rules

CONFIGS = [EnvConfig(), EnvConfig.original(num_packs=2, size_x=60, size_y=60)]
ARENAS = 3


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "a cache"))
    return tmp_path / "a cache"


def script(path, text, monkeypatch):
    """A compiler of our own, in place of the machine's."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))


@pytest.fixture
def quick_compiler(tmp_path, monkeypatch):
    """Writes a word to the file that follows -o, the last argument."""
    script(tmp_path / "quick", 'for last; do :; done; echo made > "$last"', monkeypatch)


@pytest.mark.parametrize("config", CONFIGS, ids=["revised", "original, two packs"])
def test_every_array_has_the_type_and_the_rows_that_the_native_code_reads(config):
    case = stack([make_case(config, 0)] * ARENAS)
    clean, _ = sanitise(config, action_layout(config), jax.numpy.asarray(case.actions))
    decision = actions_of(config).decide(config, case.state, clean)
    state = case.state.sim.replace(mechs=decision.mechs)
    resting = case.state.episode_over
    written, read = arguments(config, sim_rules(config), state, decision.commands, case.noise, resting)
    of_arenas, shared = read[: len(fields("INPUT"))], read[len(fields("INPUT")) :]
    for field, array in zip(
        (*fields("STATE"), *fields("INPUT"), *fields("SHARED")), [*written, *of_arenas, *shared], strict=True
    ):
        assert array.dtype == field.dtype, field
    assert {array.shape[0] for array in [*written, *of_arenas]} == {ARENAS}


def test_the_lists_hold_every_array_of_a_state():
    """A new array that no list names would never change."""
    state = make_case(EnvConfig(), 0).state.sim
    names = {(field.group, field.name) for which in ("STATE", "INPUT") for field in fields(which)}
    for group in ("mechs", "tally", "projectiles", "smoke", "grid"):
        assert {(group, name) for name in getattr(state, group).__dataclass_fields__} <= names
    alone = {name for name in state.__dataclass_fields__ if hasattr(getattr(state, name), "dtype")}
    assert alone == {name for group, name in names if group == "state"}


def test_numbers_are_whole_and_named_once():
    assert numbers(EnvConfig()).dtype == np.int32
    assert len(set(number_names())) == len(numbers(EnvConfig())) == len(number_names())


def test_the_header_holds_the_constants_of_the_rules():
    text = header()
    assert f"constexpr double PAINT_BONUS = {constants.PAINT_BONUS};" in text
    assert f"constexpr int MAX_MECHS = {EnvConfig(num_packs=8, size_x=100, size_y=100).num_mechs};" in text
    assert MAX_MECHS == 80


def test_a_library_is_built_once(cache, quick_compiler, monkeypatch):
    first = build.build("cpu")
    assert first.parent == cache and [path.name for path in cache.iterdir()] == [first.name]
    monkeypatch.setattr(build, "compiler", lambda kind: pytest.fail("it is there"))
    assert build.build("cpu") == first


def test_changed_rules_make_another_library(cache, quick_compiler, monkeypatch):
    first = build.build("cpu")
    monkeypatch.setattr(constants, "PAINT_BONUS", 0.2)
    assert build.build("cpu") != first


def test_without_a_compiler_one_sentence_says_so(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(build.CannotBuild, match=r"^kernels must be xla on a machine without a C\+\+ compiler"):
        build.build("cpu")
    with pytest.raises(build.CannotBuild, match=r"^kernels must be xla on a machine without the CUDA compiler"):
        build.build("cuda", "sm_90")


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(cache, tmp_path, monkeypatch):
    script(tmp_path / "broken", "echo no such header >&2; exit 1", monkeypatch)
    with pytest.raises(build.CannotBuild, match="where broken cannot build them: no such header"):
        build.build("cpu")
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_is_named(tmp_path, quick_compiler, monkeypatch):
    tmp_path.chmod(0o500)
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(build.CannotBuild, match="ECHELON_NATIVE_CACHE must name a directory that can be written"):
        build.build("cpu")


def test_a_cache_in_the_place_of_a_file_is_named(tmp_path, quick_compiler, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(build.CannotBuild, match="ECHELON_NATIVE_CACHE must name a directory that can be written"):
        build.build("cpu")


def test_the_library_for_a_card_is_built_without_one(cache):
    try:
        build.compiler("cuda")
    except build.CannotBuild as error:
        pytest.skip(str(error))
    library = build.build("cuda", "sm_90")
    assert b"EchelonSimulate" in library.read_bytes()


def test_the_variable_chooses_where_nothing_else_does(monkeypatch):
    monkeypatch.delenv(choice.ENVIRONMENT_VARIABLE, raising=False)
    assert choice.chosen_kernels() == "xla"
    monkeypatch.setenv(choice.ENVIRONMENT_VARIABLE, "native")
    assert choice.chosen_kernels() == "native" and choice.chosen_kernels("xla") == "xla"
    monkeypatch.setenv(choice.ENVIRONMENT_VARIABLE, "cuda")
    with pytest.raises(ValueError, match="ECHELON_KERNELS must be xla or native, got 'cuda'"):
        choice.chosen_kernels()
