"""Sides and rollouts, on a small fake environment (T1, T5, T10, T19)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CONFIG, MAX_STEPS, CountingAgent, FakeEnv, fake_params

from echelon_jax.agents.base import AgentParams
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.state import STATISTICS
from echelon_jax.policies.features import features_of, read
from echelon_jax.policies.normalize import batch_moments
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.training.rollout import begin, collect
from echelon_jax.training.sides import all_rows, learner_first, learner_rows, opponent_rows

ARENAS, STEPS, TEAM = 8, 2 * MAX_STEPS + 4, CONFIG.team_size
CHUNKS = 4
FEATURES = features_of(CONFIG)
NETWORK = OriginalNetwork(FEATURES, action_layout(CONFIG).size, 8, 8)
ENV, AGENT = FakeEnv(), CountingAgent()
FIRE = AgentParams(fire_probability=jnp.float32(1.0))
PARAMS = fake_params(death_rate=0.05, decided_rate=0.03)
apply = jax.jit(NETWORK.apply)
env_step = jax.jit(ENV.step_batch)
see = jax.jit(lambda moments, observation: read(FEATURES, moments, None, learner_rows(observation)))


@jax.jit
def env_keys(key):
    """The keys with which a rollout steps the environment, [decisions, arenas]."""
    steps = jax.random.split(key, STEPS)
    return jax.vmap(lambda k: jax.random.split(jax.random.split(k, 3)[2], ARENAS))(steps)


def test_the_learner_is_blue_in_even_arenas_and_red_in_odd_ones():
    x = jnp.arange(4 * 10).reshape(4, 10)
    assert learner_rows(x).tolist() == [list(range(5)), list(range(15, 20)), list(range(20, 25)), list(range(35, 40))]
    assert opponent_rows(x).tolist() == [
        list(range(5, 10)),
        list(range(10, 15)),
        list(range(25, 30)),
        list(range(30, 35)),
    ]


def test_both_sides_together_are_everybody():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 10, 3)))
    assert np.array_equal(all_rows(learner_rows(x), opponent_rows(x)), x)


def test_numbers_of_both_teams_are_turned_to_learner_first():
    x = jnp.asarray([[1, 2], [3, 4], [5, 6], [7, 8]])
    assert learner_first(x).tolist() == [[1, 2], [4, 3], [5, 6], [8, 7]]
    deep = jnp.arange(2 * 3 * 2).reshape(2, 3, 2)
    assert learner_first(deep)[1].tolist() == deep[1, :, ::-1].tolist()


@pytest.fixture(scope="module")
def played():
    """A rollout from the middle of episodes, with all that went in and came out."""
    params = jax.jit(NETWORK.init)(jax.random.key(0))
    moments = batch_moments(jax.random.normal(jax.random.key(5), (50, FEATURES.own_size)) * 2 + 1, jnp.ones(50, bool))

    @jax.jit
    def run(runner_state, key):
        return collect(
            ENV, AGENT, NETWORK, FEATURES, None, PARAMS, FIRE, params, moments, runner_state, key, STEPS, CHUNKS
        )

    runner_state = jax.jit(lambda key: begin(ENV, AGENT, NETWORK, PARAMS, ARENAS, key))(jax.random.key(1))
    runner_state = run(runner_state, jax.random.key(2))[0]
    return params, moments, runner_state, run(runner_state, jax.random.key(3))


def everybody(raw_action):
    """The actions of all mechs in one decision: roster places times 0.01 for the opponent, tanh of the sample for the learner."""
    actions = np.broadcast_to(
        0.01 * np.arange(2 * TEAM)[:, None], (ARENAS, 2 * TEAM, action_layout(CONFIG).size)
    ).copy()
    for a in range(ARENAS):
        actions[a, (a % 2) * TEAM : (a % 2 + 1) * TEAM] = np.tanh(raw_action[a])
    return jnp.asarray(actions, jnp.float32)


def test_every_kind_of_end_occurs_in_the_rollout(played):
    rollout = played[3][1]
    assert rollout.truncated.any() and rollout.terminated.any() and not rollout.alive.all()
    assert ((rollout.terminated.all(-1)) & rollout.alive.all(-1)).any()  # a verdict
    ends = (rollout.reset & rollout.alive).all(-1)
    assert (ends.sum(0) >= 2).any()  # an arena that ended twice


def test_replaying_the_rollout_outside_the_scan_gives_the_same(played):
    params, _, before, (after, rollout, carries, last_value, _, _) = played
    carry = before.carry
    for t in range(STEPS):
        now = jax.tree.map(lambda x, t=t: x[t], rollout.observation)
        chunk, inside = divmod(t, STEPS // CHUNKS)
        if inside == 0:
            assert np.allclose(carry.c, carries.c[chunk], atol=1e-5) and np.allclose(
                carry.h, carries.h[chunk], atol=1e-5
            )
        carry, distribution, value = apply(params, carry, now, rollout.reset[t])
        assert np.allclose(value, rollout.value[t], atol=1e-5)
        assert np.allclose(distribution.head_log_prob(rollout.raw_action[t]), rollout.log_prob[t], atol=1e-5)
    assert np.allclose(carry.c, after.carry.c, atol=1e-5) and np.allclose(carry.h, after.carry.h, atol=1e-5)
    assert np.isfinite(last_value).all()


def test_replaying_the_environment_gives_the_same_rewards_and_observations(played):
    """An independent walk with the stored samples: arena order, mech order, sides, flags and resets all have to agree."""
    _, moments, before, (after, rollout, _, _, _, _) = played
    state, observation = before.env_state, before.observation
    keys = env_keys(jax.random.key(3))
    previous = None
    for t in range(STEPS):
        alive = np.asarray(state.alive)
        for a in range(ARENAS):
            rows = slice(0, TEAM) if a % 2 == 0 else slice(TEAM, 2 * TEAM)
            assert np.array_equal(rollout.alive[t, a], alive[a, rows])
        seen = see(moments, observation)
        assert np.allclose(seen.own, rollout.observation.own[t], atol=1e-5)
        assert np.array_equal(seen.shared, rollout.observation.shared[t])
        if previous is not None:
            assert np.array_equal(rollout.reset[t], learner_rows(previous.terminated | previous.truncated))
        actions = everybody(rollout.raw_action[t])
        state, previous = env_step(keys[t], state, actions, PARAMS)
        observation = previous.observation
        assert np.allclose(learner_rows(previous.reward), rollout.reward[t], atol=1e-6)
    assert np.array_equal(state.step_count, after.env_state.step_count)
    assert np.allclose(state.score, after.env_state.score, atol=1e-5)  # of both sides


def test_final_values_are_of_the_last_state_under_the_memory_after_the_step(played):
    params, moments, before, (_, rollout, _, _, _, _) = played
    carry, state = before.carry, before.env_state
    keys, checked = env_keys(jax.random.key(3)), 0
    for t in range(STEPS):
        now = jax.tree.map(lambda x, t=t: x[t], rollout.observation)
        carry = apply(params, carry, now, rollout.reset[t])[0]
        actions = everybody(rollout.raw_action[t])
        state, result = env_step(keys[t], state, actions, PARAMS)
        cut = np.asarray(rollout.truncated[t] & rollout.alive[t])
        final = see(moments, result.final_observation)
        value = apply(params, carry, final, jnp.zeros((ARENAS, TEAM), bool))[2]
        assert np.allclose(np.asarray(rollout.final_value[t])[cut], np.asarray(value)[cut], atol=1e-5)
        checked += cut.sum()
    assert checked > 0


def test_the_opponents_memory_is_reset_with_its_arena(played):
    after = played[3][0]
    assert np.array_equal(after.opponent_state, after.env_state.step_count)
    assert len(set(np.asarray(after.opponent_state).tolist())) > 1


def test_the_memory_is_reset_after_a_death_and_after_an_end(played):
    rollout = played[3][1]
    done = (rollout.terminated | rollout.truncated)[:-1]
    assert np.array_equal(rollout.reset[1:], done)


def test_sums_count_what_the_rollout_shows(played):
    _, rollout, _, _, sums, _ = played[3]
    over = np.asarray((rollout.terminated | rollout.truncated).all(-1))
    # An arena whose learners all died also ended here, because a team without living mechs is an end.
    assert float(sums.episodes) == over.sum()
    assert float(sums.wins + sums.losses + sums.draws) == over.sum() == float(sums.reasons.sum())
    alive = np.asarray(rollout.alive)
    assert float(sums.decisions) == alive.sum()
    assert float(sums.reward) == pytest.approx(np.asarray(rollout.reward)[alive].sum(), abs=1e-3)
    assert float(sums.components[1]) == pytest.approx(float(sums.reward), abs=1e-3)
    died = alive & np.asarray(rollout.terminated) & ~over[..., None]
    assert float(sums.deaths) >= died.sum() > 0
    # Statistics of the fake count 2 per decision for blue and 3 for red, so sides must have been told apart.
    episodes_length = float(sums.length)
    damage = sums.statistics[STATISTICS.index("damage")]
    assert float(damage.sum()) == pytest.approx(5 * episodes_length)
    assert 2 * episodes_length < float(damage[0]) < 3 * episodes_length


def test_episode_returns_run_across_rollouts(played):
    _, _, before, (after, rollout, _, _, sums, _) = played
    running = np.asarray(before.episode_return).copy()
    assert running.any()
    ended = 0.0
    for t in range(STEPS):
        running += np.asarray(rollout.reward[t]).sum(-1)
        over = np.asarray((rollout.terminated[t] | rollout.truncated[t]).all(-1))
        ended += running[over].sum()
        running[over] = 0.0
    assert float(sums.episode_return) == pytest.approx(ended, abs=1e-3)
    assert np.allclose(after.episode_return, running, atol=1e-4)


def test_moments_are_those_of_raw_observations_of_the_living(played):
    moments, (_, rollout, _, _, _, seen) = played[1], played[3]
    raw_step = FEATURES.own_of(jnp.zeros(FEATURES.size).at[FEATURES.size - 5].set(1.0)).argmax()  # own/time
    alive = np.asarray(rollout.alive)
    time = np.asarray(rollout.observation.own)[..., int(raw_step)]
    scale = max(float(jnp.sqrt(moments.var[raw_step])), 0.1)
    raw = time * scale + float(moments.mean[raw_step])
    assert float(seen.count) == alive.sum()
    assert float(seen.mean[raw_step]) == pytest.approx(raw[alive].mean(), abs=1e-4)
    assert float(seen.var[raw_step]) == pytest.approx(raw[alive].var(), abs=1e-4)
