"""Arenas grouped by opponent: fixed shapes for any split, nobody lost, and what is gathered comes back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.training.league.blocks import block_count, block_size, into_blocks, run_blocks

GROUPS = 4


def splits(arenas: int) -> list[np.ndarray]:
    """Random splits with arenas of no group, all in one group, one in each, and none in any."""
    random = np.random.default_rng(arenas)
    drawn = [random.integers(-1, GROUPS + 1, arenas) for _ in range(20)]
    return [*drawn, np.full(arenas, GROUPS - 1), np.arange(arenas) % GROUPS, np.full(arenas, -1)]


@pytest.mark.parametrize(("arenas", "size"), [(1, 1), (10, 3), (16, 4), (16, 16), (7, 1)])
def test_every_arena_of_a_group_has_one_place_in_a_block_of_its_group(arenas: int, size: int) -> None:
    grouped = jax.jit(lambda group: into_blocks(group, GROUPS, size))
    for group in splits(arenas):
        found = grouped(jnp.asarray(group, jnp.int32))
        place, inside = np.asarray(found.place), (group >= 0) & (group < GROUPS)
        assert found.arena.shape == (block_count(arenas, GROUPS, size), size)
        assert len(set(place[inside])) == inside.sum()
        assert (place[~inside] == found.arena.size).all()
        assert (np.asarray(found.arena).ravel()[place[inside]] == np.flatnonzero(inside)).all()
        assert (np.asarray(found.group)[place[inside] // size] == group[inside]).all()


def test_what_is_gathered_comes_back_and_the_others_keep_their_rows() -> None:
    group = jnp.array([2, -1, 0, 2, 2, 1, 9], jnp.int32)
    rows = jnp.arange(14.0).reshape(7, 2)
    found = into_blocks(group, 3, 2)
    back = found.scatter(100.0 + found.gather(rows), -rows)
    known = np.array([True, False, True, True, True, True, False])
    np.testing.assert_array_equal(back, np.where(known[:, None], 100.0 + rows, -rows))


def test_the_usual_size_leaves_at_most_half_as_many_places_empty_as_there_are_arenas() -> None:
    for groups in (1, 2, 9, 33):
        for arenas in (2 * groups, 64, 2048):
            size = block_size(arenas, groups)
            assert block_count(arenas, groups, size) * size <= 1.5 * arenas or size == 1


@pytest.mark.parametrize("in_turn", [True, False])
def test_every_arena_gets_what_the_parameters_of_its_group_make_of_it(in_turn: bool) -> None:
    scale, rows = jnp.array([2.0, 3.0, 5.0, 7.0]), jnp.arange(1.0, 11.0)

    @jax.jit
    def scaled(group: jax.Array) -> jax.Array:
        found = into_blocks(group, GROUPS, 3)
        made = run_blocks(lambda factor, block: factor * block, scale, found, found.gather(rows), in_turn)
        return found.scatter(made, jnp.zeros_like(rows))

    for group in splits(10):
        inside = (group >= 0) & (group < GROUPS)
        expected = np.where(inside, np.asarray(scale)[np.clip(group, 0, GROUPS - 1)] * np.asarray(rows), 0.0)
        np.testing.assert_array_equal(scaled(jnp.asarray(group, jnp.int32)), expected)


def test_the_blocks_that_hold_an_arena_come_first() -> None:
    for group in splits(16):
        found = into_blocks(jnp.asarray(group, jnp.int32), GROUPS, 4)
        holding = {int(place) // 4 for place in np.asarray(found.place) if place < found.arena.size}
        assert set(np.flatnonzero(np.asarray(found.used))) == holding
