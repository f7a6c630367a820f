"""What a state holds beside its voxels, made from their materials as the simulator has it."""

from __future__ import annotations

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.rules.materials import SOLID, SOLID_DEBRIS

TELEMETRY_BINS = 16


def column_words(material: np.ndarray, table: np.ndarray, config: EnvConfig) -> np.ndarray:
    """[rows, columns] uint32 with bit z set where `table` holds for the voxel at level z."""
    flags = table[material.reshape(len(material), config.size_z, -1)]
    bits = np.uint32(1) << np.arange(config.size_z, dtype=np.uint32)
    return (flags * bits[None, :, None]).sum(1, dtype=np.uint32)


def local_map(material: np.ndarray, config: EnvConfig) -> np.ndarray:
    """[columns] uint8: 1 where the observation's local map reads blocked, from one grid.

    Source: docs/spec/environment.md 2.8.
    """
    levels = min(max(1, config.clearance_z), config.size_z)
    walls: np.ndarray = np.isin(material.reshape(config.size_z, -1)[:levels], (SOLID, SOLID_DEBRIS)).max(0)
    return walls.astype(np.uint8)


def telemetry(material: np.ndarray, config: EnvConfig) -> np.ndarray:
    """[256] uint8: the 16 x 16 map of blocks that hold a wall at any height, from one grid.

    Source: docs/spec/environment.md 2.9.
    """
    walls: np.ndarray = np.isin(
        material.reshape(config.size_z, config.size_y, config.size_x), (SOLID, SOLID_DEBRIS)
    ).max(0)
    rows, columns = ([k * size // TELEMETRY_BINS for k in range(TELEMETRY_BINS)] for size in walls.shape)
    bins = np.maximum.reduceat(np.maximum.reduceat(walls, rows, 0), columns, 1)
    return np.asarray(bins.reshape(-1), np.uint8)
