"""The canonical layout: four different biomes in four quadrants around a random split point (docs/spec/worlds.md 3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from echelon_jax.rules.materials import AIR, DIRT
from echelon_jax.worldgen.biomes import BIOME_NAMES, BIOMES
from echelon_jax.worldgen.brush import Brush, Quadrant

CORNERS = ("BL", "BR", "TL", "TR")  # B/T: low or high y; L/R: low or high x


class Layout(NamedTuple):
    """A canonical layout: voxels uint8 [Z, Y, X], the split column (x, y), and corner -> biome name in fill order."""

    voxels: np.ndarray
    split: tuple[int, int]
    biomes: dict[str, str]


def lay_ground(voxels: np.ndarray) -> np.ndarray:
    """Turn every AIR voxel of layer z = 0 into DIRT, in place; returns the mask [Y, X] of those voxels."""
    bare = voxels[0] == AIR
    voxels[0][bare] = DIRT
    return bare


def make_layout(rng: np.random.Generator, size_x: int, size_y: int, size_z: int) -> Layout:
    """Draw the split point, four distinct biomes and their quadrants, and fill them in the drawn order.

    Args:
        rng: the episode's `world` generator; this is all it is used for.
        size_x, size_y, size_z: voxels.
    """
    voxels = np.full((size_z, size_y, size_x), AIR, np.uint8)
    jitter_x, jitter_y = size_x // 10, size_y // 10
    px = size_x // 2 + int(rng.integers(-jitter_x, jitter_x + 1))
    py = size_y // 2 + int(rng.integers(-jitter_y, jitter_y + 1))
    chosen = rng.choice(len(BIOMES), size=4, replace=False).tolist()
    corners = list(CORNERS)
    rng.shuffle(corners)

    brush = Brush(voxels, rng)
    for corner, biome in zip(corners, chosen, strict=True):
        x0, x1 = (0, px) if corner[1] == "L" else (px, size_x)
        y0, y1 = (0, py) if corner[0] == "B" else (py, size_y)
        BIOMES[biome](brush, Quadrant(x0, x1, y0, y1))
    lay_ground(voxels)
    return Layout(voxels, (px, py), {corner: BIOME_NAMES[biome] for corner, biome in zip(corners, chosen, strict=True)})
