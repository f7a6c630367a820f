"""Timers as whole numbers of substeps, with the original's float64 residues counted in.

Source: docs/spec/rules.md 1.2, 6.1.
"""

from __future__ import annotations


def decrements(seconds: float, dt: float) -> int:
    """Number of float64 subtractions of `dt` until a timer of `seconds` reads zero (0.6 s at 0.05 s: 13, not 12)."""
    count, left = 0, float(seconds)
    while left > 0.0:
        left = max(0.0, left - dt)
        count += 1
    return count


def moves(lifetime: float, dt: float) -> int:
    """Number of updates in which a projectile still moves: float64 additions of `dt` that do not exceed `lifetime`."""
    count, age = 0, 0.0
    while True:
        age += dt
        if age > lifetime:
            return count
        count += 1
