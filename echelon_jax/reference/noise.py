"""The only source of random draws: a live generator with the original's draws, or a recorded tape.

Source: docs/spec/rules.md Appendix A.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from echelon_jax.reference.state import Projectile


class MissingDraw(LookupError):
    """The tape does not hold a requested draw: the replay has left the recorded run. No draw is invented."""


class Noise(Protocol):
    """The draws of the simulation. Mechs and weapons are indices; every u is a float64 in [0, 1)."""

    def start_substep(self, tick: int) -> None:
        """Is called before each substep with its tick."""

    def ams(self, shooter: int, projectile: Projectile, defender: int) -> float:
        """The u of one AMS roll against a missile: it intercepts iff u < 0.60."""

    def hit_height(self, shooter: int, weapon: int) -> float:
        """The u of the height at which a laser or flamer strikes."""

    def move_order(self, living: list[int]) -> list[int]:
        """Return the living mechs, given in roster order, in this substep's order of movement."""

    def fire_order(self, living: list[int]) -> list[int]:
        """Return the living mechs in this substep's order of firing; used only under fair_order."""

    def wreck(self, mech: int) -> float:
        """Return the u that decides the material of a dead mech's wreck; used only under fair_order."""


class LiveNoise:
    """Draws from a numpy generator, call for call as the original does; `from_seed` gives its very stream."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    @classmethod
    def from_seed(cls, seed: int) -> LiveNoise:
        """The simulation stream of an episode: the second of three children of the episode's seed sequence."""
        return cls(np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[1]))

    def start_substep(self, tick: int) -> None:
        """Do nothing."""

    def ams(self, shooter: int, projectile: Projectile, defender: int) -> float:
        """One uniform double."""
        return float(self._generator.random())

    def hit_height(self, shooter: int, weapon: int) -> float:
        """One uniform double (the original's uniform(-h, h) takes exactly one)."""
        return float(self._generator.random())

    def move_order(self, living: list[int]) -> list[int]:
        """One in-place shuffle; no draw for fewer than two."""
        order = list(living)
        self._generator.shuffle(order)
        return order

    def fire_order(self, living: list[int]) -> list[int]:
        """One more shuffle, which the original does not have."""
        return self.move_order(living)

    def wreck(self, mech: int) -> float:
        """One uniform double, which the original does not have."""
        return float(self._generator.random())


class Tape:
    """Replays recorded draws and raises `MissingDraw` for any that was not recorded.

    The original draws neither an order of firing nor wrecks, so a tape holds none.

    Args:
        move_order: rows of mech indices, one per substep from tick 1, padded with -1.
        laser_draws: rows (tick, shooter, weapon, u).
        ams_draws: rows (tick, missile uid, defender, u, shooter, missile age after its increment).
    """

    def __init__(
        self,
        move_order: Sequence[Sequence[int]] | np.ndarray,
        laser_draws: Sequence[Sequence[float]] | np.ndarray,
        ams_draws: Sequence[Sequence[float]] | np.ndarray,
    ) -> None:
        self._tick = 0
        self._orders = [[int(i) for i in row if i >= 0] for row in move_order]
        self._lasers = {(int(r[0]), int(r[1]), int(r[2])): float(r[3]) for r in laser_draws}
        # A shooter's missiles have different ages, so (tick, shooter, age, defender) names a roll.
        self._ams = {(int(r[0]), int(r[4]), round(float(r[5]), 6), int(r[2])): float(r[3]) for r in ams_draws}

    def start_substep(self, tick: int) -> None:
        """Wind the tape to a tick."""
        self._tick = tick

    def ams(self, shooter: int, projectile: Projectile, defender: int) -> float:
        """The recorded roll of this defender against this missile."""
        key = (self._tick, shooter, round(projectile.age, 6), defender)
        if key not in self._ams:
            raise MissingDraw(f"tick {key[0]}: no AMS roll of mech {defender} against a missile of mech {shooter}")
        return self._ams[key]

    def hit_height(self, shooter: int, weapon: int) -> float:
        """The recorded height of this shot."""
        key = (self._tick, shooter, weapon)
        if key not in self._lasers:
            raise MissingDraw(f"tick {key[0]}: no shot of mech {shooter} with weapon {weapon}")
        return self._lasers[key]

    def move_order(self, living: list[int]) -> list[int]:
        """The recorded order, which must hold exactly the living mechs."""
        if not 1 <= self._tick <= len(self._orders):
            raise MissingDraw(f"tick {self._tick}: the tape holds ticks 1 to {len(self._orders)}")
        order = self._orders[self._tick - 1]
        if sorted(order) != sorted(living):
            raise MissingDraw(f"tick {self._tick}: the tape moves mechs {sorted(order)}, alive are {sorted(living)}")
        return list(order)

    def fire_order(self, living: list[int]) -> list[int]:
        """Never recorded."""
        raise MissingDraw(f"tick {self._tick}: a tape holds no order of firing, which fair_order asks for")

    def wreck(self, mech: int) -> float:
        """Never recorded."""
        raise MissingDraw(f"tick {self._tick}: a tape holds no wreck rolls, which fair_order asks for")
