"""The reward weights of a run: the defaults of its game, replaced by those that the configuration names."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.env.beginning import Maps, fresh_state
from echelon_jax.env.interfaces import observation_of, reward_of
from echelon_jax.env.layout import CONTACTS
from echelon_jax.env.reward_terms import term_rewards
from echelon_jax.env.state import EnvState
from echelon_jax.sim.rules import sim_rules
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.curriculum import REWARD_WEIGHTS, parse, values_at


def reward_weights(config: TrainConfig, env_config: EnvConfig) -> Any:
    """Return the weights that a run pays by; a shaping is discounted as PPO discounts.

    Raises:
        ValueError: a weight that the reward does not have, one that breaks a bound of it (`check_weights`), or a term of
            `env_config.reward_terms` that cannot be found or cannot be traced.
    """
    if env_config.reward_terms:
        trace_terms(env_config)
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


def weights_with(config: TrainConfig, env_config: EnvConfig, values: dict[str, float]) -> Any:
    """Return the weights of a run where its curriculum has set `values` (training/curriculum.py:values_at).

    Raises:
        ValueError: as `reward_weights`.
    """
    changed: dict[str, Any] = {name: value for name, value in values.items() if name != "fire"}
    return reward_weights(dataclasses.replace(config, **changed), env_config)


def check_curriculum(config: TrainConfig, env_config: EnvConfig) -> None:
    """Refuse a curriculum whose weights the game's reward does not have or does not allow together.

    Raises:
        ValueError: one sentence that names the stage.
    """
    stages = parse(config.curriculum)
    for stage in stages:
        try:
            weights_with(config, env_config, values_at(stages, stage.update))
        except ValueError as error:
            raise ValueError(f"curriculum must fit the game's reward from update {stage.update} on: {error}") from error


def preset_for(name: str, env_config: EnvConfig, **overrides: Any) -> TrainConfig:
    """Return a preset for a game, without its curriculum where that does not fit the game or the overrides.

    It does not fit if it changes a weight that the game's reward does not have, or one that the overrides set.

    Raises:
        ValueError: there is no preset of that name.
    """
    config = TrainConfig.preset(name, **overrides)
    has = {f"reward_{field.name}" for field in dataclasses.fields(reward_of(env_config).weights_type)}
    if "curriculum" in overrides:
        return config
    changed = {number for stage in parse(config.curriculum) for number in stage.values} - {"fire"}
    return config if changed <= has - set(overrides) else dataclasses.replace(config, curriculum="")


def trace_terms(env_config: EnvConfig) -> None:
    """Run every reward term on shapes alone, so that a mistake in one is reported before anything is compiled.

    Raises:
        ValueError: a term fails, or its result is not [arenas, mechs].
    """
    c, worlds = env_config, 2

    def shape(dtype: Any, *rest: int) -> Any:
        return jax.ShapeDtypeStruct((worlds, *rest), dtype)

    voxels, columns, n = c.size_x * c.size_y * c.size_z, c.size_x * c.size_y, c.num_mechs
    words, octets = (shape(jnp.uint32, columns) for _ in range(2)), (shape(jnp.uint8, k) for k in (columns, 256))
    maps = Maps(shape(jnp.uint8, voxels), shape(jnp.int16, voxels), *words, *octets)
    rest = shape(jnp.float32, 3), shape(jnp.float32, n, 3), shape(jnp.float32, n), shape(jnp.int32)

    def paid(maps: Maps, *rest: Any) -> Any:
        state: EnvState = fresh_state(c, sim_rules(c), maps, *rest)
        return term_rewards(c, None, state, state, state.sim.tally)

    try:
        known = shape(bool, n, n) if observation_of(c).remembers_sightings(c) else None
        jax.eval_shape(paid, maps, *rest, shape(jnp.int32, n, CONTACTS), known)
    except (TypeError, AttributeError, LookupError) as error:
        raise ValueError(
            f"reward_terms must hold functions of (before, after, tally), and one fails: {error}"
        ) from error
