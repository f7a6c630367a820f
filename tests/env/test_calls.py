"""Calls of the environment: wrong shapes and rows are one sentence, and what comes back may be donated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CountingAgent, FakeEnv, fake_params
from helpers.small_runs import TRAIN

from echelon_jax.agents.scripted import Scripted
from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.buffers import unshared
from echelon_jax.env.environment import Echelon
from echelon_jax.env.shapes import abstract_bank
from echelon_jax.training import guard
from echelon_jax.training.trainer import make_train

WORLDS, ARENAS = 4, 3
ORIGINAL = EnvConfig.original(size_x=20, size_y=20, size_z=8)
MODERN = EnvConfig(size_x=28, size_y=28, size_z=8)


def made(config: EnvConfig) -> tuple[Echelon, Any]:
    """An environment over a bank of empty worlds: what is in them does not matter here."""
    env = Echelon(config)
    bank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), abstract_bank(config, WORLDS))
    return env, env.params(bank)


@pytest.fixture(scope="module", params=[ORIGINAL, MODERN], ids=["original", "modern"])
def game(request: pytest.FixtureRequest) -> tuple[Echelon, Any]:
    return made(request.param)


def keys(count: int = ARENAS) -> Any:
    return jax.random.split(jax.random.key(0), count)


def donate(state: Any) -> None:
    """Hand a state to a compiled program that consumes it."""
    jax.block_until_ready(jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), donate_argnums=0)(state))


# -- One buffer per field -------------------------------------------------------------------------------------------


def test_a_fresh_state_may_be_donated_and_leaves_what_came_with_it(game: tuple[Echelon, Any]) -> None:
    env, params = game
    drawn = keys()
    for arenas in (env, AutoReset(env)):
        state, step = arenas.reset_batch(drawn, params)
        donate(state)
        for tree in (step, params, drawn):
            jax.block_until_ready(jax.tree.map(jnp.copy, tree))


def test_the_fresh_state_of_one_arena_may_be_donated(game: tuple[Echelon, Any]) -> None:
    env, params = game
    state, step = env.reset(jax.random.key(0), params)
    donate(state)
    jax.block_until_ready(jax.tree.map(jnp.copy, step))


def test_memories_of_agents_and_guards_may_be_donated() -> None:
    env, params = made(ORIGINAL)
    state, _ = env.reset_batch(keys(), params)
    donate(Scripted(ORIGINAL).init(params, state))
    train = make_train(FakeEnv(), TRAIN, CountingAgent())
    learner = train.init(jax.random.key(0), fake_params())
    begun = guard.begin(learner.params, learner.observation_moments, learner.return_moments)
    donate((learner.params, begun))
    donate(guard.again(learner.guard))


def test_the_state_of_a_learner_may_be_donated() -> None:
    train = make_train(FakeEnv(), TRAIN, CountingAgent())
    donate(train.init(jax.random.key(0), fake_params()))


def test_arrays_that_share_memory_are_told_apart_from_those_that_are_equal() -> None:
    one, other, empty = jnp.arange(3), jnp.arange(3), jnp.zeros((0,))
    a, b, c, d, e = unshared((one, one, other, empty, empty), (other,))
    assert a is one and b is not one and c is not other and d is e
    assert all(np.array_equal(x, np.arange(3)) for x in (a, b, c))


def test_inside_a_compiled_program_nothing_is_copied() -> None:
    program = jax.make_jaxpr(lambda x: unshared((x, x, x + 1)))(jnp.arange(3))
    assert [equation.primitive.name for equation in program.eqns] == ["add"]


# -- Wrong calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [99, -1, 4, 2**40])
def test_a_row_that_the_bank_does_not_have_is_refused(index: int) -> None:
    env, params = made(ORIGINAL)
    with pytest.raises(ValueError, match=rf"world_index must be from 0 to 3, got {index}"):
        env.reset(jax.random.key(0), params, index)
    with pytest.raises(ValueError, match=rf"world_index must be from 0 to 3, got {index}"):
        env.reset_batch(keys(), params, np.array([0, index, 1]))


def test_the_rows_of_the_bank_are_taken_as_they_are() -> None:
    env, params = made(ORIGINAL)
    params = params.replace(bank=params.bank.replace(seed=jnp.arange(10, 14, dtype=jnp.int32)))
    for rows in (np.array([3, 0, 2]), jnp.array([3, 0, 2]), [3, 0, 2], np.array([3, 0, 2], np.uint8)):
        state, step = env.reset_batch(keys(), params, rows)
        assert state.arena_map.seed.tolist() == [13, 10, 12]
        assert np.isfinite(step.observation).all()
    for row in (3, np.int64(3), jnp.int32(3)):
        assert int(env.reset(jax.random.key(0), params, row)[0].arena_map.seed) == 13


def test_a_row_that_a_compiled_program_is_given_wrong_shows_as_nan() -> None:
    env, params = made(ORIGINAL)

    @jax.jit
    def first_sight(rows: Any) -> Any:
        return env.reset_batch(keys(), params, rows)[1].observation

    assert np.isfinite(first_sight(jnp.array([0, 3, 2]))).all()
    seen = np.isnan(first_sight(jnp.array([0, 99, -1]))).all((1, 2))
    assert seen.tolist() == [False, True, True]


@pytest.mark.parametrize("rows", [np.array([0.0, 1.0, 2.0]), np.array([True, False, True])])
def test_rows_are_whole_numbers(rows: np.ndarray) -> None:
    env, params = made(ORIGINAL)
    with pytest.raises(ValueError, match="world_index must hold whole numbers"):
        env.reset_batch(keys(), params, rows)


def test_every_arena_has_a_row_of_its_own() -> None:
    env, params = made(ORIGINAL)
    with pytest.raises(ValueError, match=r"world_index must have shape \(3,\), one row for each arena, got \(2,\)"):
        env.reset_batch(keys(), params, np.array([0, 1]))


@pytest.mark.parametrize(
    "wrong", [jax.random.key(0), jax.random.PRNGKey(0), jax.random.split(jax.random.key(0), (2, 2))]
)
def test_one_key_for_all_arenas_is_refused(wrong: Any) -> None:
    env, params = made(ORIGINAL)
    with pytest.raises(ValueError, match=r"keys must hold one key for each arena, .* jax\.random\.split"):
        env.reset_batch(wrong, params)
    state, _ = env.reset_batch(keys(), params)
    with pytest.raises(ValueError, match="keys must hold one key for each"):
        env.step_batch(wrong, state, jnp.zeros((ARENAS, 10, 26)), params)


def test_another_number_of_keys_than_arenas_is_refused() -> None:
    env, params = made(ORIGINAL)
    state, _ = env.reset_batch(keys(), params)
    for arenas in (env, AutoReset(env)):
        with pytest.raises(ValueError, match="keys must hold one key for each of 3 arenas, got 1"):
            arenas.step_batch(keys(1), state, jnp.zeros((ARENAS, 10, 26)), params)


def test_raw_keys_are_keys_too() -> None:
    env, params = made(ORIGINAL)
    raw = jax.random.key_data(keys())
    assert jax.eval_shape(env.reset_batch, raw, params)[1].observation.shape[0] == ARENAS


@pytest.mark.parametrize("shape", [(2, 10, 26), (10, 26), (ARENAS, 9, 26), (ARENAS, 10, 25), (1, 10, 26)])
def test_a_batch_of_actions_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    env, params = made(ORIGINAL)
    state, _ = env.reset_batch(keys(), params)
    for arenas in (env, AutoReset(env)):
        with pytest.raises(ValueError, match=r"actions must have shape \(3, 10, 26\)"):
            arenas.step_batch(keys(), state, jnp.zeros(shape), params)


def test_the_actions_of_one_arena_are_refused_in_the_same_way() -> None:
    env, params = made(ORIGINAL)
    state, _ = env.reset(jax.random.key(0), params)
    with pytest.raises(ValueError, match=r"actions must have shape \(1, 10, 26\)"):
        env.step(jax.random.key(0), state, jnp.zeros((ARENAS, 10, 26)), params)
