"""The game as a PettingZoo parallel environment: one agent for every mech of both teams.

    env = parallel_env("Echelon-v1")
    observations, infos = env.reset(seed=0)
    while env.agents:
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        observations, rewards, terminations, truncations, infos = env.step(actions)

An agent leaves `agents` with the step in which its mech dies, or with the last step of the episode. Needs the extra `pettingzoo`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from echelon_jax.compat import pictures
from echelon_jax.compat.choices import action_table
from echelon_jax.compat.engines import Engine, Turn, make_engine
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.layout import Layout
from echelon_jax.fields import check_seed
from echelon_jax.rules.mechs import roster

RENDER_MODES = ("human", "ansi", "rgb_array")


def box(layout: Layout, copies: tuple[int, ...] = ()) -> spaces.Box:
    """Return the gymnasium space of one vector of a layout, or of an array of such vectors."""
    low, high = (np.broadcast_to(bound, (*copies, layout.size)) for bound in layout.bounds)
    return spaces.Box(np.array(low), np.array(high), dtype=np.float32)


class EchelonParallel(ParallelEnv):
    """The game for all mechs of one arena.

    Attributes:
        possible_agents: names in roster order: blue_0, blue_1, ..., then red_0, ...
        agents: those whose mechs live, while the episode runs.

    Args:
        engine: what plays the game (`engines.JaxEngine` or `engines.ReferenceEngine`).
        render_mode: `rgb_array` (an image), `ansi` (text), `human` (prints that text) or None.
        discrete: an action is the number of a row of `choices.action_table`.

    Raises:
        ValueError: an unknown render mode.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "echelon_v1",
        "render_modes": list(RENDER_MODES),
        "is_parallelizable": True,
        "render_fps": 4,
    }

    def __init__(self, engine: Engine, render_mode: str | None = None, discrete: bool = False) -> None:
        if render_mode not in (None, *RENDER_MODES):
            raise ValueError(f"render_mode must be one of {', '.join(RENDER_MODES)} or None, got {render_mode!r}")
        self.engine, self.render_mode, self.discrete = engine, render_mode, discrete
        config = engine.config
        self.possible_agents = list(roster(config.num_packs).ids)
        self.agents: list[str] = []
        seen, acted = observation_layout(config), action_layout(config)
        n = len(self.possible_agents)
        self.observation_spaces = {agent: box(seen) for agent in self.possible_agents}
        self.action_spaces = {
            agent: spaces.Discrete(len(action_table(config))) if discrete else box(acted)
            for agent in self.possible_agents
        }
        low, high = (np.tile(bound, n) for bound in seen.bounds)
        self.state_space = spaces.Box(low, high, dtype=np.float32)
        self._row = {agent: i for i, agent in enumerate(self.possible_agents)}
        self._action_size = acted.size
        self._seeds = np.random.default_rng()
        self._last: Turn | None = None

    def observation_space(self, agent: str) -> spaces.Space:
        """Return the space of an agent's observation, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """Return the space of an agent's action, always the same object."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Begin an episode; return observations and infos of all agents.

        Args:
            seed: of this episode and, for as long as no other is given, of those after it; None draws the next one.
            options: not used.

        Raises:
            ValueError: seed is not a whole number from 0 to 2^32 - 1.
        """
        if seed is None:
            episode = int(self._seeds.integers(2**31))
        else:
            episode = check_seed(seed)
            self._seeds = np.random.default_rng(episode)
        self._last = self.engine.reset(episode)
        self.agents = list(self.possible_agents)
        return self._observations(self._last), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Advance by one decision with the actions of all living agents.

        Returns:
            Observations, rewards, terminations, truncations and infos of the agents that acted. In the last step of an episode
            infos hold its `reason` and `winner`.

        Raises:
            ValueError: an action is missing, is of another shape, or is of an agent that is not there (any more).
            RuntimeError: no episode is running.
        """
        if not self.agents:
            raise RuntimeError("reset must be called before step: no episode is running")
        missing, unknown = set(self.agents) - set(actions), set(actions) - set(self.agents)
        if missing or unknown:
            raise ValueError(
                "actions must hold one action for each of env.agents; "
                f"missing: {', '.join(sorted(missing)) or 'none'}; not there: {', '.join(sorted(unknown)) or 'none'}"
            )
        rows = np.zeros((len(self.possible_agents), self._action_size), np.float32)
        for agent, action in actions.items():
            rows[self._row[agent]] = self._row_of(agent, action)
        turn = self._last = self.engine.step(rows)
        observations = self._observations(turn)
        told: tuple[dict, dict, dict] = {}, {}, {}
        for agent in self.agents:
            i = self._row[agent]
            for values, value in zip(told, (turn.reward[i], turn.terminated[i], turn.truncated[i]), strict=True):
                values[agent] = value.item()
        rewards, terminations, truncations = told
        infos: dict[str, dict] = {agent: dict(turn.outcome) for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return observations, rewards, terminations, truncations, infos

    def state(self) -> np.ndarray:
        """Return the observations of all mechs in roster order as one vector, float32; zeros for the dead.

        Raises:
            RuntimeError: before the first reset.
        """
        return self._shown().observation.reshape(-1)

    def render(self) -> np.ndarray | str | None:
        """Return an image, uint8 [height, width, 3], or a text, as `render_mode` says; `human` prints the text.

        Raises:
            RuntimeError: before the first reset.
        """
        self._shown()
        if self.render_mode is None:
            return None
        frame, config = self.engine.frame(), self.engine.config
        if self.render_mode == "rgb_array":
            return pictures.image(config, frame)
        shown = pictures.text(config, frame)
        if self.render_mode == "ansi":
            return shown
        print(shown)
        return None

    def close(self) -> None:
        """Do nothing: there is no window and no process."""

    def _shown(self) -> Turn:
        if self._last is None:
            raise RuntimeError("reset must be called first: there is no episode yet")
        return self._last

    def _observations(self, turn: Turn) -> dict[str, np.ndarray]:
        return {agent: turn.observation[self._row[agent]].copy() for agent in self.agents}

    def _row_of(self, agent: str, action: Any) -> np.ndarray:
        if self.discrete:
            if not self.action_spaces[agent].contains(action):
                raise ValueError(
                    f"actions must be whole numbers from 0 to {len(action_table(self.engine.config)) - 1},"
                    f" got {action!r} for {agent}"
                )
            return action_table(self.engine.config)[int(action)]
        if np.shape(action) != (self._action_size,):
            raise ValueError(f"actions must have shape ({self._action_size},), got {np.shape(action)} for {agent}")
        return np.asarray(action, np.float32)


def parallel_env(
    name: str = "Echelon-v1",
    *,
    engine: str = "jax",
    render_mode: str | None = None,
    discrete: bool = False,
    **options: Any,
) -> EchelonParallel:
    """Return the PettingZoo environment of a name.

    Args:
        name: an environment of `echelon_jax.make`.
        engine: `jax`, the compiled simulator, or `reference`, the plain numpy game for which JAX computes nothing.
        render_mode, discrete: as for `EchelonParallel`.
        options: those of `echelon_jax.make`; the reference takes `rules` and fields of EnvConfig only.

    Raises:
        ValueError: a name or an option that is not allowed.
    """
    return EchelonParallel(make_engine(name, engine, **options), render_mode, discrete)
