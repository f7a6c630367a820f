"""Reading and editing the voxels of a batch of arenas (docs/spec/rules.md 2.4, 2.5).

A phase reads everything it needs first, edits once, and from then on reads only the new grid: reading the old grid
after an edit, or `where` over whole grids, copies them. The column words are edited bit by bit with the voxels, never
rebuilt.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, UInt8, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.rules.materials import AIR, COLLIDES, DIRT, LAVA, OPAQUE, REINFORCED, SOLID, WATER
from echelon_jax.sim.state import Grid


def flags_of(material: UInt8[Array, " cells"]) -> tuple[Bool[Array, " cells"], Bool[Array, " cells"]]:
    """Whether each material collides, and whether it blocks sight."""
    # Two 16-bit constants instead of two table gathers: ids above 9 do neither.
    shift = jnp.minimum(material, 31).astype(jnp.uint32)
    collides = jnp.uint32(sum(1 << i for i in range(10) if COLLIDES[i]))
    opaque = jnp.uint32(sum(1 << i for i in range(10) if OPAQUE[i]))
    return ((collides >> shift) & 1) == 1, ((opaque >> shift) & 1) == 1


def material_at(config: EnvConfig, grid: Grid, cell: Int32[Array, "arenas mechs 3"]) -> Int32[Array, "arenas mechs"]:
    """The material of each cell (x, y, z); SOLID outside the grid (docs/spec/rules.md 2.3)."""
    x, y, z = cell[..., 0], cell[..., 1], cell[..., 2]
    inside = (x >= 0) & (x < config.size_x) & (y >= 0) & (y < config.size_y) & (z >= 0) & (z < config.size_z)
    voxel = jnp.where(inside, (z * config.size_y + y) * config.size_x + x, 0)
    arena = jnp.arange(cell.shape[0], dtype=jnp.int32)[:, None]
    found = grid.material.at[arena, voxel].get(mode="promise_in_bounds").astype(jnp.int32)
    return jnp.where(inside, found, SOLID)


def mask_below(level: Int32[Array, "*_shape"]) -> UInt32[Array, "*_shape"]:
    """A word with the bits 0 .. level-1 set; level is clipped to 0 .. 32."""
    level = jnp.clip(level, 0, 32)
    return jnp.where(
        level >= 32, jnp.uint32(0xFFFFFFFF), (jnp.uint32(1) << jnp.minimum(level, 31).astype(jnp.uint32)) - 1
    )


def levels_under(
    config: EnvConfig,
    words: UInt32[Array, "arenas columns"],
    arena: Int32[Array, " boxes"],
    lo: tuple[Float32[Array, " boxes"], Float32[Array, " boxes"]],
    hi: tuple[Float32[Array, " boxes"], Float32[Array, " boxes"]],
    span: int,
) -> UInt32[Array, " boxes"]:
    """The OR of the column words that a box covers in x and y; `span` bounds the columns per axis. 0 beside the map."""
    x0 = jnp.maximum(jnp.floor(lo[0]).astype(jnp.int32), 0)
    y0 = jnp.maximum(jnp.floor(lo[1]).astype(jnp.int32), 0)
    x1 = jnp.minimum(jnp.ceil(hi[0]).astype(jnp.int32), config.size_x) - 1
    y1 = jnp.minimum(jnp.ceil(hi[1]).astype(jnp.int32), config.size_y) - 1
    empty = (x1 < x0) | (y1 < y0)
    # Columns past the far side repeat the last one, which an OR does not mind.
    step = jnp.arange(span, dtype=jnp.int32)
    x = jnp.clip(x0[:, None] + step, 0, jnp.clip(x1, 0, config.size_x - 1)[:, None])
    y = jnp.clip(y0[:, None] + step, 0, jnp.clip(y1, 0, config.size_y - 1)[:, None])
    index = (arena * words.shape[1])[:, None, None] + y[:, :, None] * config.size_x + x[:, None, :]
    found = words.reshape(-1).at[index].get(mode="promise_in_bounds")
    return jnp.where(empty, jnp.uint32(0), jax.lax.reduce(found, jnp.uint32(0), jax.lax.bitwise_or, (1, 2)))


def levels_hit(
    config: EnvConfig, word: UInt32[Array, " boxes"], lo_z: Float32[Array, " boxes"], hi_z: Float32[Array, " boxes"]
) -> Bool[Array, " boxes"]:
    """BoxHitsWorld (docs/spec/rules.md 2.4) for boxes whose columns are already ORed into `word`."""
    z0 = jnp.maximum(jnp.floor(lo_z).astype(jnp.int32), 0)
    z1 = jnp.minimum(jnp.ceil(hi_z).astype(jnp.int32), config.size_z)
    return (lo_z < 0) | ((word & mask_below(z1) & ~mask_below(z0)) != 0)


def damage_cells(
    config: EnvConfig,
    grid: Grid,
    arena: Int32[Array, " cells"],
    cell: Int32[Array, "cells 3"],
    amount: Float32[Array, " cells"],
    wanted: Bool[Array, " cells"],
) -> Grid:
    """Damage a list of different cells (docs/spec/rules.md 2.5): hp <= 0 after the hit turns a cell to AIR.

    AIR and REINFORCED are immune; a hit of 0 destroys a cell whose hp is 0 (Q7). Under true_voxel_hp a hit of 0 does nothing,
    and DIRT, LAVA and WATER are immune too (Q8).
    """
    arenas = grid.material.shape[0]
    x, y, z = cell[:, 0], cell[:, 1], cell[:, 2]
    inside = (x >= 0) & (x < config.size_x) & (y >= 0) & (y < config.size_y) & (z >= 0) & (z < config.size_z)
    column = jnp.where(inside, y * config.size_x + x, 0)
    level = jnp.where(inside, z, 0)
    voxel = level * (config.size_x * config.size_y) + column
    material = grid.material.at[arena, voxel].get(mode="clip")
    hp = grid.hp.at[arena, voxel].get(mode="clip").astype(jnp.int32)
    hit = wanted & inside & (material != AIR) & (material != REINFORCED)
    if config.true_voxel_hp:
        hit = hit & (amount > 0) & (material != DIRT) & (material != LAVA) & (material != WATER)
    hp = hp - jnp.round(amount).astype(jnp.int32)
    gone = hit & (hp <= 0)
    collided, blocked = flags_of(material)
    bit = jnp.uint32(1) << level.astype(jnp.uint32)
    row = jnp.where(hit, arena, arenas)  # out of range: dropped
    gone_row = jnp.where(gone, arena, arenas)
    return Grid(
        material=grid.material.at[gone_row, voxel].set(jnp.uint8(AIR), mode="drop"),
        hp=grid.hp.at[row, voxel].set(jnp.maximum(hp, 0).astype(jnp.int16), mode="drop"),
        collides=grid.collides.at[gone_row, column].add(jnp.where(collided, jnp.uint32(0) - bit, 0), mode="drop"),
        opaque=grid.opaque.at[gone_row, column].add(jnp.where(blocked, jnp.uint32(0) - bit, 0), mode="drop"),
    )
