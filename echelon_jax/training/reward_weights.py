"""The reward weights of a run: the defaults of its game, with the weights that its configuration names in their place."""

from __future__ import annotations

import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.env.modern.rewards import check_gamma, check_result, modern_rewards
from echelon_jax.env.original.rewards import original_rewards
from echelon_jax.env.state import ModernRewardWeights, RewardWeights
from echelon_jax.training.config import REWARD_WEIGHTS, TrainConfig


def reward_weights(config: TrainConfig, env_config: EnvConfig) -> RewardWeights | ModernRewardWeights:
    """Return the weights that a run pays by; the modern shaping is discounted as PPO discounts.

    Raises:
        ValueError: a weight that the reward does not have, or a result so small that farming pays more (rewards_modern).
    """
    given = {name: getattr(config, f"reward_{name}") for name in REWARD_WEIGHTS}
    changed = {name: jnp.float32(value) for name, value in given.items() if value is not None}
    if env_config.reward == "modern":
        weights: ModernRewardWeights = modern_rewards(env_config, config.gamma).replace(**changed)  # type: ignore[attr-defined]
        check_gamma(weights, config.gamma)
        check_result(env_config, weights)
        return weights
    base = original_rewards()
    for name in changed:
        if not hasattr(base, name):
            raise ValueError(f"reward_{name} must be left out with the original reward, which has no {name} weight")
    return base.replace(**changed)  # type: ignore[attr-defined]
