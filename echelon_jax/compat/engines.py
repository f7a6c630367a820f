"""What plays a game of one arena on the host: the compiled simulator, or the numpy reference without JAX.

Both give numpy arrays and the same flags, so that one PettingZoo class serves both.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from echelon_jax.api import environment_config, make
from echelon_jax.config import INTERFACE_FIELDS, INTERFACES, EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.state import REASONS, WINNERS, EnvParams
from echelon_jax.evaluation.recording import Frame
from echelon_jax.reference.environment import ReferenceEnv
from echelon_jax.reference.environment import Step as ReferenceStep


class Turn(NamedTuple):
    """The result of a reset or of a decision, numpy.

    Attributes:
        observation: float32 [mechs, obs].
        reward: float64 [mechs].
        terminated, truncated: bool [mechs]; never both.
        over: whether the episode has ended.
        outcome: its reason and winner, by these names; empty while it runs.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    over: bool
    outcome: dict[str, str]


class Engine(Protocol):
    """One arena that begins an episode from a seed and advances by a decision. It never resets by itself."""

    config: EnvConfig

    def reset(self, seed: int) -> Turn:
        """Begin the episode of a seed, a whole number from 0."""
        ...

    def step(self, actions: np.ndarray) -> Turn:
        """Advance by one decision with the actions of all mechs, float32 [mechs, components]."""
        ...

    def frame(self) -> Frame:
        """Return what a picture needs."""
        ...


@lru_cache(maxsize=8)
def _compiled(env: Echelon) -> tuple[Any, Any]:
    """Reset and step of one arena, compiled once for all engines of an environment."""
    import jax

    from echelon_jax import compiling

    options = compiling.for_long_runs()
    return jax.jit(env.reset, compiler_options=options), jax.jit(env.step, compiler_options=options)


class JaxEngine:
    """The compiled simulator. Worlds are drawn from the bank of the parameters; a seed gives the world and every draw."""

    def __init__(self, env: Echelon, params: EnvParams) -> None:
        self.env, self.params, self.config = env, params, env.config
        self._reset, self._step = _compiled(env)
        self._state: Any = None
        self._key: Any = None
        self._count = 0

    def reset(self, seed: int) -> Turn:
        """Begin the episode of a seed."""
        import jax

        self._key, self._count = jax.random.key(seed), 0
        self._state, step = self._reset(self._key, self.params)
        return self._turn(step)

    def step(self, actions: np.ndarray) -> Turn:
        """Advance by one decision."""
        import jax

        if self._state is None:
            raise RuntimeError("reset must be called before step")
        self._count += 1  # the key itself has drawn the world
        key = jax.random.fold_in(self._key, self._count)
        self._state, step = self._step(key, self._state, np.asarray(actions, np.float32), self.params)
        return self._turn(step)

    def frame(self) -> Frame:
        """Return what a picture needs."""
        from echelon_jax.compat.pictures import frame_of_state

        return frame_of_state(self.config, self._state)

    def _turn(self, step: Any) -> Turn:
        over = bool(step.episode_over)
        reason, winner = int(step.info.reason), int(step.info.winner)
        return Turn(
            np.array(step.observation),
            np.array(step.reward, np.float64),
            np.array(step.terminated),
            np.array(step.truncated),
            over,
            {"reason": REASONS[reason], "winner": WINNERS[winner]} if over else {},
        )


class ReferenceEngine:
    """The numpy reference. A seed is the episode seed: it gives the map and every draw, as in the original."""

    def __init__(self, config: EnvConfig) -> None:
        for name in INTERFACE_FIELDS:
            if getattr(config, name) not in INTERFACES:
                raise ValueError(
                    f"{name} must be one of {', '.join(INTERFACES)} for the reference, got {getattr(config, name)!r}"
                )
        if config.reward_terms:
            raise ValueError("reward_terms must be empty for the reference, which does not know them")
        self.config, self._env = config, ReferenceEnv(config)

    def reset(self, seed: int) -> Turn:
        """Begin the episode of a seed."""
        return self._turn(self._env.reset(seed))

    def step(self, actions: np.ndarray) -> Turn:
        """Advance by one decision."""
        return self._turn(self._env.step(actions))

    def frame(self) -> Frame:
        """Return what a picture needs."""
        from echelon_jax.compat.pictures import frame_of_reference

        return frame_of_reference(self.config, self._env.arena)

    def _turn(self, step: ReferenceStep) -> Turn:
        outcome = step.info["outcome"]
        return Turn(
            np.array(step.observation, np.float32),
            np.array(step.reward, np.float64),
            np.array(step.terminated),
            np.array(step.truncated),
            step.episode_over,
            {"reason": outcome["reason"], "winner": outcome["winner"]} if step.episode_over else {},
        )


ENGINES = ("jax", "reference")


def make_engine(name: str, engine: str = "jax", **options: Any) -> Engine:
    """Return the engine of an environment's name.

    Args:
        name: an environment of `echelon_jax.make`.
        engine: `jax` or `reference`.
        options: those of `make`. The reference takes `rules` and fields of EnvConfig only: it makes each map when it needs it.

    Raises:
        ValueError: an unknown engine, or a name or an option that is not allowed.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if engine == "reference":
        return ReferenceEngine(environment_config(name, **options))
    env, params = make(name, auto_reset=False, **options)
    return JaxEngine(env, params)
