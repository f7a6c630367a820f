"""Starting a run from another run's policy."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CONFIG, CountingAgent, FakeEnv, fake_params

from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.train import TrainCommand, TrainFlags
from echelon_jax.config import EnvConfig
from echelon_jax.runs.checkpoint import CheckpointError, load_policy, save
from echelon_jax.runs.warm_start import SAME, load_fitting, network_fields, same_fields, warm
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train

TRAIN = TrainConfig(
    arenas=2, rollout_steps=2, minibatches=1, updates=1, bank_size=1, network="original", hidden=4, lstm=4
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of the small fake environment, saved, and its state."""
    trainer = make_train(FakeEnv(), TRAIN, CountingAgent())
    fresh = trainer.init(jax.random.key(0), fake_params())
    state = fresh.replace(
        params=jax.tree.map(lambda x: x + 1.0, fresh.params),
        observation_moments=fresh.observation_moments.replace(count=jnp.float32(7.0)),
    )
    run_dir = tmp_path_factory.mktemp("run")
    save(run_dir, state, TRAIN, CONFIG)
    return run_dir, fresh, state


def test_a_run_begins_with_the_policy_and_its_normaliser_and_nothing_else(run):
    run_dir, fresh, state = run
    larger = dataclasses.replace(CONFIG, size_x=60, size_y=60)  # another map is no obstacle
    begun = warm(fresh, load_fitting(run_dir, TRAIN, larger))
    for a, b in zip(jax.tree.leaves(begun.params), jax.tree.leaves(state.params)):
        assert np.array_equal(a, b)
    assert float(begun.observation_moments.count) == 7.0
    assert begun.optimizer is fresh.optimizer and begun.runner_state is fresh.runner_state


@pytest.mark.parametrize(
    ("change", "message"),
    [({"hidden": 8}, "hidden = 4, this run has hidden = 8"), ({"network": "modern"}, "network = 'original'")],
)
def test_another_network_is_refused_by_name(run, change, message):
    with pytest.raises(CheckpointError, match=message):
        load_fitting(run[0], dataclasses.replace(TRAIN, **change), CONFIG)


def test_another_spread_is_another_policy_of_the_modern_network_and_of_no_original():
    assert "initial_log_std" in same_fields("modern") and "initial_log_std" not in same_fields("original")
    student = load_policy("zoo:student")
    changed = dataclasses.replace(student.config, initial_log_std=-0.5)
    with pytest.raises(CheckpointError, match=r"initial_log_std = 0.0, this run has initial_log_std = -0.5"):
        load_fitting(Path("zoo:student"), changed, student.env_config)


def test_the_network_of_a_policy_is_told_by_its_fields(run):
    assert network_fields(run[0]) == {field: getattr(TRAIN, field) for field in SAME}
    assert network_fields(Path("zoo:champion"))["memory"] == "lstm"  # its card is older than the field
    for nobody in ("zoo:nobody", run[0] / "nothing"):
        with pytest.raises(CheckpointError):
            network_fields(Path(nobody))


def test_a_run_that_starts_from_a_policy_has_its_network_unless_a_flag_says_otherwise(run):
    def asked(**fields):
        return TrainCommand(start_from=run[0], train=TrainFlags(**fields)).configurations()[0]

    assert {field: getattr(asked(), field) for field in SAME} == {field: getattr(TRAIN, field) for field in SAME}
    assert asked(hidden=8).hidden == 8
    with pytest.raises(UsageError, match="start-from must name a policy: "):
        TrainCommand(start_from=run[0] / "nothing").configurations()


def test_another_observation_is_refused(run):
    with pytest.raises(CheckpointError, match="another observation"):
        load_fitting(run[0], TRAIN, EnvConfig.original(comm_dim=4))


def test_a_place_without_a_policy_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        load_fitting(tmp_path / "nowhere", TRAIN, CONFIG)
