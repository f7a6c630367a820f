"""Line of sight: the worked numbers of the rules, recorded rays of the original, and agreement of the traversals."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.agents.sight import target_sight
from echelon_jax.config import EnvConfig
from echelon_jax.env.modern.sight import clear_between
from echelon_jax.parity.recorded.maps import column_words
from echelon_jax.parity.recorded.queries import REQUIRED_SHARE, check_rays
from echelon_jax.rules.materials import OPAQUE, SOLID
from echelon_jax.sim.rays import pair_sight, smoke_clear, walk

CUBE = EnvConfig.original(size_x=20, size_y=20, size_z=20)


def words(material):
    return jnp.asarray(column_words(material.reshape(1, -1), OPAQUE, CUBE))


def cast(opaque, start, end, include_end):
    """(blocked, struck cell or None) of one ray in the 20 x 20 x 20 world."""
    found = walk(
        CUBE,
        opaque,
        jnp.zeros(1, jnp.int32),
        jnp.asarray([start], jnp.float32),
        jnp.asarray([end], jnp.float32),
        jnp.ones(1, bool),
        include_end,
    )
    return bool(found.blocked[0]), tuple(int(c) for c in found.cell[0]) if found.struck[0] else None


EMPTY = np.zeros((20, 20, 20), np.uint8)
ONE_CELL = EMPTY.copy()
ONE_CELL[5, 5, 5] = SOLID


@pytest.mark.parametrize(
    ("start", "end", "include_end", "blocked"),
    [
        ((4.5, 8.5, 5.5), (7, 6, 5.5), False, True),
        ((7, 6, 5.5), (4.5, 8.5, 5.5), False, False),
        ((8.5, 4.5, 5.5), (6, 7, 5.5), False, False),
        ((4.5, 5.5, 8.5), (7, 5.5, 6), False, True),
        ((8.5, 5.5, 4.5), (6, 5.5, 7), False, False),
        ((18.5, 5.5, 5.5), (20.5, 5.5, 5.5), True, False),
        ((18.5, 5.5, 5.5), (21.5, 5.5, 5.5), True, True),
        ((20.5, 5.5, 5.5), (18.5, 5.5, 5.5), True, False),
        ((21.5, 5.5, 5.5), (18.5, 5.5, 5.5), True, True),
        ((21.5, 5.5, 5.5), (21.7, 5.5, 5.5), True, False),
    ],
)
def test_rays_in_an_empty_world_follow_the_tie_order_and_the_border_rule(start, end, include_end, blocked):
    assert cast(words(EMPTY), start, end, include_end) == (blocked, None)


@pytest.mark.parametrize(
    ("start", "end", "include_end", "expected"),
    [
        ((5.5, 5.5, 5.5), (9.5, 5.5, 5.5), False, (False, None)),
        ((9.5, 5.5, 5.5), (5.5, 5.5, 5.5), False, (False, None)),
        ((9.5, 5.5, 5.5), (5.5, 5.5, 5.5), True, (True, (5, 5, 5))),
        ((5.2, 5.5, 5.5), (5.7, 5.5, 5.5), False, (False, None)),
        ((5.2, 5.5, 5.5), (5.7, 5.5, 5.5), True, (True, (5, 5, 5))),
        ((5.5, 5.5, 5.5), (5.5, 5.5, 5.5), True, (False, None)),
        ((9.5, 5.5, 5.5), (2.5, 5.5, 5.5), False, (True, (5, 5, 5))),
    ],
)
def test_start_cell_is_never_tested_and_end_cell_only_when_included(start, end, include_end, expected):
    assert cast(words(ONE_CELL), start, end, include_end) == expected


@pytest.mark.parametrize(
    ("start", "end", "clear"),
    [
        ((0, 14, 2), (20, 14, 2), False),
        ((0, 14.01, 2), (20, 14.01, 2), True),
        ((10, 10, 2), (10, 10, 2), True),
        ((10, 10, 2), (10.5, 10, 2), False),
        ((0, 10, 2), (6, 10, 2), False),
        ((0, 10, 2), (5.99, 10, 2), True),
    ],
)
def test_smoke_blocks_a_segment_that_touches_its_sphere(start, end, clear):
    cloud, life = jnp.asarray([[[10.0, 10.0, 2.0]]]), jnp.asarray([[1]], jnp.int32)
    points = (jnp.asarray([p], jnp.float32) for p in (start, end))
    assert bool(smoke_clear(cloud, life, *points)[0]) is clear


def test_spent_smoke_blocks_nothing():
    cloud, life = jnp.asarray([[[10.0, 10.0, 2.0]]]), jnp.asarray([[0]], jnp.int32)
    start, end = jnp.asarray([[0.0, 10.0, 2.0]]), jnp.asarray([[20.0, 10.0, 2.0]])
    assert bool(smoke_clear(cloud, life, start, end)[0])


def test_a_sample_of_recorded_rays_is_answered_as_recorded(data):
    counts = check_rays(data / "rays_small.npz")
    assert counts["rays"].rows == 2 * 480
    assert counts["rays"].exact == counts["rays"].rows
    assert counts["sight"].rows > 100
    assert counts["sight"].exact == counts["sight"].rows
    assert counts["lattice_rays"].share > 0.9  # nothing but ties, some of which float32 decides otherwise


def test_a_sample_of_recorded_boxes_is_answered_as_recorded(data):
    boxes = check_rays(data / "rays_small.npz")["boxes"]
    assert boxes.rows == 600
    assert boxes.exact == boxes.rows


@pytest.mark.golden
def test_all_recorded_rays_are_answered_as_recorded(golden: Path):
    for path in sorted((golden / "queries").glob("rays_*.npz")):
        for name, count in check_rays(path).items():
            assert name == "lattice_rays" or count.share >= REQUIRED_SHARE, (path.name, name, count)


@pytest.fixture(scope="module")
def crowd():
    """Three arenas of random boulders and mechs, with every answer of the general traversal."""
    rng = np.random.default_rng(3)
    material = np.where(rng.random((3, 20, 20, 20)) < 0.03, SOLID, 0).astype(np.uint8)
    opaque = jnp.asarray(column_words(material.reshape(3, -1), OPAQUE, CUBE))
    position = jnp.asarray(rng.uniform((0.5, 0.5, 0.5), (19.5, 19.5, 26.0), (3, 10, 3)).astype(np.float32))
    arena = jnp.repeat(jnp.arange(3), 100)
    start = jnp.repeat(position, 10, 1).reshape(-1, 3)
    end = jnp.tile(position, (1, 10, 1)).reshape(-1, 3)
    walked = jax.jit(walk, static_argnums=(0, 6))(CUBE, opaque, arena, start, end, jnp.ones(300, bool), False)
    return opaque, position, ~np.asarray(walked.blocked).reshape(3, 10, 10)


def test_pair_sight_equals_the_general_traversal_where_needed_and_is_false_elsewhere(crowd):
    opaque, position, clear = crowd
    needed = np.random.default_rng(4).random((3, 10, 10)) < 0.4
    seen = pair_sight(CUBE, opaque, position, jnp.asarray(needed), chunk=32)
    np.testing.assert_array_equal(seen, clear & needed)
    assert (clear & needed).any()
    assert (~clear & needed).any()


@pytest.mark.parametrize("share", [0.1, 0.4, 1.0])
def test_a_pair_has_one_answer_that_of_the_ray_from_the_earlier_mech_that_asks(crowd, share):
    opaque, position, clear = crowd
    asks = (np.random.default_rng(6).random((3, 10, 10)) < share) & ~np.eye(10, dtype=bool)
    seen = jax.jit(clear_between, static_argnums=0)(CUBE, opaque, position, jnp.asarray(asks))
    earlier = np.triu(asks)
    later = np.tril(asks) & ~earlier.swapaxes(1, 2)
    expected = clear & (earlier | later)
    np.testing.assert_array_equal(seen, expected | expected.swapaxes(1, 2))
    assert expected.any()


def test_target_sight_equals_the_general_traversal_where_needed_and_is_false_elsewhere(crowd):
    opaque, position, clear = crowd
    rng = np.random.default_rng(5)
    target, needed = rng.integers(0, 10, (3, 10)), rng.random((3, 10)) < 0.7
    seen = target_sight(CUBE, opaque, position, jnp.asarray(target, jnp.int32), jnp.asarray(needed))
    expected = np.take_along_axis(clear, target[..., None], -1)[..., 0] & needed
    np.testing.assert_array_equal(seen, expected)
    assert expected.any()
    assert (needed & ~expected).any()
