"""A teacher: what it says in a rollout, the imitation loss, and a learner that learns from it alone."""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CONFIG, CountingAgent, FakeEnv, fake_params
from helpers.small_runs import TRAIN
from helpers.trees import unequal
from training import test_ppo as small

from echelon_jax.agents.base import AgentParams
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.policies.distributions import SquashedGaussian
from echelon_jax.policies.factored import MASKED_LOGIT, Factored
from echelon_jax.policies.features import features_of
from echelon_jax.policies.heads import heads_of
from echelon_jax.policies.normalize import empty_moments
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.runs.checkpoint import restore, save
from echelon_jax.runs.memory import needs
from echelon_jax.training import loss, ppo
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import summarize
from echelon_jax.training.rollout import begin, collect
from echelon_jax.training.sides import learner_rows
from echelon_jax.training.teacher import LARGEST, Teacher, check_agents, make_teacher
from echelon_jax.training.trainer import make_train

ARENAS, STEPS = 4, 9
FEATURES, SIZE = features_of(CONFIG), action_layout(CONFIG).size
NETWORK = OriginalNetwork(FEATURES, SIZE, 8, 8)
FIRE = AgentParams(fire_probability=jnp.float32(1.0))
THROTTLES, BASE = 4, 9  # entries of the throttles, and with the triggers


@dataclasses.dataclass(frozen=True)
class Knowing(CountingAgent):
    """A teacher that knows the sign of each mech of the fake environment and acts by it."""

    config: EnvConfig = CONFIG

    def act(self, params, agent_params, agent_state, state, keys):
        return agent_state + 1, jnp.repeat(state.sign[..., None], SIZE, -1)


def rollout_with(teaches: bool):
    teacher = Teacher(CONFIG, CountingAgent(), FIRE, FEATURES, skip=True)
    env, env_params, params = FakeEnv(), fake_params(death_rate=0.1), NETWORK.init(jax.random.key(0))
    moments = empty_moments(FEATURES.own_size)
    state = begin(env, CountingAgent(), NETWORK, env_params, ARENAS, jax.random.key(1), teacher)

    @jax.jit
    def play(state, key):
        settings = env, CountingAgent(), NETWORK, FEATURES, None, env_params, FIRE, params, moments
        return collect(*settings, state, key, STEPS, 1, teacher, jnp.asarray(teaches))[:2]

    return play(state, jax.random.key(2))


def test_a_rollout_stores_what_the_teacher_would_do_in_the_learners_place():
    after, rollout = rollout_with(teaches=True)
    place = 0.01 * np.arange(CONFIG.num_mechs)  # what the agent does in every entry
    expected = np.repeat(np.arctanh(place)[:, None], SIZE, 1)
    expected[0, THROTTLES:] = -np.inf  # 0 is no pressed trigger: any value below 0 means the same
    expected[:, BASE:] = np.nan  # targets change nothing under these rules, and the rest is for who reads observations
    of_arenas = learner_rows(jnp.broadcast_to(jnp.asarray(expected, jnp.float32), (ARENAS, *expected.shape)))
    for told in rollout.teacher_action:
        np.testing.assert_allclose(told, of_arenas, rtol=1e-5)
    # Its memory is that of the episode: as old as the opponent's, which is the same agent.
    np.testing.assert_array_equal(after.teacher_state, after.opponent_state)


def test_a_teacher_that_does_not_teach_any_more_is_left_alone():
    after, rollout = rollout_with(teaches=False)
    assert (rollout.teacher_action == 0).all() and not after.teacher_state.any() and after.opponent_state.any()


def test_a_teacher_is_traced_once(monkeypatch):
    """Leaving it alone takes the shape of what it says, and asking for that must not trace it once more."""
    traced, plain = [], CountingAgent.act
    monkeypatch.setattr(CountingAgent, "act", lambda *given: traced.append(1) or plain(*given))
    teacher = Teacher(CONFIG, CountingAgent(), FIRE, FEATURES, skip=True)
    env_params = fake_params()
    state, step = jax.eval_shape(FakeEnv().reset_batch, jax.random.split(jax.random.key(0), ARENAS), env_params)
    memory = jax.eval_shape(lambda s: teacher.init(env_params, s), state)
    keys = jax.random.split(jax.random.key(0), ARENAS)
    jax.eval_shape(
        lambda *given: teacher.advise(env_params, *given, jnp.asarray(True)), memory, state, step.observation, keys
    )
    assert len(traced) == 1


def test_full_throttle_is_imitated_nearly():
    @dataclasses.dataclass(frozen=True)
    class Full(CountingAgent):
        def act(self, params, agent_params, agent_state, state, keys):
            return agent_state, jnp.ones((*state.sign.shape, SIZE))

    env_state, step = FakeEnv().reset_batch(jax.random.split(jax.random.key(0), ARENAS), fake_params())
    teacher = Teacher(CONFIG, Full(), FIRE, FEATURES, skip=False)
    keys = jax.random.split(jax.random.key(1), ARENAS)
    memory = teacher.init(None, env_state)
    _, told = teacher.advise(None, memory, env_state, step.observation, keys, jnp.asarray(True))
    np.testing.assert_allclose(told[..., :THROTTLES], math.atanh(LARGEST), rtol=1e-6)
    assert (told[..., THROTTLES:BASE] == np.inf).all()


def test_the_log_prob_of_a_sign_is_that_of_any_value_of_it():
    mean, spread = np.asarray([0.3, -1.2, 8.0], np.float32), np.asarray([0.5, 1.5, 0.7], np.float32)
    made = SquashedGaussian(jnp.asarray(mean), jnp.log(jnp.asarray(spread)))
    raw = np.asarray([0.1, -np.inf, np.inf], np.float32)
    z = (raw[0] - mean[0]) / spread[0]
    density = -0.5 * z * z - math.log(spread[0]) - 0.5 * math.log(2 * math.pi)
    below = 0.5 * math.erfc(mean[1] / spread[1] / math.sqrt(2))
    above = 0.5 * math.erfc(-mean[2] / spread[2] / math.sqrt(2))
    assert float(made.imitation_log_prob(jnp.asarray(raw))[0]) == pytest.approx(
        density + math.log(below) + math.log(above), abs=1e-5
    )


def test_nothing_is_said_of_what_the_teacher_has_no_opinion_on():
    made = SquashedGaussian(jnp.asarray([0.3, 5.0]), jnp.zeros(2))
    alone = SquashedGaussian(jnp.asarray([0.3]), jnp.zeros(1))
    said, gradient = jax.value_and_grad(
        lambda mean: made.replace(mean=mean).imitation_log_prob(jnp.asarray([0.1, jnp.nan]))[0]
    )(made.mean)
    assert float(said) == pytest.approx(float(alone.head_log_prob(jnp.asarray([0.1]))[0]))
    assert gradient[1] == 0 and np.isfinite(gradient).all()


def taught_batch():
    batch = small.random_batch(seed=4)
    signs = jnp.asarray(np.random.default_rng(1).choice([-np.inf, np.inf], (*batch.reset.shape, 2)), jnp.float32)
    return batch.replace(teacher_action=jnp.concatenate([batch.raw_action[..., :1] * 0.5, signs], -1))


def loss_of(params, batch, weight):
    weights = loss.Weights(entropy=jnp.float32(0.01), teacher=jnp.float32(weight))
    settings = small.NETWORK, small.CONFIG, weights, small.CARRY, batch, jax.random.key(0)
    return loss.loss_and_metrics(params, *settings)


def test_the_loss_counts_the_teachers_actions_of_living_mechs_by_their_weight():
    batch = taught_batch()
    with_teacher, metrics = loss_of(small.PARAMS, batch, 2.0)
    without, _ = loss_of(small.PARAMS, batch.replace(teacher_action=None), 2.0)
    policy = small.first_policy(batch.observation, batch.reset)
    each = np.asarray(policy.imitation_log_prob(batch.teacher_action))[..., 0]
    expected = -each[np.asarray(batch.policy_mask)].mean()
    assert float(metrics.imitation) == pytest.approx(expected, rel=1e-5)
    assert float(with_teacher - without) == pytest.approx(2.0 * expected, rel=1e-4)


def test_the_gradient_of_signs_alone_is_finite_and_moves_towards_them():
    batch = taught_batch()
    gradient = jax.jit(jax.grad(lambda p: loss_of(p, batch, 50.0)[0]))(small.PARAMS)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    stepped = jax.tree.map(lambda p, g: p - 1e-3 * g, small.PARAMS, gradient)
    assert loss_of(stepped, batch, 50.0)[1].imitation < loss_of(small.PARAMS, batch, 50.0)[1].imitation


def test_without_weight_a_teacher_changes_nothing():
    batch = taught_batch()
    without = jax.grad(lambda p: loss_of(p, batch.replace(teacher_action=None), 0.0)[0])(small.PARAMS)
    chex.assert_trees_all_close(jax.grad(lambda p: loss_of(p, batch, 0.0)[0])(small.PARAMS), without, atol=1e-7)


def test_a_taught_run_goes_on_from_a_checkpoint_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.fake_env.Knowing", Knowing, raising=False)
    config = dataclasses.replace(TRAIN, teacher="helpers.fake_env:Knowing", teacher_updates=6)
    trainer = make_train(FakeEnv(), config, CountingAgent())
    straight, _ = trainer.run_updates(trainer.init(jax.random.key(0), fake_params()), fake_params())
    save(tmp_path, straight, config, CONFIG)
    straight, _ = trainer.run_updates(straight, fake_params())  # the teacher ends within this call
    again = restore(tmp_path, trainer.shapes(fake_params()), config, CONFIG)
    assert again.runner_state.teacher_state.any()
    resumed, _ = trainer.run_updates(again, fake_params())
    assert not unequal((straight.params, straight.runner_state), (resumed.params, resumed.runner_state))


@pytest.mark.parametrize("end", [0.0, 0.5])
def test_after_its_updates_a_teacher_keeps_the_weight_that_is_left_to_it(monkeypatch, end):
    monkeypatch.setattr("helpers.fake_env.Knowing", Knowing, raising=False)
    taught = {"teacher": "helpers.fake_env:Knowing", "teacher_updates": 2, "teacher_end": end}
    trainer = make_train(FakeEnv(), dataclasses.replace(TRAIN, **taught), CountingAgent())
    state, metrics = trainer.run_updates(trainer.init(jax.random.key(0), fake_params()), fake_params())
    assert summarize([metrics], 5)["update/imitation"] > 0
    assert int(state.update) >= 2
    _, metrics = trainer.run_updates(state, fake_params())
    assert (summarize([metrics], 5)["update/imitation"] > 0) == (end > 0)


@pytest.mark.parametrize("led", [True, False])
def test_a_large_kl_stops_an_update_unless_a_teacher_leads(led):
    config = dataclasses.replace(small.CONFIG, target_kl=1e-9)
    schedule = ppo.UpdateSchedule(jnp.float32(1e-2), jnp.float32(0.01), jnp.float32(0.5), jnp.asarray(led))
    carries = jax.tree.map(lambda x: x[None], small.CARRY)

    def run(batch):
        given = small.NETWORK, config, small.OPTIMIZER, schedule, small.PARAMS, small.OPTIMIZER.init(small.PARAMS)
        return ppo.update(*given, carries, batch, jax.random.key(0))[2]

    assert jax.jit(run)(taught_batch()).stopped.any() == (not led)


def test_what_the_action_mask_forbids_is_not_learnt():
    log_prob = jnp.asarray([[-1.0, MASKED_LOGIT], [-2.0, -3.0], [-5.0, -7.0]])
    counts = jnp.asarray([[True, True], [True, False], [True, True]])
    alive = jnp.asarray([True, True, False])
    assert float(loss.imitation_loss(log_prob, counts, alive, jnp.float32(2.0))) == pytest.approx(1.5)


def test_a_learner_learns_from_a_teacher_alone(monkeypatch):
    monkeypatch.setattr("helpers.fake_env.Knowing", Knowing, raising=False)
    config = dataclasses.replace(
        TRAIN, updates=40, teacher="helpers.fake_env:Knowing", teacher_weight=1.0, teacher_updates=1000
    )
    trainer = make_train(FakeEnv(), config, CountingAgent())
    unpaid, paid = fake_params(reward_scale=0.0), fake_params()
    state = trainer.init(jax.random.key(0), unpaid)
    calls = []
    for _ in range(config.updates // config.updates_per_call):
        state, metrics = trainer.run_updates(state, unpaid)
        calls.append(metrics)
    first, last = summarize(calls[:1], 5), summarize(calls[-1:], 5)
    assert last["update/imitation"] < first["update/imitation"]
    _, metrics = trainer.run_updates(state, paid)
    assert summarize([metrics], 5)["reward_per_decision"] > 0.6  # 1 is perfect; without memory 1/6 is
    assert not any(
        np.asarray(m.guard.causes).any() for m in calls
    )  # the policy may move as far as the teacher leads it


def test_the_modern_heads_hear_what_the_teacher_says_and_nothing_else():
    config = EnvConfig(size_x=28, size_y=28, comm_dim=2)
    layout, heads = action_layout(config), heads_of(config)
    taught = np.ones(layout.size, bool)
    for name in ("message", "special"):
        taught[layout[name].slice] = False
    known = heads.taught_components(taught)
    expected = np.ones(heads.raw_action_size, bool)
    expected[heads["message"].raw_action] = False
    expected[heads["trigger"].raw_action.start + heads.triggers.index("special")] = False
    np.testing.assert_array_equal(known, expected)

    rng = np.random.default_rng(0)
    outputs = {h.name: jnp.asarray(rng.normal(size=h.size), jnp.float32) for h in heads.table}
    log_stds = {h.name: jnp.zeros(h.size) for h in heads.table if h.kind == "gaussian"}
    policy = Factored(heads, outputs, log_stds, jnp.ones(heads.mask_size, bool))
    action = np.asarray(rng.uniform(-0.9, 0.9, layout.size), np.float32)
    raw = heads.from_action(jnp.asarray(action), jnp.asarray(False))
    said = policy.imitation_log_prob(jnp.where(known, raw, jnp.nan))
    whole = policy.head_log_prob(raw)
    for i, name in enumerate(heads.names):
        if name == "message":
            assert said[i] == 0
        elif name == "trigger":
            special = heads.triggers.index("special")
            pressed = raw[heads["trigger"].raw_action][special]
            x = float(outputs["trigger"][special])
            of_special = -math.log1p(math.exp(-x)) if pressed else -math.log1p(math.exp(x))
            assert float(said[i]) == pytest.approx(float(whole[i]) - of_special, abs=1e-5)
        else:
            assert float(said[i]) == pytest.approx(float(whole[i]), abs=1e-5)


def test_a_network_that_cannot_be_taught_is_refused():
    class Plain:
        """A distribution without `imitation_log_prob`."""

    class Own(OriginalNetwork):
        def apply(self, params, carry, observation, reset):
            carry, _, value = super().apply(params, carry, observation, reset)
            return carry, jax.tree_util.Partial(Plain), value

    own = Own(FEATURES, SIZE, 8, 8)
    assert make_teacher("", CONFIG, own, skip=True) is None
    with pytest.raises(
        ValueError, match="teacher must be empty for a network whose distribution has no imitation_log_prob"
    ):
        make_teacher("scripted", CONFIG, own, skip=True)


@pytest.mark.parametrize("name", ["self", "league", "nobody"])
def test_only_an_agent_teaches(name):
    with pytest.raises(ValueError, match="teacher must be one of"):
        TrainConfig(teacher=name).validate()


@pytest.mark.parametrize("field", ["opponent", "teacher"])
@pytest.mark.parametrize("name", ["scripted:nobody", "no_such_package.module:Agent"])
def test_an_agent_that_cannot_be_made_is_named_with_its_field(field, name):
    config = TrainConfig(**{field: name}).validate()
    with pytest.raises(ValueError, match=f"^{field} '{name}' cannot be made"):
        check_agents(config, CONFIG)


def test_the_memory_plan_counts_the_teachers_actions():
    config = EnvConfig(size_x=28, size_y=28)
    plain = TrainConfig(arenas=64, rollout_steps=64)
    with_teacher = dataclasses.replace(plain, teacher="scripted")
    bytes_of_actions = 64 * 64 * config.team_size * heads_of(config).raw_action_size * 4
    assert needs(with_teacher, config).rollout - needs(plain, config).rollout >= bytes_of_actions
