"""The reward weights of a run: the defaults of its game, replaced by those that the configuration names."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import reward_of
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.curriculum import REWARD_WEIGHTS


def reward_weights(config: TrainConfig, env_config: EnvConfig) -> Any:
    """Return the weights that a run pays by; a shaping is discounted as PPO discounts.

    Raises:
        ValueError: a weight that the reward does not have, or one that breaks a bound of it (`check_weights`).
    """
    reward = reward_of(env_config)
    weights = reward.default_weights(env_config, config.gamma)
    given = {name: getattr(config, f"reward_{name}") for name in REWARD_WEIGHTS}
    changed = {name: jnp.float32(value) for name, value in given.items() if value is not None}
    for name in changed:
        if not hasattr(weights, name):
            raise ValueError(
                f"reward_{name} must be left out with the {env_config.reward} reward, which has no {name} weight"
            )
    weights = weights.replace(**changed)
    reward.check_weights(env_config, weights, config.gamma)
    return weights
