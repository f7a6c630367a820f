"""A trained policy in memory: the network with its numbers, and `act`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.policies.acting import compiled_decide
from echelon_jax.policies.network import Network, Params
from echelon_jax.policies.normalize import Moments
from echelon_jax.training.config import TrainConfig


@dataclasses.dataclass(frozen=True)
class Policy:
    """A policy that can play: a network with its parameters and normaliser, and the configurations of its training.

    Example:
        >>> policy = echelon_jax.load_policy("runs/cpu-40-seed0")
        >>> env, params = echelon_jax.make("5v5-40", auto_reset=False)
        >>> state, step = env.reset(jax.random.key(0), params)
        >>> action, carry, value = policy.act(step.observation, deterministic=True)
        >>> state, step = env.step(jax.random.key(1), state, action, params)
        >>> action, carry, value = policy.act(step.observation, carry, deterministic=True)
    """

    network: Network
    params: Params
    observation_moments: Moments
    config: TrainConfig
    env_config: EnvConfig
    update: int
    extra: dict[str, Any]

    def act(
        self,
        observation: Float32[Array, "*arenas mechs obs"] | np.ndarray,
        carry: Any = None,
        reset: Bool[Array, "*arenas mechs"] | np.ndarray | None = None,
        key: Key[Array, ""] | None = None,
        deterministic: bool = False,
    ) -> tuple[Float32[Array, "*arenas mechs actions"], Any, Float32[Array, "*arenas mechs"]]:
        """Return (action, carry, value) for raw observations.

        Args:
            observation: [mechs, obs] or [arenas, mechs, obs] as the environment gives them, of the mechs of one side or of all
                mechs. With all mechs each side acts for itself: neither sees what the other sees or remembers.
            carry: what the last call returned; None at the start of an episode.
            reset: where an episode begins with this observation: the memory starts empty there. None for nowhere.
            key: of the draw of the actions.
            deterministic: take the most likely action instead of a drawn one.

        Returns:
            The actions in [-1, 1]; the memory for the next call, to be handed back as it is; the critic's value, in units of the
            standard deviation of the returns in training.

        Raises:
            ValueError: an observation or reset of another shape, or neither `key` nor `deterministic`.
        """
        seen = jnp.asarray(observation, jnp.float32)
        sides = self._sides(seen.shape)
        if key is None and not deterministic:
            raise ValueError("act must be given a key, or deterministic=True")
        begins = jnp.zeros(seen.shape[:-1], bool) if reset is None else jnp.asarray(reset, bool)
        if begins.shape != seen.shape[:-1]:
            raise ValueError(
                f"reset must be {list(seen.shape[:-1])} as the observation's mechs, got {list(begins.shape)}"
            )
        rows = seen.reshape(-1, self.env_config.team_size, seen.shape[-1])  # one row per side of an arena
        memory = self.network.initial_carry(*rows.shape[:2]) if carry is None else carry
        if jax.tree.leaves(memory)[0].shape[0] != rows.shape[0]:
            raise ValueError(
                f"carry must be of {rows.shape[0] // sides} arenas with {sides} sides each, as the observation is"
            )
        action, memory, value = compiled_decide(
            self.network,
            self.config.observation_clip or None,
            deterministic,
            self.params,
            self.observation_moments,
            memory,
            rows,
            begins.reshape(rows.shape[:2]),
            None if deterministic else key,
        )
        return action.reshape(*seen.shape[:-1], -1), memory, value.reshape(seen.shape[:-1])

    def _sides(self, shape: tuple[int, ...]) -> int:
        """How many sides an observation of this shape shows."""
        team, entries = self.env_config.team_size, observation_layout(self.env_config).size
        if len(shape) not in (2, 3) or shape[-1] != entries or shape[-2] not in (team, 2 * team):
            raise ValueError(
                f"observation must be [mechs, {entries}] or [arenas, mechs, {entries}] with {team} or {2 * team} mechs, "
                f"got {list(shape)}"
            )
        return shape[-2] // team
