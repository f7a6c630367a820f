"""What accompanies a run on the host and may change its state between two calls, such as a league (`arena.run_league`)."""

from __future__ import annotations

from typing import Any, Protocol

from echelon_jax.training.trainer import Train, TrainState


class Companion(Protocol):
    """The interface of a companion. Everything it does must follow from the state and from what it told to remember."""

    def begin(self, trainer: Train, state: TrainState, remembered: dict[str, Any] | None) -> TrainState:
        """Begin, or go on after a checkpoint with what `remember` told then; return the state to go on with."""
        ...

    def after_call(self, state: TrainState) -> TrainState:
        """Return the state to go on with after a call."""
        ...

    def metrics(self) -> dict[str, float | None]:
        """Return named numbers for the metrics of the call, the same names after every call."""
        ...

    def remember(self) -> dict[str, Any]:
        """Return JSON that a checkpoint of the present state keeps."""
        ...
