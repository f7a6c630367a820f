"""A tree as one vector, and one of two trees by a flag."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.training.choosing import choose
from echelon_jax.training.vector import first_bad_leaf, joined, parted

SHAPES = {"b": (3,), "a": {"kernel": (2, 4), "bias": ()}, "c": (1, 2, 2)}


def tree(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    shapes, structure = jax.tree.flatten(SHAPES, is_leaf=lambda x: isinstance(x, tuple))
    return jax.tree.unflatten(structure, [jnp.asarray(rng.normal(size=s), jnp.float32) for s in shapes])


def same(a: object, b: object) -> bool:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    return all((x == y).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_a_joined_tree_is_parted_into_itself() -> None:
    vector = joined(tree(0))
    assert vector.shape == (16,) and same(parted(vector, tree(1)), tree(0))


def test_leaves_are_joined_in_the_order_of_the_tree() -> None:
    in_order = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree(0))])
    np.testing.assert_array_equal(joined(tree(0)), in_order)


def test_a_tree_without_leaves_is_an_empty_vector() -> None:
    assert joined({}).shape == (0,) and parted(joined({}), {}) == {}


@pytest.mark.parametrize("number", range(16))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_bad_leaf_is_that_of_its_first_bad_entry(number: int, value: float) -> None:
    vector = joined(tree(0)).at[number].set(value).at[-1].set(np.nan)
    leaves = jax.tree.leaves(parted(vector, tree(0)))
    first = next(i for i, leaf in enumerate(leaves) if not np.isfinite(leaf).all())
    assert int(first_bad_leaf(vector, tree(0))) == 1 + first


def test_no_leaf_is_bad_where_all_are_finite() -> None:
    assert int(first_bad_leaf(joined(tree(0)), tree(0))) == 0


@pytest.mark.parametrize("branch", [True, False])
@pytest.mark.parametrize("flag", [True, False])
def test_a_flag_chooses_the_whole_tree_either_way(flag: bool, branch: bool) -> None:
    chosen = jax.jit(lambda f, a, b: choose(f, a, b, branch))(jnp.asarray(flag), tree(0), tree(1))
    assert same(chosen, tree(0) if flag else tree(1))
