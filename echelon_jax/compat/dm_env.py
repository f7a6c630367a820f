"""The game as a `dm_env.Environment`: one team of one arena against a chosen opponent. Needs the extra `dm-env`.

    env = make("Echelon-v1", opponent="scripted:easy")
    timestep = env.reset()
    while not timestep.last():
        timestep = env.step(action)  # [mechs, components]

A game that is decided ends with discount 0, one whose time is up with discount 1.
"""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from gymnasium import spaces

from echelon_jax.compat.gymnasium import EchelonTeam
from echelon_jax.compat.gymnasium import make as make_gymnasium


class EchelonDM(dm_env.Environment):
    """One team of one arena; a reward is the mean over the team.

    Args:
        env: the same as a Gymnasium environment.
        seed: of the first episode; those after it are drawn from it. None: from the system.
    """

    def __init__(self, env: EchelonTeam, seed: int | None = None) -> None:
        self._env, self._next_seed, self._running = env, seed, False

    def reset(self) -> dm_env.TimeStep:
        """Begin an episode."""
        observation, _ = self._env.reset(seed=self._next_seed)
        self._next_seed, self._running = None, True
        return dm_env.restart(observation)

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        """Advance by one decision; after the end of an episode begin the next one, whatever the action."""
        if not self._running:
            return self.reset()
        observation, reward, decided, time_up, _ = self._env.step(action)
        self._running = not (decided or time_up)
        if decided:
            return dm_env.termination(reward, observation)
        return dm_env.truncation(reward, observation) if time_up else dm_env.transition(reward, observation)

    def observation_spec(self) -> specs.BoundedArray:
        """Spec of the team's observation."""
        return _spec(self._env.observation_space, "observation")

    def action_spec(self) -> specs.BoundedArray:
        """Spec of the team's action."""
        return _spec(self._env.action_space, "action")


def _spec(space: spaces.Space, name: str) -> specs.BoundedArray:
    if isinstance(space, spaces.MultiDiscrete):
        return specs.BoundedArray(space.shape, np.int32, 0, space.nvec - 1, name)
    return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name)


def make(name: str = "Echelon-v1", episode_seed: int | None = None, **options: Any) -> EchelonDM:
    """Return the environment of a name.

    Args:
        name: an environment of `echelon_jax.make`.
        episode_seed: the `seed` of `EchelonDM`.
        options: `opponent`, `side`, `discrete`, `worlds`, `seed`, `rules`, and fields of EnvConfig.

    Raises:
        ValueError: a name, an option or an opponent that is not allowed.
    """
    return EchelonDM(make_gymnasium(name, **options), episode_seed)
