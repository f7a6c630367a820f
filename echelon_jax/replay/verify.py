"""Whether a replay is what its seed and actions give: the game is simulated again and compared bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from echelon_jax.config import INTERFACE_FIELDS, INTERFACES, EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.trace import small_state
from echelon_jax.replay.build import digest, frame_arrays, game_params, resimulate
from echelon_jax.replay.checks import ReplayError
from echelon_jax.replay.model import Replay
from echelon_jax.rules.mechs import MECH_CLASSES, roster


class Verification(NamedTuple):
    """What a re-simulation found.

    Attributes:
        decisions: simulated again.
        first: frame from which on something differs, None if every frame is the recorded one to the bit.
        what: names of the stored values that differ there; "state" alone if only what is not stored does.
        largest: largest difference of a stored value in that frame.
    """

    decisions: int
    first: int | None
    what: tuple[str, ...]
    largest: float

    @property
    def exact(self) -> bool:
        """Whether every recorded state was reached to the bit."""
        return self.first is None


def game_config(replay: Replay) -> EnvConfig:
    """Return the configuration that a replay's game was played under.

    Raises:
        ReplayError: the header does not hold one.
    """
    fields = {field.name for field in dataclasses.fields(EnvConfig)}
    game = replay.header["game"]
    if set(game) != fields:
        raise ReplayError(
            "game must hold exactly the fields of a configuration, so this file cannot be simulated again"
        )
    # An import path would run somebody's code for a file that came from anywhere.
    for field in INTERFACE_FIELDS:
        if game[field] not in INTERFACES:
            raise ReplayError(f"{field} must be one of {', '.join(INTERFACES)} for a replay to be simulated again")
    try:
        return EnvConfig(**game)
    except (TypeError, ValueError) as error:
        raise ReplayError(f"game must be a valid configuration: {error}") from error


def verify(replay: Replay) -> Verification:
    """Simulate a replay's game again from its seed, actions and keys, and compare every state with the recorded one.

    The map is generated from the seed. Every stored value must agree, and the hash of each whole state, maps included. That holds
    on the machine, with the version of JAX, that recorded it; elsewhere floats may round differently.

    Raises:
        ReplayError: the file holds no actions, or no configuration that can be played.
    """
    if any(name not in replay for name in ("actions", "keys", "digest")):
        raise ReplayError("the replay holds no actions and keys, so it cannot be simulated again")
    config, seed = game_config(replay), replay.header.get("seed")
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise ReplayError("seed must be a whole number from 0 to 2147483647")
    _check_sizes(replay, config)
    params = game_params(config, seed)
    cap = np.array([MECH_CLASSES[c].heat_cap for c in roster(config.num_packs).mech_class], np.float32)
    last = None
    for d, resimulated in enumerate(resimulate(config, params, replay["actions"], replay["keys"])):
        if found := _differences(replay, d, resimulated.before, cap):
            return Verification(d, d, *found)
        last = resimulated.after
    if last is not None and (found := _differences(replay, replay.decisions, last, cap)):
        return Verification(replay.decisions, replay.decisions, *found)
    return Verification(replay.decisions, None, (), 0.0)


def _check_sizes(replay: Replay, config: EnvConfig) -> None:
    size = (config.size_z, config.size_y, config.size_x)
    mechs = (replay.decisions, config.num_mechs, action_layout(config).size)
    if replay["material"].shape != size or replay["actions"].shape != mechs:
        raise ReplayError("game must be the configuration that the map and the actions were recorded under")
    if replay.decisions < 1 or replay.header["substeps"] != config.substeps:
        raise ReplayError("a replay to simulate again must have decisions and its configuration's substeps")


def _differences(replay: Replay, frame: int, state: Any, cap: np.ndarray) -> tuple[tuple[str, ...], float] | None:
    """What differs in one frame, and by how much; None if nothing does."""
    if np.array_equal(digest(state), replay["digest"][frame]):
        return None
    small = jax.tree.map(lambda x: np.asarray(x)[None], jax.device_get(small_state(state, 0)))
    stored = frame_arrays(small, cap)
    names = tuple(name for name, value in stored.items() if not np.array_equal(value[0], replay[name][frame]))
    gaps = [float(np.abs(np.asarray(stored[n][0], np.float64) - replay[n][frame]).max()) for n in names]
    return names or ("state",), max(gaps, default=0.0)
