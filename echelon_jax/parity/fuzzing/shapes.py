"""The fuzzed shapes: every preset with full and partial observation, one and two packs. Each compiles once."""

from __future__ import annotations

import os

from echelon_jax.config import EnvConfig

SIZE = 40  # edge of the map
MODES = ("full", "partial")
PRESETS = ("original", "revised_rules", "revised")
TURN = "ECHELON_FUZZ_TURN"  # the environment variable that says which two shapes a test run compiles


def shape(preset: str, mode: str, packs: int) -> EnvConfig:
    """The configuration of a shape.

    Args:
        preset: "original"; "revised", the default game; or "revised_rules", its rules behind the original's observation, actions
            and reward.
        mode: "full" or "partial" observation.
        packs: packs of five mechs a team.
    """
    size = {"size_x": SIZE, "size_y": SIZE, "num_packs": packs, "observation_mode": mode}
    if preset == "original":
        return EnvConfig.original(**size)
    kind = "modern" if preset == "revised" else "original"
    return EnvConfig.revised(**size, comm_dim=8, observation=kind, actions=kind, reward=kind)


def shapes() -> dict[str, EnvConfig]:
    """All shapes by name, such as "original partial 2"."""
    names = [(preset, mode, packs) for packs in (1, 2) for preset in PRESETS for mode in MODES]
    return {_name(*one): shape(*one) for one in names}


def _name(preset: str, mode: str, packs: int) -> str:
    return f"{preset} {mode} {packs}"


def turns() -> list[tuple[str, str]]:
    """The pairs of shapes that test runs take in turn, together all of them: one pack, and two of another preset and mode."""
    following = dict(zip(PRESETS, (*PRESETS[1:], PRESETS[0]), strict=True))
    return [
        (_name(preset, mode, 1), _name(following[preset], other, 2))
        for mode, other in (MODES, MODES[::-1])
        for preset in PRESETS
    ]


def pair_of_turn() -> tuple[str, str]:
    """The pair whose turn it is: number ECHELON_FUZZ_TURN (such as the day of the year), the first without it.

    Raises:
        ValueError: if the variable is no whole number.
    """
    given = os.environ.get(TURN, "0")
    if not given.isdecimal():
        raise ValueError(f"{TURN} must be a whole number from 0, got {given!r}")
    pairs = turns()
    return pairs[int(given) % len(pairs)]
