"""Validation: the games that a run plays now and then on maps of their own, and the best checkpoint that they choose.

A validator plays the games; whoever starts a run hands one over (`evaluation.validation.Validator`). Its answer depends on the
policy, the run's seed and the update alone, so a resumed run plays the same games as one that was left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

from echelon_jax.config import EnvConfig
from echelon_jax.policies.network import Params
from echelon_jax.policies.normalize import Moments
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import TrainState

SECONDS = "seconds/validation"


class Validation(NamedTuple):
    """What the games of one update said: the score that chooses the best checkpoint, and all numbers by name."""

    score: float
    metrics: dict[str, float]


class Validator(Protocol):
    """Plays the games of one update. `metric_names` are the names of all numbers that it gives."""

    metric_names: tuple[str, ...]

    def __call__(self, params: Params, moments: Moments, update: int) -> Validation:
        """Play the games of a policy, given as arrays on the host."""
        ...


MakeValidator = Callable[[TrainConfig, EnvConfig], Validator]


class Validations:
    """When a run plays validation games, and what the last ones said.

    Args:
        make: makes the validator; needed where `config.validation_every` is not 0.
        config, env_config: the configurations of the run.

    Raises:
        ValueError: `make` is missing, or an opponent is unknown.
        CheckpointError: the checkpoint of an opponent cannot be used.
    """

    def __init__(self, make: MakeValidator | None, config: TrainConfig, env_config: EnvConfig) -> None:
        if config.validation_every and make is None:
            raise ValueError(
                f"validator must be given where validation_every is {config.validation_every}, such as "
                "evaluation.validation.Validator; or validation_every must be 0"
            )
        self.config = config
        self.validator = make(config, env_config) if make is not None and config.validation_every else None
        self._last: tuple[int, Validation] | None = None

    @property
    def scored_by(self) -> str:
        """What the score of a checkpoint of this run is made of; scores of different kinds do not compare."""
        c = self.config
        return f"{c.validation_games} games against {c.validation_opponents}" if self.validator else "training games"

    def due(self, update: int) -> bool:
        """Return whether games are played after the call that led to `update`; it depends on the update alone."""
        every, before = self.config.validation_every, update - self.config.updates_per_call
        return self.validator is not None and update // every > before // every

    def play(self, state: TrainState, update: int) -> None:
        """Play the games of the policy that has done `update` updates. Nothing of the training state changes."""
        assert self.validator is not None
        params, moments = jax.device_get((state.playing, state.observation_moments))
        began = time.perf_counter()
        validation = self.validator(params, moments, update)
        validation.metrics[SECONDS] = time.perf_counter() - began
        self._last = update, validation

    def line(self, update: int) -> dict[str, Any]:
        """Return what the games of an update said, by metric; None for each where none were played."""
        if self.validator is None:
            return {}
        found = self._of(update)
        nothing = dict.fromkeys((*self.validator.metric_names, SECONDS))
        return nothing if found is None else {**nothing, **found.metrics}

    def score(self, update: int) -> float | None:
        """Return the score of an update's games; None where none were played."""
        found = self._of(update)
        return None if found is None else found.score

    def _of(self, update: int) -> Validation | None:
        return self._last[1] if self._last is not None and self._last[0] == update else None
