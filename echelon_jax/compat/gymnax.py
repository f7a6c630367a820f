"""The functional interface of gymnax (1.0) for one team against a chosen opponent; needs nothing besides JAX.

    env, params = make("Echelon-v1")
    observation, state = env.reset(key, params)
    observation, state, reward, terminated, truncated, info = env.step(key, state, action, params)

`jax.vmap` over keys, states and actions runs the program of a batch. A step that ends an episode begins the next one;
`info["final_observation"]` is what the ended one last showed.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.compat.batching import one_of_many
from echelon_jax.compat.choices import action_table
from echelon_jax.compat.team import TeamGame, TeamParams, TeamState, make_team_game
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.layout import Layout
from echelon_jax.env.spaces import Box


@dataclasses.dataclass(frozen=True)
class Discrete:
    """Whole numbers from 0 to n - 1, one for each mech of the team.

    Attributes:
        n: how many choices a mech has.
        shape: (mechs of the team,).
    """

    n: int
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """Type of its numbers."""
        return np.dtype(np.int32)

    def sample(self, key: Key[Array, ""]) -> Array:
        """Draw choices, uniformly."""
        return jax.random.randint(key, self.shape, 0, self.n)

    def contains(self, x: Array | np.ndarray) -> bool:
        """Return whether every number is a choice; never inside a jit."""
        x = np.asarray(x)
        return x.shape == self.shape and np.issubdtype(x.dtype, np.integer) and bool(((x >= 0) & (x < self.n)).all())


def _team_box(layout: Layout, played: int) -> Box:
    low, high = layout.bounds
    return Box(np.tile(low, (played, 1)), np.tile(high, (played, 1)))


@dataclasses.dataclass(frozen=True)
class EchelonGymnax:
    """One team of the game with gymnax's functions; frozen and hashable.

    Attributes:
        game: the team's game, with automatic reset.
        per_mech: the reward is that of each mech, [played], instead of the mean over the team.
    """

    game: TeamGame
    per_mech: bool = False

    @property
    def name(self) -> str:
        """A name for logs."""
        return "Echelon"

    def observation_space(self, params: TeamParams | None = None) -> Box:
        """Space of the team's observation, float32 [played, obs]."""
        return _team_box(observation_layout(self.game.config), len(self.game.agents))

    def action_space(self, params: TeamParams | None = None) -> Box | Discrete:
        """Space of the team's action: float32 [played, components], or int32 [played] with `discrete`."""
        played = len(self.game.agents)
        if self.game.discrete:
            return Discrete(len(action_table(self.game.config)), (played,))
        return _team_box(action_layout(self.game.config), played)

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: Key[Array, ""], params: TeamParams) -> tuple[Float32[Array, "played obs"], TeamState]:
        """Begin an episode."""
        state, step = one_of_many(lambda keys, p: self.game.reset_batch(keys, p))(key, params)
        return step.observation, state

    @partial(jax.jit, static_argnums=0)
    def step(
        self, key: Key[Array, ""], state: TeamState, action: Array, params: TeamParams
    ) -> tuple[Array, TeamState, Array, Bool[Array, ""], Bool[Array, ""], dict[str, Any]]:
        """Return (observation, state, reward, terminated, truncated, info) after a decision.

        Terminated: the game was decided. Truncated: time is up. The info holds `final_observation`, and `alive`, `mech_reward`
        and `won`.
        """

        def batched(arenas: Any, p: TeamParams) -> Any:
            keys, states, actions = arenas
            return self.game.step_batch(keys, states, actions, p)

        state, step = one_of_many(batched)((key, state, action), params)
        info = {
            "final_observation": step.final_observation,
            "alive": step.alive,
            "mech_reward": step.reward,
            "won": step.won,
        }
        reward = step.reward if self.per_mech else step.reward.mean(-1)
        return step.observation, state, reward, step.decided, step.time_up, info


def make(name: str = "Echelon-v1", per_mech: bool = False, **options: Any) -> tuple[EchelonGymnax, TeamParams]:
    """Return the environment of a name and its parameters.

    Args:
        name: an environment of `echelon_jax.make`.
        per_mech: as for `EchelonGymnax`.
        options: `opponent`, `side`, `discrete`, `worlds`, `seed`, `rules`, and fields of EnvConfig.

    Raises:
        ValueError: a name, an option or an opponent that is not allowed.
    """
    game, params = make_team_game(name, **options)
    return EchelonGymnax(game, per_mech), params
