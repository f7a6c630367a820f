"""Self-play inside the compiled update, on the small fake environment: who plays whom, whose memory it is, what is counted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import league_runs
from helpers.checkpoint_states import same
from helpers.fake_env import CONFIG, FakeEnv
from helpers.league_runs import CONFIGURED, NAMES, PARAMS, SLOTS
from helpers.small_runs import TRAIN

from echelon_jax.agents.base import let_act
from echelon_jax.policies.acting import decide
from echelon_jax.policies.normalize import empty_moments
from echelon_jax.policies.registry import make_network
from echelon_jax.runs.checkpoint import restore, save
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.league import state as league
from echelon_jax.training.league.agent import POLICY_STREAM, LeagueAgent
from echelon_jax.training.league.draw import DrawConfig, weights
from echelon_jax.training.league.state import FrozenPolicy
from echelon_jax.training.sides import opponent_rows

ARENAS, STEPS = 128, 30
DRAW = DrawConfig("hard", 0.25, 0.2)
ENV = FakeEnv()


@pytest.fixture(scope="module")
def agent() -> LeagueAgent:
    return LeagueAgent(CONFIG, make_network(TRAIN, CONFIG), None, SLOTS, NAMES)


def policy_of(agent: LeagueAgent, seed: int) -> FrozenPolicy:
    """A policy of its own."""
    return FrozenPolicy(agent.network.init(jax.random.key(seed)), empty_moments(agent.network.features.own_size))


@pytest.fixture(scope="module")
def filled(agent: LeagueAgent) -> league.LeagueState:
    """A league with both slots filled, and results that make its members unequally likely."""
    first = policy_of(agent, 0)
    empty = league.begin(first.params, first.moments, SLOTS, len(NAMES))
    slots = jax.tree.map(lambda *x: jnp.stack(x), policy_of(agent, 1), policy_of(agent, 2))
    counts = jnp.array([[0, 0, 0], [20, 18, 0], [20, 2, 0], [20, 10, 2], [20, 5, 0]], jnp.float32)
    return empty.replace(slots=slots, filled=jnp.ones(SLOTS, bool), counts=counts)


@pytest.fixture(scope="module")
def played(agent: LeagueAgent, filled: league.LeagueState) -> dict[str, np.ndarray]:
    """Some decisions of all arenas; the learner's side acts by the opponent's rule too, which does not matter here."""
    numbers = agent.numbers(DRAW, filled, policy_of(agent, 0), jnp.float32(1.0))
    first, step = ENV.reset_batch(jax.random.split(jax.random.key(5), ARENAS), PARAMS)

    def move(carry: Any, key: Any) -> Any:
        memory, state, observation = carry
        keys, env_key = jax.random.split(jax.random.fold_in(key, 0), ARENAS), jax.random.fold_in(key, 1)
        memory, actions = let_act(agent, PARAMS, numbers, memory, state, observation, keys)
        out = {"member": agent.playing(memory), "seen": observation, "actions": actions, "keys": keys}
        state, after = ENV.step_batch(jax.random.split(env_key, ARENAS), state, actions, PARAMS)
        memory = agent.reset_where(memory, state, after.episode_over)
        return (memory, state, after.observation), out | {"over": after.episode_over}

    start = agent.init(PARAMS, first), first, step.observation
    _, out = jax.jit(lambda c: jax.lax.scan(move, c, jax.random.split(jax.random.key(6), STEPS)))(start)
    return out


def test_an_arena_keeps_its_opponent_for_the_whole_episode(played: dict[str, Any]) -> None:
    member, over = np.asarray(played["member"]), np.asarray(played["over"])
    assert (member[1:] == member[:-1])[~over[:-1]].all()
    assert (member[1:] != member[:-1])[over[:-1]].any()


def test_opponents_are_drawn_per_arena_and_episode_with_their_weights(
    played: dict[str, Any], filled: league.LeagueState
) -> None:
    member, over = np.asarray(played["member"]), np.asarray(played["over"])
    begins = np.concatenate([np.ones((1, ARENAS), bool), over[:-1]])
    found = np.bincount(member[begins], minlength=5)
    expected = np.asarray(weights(DRAW, filled.counts, filled.ratings, league.drawable(filled))) * begins.sum()
    assert begins.sum() > 500
    assert ((found - expected) ** 2 / expected).sum() < 18.5  # chi-square, 4 degrees of freedom: exceeded once in 1,000
    assert np.bincount(member[0], minlength=5).min() > 0  # different arenas, different opponents
    again = member[1:][over[:-1]] == member[:-1][over[:-1]]  # the next one does not depend on the last one
    share = ((expected / begins.sum()) ** 2).sum()
    assert again.mean() < share + 0.15


def test_a_policy_acts_with_its_own_numbers_and_a_memory_of_this_episode_alone(
    agent: LeagueAgent, filled: league.LeagueState, played: dict[str, Any]
) -> None:
    """The oracle replays one arena alone: one policy, one memory, emptied where an episode begins."""
    policies = [policy_of(agent, seed) for seed in range(3)]
    alone = jax.jit(lambda policy, carry, seen, key: decide(
        agent.network, None, False, policy.params, policy.moments, carry, seen, jnp.zeros((1, 5), bool), key
    ))  # fmt: skip
    own = jax.vmap(opponent_rows)(played["seen"])
    theirs = np.asarray(jax.vmap(opponent_rows)(played["actions"]))
    checked = set()
    for arena in range(12):
        carry = agent.network.initial_carry(1, 5)
        for t in range(STEPS):
            if t == 0 or played["over"][t - 1, arena]:
                carry = agent.network.initial_carry(1, 5)
            member = int(played["member"][t, arena])
            if member > SLOTS:
                continue
            key = jax.random.fold_in(played["keys"][t, arena], POLICY_STREAM)
            action, carry, _ = alone(policies[member], carry, own[t, arena][None], key)
            np.testing.assert_allclose(theirs[t, arena], action[0], atol=1e-5)
            checked.add(member)
    assert checked == {0, 1, 2}


def test_an_agent_by_its_name_acts_where_it_is_drawn(agent: LeagueAgent, played: dict[str, Any]) -> None:
    by_roster = agent.order.index("helpers.fake_env:CountingAgent") + 1 + SLOTS
    here = np.asarray(played["member"]) == by_roster
    theirs = np.asarray(jax.vmap(opponent_rows)(played["actions"]))[here]
    first = theirs[:, 0, 0]  # mech 0 where the opponent is blue, mech 5 where it is red
    assert here.any() and set(np.round(first, 3)) == {0.0, np.float32(0.05)}


def test_results_belong_to_the_member_that_played() -> None:
    member, over = jnp.array([1, 1, 2, 0, -1]), jnp.array([True, True, False, True, True])
    won, drawn = jnp.array([True, False, True, False, True]), jnp.array([False, True, False, False, False])
    sums = league.count_results(league.no_sums(3), member, over, won, drawn)
    assert sums.results.tolist() == [[1, 0, 0], [2, 1, 1], [0, 0, 0]]
    assert league.count_playing(sums, jnp.array([2, -1, 2, 0])).playing.tolist() == [1, 0, 2]


# -- In the trainer -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trainer() -> Any:
    return league_runs.trainer()


def copied(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.copy(), tree)


@pytest.fixture(scope="module")
def drained(trainer: Any) -> list[tuple[Any, Any]]:
    """States and metrics of calls: slot 1 is filled, then replaced while arenas play it."""
    state = trainer.init(jax.random.key(0), PARAMS)
    out = []
    for call in range(6):
        if call in (0, 2):
            new = trainer.network.init(jax.random.key(10 + call))
            moments = empty_moments(trainer.features.own_size)
            state = state.replace(league=league.offer(state.league, 1, new, moments, 1600.0 + call))
        out.append((copied(state), None))
        state, metrics = trainer.run_updates(state, PARAMS)
        out[-1] = out[-1][0], metrics
    return [*out, (state, None)]


def test_a_policy_enters_an_empty_slot_after_the_next_update(drained: list[Any]) -> None:
    before, after = drained[0][0].league, drained[1][0].league
    assert before.filled.tolist() == [False, False] and int(before.waiting_for) == 1
    assert after.filled.tolist() == [False, True] and int(after.waiting_for) == league.NOBODY
    assert same(jax.tree.map(lambda x: x[1], after.slots), before.waiting) and float(after.ratings[2]) == 1600.0


def test_a_slot_drains_before_it_is_replaced(agent: LeagueAgent, filled: league.LeagueState) -> None:
    new = policy_of(agent, 7)
    waiting = league.offer(filled.replace(window=filled.counts), 1, new.params, new.moments, 1700.0)
    assert league.drawable(waiting).tolist() == [True, True, False, True, True]

    sums = league.no_sums(agent.members)
    played = sums.replace(playing=jnp.array([3.0, 0.0, 2.0, 1.0, 0.0]), results=jnp.ones((5, 3)))
    still = league.after_update(waiting, played, 0.5)
    assert same(still.slots, filled.slots) and int(still.waiting_for) == 1
    np.testing.assert_array_equal(still.counts, 0.5 * filled.counts + 1)

    done = league.after_update(still, sums, 1.0)
    assert same(jax.tree.map(lambda x: x[1], done.slots), new)
    assert same(jax.tree.map(lambda x: x[0], done.slots), policy_of(agent, 1))
    assert int(done.waiting_for) == league.NOBODY and float(done.ratings[2]) == 1700.0
    assert done.counts[2].tolist() == done.window[2].tolist() == [0, 0, 0]  # results belong to the policy that has left
    np.testing.assert_array_equal(done.counts[3], still.counts[3])


def test_a_slot_in_use_is_replaced_within_a_run(drained: list[Any]) -> None:
    before, after = drained[2][0].league, drained[3][0].league
    assert float(np.asarray(drained[1][1].rollout.league.playing)[-1, 2]) > 0
    assert same(jax.tree.map(lambda x: x[1], after.slots), before.waiting)


def test_nothing_compiles_when_a_slot_is_replaced(trainer: Any, drained: list[Any]) -> None:
    assert trainer.run_updates._cache_size() == 1


def test_results_add_up_to_all_episodes(drained: list[Any]) -> None:
    for _, m in drained[:-1]:
        np.testing.assert_array_equal(np.asarray(m.rollout.league.results)[..., 0].sum(-1), m.rollout.episodes)
        np.testing.assert_array_equal(np.asarray(m.rollout.league.results)[..., 1].sum(-1), m.rollout.wins)


def test_a_league_resumes_bit_for_bit_while_a_policy_waits(trainer: Any, drained: list[Any], tmp_path: Any) -> None:
    state, _ = drained[2]
    save(tmp_path, state, CONFIGURED, CONFIG)
    resumed = restore(tmp_path, jax.eval_shape(trainer.init, jax.random.key(0), PARAMS), CONFIGURED, CONFIG)
    assert same(resumed, state)
    assert same(trainer.run_updates(resumed, PARAMS)[0], drained[3][0])


def test_a_slot_that_is_not_there_or_awaited_is_refused(drained: list[Any]) -> None:
    state = drained[2][0].league
    with pytest.raises(ValueError, match="slot must be from 0 to 1, got 2"):
        league.offer(state, 2, state.waiting.params, state.waiting.moments)
    with pytest.raises(ValueError, match="another policy waits for slot 1"):
        league.offer(state, 0, state.waiting.params, state.waiting.moments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"league_agents": "nobody"}, "league_agents must be names of agents .* got 'nobody'"),
        ({"league_agents": "random random"}, "league_agents must be different from each other"),
        ({"league_every": 3, "updates_per_call": 2}, "league_every must be a multiple of updates_per_call"),
        ({"league_draw": "best"}, "league_draw must be one of hard, even, linear, uniform, rating"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(opponent="league", **change).validate()
