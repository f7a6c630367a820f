"""Confidence intervals of win rates and scores."""

from __future__ import annotations

import math

import numpy as np


def wilson(wins: float, games: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a rate (Wilson 1927), 95 % by default; (0, 1) without games."""
    if games == 0:
        return 0.0, 1.0
    p = wins / games
    middle = (p + z * z / (2 * games)) / (1 + z * z / games)
    half = z * math.sqrt(p * (1 - p) / games + z * z / (4 * games * games)) / (1 + z * z / games)
    return max(0.0, middle - half), min(1.0, middle + half)


def paired_score(result: np.ndarray, z: float = 1.96) -> tuple[float, float, float]:
    """Mean score (win 1, draw 1/2, loss 0) of paired games and its 95 % interval, with maps as the independent units.

    The two games of a map share its terrain; their mean is one observation. Cut to [0, 1]; (0, 1) with fewer than two maps.
    """
    maps = ((result + 1) / 2).reshape(-1, 2).mean(1)
    mean = float(maps.mean())
    if len(maps) < 2:
        return mean, 0.0, 1.0
    half = z * float(maps.std(ddof=1)) / math.sqrt(len(maps))
    return mean, max(0.0, mean - half), min(1.0, mean + half)
