"""The game as Gymnasium environments: one team against a chosen opponent, in one arena or in many.

    import echelon_jax.compat.gymnasium  # registers the names

    env = gymnasium.make("Echelon-v1", opponent="scripted:easy")
    envs = gymnasium.make_vec("Echelon-v1", num_envs=64, opponent="scripted:easy")

An observation holds one row per mech of the team, an action too. The reward is the mean over the team; infos hold the reward of
each mech, and which mechs live. Needs the extra `gymnasium`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from echelon_jax import compiling
from echelon_jax.compat import pictures
from echelon_jax.compat.choices import action_table
from echelon_jax.compat.team import TeamGame, TeamStep, make_team_game
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.state import REASONS, WINNERS
from echelon_jax.fields import Allowed, check_seed

RENDER_MODES = ("ansi", "rgb_array")


def team_spaces(game: TeamGame) -> tuple[spaces.Box, spaces.Space]:
    """Return the spaces of a team's observation, float32 [played, obs], and of its action, [played, components] or [played]."""
    config, played = game.config, len(game.agents)

    def rows(bounds: tuple[np.ndarray, np.ndarray]) -> spaces.Box:
        low, high = (np.tile(bound, (played, 1)) for bound in bounds)
        return spaces.Box(low, high, dtype=np.float32)

    observation = rows(observation_layout(config).bounds)
    if game.discrete:
        return observation, spaces.MultiDiscrete([len(action_table(config))] * played)
    return observation, rows(action_layout(config).bounds)


@lru_cache(maxsize=8)
def _compiled(game: TeamGame, batched: bool) -> tuple[Any, Any]:
    """Reset and step, compiled once for all environments of a game."""
    reset, step = (game.reset_batch, game.step_batch) if batched else (game.reset, game.step)
    options = compiling.for_long_runs()
    return jax.jit(reset, compiler_options=options), jax.jit(step, compiler_options=options)


class EchelonTeam(gymnasium.Env):
    """One team of one arena.

    An episode is `terminated` when the zone or elimination decides it, `truncated` when its time is up. The info of its last
    step holds `reason` and `winner`.

    Args:
        game, params: as `team.make_team_game` returns them, without automatic reset.
        render_mode: `rgb_array` (an image), `ansi` (text) or None.

    Raises:
        ValueError: an unknown render mode.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(RENDER_MODES), "render_fps": 4}

    def __init__(self, game: TeamGame, params: TeamParams, render_mode: str | None = None) -> None:
        self.game, self.params, self.render_mode = game, params, _known_mode(render_mode)
        self.observation_space, self.action_space = team_spaces(self.game)
        self._reset, self._step = _compiled(self.game, False)
        self._state: Any = None
        self._key: Any = None
        self._count = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode; the seed gives the world and every draw, and without one the next is drawn."""
        super().reset(seed=None if seed is None else check_seed(seed))
        self._key, self._count = jax.random.key(int(self.np_random.integers(2**32))), 0
        self._state, step = self._reset(self._key, self.params)
        return np.array(step.observation), _mech_info(step)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Advance by one decision."""
        if self._state is None:
            raise RuntimeError("reset must be called before step")
        self._count += 1
        key = jax.random.fold_in(self._key, self._count)
        self._state, step = self._step(key, self._state, _checked(self.action_space, action), self.params)
        info: dict[str, Any] = dict(_mech_info(step))
        if step.episode_over:
            info |= {"reason": REASONS[int(step.info.reason)], "winner": WINNERS[int(step.info.winner)]}
        observation = np.array(step.final_observation)  # an environment that resets itself would show the next episode
        return observation, float(step.reward.mean()), bool(step.decided), bool(step.time_up), info

    def render(self) -> Any:
        """Return an image, uint8 [height, width, 3], or a text, as `render_mode` says."""
        if self._state is None:
            raise RuntimeError("reset must be called before render")
        frame = pictures.frame_of_state(self.game.config, self._state.env)
        draw = {"rgb_array": pictures.image, "ansi": pictures.text}.get(self.render_mode or "")
        return None if draw is None else draw(self.game.config, frame)


class EchelonTeams(VectorEnv):
    """One team in many arenas, which share one compiled program.

    An arena whose episode ends begins the next one in the same step (`AutoresetMode.SAME_STEP`). Then `infos["final_obs"]` holds
    the last observation of the old episode, and `infos["final_info"]` its reason and winner, where `infos["_final_obs"]` is true.

    Args:
        game, params: as `team.make_team_game` returns them, with automatic reset.
        num_envs: arenas.
        render_mode: `rgb_array` (an image of each arena), `ansi` (a text of each) or None.

    Raises:
        ValueError: an unknown render mode, or fewer than one arena.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": list(RENDER_MODES),
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, game: TeamGame, params: TeamParams, num_envs: int, render_mode: str | None = None) -> None:
        allowed = Allowed(int, low=1)
        if not allowed.holds(num_envs):
            raise ValueError(f"num_envs must be {allowed.words()}, got {num_envs!r}")
        self.game, self.params, self.num_envs = game, params, num_envs
        self.render_mode = _known_mode(render_mode)
        self.single_observation_space, self.single_action_space = team_spaces(self.game)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._reset, self._step = _compiled(self.game, True)
        self._state: Any = None
        self._key: Any = None
        self._count = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode in every arena; the seed gives all worlds and draws, and without one the next is drawn."""
        super().reset(seed=None if seed is None else check_seed(seed))
        self._key, self._count = jax.random.key(int(self.np_random.integers(2**32))), 0
        self._state, step = self._reset(self._keys(), self.params)
        return np.array(step.observation), self._infos(step)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Advance every arena by one decision."""
        if self._state is None:
            raise RuntimeError("reset must be called before step")
        actions = _checked(self.action_space, actions)
        self._state, step = self._step(self._keys(), self._state, actions, self.params)
        return (
            np.array(step.observation),
            np.array(step.reward.mean(-1), np.float64),
            np.array(step.decided),
            np.array(step.time_up),
            self._infos(step),
        )

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture or a text of every arena, as `render_mode` says."""
        if self._state is None:
            raise RuntimeError("reset must be called before render")
        draw = {"rgb_array": pictures.image, "ansi": pictures.text}.get(self.render_mode or "")
        if draw is None:
            return None
        config, state = self.game.config, jax.tree.map(np.asarray, self._state.env)
        arenas = [jax.tree.map(lambda leaf, i=i: leaf[i], state) for i in range(self.num_envs)]
        return tuple(draw(config, pictures.frame_of_state(config, arena)) for arena in arenas)

    def close_extras(self, **kwargs: Any) -> None:
        """Do nothing: there is no window and no process."""

    def _keys(self) -> jax.Array:
        self._count += 1
        return jax.random.split(jax.random.fold_in(self._key, self._count), self.num_envs)

    def _infos(self, step: TeamStep) -> dict[str, Any]:
        """Gymnasium's form: every array has a mask of the arenas for which it holds."""
        over = np.asarray(step.episode_over)
        now = _mech_info(step)
        now["alive"] = now["alive"] | over[:, None]  # everybody lives in the episode that has just begun
        infos: dict[str, Any] = {}
        for name, values in now.items():
            infos |= {name: values, f"_{name}": np.ones(self.num_envs, bool)}
        if not over.any():
            return infos
        ended: dict[str, np.ndarray] = {}
        for name in ("final_obs", "reason", "winner"):
            ended[name] = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(over):
            ended["final_obs"][i] = np.array(step.final_observation[i])
            ended["reason"][i] = REASONS[int(step.info.reason[i])]
            ended["winner"][i] = WINNERS[int(step.info.winner[i])]
        last = {"reason": ended["reason"], "winner": ended["winner"]}
        last |= {
            name: np.where(over[:, None], values, 0).astype(values.dtype) for name, values in _mech_info(step).items()
        }
        last |= {f"_{name}": over.copy() for name in tuple(last)}
        infos |= {"final_obs": ended["final_obs"], "_final_obs": over.copy()}
        infos |= {"final_info": last, "_final_info": over.copy()}
        return infos


def _mech_info(step: TeamStep) -> dict[str, np.ndarray]:
    return {"mech_reward": np.array(step.reward), "alive": np.array(step.alive)}


def _checked(space: spaces.Space, action: Any) -> np.ndarray:
    """Refuse an action of another shape; JAX would broadcast it or clamp the number of a choice."""
    if np.shape(action) != space.shape:
        raise ValueError(f"action must have shape {space.shape}, got {np.shape(action)}")
    if np.issubdtype(space.dtype, np.integer):  # a batch of MultiDiscrete is a Box of whole numbers
        choices, last = np.asarray(action), int(_last_choice(space).max())
        if not np.issubdtype(choices.dtype, np.integer) or (choices < 0).any() or (choices > _last_choice(space)).any():
            raise ValueError(f"action must hold whole numbers from 0 to {last}, got {action!r}")
        return choices.astype(np.int32)
    return np.asarray(action, np.float32)


def _last_choice(space: Any) -> np.ndarray:
    return space.nvec - 1 if isinstance(space, spaces.MultiDiscrete) else space.high


def _known_mode(render_mode: str | None) -> str | None:
    if render_mode not in (None, *RENDER_MODES):
        raise ValueError(f"render_mode must be one of {', '.join(RENDER_MODES)} or None, got {render_mode!r}")
    return render_mode


def make(name: str = "Echelon-v1", render_mode: str | None = None, **options: Any) -> EchelonTeam:
    """Return one team of one arena.

    Args:
        name: an environment of `echelon_jax.make`.
        render_mode: as for `EchelonTeam`.
        options: `opponent`, `side`, `discrete`, `worlds`, `seed`, `rules`, and fields of EnvConfig.

    Raises:
        ValueError: a name, an option or an opponent that is not allowed.
    """
    return EchelonTeam(*make_team_game(name, auto_reset=False, **options), render_mode)


def make_vec(
    name: str = "Echelon-v1", num_envs: int = 8, render_mode: str | None = None, **options: Any
) -> EchelonTeams:
    """Return one team in many arenas; arguments as for `make`, besides the number of arenas."""
    return EchelonTeams(*make_team_game(name, auto_reset=True, **options), num_envs, render_mode)


def register() -> None:
    """Make the versions known to `gymnasium.make` and `gymnasium.make_vec`; importing this module calls it."""
    for version, identity in (("Echelon-v1", "Echelon-v1"), ("Echelon-original", "EchelonOriginal-v1")):
        if identity not in gymnasium.registry:
            gymnasium.register(
                identity,
                entry_point="echelon_jax.compat.gymnasium:make",
                vector_entry_point="echelon_jax.compat.gymnasium:make_vec",
                kwargs={"name": version},
            )


register()
