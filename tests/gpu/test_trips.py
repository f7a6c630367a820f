"""Counting the iterations of loops whose end is data."""

from echelon_jax.gpu.phases import PHASES
from echelon_jax.gpu.report import known_trips
from echelon_jax.gpu.trips import counted_loops


def test_a_counted_loop_returns_what_the_plain_one_does_and_reports_its_iterations() -> None:
    import jax
    import jax.numpy as jnp

    seen: list[int] = []

    def halve(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: c > 1, lambda c: c // 2, x)

    expected = halve(jnp.int32(100))
    with counted_loops(lambda key, n: seen.append(n)):
        out = jax.jit(lambda x: halve(x))(jnp.int32(100))
    jax.effects_barrier()
    assert out == expected
    assert seen == [6]  # 100, 50, 25, 12, 6, 3, 1
    assert jax.lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0) == 3  # the plain one is back
    assert seen == [6]


def test_counts_made_before_are_of_loops_in_a_phase() -> None:
    iterations, source = known_trips()
    assert source
    roots = {function for _, functions in PHASES for function in functions}
    for key, count in iterations.items():
        assert key.split("/")[0] in roots, key
        assert count >= 0
