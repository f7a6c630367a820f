"""Versions of the environment: names whose behaviour stays, each with the fingerprint of how it plays.

A name such as `Echelon-v1` promises that the same seed and the same actions give the same game. What changes that gets a new
number, and a row in docs/versions.md. `testing.fingerprint` computes a fingerprint; a test compares it with the one kept here.
"""

from __future__ import annotations

from typing import NamedTuple


class Version(NamedTuple):
    """An environment under a name that stays.

    Attributes:
        size: name of its size in `api.ENVIRONMENTS`.
        rules: its rule set.
        fingerprint: of its configuration.
    """

    size: str
    rules: str
    fingerprint: str


VERSIONS = {
    "Echelon-v1": Version(
        size="5v5-40",
        rules="revised",
        fingerprint="19778af258c78fa6a054addc9e128c51",
    ),
    "Echelon-original": Version(
        size="5v5-60",
        rules="original",
        fingerprint="97287d150a6779d3d790d3d0ee7c9533",
    ),
}
