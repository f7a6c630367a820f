"""How programs are compiled: the installed XLA knows the options, and the collector is kept from the objects of tracing."""

import gc

import jax
import numpy as np
import pytest

from echelon_jax import compiling, jax_setup


@pytest.mark.parametrize("options", [compiling.for_long_runs, compiling.for_short_runs])
def test_a_program_compiles_with_the_options_and_computes_the_same(options):
    x = np.arange(64, dtype=np.int32).reshape(8, 8)

    def program(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda i, y: (y * 3 + i) % 101, x).sum(0)

    expected = x.copy()
    for i in range(5):
        expected = (expected * 3 + i) % 101
    np.testing.assert_array_equal(jax.jit(program, compiler_options=options())(x), expected.sum(0))


def test_the_installed_xla_knows_all_of_them():
    # If this fails, a newer XLA has dropped an option: programs still compile, but for longer. Look for what replaces it.
    assert compiling.for_short_runs().keys() == compiling._RUNS_ONCE.keys()


def test_only_a_run_that_pays_for_it_compiles_as_xla_does():
    assert compiling.for_training(compiling.WORTH_COMPILING) == compiling.as_xla_does()
    assert compiling.for_training(compiling.WORTH_COMPILING - 1) == compiling.for_long_runs()


def test_an_unknown_option_is_left_out():
    assert compiling._options({"xla_no_such_option": True}) == {}


def test_other_devices_get_none(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiling.for_long_runs() == {}


def test_commands_collect_garbage_less_often_and_as_many_generations(monkeypatch):
    told = []
    monkeypatch.setattr(gc, "get_threshold", lambda: (700, 10, 10))
    monkeypatch.setattr(gc, "set_threshold", lambda *numbers: told.append(numbers))
    jax_setup.set_up_jax()
    assert told == [(jax_setup.COLLECT_AFTER, 10, 10)]
