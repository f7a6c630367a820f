"""The budget of launches: its history only falls, and what is compiled today keeps within its last entry."""

import pytest

from echelon_jax.gpu.budget import NUMBERS, PROGRAMS, Budgeted, exceeded, measured, read_budget, risen
from echelon_jax.gpu.target import missing
from echelon_jax.native.build import CannotBuild, compiler

pytestmark = pytest.mark.optimised


def test_the_budget_only_ever_falls() -> None:
    for name, history in read_budget().items():
        assert not risen(history), name


def test_a_raised_number_is_found() -> None:
    assert risen([{"launches": 3, "host_synchronised_loops": 1}, {"launches": 2, "host_synchronised_loops": 2}]) == [
        "host_synchronised_loops rises from 1 to 2"
    ]


def test_a_number_above_its_budget_is_found() -> None:
    allowed = dict.fromkeys(NUMBERS, 5)
    assert exceeded(allowed, allowed) == []
    assert exceeded(allowed | {"launches": 6}, allowed) == ["launches are 6, the budget is 5"]


def test_the_long_ones_are_programs_of_the_budget() -> None:
    assert set(LONG) < {program.name for program in PROGRAMS}


def test_every_program_has_a_budget() -> None:
    assert set(read_budget()) == {program.name for program in PROGRAMS}


# These take a minute each.
LONG = (
    "environment, original rules, 256 arenas",
    "fused training call, native kernels, 64 arenas",
    "environment, revised rules, native kernels, 256 arenas",
    "learner's update, modern policy, 256 arenas",
)


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, marks=pytest.mark.extended if p.name in LONG else (), id=p.name) for p in PROGRAMS],
)
def test_a_program_compiles_for_the_gpu_within_its_budget(program: Budgeted) -> None:
    lacks = missing()
    if lacks is not None:
        pytest.skip(lacks)
    if program.kernels == "native":
        try:
            compiler("cuda")
        except CannotBuild as error:
            pytest.skip(str(error))
    now = measured(program)
    assert exceeded(now, read_budget()[program.name][-1]) == []
    # The learner asks the host nothing, not even by a conditional, and neither does anything with the native simulation.
    assert now["host_checks"] == 0 or (program.program == "env" and program.kernels == "xla")
