"""The learning test: on a tiny map a fresh policy learns the game's object, to take and hold the zone."""

import jax
import numpy as np
import pytest

from echelon_jax import AutoReset, Echelon, EnvConfig, generate_worlds
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import summarize
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.training.trainer import make_train

pytestmark = [pytest.mark.optimised, pytest.mark.extended]


UPDATES = 40  # at most, of a schedule of 60
RECENT = 5  # updates that are judged together


def test_a_policy_learns_to_hold_the_zone_on_a_tiny_map():
    """At most 82,000 environment steps of the default learner against mechs that act at random; half of the time is compiling."""
    env_config = EnvConfig(size_x=28, size_y=28)
    config = TrainConfig.smoke(
        arenas=32,
        rollout_steps=64,
        updates=60,
        epochs=4,
        minibatches=4,
        initial_log_std=-0.7,  # one learns to walk sooner with it, and to aim later
        opponent="random",
    )
    env = Echelon(env_config)
    worlds = env.make_bank(generate_worlds(env_config, range(4)))
    params = env.params(worlds, rewards=reward_weights(config, env_config))
    train = make_train(AutoReset(env), config)
    state, metrics = train.init(jax.random.key(0), params), []
    after: dict = {}
    for _ in range(UPDATES):
        state, m = train.run_updates(state, params)
        metrics.append(jax.tree.map(np.asarray, m))
        after = summarize(metrics[-RECENT:], env_config.team_size)
        if after["in_zone"] > 0.15 and (after["win_rate"] or 0) > 0.85 and after["zone_share"] > 0.8:
            break  # learnt
    before = summarize(metrics[:3], env_config.team_size)
    assert before["in_zone"] < 0.1 and after["in_zone"] > 0.15
    assert after["win_rate"] > 0.85 and after["zone_share"] > 0.8
    assert train.run_updates._cache_size() == 1  # nothing compiled after the first update
