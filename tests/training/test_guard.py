"""The guard: every fault by itself, injected into a made-up update and through the real trainer."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CountingAgent, FakeEnv, fake_params
from helpers.made_up_runs import PLAIN_FIELDS

from echelon_jax.policies.normalize import empty_moments
from echelon_jax.training import guard, vector
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.guard import CAUSES, GuardConfig, Learner
from echelon_jax.training.ppo import UpdateMetrics
from echelon_jax.training.trainer import make_train

CONFIG = GuardConfig(
    patience=2, retries=1, recovery=3, rate_factor=0.5, ratio=100.0, kl=1.0, entropy_drop=0.5, loss=10.0
)
PARAMS = {"a": jnp.arange(3.0), "b": jnp.ones((2, 2))}
OBSERVATION = {"own": jnp.ones((4, 2, 6)), "shared": jnp.ones((4, 2, 3), jnp.uint8)}
ROLLOUT = {"reward": jnp.zeros((4, 2)), "target": jnp.ones((4, 2))}
NAMES = guard.names_of(PARAMS, ("own", "shared"), tuple(ROLLOUT), ("throttle", "trigger"))
UNITS = jnp.ones(2)


def metrics(**fields):
    """Metrics of 2 epochs of 3 minibatches with 2 heads, all in order but for `fields`."""
    plain = dict.fromkeys(PLAIN_FIELDS, jnp.zeros((2, 3)))
    heads = {name: jnp.zeros((2, 3, 2)) for name in plain if name.startswith("head_")}
    return UpdateMetrics(**{**plain, **heads, "loss": jnp.full((2, 3), 0.5), **fields})


def start(scale=1.0):
    moments = empty_moments(6), empty_moments()
    params = jax.tree.map(lambda x: x * scale, PARAMS)
    return Learner(params, {"count": jnp.int32(7)}, *moments), guard.begin(params, *moments)


def inspect_update(state=None, update=None, params=PARAMS, observation=OBSERVATION, rollout=ROLLOUT, units=UNITS):
    finding = guard.inspect_update(
        CONFIG, start()[1] if state is None else state, update or metrics(), params, observation, rollout, units
    )
    return {c: NAMES.of(c, int(finding.where[i])) for i, c in enumerate(CAUSES) if finding.causes[i]}, finding


def at(shape, index, value, fill=0.0):
    return jnp.full(shape, fill).at[index].set(value)


NAN = math.nan
FAULTS = {
    "loss": ({"update": metrics(value_loss=at((2, 3), (1, 0), NAN))}, "value_loss"),
    "gradient": ({"update": metrics(bad_gradient=at((2, 3), (0, 2), 2.0))}, "b"),
    "parameter": ({"params": {**PARAMS, "b": at((2, 2), (0, 1), math.inf)}}, "b"),
    "observation": ({"observation": {**OBSERVATION, "own": at((4, 2, 6), (3, 1, 5), NAN)}}, "own, column 5"),
    "rollout": ({"rollout": {**ROLLOUT, "target": at((4, 2), (0, 0), NAN)}}, "target"),
    "ratio": ({"update": metrics(ratio_error=at((2, 3), (1, 1), 200.0))}, "throttle"),
    "kl": (
        {"update": metrics(kl=at((2, 3), (1, 2), 3.0), head_kl=at((2, 3, 2), (1, 2, 1), 3.0))},
        "trigger",
    ),
    "entropy": ({"update": metrics(head_entropy=at((2, 3, 2), (1, 2, 1), 0.2, fill=0.9))}, "trigger"),
}


def test_an_update_in_order_is_not_bad():
    found, finding = inspect_update()
    assert not found and not bool(finding.bad) and float(finding.loss) == 0.5


@pytest.mark.parametrize("cause", FAULTS)
def test_each_fault_is_found_and_named_and_no_other(cause):
    arguments, name = FAULTS[cause]
    found, finding = inspect_update(**arguments)
    assert found == {cause: name} and bool(finding.bad)


def test_steps_that_were_left_out_are_not_judged():
    stopped = at((2, 3), (1, slice(None)), 1.0)
    left_out = metrics(stopped=stopped, kl=stopped * 9.0, head_entropy=jnp.where(stopped[..., None] == 1, 0.0, 0.9))
    assert not inspect_update(update=left_out)[0]


def test_the_fall_of_a_sum_of_entropies_is_judged_per_component():
    fall = metrics(head_entropy=at((2, 3, 2), (1, 2, 0), 8.0, fill=9.0))
    assert inspect_update(update=fall)[0] == {"entropy": "throttle"}
    assert not inspect_update(update=fall, units=jnp.float32([26.0]))[0]


@pytest.mark.parametrize(
    ("seen", "usual", "loss", "bad"),
    [(100, 0.5, 50.0, True), (5, 0.5, 50.0, False), (100, 30.0, 50.0, False), (100, 0.5, 9.0, False)],
)
def test_a_spike_is_large_by_itself_and_against_what_is_usual_once_that_is_known(seen, usual, loss, bad):
    state = start()[1].replace(seen=jnp.int32(seen), loss_mean=jnp.float32(usual), loss_square=jnp.float32(usual**2))
    assert ("spike" in inspect_update(state, metrics(loss=jnp.full((2, 3), loss)))[0]) == bad


def play(updates):
    """Settle a row of updates, each True for good; the learner's parameters count the updates that were applied."""
    learner, state = start(0.0)
    trail = []
    for good in updates:
        after = learner.replace(params=jax.tree.map(lambda x: x + 1.0, learner.params))
        update = metrics() if good else metrics(kl=jnp.full((2, 3), 9.0))
        finding = inspect_update(state, update)[1]
        learner, state, report = guard.settle(CONFIG, state, finding, learner, after, {"count": jnp.int32(0)})
        trail.append((float(learner.params["b"][0, 0]), int(learner.optimizer["count"]), report))
    return trail, state


def test_a_bad_update_is_not_applied_and_is_counted():
    trail, state = play([True, False, True])
    assert [t[0] for t in trail] == [1.0, 1.0, 2.0]
    assert [bool(t[2].dropped) for t in trail] == [False, True, False]
    assert int(state.counts[CAUSES.index("kl")]) == 1 and int(state.counts.sum()) == 1


def test_enough_of_them_in_a_row_set_the_learner_back_with_a_fresh_optimizer_and_a_lower_rate():
    trail, state = play([True, True, False, False])
    # The snapshot is what entered the last good update, the second: one update old.
    assert trail[-1][0] == 1.0 and [t[1] for t in trail] == [7, 7, 7, 0]
    assert bool(trail[-1][2].rolled_back) and float(trail[-1][2].rate) == 0.5 and int(state.streak) == 0


def test_a_good_update_in_between_starts_the_count_anew():
    trail, _ = play([True, False, True, False, True])
    assert not any(bool(t[2].rolled_back) for t in trail)


def test_good_updates_in_a_row_make_up_for_a_set_back():
    trail, state = play([True, False, False, True, True, True])
    assert [float(t[2].rate) for t in trail] == [1.0, 1.0, 0.5, 0.5, 0.5, 1.0] and int(state.retries) == 0


def test_after_the_last_retry_it_gives_up_and_holds_the_snapshot():
    trail, state = play([True, True, False, False, False, False, True, True])
    assert [bool(t[2].failed) for t in trail] == [False] * 5 + [True] * 3
    assert [t[0] for t in trail[-3:]] == [1.0, 1.0, 1.0] and bool(state.failed)
    again = guard.again(state)
    assert not bool(again.failed) and int(again.retries) == 0 and (again.counts == state.counts).all()


def test_without_a_good_update_there_is_no_snapshot_and_the_learner_stays():
    trail, _ = play([False, False])
    assert trail[-1][0] == 0.0 and bool(trail[-1][2].rolled_back)


def test_events_are_sentences():
    trail, _ = play([True, True, False, False])
    report = jax.tree.map(lambda *x: np.stack(x), *[t[2] for t in trail])
    events = guard.events(NAMES, report, first_update=11)
    assert [e["update"] for e in events] == [13, 14] and events[1]["rolled_back"]
    assert guard.sentence(events[0]) == "update 13 was bad: kl (throttle); not applied"


# -- Through the trainer ------------------------------------------------------------------------------------------------

TRAIN = TrainConfig(
    network="original",
    target_kl=0.0,
    arenas=8,
    rollout_steps=8,
    updates=50,
    epochs=2,
    minibatches=2,
    hidden=8,
    lstm=8,
    opponent="random",
    guard_patience=2,
    guard_retries=1,
    guard_recovery=2,
    guard_ratio=0.9,
)
WELL = fake_params(death_rate=0.02, decided_rate=0.02)


@pytest.fixture(scope="module")
def trainer():
    return make_train(FakeEnv(), TRAIN, CountingAgent())


@pytest.fixture(scope="module")
def sound(trainer):
    """A learner two good updates old, and how to copy it, since a launch consumes its state."""
    state = trainer.init(jax.random.key(0), WELL)
    for _ in range(2):
        state, m = trainer.run_updates(state, WELL)
        assert not bool(m.guard.dropped[0])
    return lambda: jax.tree.map(lambda x: x.copy(), state)


def push(state, name, value):
    """Adam's running mean of one parameter's gradient, set so that the next step is of that size in learning rates."""
    clip, adam = state.optimizer
    mu, nu = (vector.parted(moments, state.params) for moments in (adam.mu, adam.nu))
    mu, nu = {**mu, name: jnp.full_like(mu[name], value)}, {**nu, name: jnp.zeros_like(nu[name])}
    return state.replace(optimizer=(clip, adam._replace(mu=vector.joined(mu), nu=vector.joined(nu))))


def nan_observation(state):
    runner_state = state.runner_state
    return state.replace(runner_state=runner_state.replace(observation=runner_state.observation.at[..., 3].set(NAN)))


def nan_parameter(state):
    return state.replace(params={**state.params, "value_bias": jnp.full_like(state.params["value_bias"], NAN)})


def small_returns(state):
    moments = state.return_moments.replace(var=jnp.float32(1e-12), count=jnp.float32(1e12))
    known = state.guard.replace(seen=jnp.int32(100), loss_mean=jnp.float32(0.5), loss_square=jnp.float32(0.25))
    return state.replace(return_moments=moments, guard=known)


INJECTED = {
    "observation": (nan_observation, "own, column 3"),
    "loss": (nan_parameter, "loss"),
    "gradient": (nan_parameter, None),
    "parameter": (lambda s: push(s, "mean_bias", math.inf), "mean_bias"),
    "ratio": (lambda s: push(s, "mean_bias", 1e6), "action"),
    "kl": (lambda s: push(s, "mean_bias", 1e6), "action"),
    "entropy": (lambda s: push(s, "log_std", 1e6), "action"),
    "spike": (small_returns, "loss"),
}


@pytest.mark.parametrize("cause", INJECTED)
def test_the_trainer_finds_a_fault_names_it_and_does_not_learn_from_it(trainer, sound, cause):
    inject, name = INJECTED[cause]
    before = inject(sound())
    copy = jax.tree.map(lambda x: x.copy(), before)
    after, m = trainer.run_updates(before, WELL)
    [event] = guard.events(trainer.guard_names, m.guard, 3)
    assert cause in event["causes"] and name in (None, event["causes"][cause])
    for field in ("params", "optimizer", "observation_moments", "return_moments"):
        for one, other in zip(*(jax.tree.leaves(getattr(s, field)) for s in (after, copy)), strict=True):
            assert np.array_equal(one, other, equal_nan=True)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(after.runner_state.carry))
    assert int(after.guard.counts[CAUSES.index(cause)]) == 1


def test_the_trainer_finds_a_reward_that_is_not_finite_is_set_back_and_gives_up(trainer, sound):
    state = sound()
    snapshot = jax.tree.map(np.asarray, state.guard.params)
    rates, failed = [], []
    for _ in range(4):
        state, m = trainer.run_updates(state, fake_params(reward_scale=NAN))
        [event] = guard.events(trainer.guard_names, m.guard, 1)
        assert event["causes"]["rollout"] == "reward"
        rates.append(float(m.guard.rate[0]))
        failed.append(bool(m.guard.failed[0]))
    assert rates == [1.0, 0.5, 0.5, 0.5] and failed == [False, False, False, True]
    assert all(np.array_equal(state.params[k], snapshot[k]) for k in snapshot)
    assert int(state.optimizer[1].count) == 0


def test_the_trainer_recovers_by_itself(trainer, sound):
    state, rates = sound(), []
    for bad in (True, True, False, False):
        state, m = trainer.run_updates(state, fake_params(reward_scale=NAN) if bad else WELL)
        rates.append(float(m.guard.rate[0]))
    assert rates == [1.0, 0.5, 0.5, 1.0] and not bool(state.guard.failed)


def test_the_lower_rate_makes_smaller_steps(trainer, sound):
    def moved(retries):
        state = sound()
        state = state.replace(guard=state.guard.replace(retries=jnp.int32(retries)))
        return float(trainer.run_updates(state, WELL)[1].update.update_ratio[0, 0, 0])

    assert moved(1) == pytest.approx(0.5 * moved(0), rel=1e-3)
