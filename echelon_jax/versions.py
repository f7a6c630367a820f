"""Versions of the environment: names whose behaviour stays, each with the fingerprint of how it plays.

A name such as `Echelon-v1` promises that the same seed and the same actions give the same game. What changes that gets a new
number, and a row in docs/versions.md. `testing.fingerprint` computes a fingerprint; a test compares it with the one kept here.
"""

from __future__ import annotations

from typing import NamedTuple


class Fingerprint(NamedTuple):
    """How an environment plays a short fixed rollout.

    Attributes:
        exact: hash of what every machine computes alike: the tables of observation and action, the maps, and all whole numbers
            and flags of the states.
        rewards: by decision, the rewards summed with fixed weights. Floats differ a little between machines.
        observations: by decision, the observations averaged with fixed weights.
    """

    exact: str
    rewards: tuple[float, ...]
    observations: tuple[float, ...]


class Version(NamedTuple):
    """An environment under a name that stays.

    Attributes:
        size: name of its size in `api.ENVIRONMENTS`.
        rules: its rule set.
        fingerprint: of the environment with 2 worlds of seed 0.
    """

    size: str
    rules: str
    fingerprint: Fingerprint


VERSIONS = {
    "Echelon-v1": Version(
        size="5v5-40",
        rules="revised",
        fingerprint=Fingerprint(exact="", rewards=(), observations=()),
    ),
    "Echelon-original": Version(
        size="5v5-60",
        rules="original",
        fingerprint=Fingerprint(exact="", rewards=(), observations=()),
    ),
}
