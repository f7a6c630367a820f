"""The fused trainer and its checkpoints, on a small fake environment (docs/spec/learner.md 9; T3, T4, T18)."""

import dataclasses
import json
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CONFIG, CountingAgent, FakeEnv, fake_params
from helpers.made_up_runs import PLAIN_FIELDS
from helpers.small_runs import PARAMS, TRAIN

from echelon_jax.runs import checkpoint
from echelon_jax.runs.checkpoint import CheckpointError, load_policy, restore, save
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import Metrics, no_sums, summarize
from echelon_jax.training.ppo import UpdateMetrics
from echelon_jax.training.trainer import LinearSchedule, make_train, share_after_death

KEY = jax.random.key(TRAIN.seed)


def same(a, b):
    def raw(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return all(np.array_equal(raw(x), raw(y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture(scope="module")
def trainer():
    return make_train(FakeEnv(), TRAIN, CountingAgent())


@pytest.fixture(scope="module")
def learnt(trainer):
    """A whole run: the metrics of every call."""
    state, metrics = trainer.init(KEY, PARAMS), []
    for _ in range(TRAIN.updates // TRAIN.updates_per_call):
        state, m = trainer.run_updates(state, PARAMS)
        metrics.append(m)
    return state, metrics


def test_it_learns_to_remember_a_sign_that_was_shown_once(learnt):
    _, metrics = learnt
    before, after = summarize(metrics[:1], 5), summarize(metrics[-2:], 5)
    assert abs(before["reward_per_decision"]) < 0.15
    assert after["reward_per_decision"] > 0.7  # 1 is perfect; without memory 1/6 is
    assert after["win_rate"] > 0.9


def test_metrics_are_scalars_or_short_and_finite(learnt):
    for leaf in jax.tree.leaves(learnt[1]):
        assert leaf.shape[0] == TRAIN.updates_per_call and leaf.size <= 1024
        assert np.isfinite(leaf).all()


def test_the_first_ratio_of_every_update_is_one(learnt):
    for m in learnt[1]:
        assert float(m.update.ratio_error[:, 0, 0].max()) < 1e-4


def test_the_fire_probability_reported_is_the_one_that_acted(learnt):
    fire = np.concatenate([m.fire_probability for m in learnt[1]])
    assert np.allclose(fire, 0.2 + np.minimum(1, np.arange(TRAIN.updates) / 6) * 0.6, atol=1e-6)


def test_a_ramp_of_no_length_is_at_its_end():
    ramp = LinearSchedule(jnp.float32(0.2), jnp.float32(1.0), jnp.float32(0.0))
    assert float(ramp.at(jnp.int32(0))) == 1.0


@pytest.mark.parametrize(
    ("start", "ramp", "shares"),
    [(0, 4, [0, 0.2, 0.4, 0.6, 0.8, 0.8]), (2, 2, [0, 0, 0, 0.4, 0.8, 0.8]), (2, 0, [0, 0, 0.8, 0.8, 0.8, 0.8])],
)
def test_the_share_after_death_begins_to_rise_at_its_update(start, ramp, shares):
    config = dataclasses.replace(TRAIN, after_death=0.8, after_death_start=start, after_death_ramp=ramp)
    found = [float(share_after_death(config, jnp.int32(update))) for update in range(len(shares))]
    np.testing.assert_allclose(found, shares, atol=1e-6)


def test_one_trace_serves_every_call(trainer):
    once = chex.assert_max_traces(lambda state, params: trainer.update(state, params), n=1)
    chex.clear_trace_counter()
    call = jax.jit(once)
    state = jax.eval_shape(trainer.init, KEY, PARAMS)
    # Tracing alone shows it: what an update returns has the shapes and dtypes of what it was given.
    for _ in range(2):
        state, _ = jax.eval_shape(call, state, PARAMS)


def test_nothing_crosses_to_the_host_inside_a_call(trainer, learnt):
    state = trainer.init(KEY, PARAMS)
    with jax.transfer_guard("disallow"):
        trainer.run_updates(state, PARAMS)
        with pytest.raises(Exception, match="Disallowed host-to-device transfer"):  # the guard is on
            jax.jit(jnp.sin)(np.float32(0))


def test_the_worst_ratios_of_an_update_are_those_of_its_gradient_steps(learnt):
    for m in learnt[1]:
        worst, error = m.update.worst, np.asarray(m.update.ratio_error).max((1, 2))
        assert (np.expm1(np.abs(worst.log_ratio).max(-1)) >= error * (1 - 1e-4)).all()
        sizes = TRAIN.arenas, TRAIN.rollout_steps, CONFIG.team_size, 1
        for name, size in zip(("arena", "time", "mech", "head"), sizes, strict=True):
            values = np.asarray(getattr(worst, name))
            assert (values == values.astype(int)).all() and values.min() >= 0 and values.max() < size


def test_nothing_compiles_after_the_first_call(trainer, learnt, saved):
    assert trainer.run_updates._cache_size() == 1  # of all calls of this file: other rewards, restored states


def test_the_scale_of_rewards_does_not_matter_once_statistics_have_met_it(trainer):
    def third_update(scale):
        state = trainer.init(KEY, fake_params(reward_scale=scale))
        moments = state.return_moments.replace(var=jnp.float32(4.0 * scale**2), count=jnp.float32(1e9))
        return trainer.run_updates(state.replace(return_moments=moments), fake_params(reward_scale=scale))[1].update

    small, large = third_update(1.0), third_update(100.0)
    assert np.allclose(small.loss[0], large.loss[0], rtol=1e-3, atol=1e-4)
    assert np.allclose(small.grad_norm[0, 0, 0], large.grad_norm[0, 0, 0], rtol=1e-3)


@pytest.fixture(scope="module")
def saved(trainer, tmp_path_factory):
    """A run saved after its first call, and the state that it would have reached after the second."""
    run = tmp_path_factory.mktemp("run")
    state, _ = trainer.run_updates(trainer.init(KEY, PARAMS), PARAMS)
    run_dir = save(run, state, TRAIN, CONFIG, extra={"rules": "original"})
    copy = jax.tree.map(lambda x: x.copy(), state)
    return run, run_dir, copy, trainer.run_updates(state, PARAMS)


def template(trainer):
    return jax.eval_shape(trainer.init, KEY, PARAMS)


def test_resumed_equals_uninterrupted_bit_for_bit(trainer, saved):
    run, _, state, (expected, expected_metrics) = saved
    resumed = restore(run, template(trainer), TRAIN, CONFIG)
    assert same(resumed, state)
    assert same(trainer.run_updates(resumed, PARAMS), (expected, expected_metrics))


def test_the_loaded_policy_is_the_saved_one(saved):
    _, run_dir, state, _ = saved
    policy = load_policy(run_dir)
    assert same(policy.params, state.params) and same(policy.observation_moments, state.observation_moments)
    assert (policy.config, policy.env_config, policy.update) == (TRAIN, CONFIG, TRAIN.updates_per_call)
    assert policy.extra == {"rules": "original"}


def test_only_the_last_checkpoints_are_kept(saved, tmp_path):
    state = saved[2]
    for update in (1, 2, 3, 4):
        save(tmp_path, state.replace(update=jnp.int32(update)), TRAIN, CONFIG, keep=2)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["00000003", "00000004"]
    assert checkpoint.read_manifest(tmp_path).update == 4


def test_saving_again_replaces_the_checkpoint(saved, tmp_path):
    state = saved[2]
    save(tmp_path, state, TRAIN, CONFIG)
    save(tmp_path, state, TRAIN, CONFIG, extra={"again": True})
    assert load_policy(tmp_path).extra == {"again": True}


def test_an_interrupted_write_is_neither_found_nor_in_the_way(saved, tmp_path):
    (tmp_path / "checkpoints" / ".partial-new" / "policy").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="neither a checkpoint nor a run directory"):
        load_policy(tmp_path)
    save(tmp_path, saved[2], TRAIN, CONFIG)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["00000004"]


def damaged_copy(saved, tmp_path):
    return shutil.copytree(saved[1], tmp_path / "copy")


def test_a_missing_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        load_policy(tmp_path / "nowhere")


def test_a_changed_file_is_refused(saved, tmp_path):
    run_dir = damaged_copy(saved, tmp_path)
    victim = next(p for p in (run_dir / "policy").rglob("*") if p.is_file() and p.parent.name == "d")
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is damaged"):
        load_policy(run_dir)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "checkpoint format 99"),
        ({"update": None}, "damaged or foreign"),
        ({"train": {"seed": 0}}, "damaged or foreign"),
        ({"observation_layout": "other"}, "another layout"),
    ],
)
def test_a_foreign_manifest_is_refused(saved, tmp_path, change, message):
    run_dir = damaged_copy(saved, tmp_path)
    manifest = json.loads((run_dir / "manifest.json").read_text())
    (run_dir / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(CheckpointError, match=message):
        load_policy(run_dir)


@pytest.mark.parametrize("text", ["{", "[1]", "{}"])
def test_a_manifest_that_is_not_ours_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError):
        load_policy(tmp_path)


def test_another_configuration_is_refused_by_field(trainer, saved):
    other = dataclasses.replace(TRAIN, learning_rate=1e-4)
    with pytest.raises(CheckpointError, match=r"learning_rate = 0.003, this run has learning_rate = 0.0001"):
        restore(saved[0], template(trainer), other, CONFIG)
    with pytest.raises(CheckpointError, match="size_x"):
        restore(saved[0], template(trainer), TRAIN, dataclasses.replace(CONFIG, size_x=60))


def test_a_run_may_be_made_longer(trainer, saved):
    longer = dataclasses.replace(TRAIN, updates=200, updates_per_call=5)
    assert same(restore(saved[0], template(trainer), longer, CONFIG), saved[2])


def test_a_state_of_another_shape_is_refused(trainer, saved):
    wanted = template(trainer)
    wanted = wanted.replace(update=jax.ShapeDtypeStruct((2,), jnp.int32))
    with pytest.raises(CheckpointError, match="update"):
        restore(saved[0], wanted, TRAIN, CONFIG)


def test_an_unwritable_place_is_refused(saved, tmp_path):
    (tmp_path / "checkpoints").write_text("a file where a directory should be")
    with pytest.raises(CheckpointError, match="cannot write a checkpoint"):
        save(tmp_path, saved[2], TRAIN, CONFIG)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arenas": 7}, "arenas must be a multiple of 2"),
        (
            {"teacher_weight": 0.5, "teacher_end": 0.75},
            r"teacher_end must be at most teacher_weight \(0.5\), got 0.75",
        ),
        ({"arenas": 10, "minibatches": 4}, r"arenas must be a multiple of minibatches \(4\), got 10"),
        ({"updates": 7, "updates_per_call": 2}, "updates must be a multiple of updates_per_call"),
        ({"gamma": 1.5}, "gamma must be a number from 0 to 1, got 1.5"),
        ({"clip": float("nan")}, "clip must be a number"),
        ({"epochs": 0}, "epochs must be a whole number from 1 to 2147483647, got 0"),
        ({"rollout_steps": 3.5}, "rollout_steps must be a whole number"),
        ({"network": "huge"}, "network must be one of modern, original or an import path .* got 'huge'"),
        ({"opponent": "nobody"}, "opponent must be one of scripted, random, .* got 'nobody'"),
        ({"bank_swap_every": 3, "updates_per_call": 2, "bank_swap_size": 1}, "bank_swap_every must be a multiple"),
        ({"bank_swap_every": 2, "bank_swap_size": 0}, "bank_swap_size must be from 1 to bank_size"),
        ({"anneal": 1}, "anneal must be true or false"),
    ],
)
def test_a_bad_field_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**change).validate()


@pytest.mark.parametrize("name", ["smoke", "cpu", "gpu"])
def test_presets_are_valid_and_take_overrides(name):
    assert TrainConfig.preset(name).validate() == getattr(TrainConfig, name)()
    assert TrainConfig.preset(name, seed=5).seed == 5


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="preset must be one of smoke, cpu, gpu"):
        TrainConfig.preset("tpu")


def test_bank_swaps_are_counted_by_update():
    config = TrainConfig(bank_swap_every=4, bank_swap_size=2)
    assert [config.bank_swaps(u) for u in (0, 3, 4, 9)] == [0, 0, 1, 2]
    assert TrainConfig().bank_swaps(50) == 0


def metrics_of(**rollout):
    sums = no_sums().replace(**{k: jnp.asarray(v, jnp.float32) for k, v in rollout.items()})
    zero = jnp.zeros((1, 1))
    update = UpdateMetrics(**dict.fromkeys(PLAIN_FIELDS, zero))
    one = Metrics(sums, update, *(jnp.float32(0),) * 3)
    return jax.tree.map(lambda x: x[None], one)


def test_rates_are_quotients_of_sums_over_the_window():
    window = [metrics_of(episodes=1, wins=1, zone_seconds=[3, 1]), metrics_of(episodes=9, wins=0, zone_seconds=[0, 4])]
    out = summarize(window, 5)
    assert out["win_rate"] == pytest.approx(0.1) and out["zone_share"] == pytest.approx(3 / 8)


def test_a_rate_without_data_is_none():
    out = summarize([metrics_of()], 5)
    assert out["win_rate"] is None and out["zone_share"] is None and out["episodes"] == 0.0
