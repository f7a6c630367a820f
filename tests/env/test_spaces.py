"""Boxes of observations and actions."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.spaces import Box

INF = np.inf
BOX = Box(np.float32([-1, 0, -INF, -INF]), np.float32([1, INF, 5, INF]))


@pytest.mark.parametrize("rules", [EnvConfig.original, EnvConfig.revised])
def test_a_sample_lies_in_its_space(rules):
    env = Echelon(rules())
    for space in (env.observation_space(), env.action_space()):
        drawn = space.sample(jax.random.key(0), (64,))
        assert drawn.shape == (64, *space.shape) and drawn.dtype == space.dtype
        assert space.contains(drawn)


def test_samples_fill_a_bounded_entry_and_pass_no_one_sided_bound():
    drawn = np.asarray(BOX.sample(jax.random.key(1), (4000,)))
    assert abs(drawn[:, 0].mean()) < 0.05 and drawn[:, 0].min() < -0.95 and drawn[:, 0].max() > 0.95
    assert drawn[:, 1].min() >= 0 and drawn[:, 1].max() > 3
    assert drawn[:, 2].max() <= 5 and drawn[:, 2].min() < 2
    assert (drawn[:, 3] < 0).any() and (drawn[:, 3] > 0).any()


@pytest.mark.parametrize(
    ("x", "inside"),
    [
        ([1.0, 0.0, 5.0, 1e9], True),
        ([1.1, 0.0, 5.0, 0.0], False),
        ([0.0, -0.1, 5.0, 0.0], False),
        ([0.0, 0.0, np.nan, 0.0], False),
        ([0.0, 0.0, 0.0], False),
        (0.0, False),
    ],
)
def test_only_vectors_between_the_bounds_are_contained(x, inside):
    assert BOX.contains(np.asarray(x, np.float32)) is inside


def test_one_vector_outside_spoils_a_batch():
    batch = np.zeros((3, 4), np.float32)
    assert BOX.contains(batch)
    batch[1, 0] = 2.0
    assert not BOX.contains(batch)
