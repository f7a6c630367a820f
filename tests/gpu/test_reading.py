"""What is read out of XLA's dump: a small program whose launches can be counted by hand (tests/data/gpu/toy)."""

import ast
from pathlib import Path

import pytest

import echelon_jax
from echelon_jax.gpu.cost import Count, Model, loop_key, loops_asking
from echelon_jax.gpu.hlo import arrays_of, read_instructions
from echelon_jax.gpu.memory import covered, scratch_by_phase
from echelon_jax.gpu.phases import PHASES, attribute, phase_of
from echelon_jax.gpu.thunks import Dump, UnknownListing, parse, read_dump

WAS_AT = "/project/echelon_jax/"
TRIPS = 3.0  # of the loop whose end is data


@pytest.fixture
def toy(data: Path) -> Dump:
    dump = read_dump(data / "gpu" / "toy", WAS_AT)
    attribute(dump.thunks)
    return dump


def counted(dump: Dump) -> Count:
    return Count(dump.thunks, Model.read(), {"fire": TRIPS})


def test_kernels_and_copies_are_counted_as_often_as_they_run(toy: Dump) -> None:
    # fire: 2 kernels in each of 4 checks, 3 in each of 3 rounds; move: a copy and 3 kernels in each of 4 steps; two copies outside;
    # the branch that computes, not the one that copies.
    total = counted(toy).total
    assert total.counts["kernels"] == 4 * 2 + 3 * 3 + 4 * 3 + 1
    assert total.counts["copies"] == 4 * 1 + 2
    assert total.launches == total.counts["host_launches"] == 36  # nothing is in a graph


def test_a_loop_whose_end_is_data_asks_the_host_once_more_than_it_iterates(toy: Dump) -> None:
    count = counted(toy)
    assert [loop.key for loop in count.loops if loop.asks_host] == ["fire"]
    assert count.phases["fire"].counts["host_checks"] == TRIPS + 1
    assert count.phases["observation"].counts["host_checks"] == 1  # the conditional


def test_a_loop_that_xla_knows_the_length_of_asks_nobody(toy: Dump) -> None:
    move = next(loop for loop in counted(toy).loops if loop.key == "move")
    assert (move.entered, move.iterations, move.asks_host) == (1, 4, False)
    assert counted(toy).phases["move"].counts["host_checks"] == 0


def test_a_loop_without_a_count_iterates_once_and_is_named(toy: Dump) -> None:
    count = Count(toy.thunks, Model.read(), {})
    assert count.unknown == ["fire"]
    assert next(loop for loop in count.loops if loop.asks_host).iterations == 1


def test_kernels_belong_to_the_phase_whose_function_made_them(toy: Dump) -> None:
    phases = counted(toy).phases
    assert phases["fire"].counts["kernels"] == 17
    assert phases["move"].counts["kernels"] == 12
    assert phases["observation"].counts["kernels"] == 1


def test_a_matrix_product_counts_two_operations_per_entry_and_inner_index(toy: Dump) -> None:
    products = [thunk for thunk in loops_asking(toy.thunks)[0].body if thunk.flops]
    assert [thunk.flops for thunk in products] == [2 * 16 * 16 * 16]


def test_bytes_are_those_of_what_a_kernel_reads_and_writes(toy: Dump) -> None:
    sine = loops_asking(toy.thunks)[0].body[0]
    assert sine.bytes == 2 * 16 * 16 * 4


def test_a_dump_without_a_listing_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UnknownListing, match="no listing of thunks"):
        read_dump(tmp_path)


def test_a_line_of_unknown_form_is_refused_and_shown() -> None:
    with pytest.raises(UnknownListing, match="some other form"):
        parse("some other form", {}, {})


def test_an_empty_branch_is_a_branch_without_thunks() -> None:
    text = (
        "001: kConditional [source | sink] \n  false_branch:\n    No thunks.  true_branch:\n"
        "    002: kCopy [source | sink] kCopy\n003: kCopy [source | sink] kCopy\n"
    )
    conditional, after = parse(text, {}, {})
    assert [[thunk.number for thunk in branch] for branch in conditional.branches] == [[], [2]]
    assert after.number == 3


def test_what_a_graph_runs_is_indented_under_it() -> None:
    text = (
        "000: kCommandBuffer [source | sink] \n    001: kCopy [source | sink] kCopy\n002: kCopy [source | sink] kCopy\n"
    )
    graph, after = parse(text, {}, {})
    assert [thunk.number for thunk in graph.children] == [1]
    assert after.number == 2
    count = Count([graph, after], Model.read(), {})
    assert count.total.counts["graph_nodes"] == 1
    assert count.total.counts["host_launches"] == 2  # the graph and the copy behind it


def test_the_arrays_of_a_shape_are_read_with_their_entries() -> None:
    assert arrays_of("(f32[2,3]{1,0}, pred[], s8[5]{0})") == (("f32", 6), ("pred", 1), ("s8", 5))


def test_the_workspace_of_a_matrix_product_is_not_its_result() -> None:
    text = '  %p = (f32[4,4]{1,0}, s8[33554432]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm"\n'
    assert read_instructions(text)["p"].output == 64


@pytest.mark.parametrize(
    ("frames", "key"),
    [
        (("step", "simulate", "fire", "pair_sight"), "fire/pair_sight"),
        (("simulate", "fire", "simulate", "fire", "again"), "fire/again"),
        (("outer", "inner", "outer", "inner", "leaf"), "outer/inner/leaf"),
    ],
)
def test_a_loop_is_named_by_its_functions_from_the_phase_on(frames: tuple[str, ...], key: str) -> None:
    assert loop_key(frames) == key


def test_a_phase_of_the_environment_wins_over_the_rollout_it_runs_in() -> None:
    assert phase_of(("collect", "AutoReset.step_batch", "Echelon.step_batch", "simulate", "fire")) == "fire"
    assert phase_of(("collect", "ModernNetwork.apply")) == "policy"
    assert phase_of(("gradient_step", "ModernNetwork.unroll")) == "update"
    assert phase_of(()) == "other"


def test_every_function_that_names_a_phase_is_one_of_the_project() -> None:
    names = set()
    for file in Path(echelon_jax.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(node.name)
    assert {function for _, functions in PHASES for function in functions} <= names


def test_scratch_that_two_values_share_counts_once() -> None:
    assert covered([(0, 10), (5, 20), (30, 40), (32, 35)]) == 30
    program = read_instructions("  %a = f32[4]{0} add(%x, %y)\n")
    text = (
        "allocation 3: size 64, preallocated-temp:\n value: <1 a @0> (size=16,offset=0): f32[4]{0}\n"
        " value: <2 b @0> (size=16,offset=8): f32[4]{0}\nallocation 4: size 99, parameter 0:\n"
        " value: <3 c @0> (size=99,offset=0): f32[4]{0}\n"
    )
    assert scratch_by_phase(text, program) == {"other": 24}
