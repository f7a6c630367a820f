"""The cost model: its constants are ordered, and a kernel's price follows what it does."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon_jax.gpu.cost import Count, Model, decisions_per_second
from echelon_jax.gpu.thunks import Thunk

MODEL = Model.read()


def kernel(moved: float = 0.0, flops: float = 0.0) -> Thunk:
    return Thunk("kCustomKernel", 1, bytes=moved, flops=flops, phase="fire")


def test_every_constant_costs_least_at_low_and_most_at_high() -> None:
    for low, mid, high in MODEL.microseconds.values():
        assert 0 < low <= mid <= high
    for low, mid, high in (MODEL.memory, MODEL.cache, MODEL.flops):
        assert low >= mid >= high > 0


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.booleans())
def test_moving_more_is_never_cheaper(a: float, b: float, in_graph: bool) -> None:
    less, more = sorted((a, b))
    cheap, dear = (MODEL.kernel(kernel(moved), in_graph) for moved in (less, more))
    assert all(x <= y for x, y in zip(cheap, dear, strict=True))


@given(st.floats(0, 1e11), st.floats(0, 1e15))
def test_low_mid_and_high_stay_in_order(moved: float, flops: float) -> None:
    low, mid, high = MODEL.kernel(kernel(moved, flops), True)
    assert low <= mid <= high


def test_a_kernel_of_nothing_costs_its_launch() -> None:
    assert MODEL.kernel(kernel(), False) == MODEL.microseconds["kernel"]
    assert MODEL.kernel(kernel(), True) == MODEL.microseconds["graph_kernel"]


def test_a_loop_inside_a_graph_decides_on_the_device() -> None:
    loop = Thunk("kWhile", 2, body=[kernel()], condition=[kernel()], phase="fire")
    graph = Thunk("kCommandBuffer", 0, children=[loop], phase="fire")
    inside, outside = (Count([thunk], MODEL, {"": 5.0}) for thunk in (graph, loop))
    assert inside.total.counts["host_checks"] == 0
    assert inside.total.counts["graph_checks"] == outside.total.counts["host_checks"] == 6
    assert not inside.loops[0].asks_host
    assert outside.loops[0].asks_host
    assert inside.total.microseconds[1] < outside.total.microseconds[1]


def test_the_parts_add_up_to_the_whole() -> None:
    thunks = [kernel(1e6), dataclasses.replace(kernel(2e6), phase="move"), kernel(3e6)]
    count = Count(thunks, MODEL, {})
    assert count.total.bytes == sum(thunk.bytes for thunk in thunks)
    for i in range(3):
        expected = sum(MODEL.kernel(thunk, False)[i] for thunk in thunks)
        assert count.total.microseconds[i] == pytest.approx(expected)


def test_speed_is_decisions_over_seconds() -> None:
    assert decisions_per_second(4096, 32, 1e6) == 4096 * 32
