"""Advantages (docs/spec/learner.md 4.2, B.3, T5, T10)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.training.advantages import generalized_advantages

gae = jax.jit(generalized_advantages, static_argnames=("gamma", "lam"))


def column(x, dtype=np.float32):
    return jnp.asarray(np.asarray(x, dtype)[:, None, None])


def one_actor(reward, value, terminated, last, truncated=None, final=None):
    zeros = [0] * len(reward)
    advantage, returns = generalized_advantages(
        column(reward),
        column(value),
        column(terminated, bool),
        column(truncated or zeros, bool),
        column([1] * len(reward), bool),
        column(final or zeros),
        jnp.full((1, 1), last, jnp.float32),
        gamma=0.99,
        lam=0.95,
    )
    return np.ravel(advantage), np.ravel(returns)


def test_vector_without_an_end():
    advantage, _ = one_actor([1, 2, 3], [0.5, 1, 1.5], [0, 0, 0], 2.0)
    assert np.allclose(advantage, [6.905343, 5.75794, 3.48], atol=1e-5)


def test_vector_with_an_end_inside():
    # The original's "done at the start of step 2" is an end of step 1.
    advantage, returns = one_actor([1, 2, 3, 4], [0.5, 1, 1.5, 2], [0, 1, 0, 0], 3.0)
    assert np.allclose(advantage, [2.4305, 1.0, 8.154285, 4.97], atol=1e-5)
    assert np.allclose(returns, [2.9305, 2.0, 9.654285, 6.97], atol=1e-5)


def test_vector_with_an_end_at_the_last_step():
    advantage, _ = one_actor([1, 2, 3, 4], [0.5, 1, 1.5, 2], [0, 1, 0, 1], 3.0)
    assert np.allclose(advantage, [2.4305, 1.0, 5.361, 2.0], atol=1e-5)


def test_truncation_bootstraps_from_the_final_observation_and_cuts_the_trace():
    advantage, _ = one_actor([1, 2, 3], [0.5, 1, 1.5], [0, 0, 0], 2.0, truncated=[0, 1, 0], final=[9, 10, 9])
    delta_1 = 2 + 0.99 * 10 - 1
    assert advantage[1] == pytest.approx(delta_1, abs=1e-5)
    assert advantage[0] == pytest.approx(1 + 0.99 * 1 - 0.5 + 0.99 * 0.95 * delta_1, abs=1e-5)


def slow(reward, value, terminated, truncated, alive, final, last, gamma, lam):
    """One mech at a time, one life at a time: sums of discounted errors written out from the definition."""
    steps, arenas, team = reward.shape
    out = np.zeros(reward.shape)
    for a in range(arenas):
        for m in range(team):
            for t in range(steps):
                if not alive[t, a, m]:
                    continue
                weight = 1.0
                for s in range(t, steps):
                    if terminated[s, a, m]:
                        ahead = 0.0
                    elif truncated[s, a, m]:
                        ahead = final[s, a, m]
                    else:
                        ahead = value[s + 1, a, m] if s + 1 < steps else last[a, m]
                    out[t, a, m] += weight * (reward[s, a, m] + gamma * ahead - value[s, a, m])
                    weight *= gamma * lam
                    if terminated[s, a, m] or truncated[s, a, m]:
                        break
    return out


def random_case(seed, steps=12, arenas=3, team=4):
    """Lives as they come: mechs die, stay dead until the arena ends, and arena 0 ends twice."""
    rng = np.random.default_rng(seed)
    shape = (steps, arenas, team)
    reward, value, final = rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=shape)
    terminated, truncated, alive = (np.zeros(shape, bool) for _ in range(3))
    lives = np.ones((arenas, team), bool)
    for t in range(steps):
        alive[t] = lives
        lives = lives & (rng.random((arenas, team)) > 0.15)
        over = rng.random(arenas) < 0.1
        over[0] = t in (3, 8)
        verdict = rng.random(arenas) < 0.5
        terminated[t] = ~lives | (over & verdict)[:, None]
        truncated[t] = lives & (over & ~verdict)[:, None]
        lives = np.where(over[:, None], True, lives)
    return reward, value, terminated, truncated, alive, final, rng.normal(size=(arenas, team))


@pytest.mark.parametrize("seed", range(8))
def test_random_lives_agree_with_the_definition(seed):
    case = random_case(seed)
    advantage, returns = gae(
        *(jnp.asarray(x, bool if x.dtype == bool else np.float32) for x in case), gamma=0.97, lam=0.9
    )
    expected, alive = slow(*case, 0.97, 0.9), case[4]
    assert np.allclose(advantage, expected, atol=1e-4)
    assert np.allclose(returns, np.where(alive, expected + case[1], 0.0), atol=1e-4)


def test_dead_rows_have_no_influence():
    case = random_case(3)
    alive = case[4]
    assert not alive.all()
    spoilt = [np.where(alive, x, np.nan) if x.shape == alive.shape and x.dtype != bool else x for x in case]
    # A value ahead of a living mech is used only if it goes on living, so NaN there must not show either.
    plain, other = (
        gae(*(jnp.asarray(x, bool if x.dtype == bool else np.float32) for x in c), gamma=0.97, lam=0.9)
        for c in (case, spoilt)
    )
    assert np.array_equal(plain[0], other[0]) and np.array_equal(plain[1], other[1])


def test_a_share_of_nothing_is_an_end_and_a_whole_share_is_none():
    rng = np.random.default_rng(4)
    shape = (6, 2, 3)
    f = lambda: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    reward, value, final, last = f(), f(), f(), f()[0]
    no, living, died = jnp.zeros(shape, bool), jnp.ones(shape, bool), jnp.asarray(rng.random(shape) < 0.3)

    def run(terminated, continuation):
        out = gae(reward, value, terminated, no, living, final, last, gamma=0.99, lam=0.95, continuation=continuation)
        return np.asarray(out[0])

    assert np.allclose(run(no, jnp.where(died, 0.0, 1.0)), run(died, None), atol=1e-6)
    assert np.allclose(run(no, jnp.ones(shape)), run(no, None), atol=1e-6)
    half = run(no, jnp.where(died, 0.5, 1.0))
    t, a, m = np.argwhere(np.asarray(died)[:-1])[0]
    after = 0.5 * 0.99 * (float(value[t + 1, a, m]) + 0.95 * half[t + 1, a, m])
    assert half[t, a, m] == pytest.approx(float(reward[t, a, m]) + after - float(value[t, a, m]), abs=1e-5)
