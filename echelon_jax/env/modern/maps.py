"""Planes of small whole numbers around a mech and of the whole map, read from the grid as it is now.

The local planes are samples two voxels apart that turn with the mech; each stands for the 3 x 3 columns around it, so that
nothing between two samples is missed. The whole-map planes count columns in 8 x 8 bins with shared columns weighed exactly,
so that a turned or mirrored world has turned or mirrored planes whatever its size.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.env.modern.frames import materialize
from echelon_jax.env.modern.layout import LOCAL_SIDE, LOCAL_SPACING, MAP_SIDE, QUARTERS, STEPS
from echelon_jax.env.state import ArenaMap
from echelon_jax.rules.materials import LAVA, WATER
from echelon_jax.sim.grid import mask_below
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Grid, Mechs

# The two top bits of an opaque word are lent to the hazards: sight at levels 30 and 31 of the tallest maps is not drawn.
_LAVA_BIT, _WATER_BIT = 30, 31
_WALL_LEVELS = 0b1110  # of a column: what a mech on the ground cannot step over
_PACKED = (
    2048  # above the sum of a strip's weights, size_y, of which 1000 is the largest; its square is exact in float32
)
_FLOAT_SLACK = 0.02  # voxels; feet this little below a level stand on it


class Columns(NamedTuple):
    """The contents of each column together with its eight neighbours: entry (y - 1) * size_x + x - 1 is column (x, y).

    Inner columns only: a sample whose column is at the rim reaches beyond the map.
    """

    collides: UInt32[Array, "arenas inner"]
    opaque: UInt32[Array, "arenas inner"]  # with the hazard bits


def _neighbourhood(config: EnvConfig, words: UInt32[Array, "arenas columns"]) -> UInt32[Array, "arenas inner"]:
    # Shifts of the flat rows, which run past the rim into the next row; nobody reads those entries.
    width = config.size_x
    rows = words[:, : -2 * width] | words[:, width:-width] | words[:, 2 * width :]
    return rows[:, :-2] | rows[:, 1:-1] | rows[:, 2:]


def hazard_words(config: EnvConfig, grid: Grid) -> UInt32[Array, "arenas columns"]:
    """The grid's opaque words with lava and water of the lowest level as two of their bits."""
    floor = grid.material[:, : config.size_x * config.size_y]
    lava, water = ((floor == m).astype(jnp.uint32) << bit for m, bit in ((LAVA, _LAVA_BIT), (WATER, _WATER_BIT)))
    return (grid.opaque & jnp.uint32((1 << _LAVA_BIT) - 1)) | lava | water


def neighbourhoods(
    config: EnvConfig, collides: UInt32[Array, "arenas columns"], opaque: UInt32[Array, "arenas columns"]
) -> Columns:
    """Each inner column together with its neighbours."""
    return Columns(_neighbourhood(config, collides), _neighbourhood(config, opaque))


def local_planes(
    config: EnvConfig,
    rules: SimRules,
    mechs: Mechs,
    columns: Columns,
    cosine: Float32[Array, "arenas mechs"],
    sine: Float32[Array, "arenas mechs"],
) -> list[Float32[Array, "arenas mechs cells"]]:
    """The planes foot, body, opaque, hazard and step, rows forward, columns to the left; outside the map is a wall."""
    reach = LOCAL_SIDE // 2
    steps = np.arange(-reach, reach + 1, dtype=np.float32) * LOCAL_SPACING
    forward, left = np.repeat(steps, LOCAL_SIDE), np.tile(steps, LOCAL_SIDE)
    width, depth = config.size_x - 2, config.size_y - 2
    arenas, inner = columns.collides.shape

    def cells() -> Int32[Array, "arenas mechs cells"]:
        """Index of each sample among all arenas' columns, -1 outside."""
        x = mechs.position[..., 0, None] + (cosine[..., None] * forward - sine[..., None] * left)
        y = mechs.position[..., 1, None] + (sine[..., None] * forward + cosine[..., None] * left)
        column, row = jnp.floor(x).astype(jnp.int32) - 1, jnp.floor(y).astype(jnp.int32) - 1
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < depth)
        flat = row * config.size_x + column + jnp.arange(arenas, dtype=jnp.int32)[:, None, None] * inner
        return jnp.where(inside, flat, -1)

    cell = materialize(mechs.alive.any(), cells)
    inside, flat = cell >= 0, jnp.maximum(cell, 0)
    solid, dense = (
        jnp.where(inside, words.reshape(-1).at[flat].get(mode="promise_in_bounds"), beyond)
        for words, beyond in zip(columns, (jnp.uint32(0xFFFFFFFF), jnp.uint32((1 << _LAVA_BIT) - 1)), strict=True)
    )

    half = rules.half[:, 2]
    centre = mechs.position[..., 2]
    foot = jnp.maximum(jnp.floor(centre - half + _FLOAT_SLACK).astype(jnp.int32), 0)[..., None]
    top = foot + 1 + jnp.ceil(2.0 * half).astype(jnp.int32)[:, None]
    eye = jnp.clip(jnp.floor(centre).astype(jnp.int32), 0, 31)[..., None].astype(jnp.uint32)

    def bit(words: Array, level: Array) -> Bool[Array, "arenas mechs cells"]:
        return ((words >> level) & 1) == 1

    at_foot = (solid & (mask_below(foot + 1) & ~mask_below(foot))) != 0
    at_body = (solid & (mask_below(top) & ~mask_below(foot + 1))) != 0
    at_eye = bit(dense, eye) & (eye < _LAVA_BIT)
    lava, water = bit(dense, jnp.uint32(_LAVA_BIT)), bit(dense, jnp.uint32(_WATER_BIT))
    highest = 32 - jax.lax.clz(solid & mask_below(foot + STEPS)).astype(jnp.int32)
    step = jnp.clip(highest - foot, -STEPS, STEPS)
    return [
        at_foot.astype(jnp.float32),
        at_body.astype(jnp.float32),
        at_eye.astype(jnp.float32),
        jnp.where(lava, 1.0, jnp.where(water, -1.0, 0.0)),
        step.astype(jnp.float32) * (1.0 / STEPS),
    ]


def local_marks(
    forward: Float32[Array, "arenas mechs slots"],
    left: Float32[Array, "arenas mechs slots"],
    shown: Bool[Array, "arenas mechs slots"],
    friends: int,
) -> Float32[Array, "arenas mechs cells"]:
    """The plane mechs: 1 where one of the first `friends` slots is, -1 where one of the others is, hostiles first."""
    reach = LOCAL_SIDE // 2
    row = jnp.floor(forward * (1.0 / LOCAL_SPACING) + 0.5).astype(jnp.int32) + reach
    column = jnp.floor(left * (1.0 / LOCAL_SPACING) + 0.5).astype(jnp.int32) + reach
    near = shown & (row >= 0) & (row < LOCAL_SIDE) & (column >= 0) & (column < LOCAL_SIDE)
    cell = jnp.where(near, row * LOCAL_SIDE + column, -1)
    friend, hostile = (_marked(part, LOCAL_SIDE**2) for part in (cell[..., :friends], cell[..., friends:]))
    return jnp.where(hostile, -1.0, jnp.where(friend, 1.0, 0.0))


def _marked(cell: Int32[Array, "*batch slots"], cells: int) -> Bool[Array, "*batch cells"]:
    """Which cells some slot is in; a cell of -1 is none. Slot by slot, which the compiler keeps in one pass."""
    marked = jnp.zeros((*cell.shape[:-1], cells), bool)
    for slot in range(cell.shape[-1]):
        marked = marked | (cell[..., slot, None] == jnp.arange(cells, dtype=jnp.int32))
    return marked


@cache
def _overlap(size: int) -> np.ndarray:
    """[bins, size] length, in eighths of a voxel, that each voxel shares with each bin of an axis; rows sum to `size`."""
    voxel, bins = np.arange(size) * MAP_SIDE, np.arange(MAP_SIDE)[:, None] * size
    shared = np.minimum(voxel + MAP_SIDE, bins + size) - np.maximum(voxel, bins)
    return np.maximum(shared, 0).astype(np.float32)


def _share(config: EnvConfig, marked: Bool[Array, "arenas columns"]) -> Float32[Array, "arenas bins"]:
    """Share of the columns of each bin that are marked, rounded up to quarters.

    Whole numbers until then, so it is exact on every machine and at every batch width. Rows are added one by one, which
    takes half the time of a matrix product.
    """
    columns = config.size_x * config.size_y
    rows = marked.reshape(-1, config.size_y, config.size_x)
    weight = _overlap(config.size_y)
    strips = []
    for bin_weight in weight:
        strip = jnp.zeros((rows.shape[0], config.size_x), jnp.float32)
        for y in np.flatnonzero(bin_weight):
            strip = strip + rows[:, y].astype(jnp.float32) * bin_weight[y]
        strips.append(strip)
    exact = jax.lax.Precision.HIGHEST
    total = jnp.einsum("acx,bx->acb", jnp.stack(strips, 1), _overlap(config.size_x), precision=exact)
    quarters = (total.astype(jnp.int32) * QUARTERS + (columns - 1)) // columns
    return quarters.reshape(-1, MAP_SIDE**2).astype(jnp.float32)


def map_bin(config: EnvConfig, position: Float32[Array, "*batch 3"]) -> Int32[Array, "*batch"]:
    """Bin of the whole-map planes that each point is in, rows along y, columns along x."""
    column, row = (
        jnp.clip(jnp.floor(position[..., axis] * (MAP_SIDE / size)).astype(jnp.int32), 0, MAP_SIDE - 1)
        for axis, size in ((0, config.size_x), (1, config.size_y))
    )
    return row * MAP_SIDE + column


def own_marks(
    config: EnvConfig,
    position: Float32[Array, "arenas mechs 3"],
    hostiles: Float32[Array, "arenas mechs slots 3"],
    shown: Bool[Array, "arenas mechs slots"],
) -> list[Float32[Array, "arenas mechs bins"]]:
    """The whole-map planes self and hostiles."""
    me = map_bin(config, position)[..., None] == jnp.arange(MAP_SIDE**2, dtype=jnp.int32)
    cell = jnp.where(shown, map_bin(config, hostiles), -1)
    return [me.astype(jnp.float32), _marked(cell, MAP_SIDE**2).astype(jnp.float32)]


def shared_planes(
    config: EnvConfig, grid: Grid, arena_map: ArenaMap, mechs: Mechs
) -> list[Float32[Array, "arenas teams bins"]]:
    """The whole-map planes blocked, hazard, zone and friends, for blue and for red."""
    arenas = grid.collides.shape[0]
    columns = config.size_x * config.size_y
    wall = _share(config, (grid.collides & _WALL_LEVELS) != 0)
    lava = _share(config, grid.material[:, :columns] == LAVA)

    gap = []  # distance of the zone's centre from each bin's span, per axis
    for axis, size in ((0, config.size_x), (1, config.size_y)):
        low = np.arange(MAP_SIDE, dtype=np.float32) * np.float32(size / MAP_SIDE)
        high = low + np.float32(size / MAP_SIDE)
        centre = arena_map.zone[:, axis, None]
        gap.append(jnp.maximum(jnp.maximum(low - centre, centre - high), 0.0))
    near = gap[1][:, :, None] ** 2 + gap[0][:, None, :] ** 2 < arena_map.zone[:, 2, None, None] ** 2

    half = config.team_size
    bins = jnp.where(mechs.alive, map_bin(config, mechs.position), -1).reshape(arenas, 2, half)
    friends = jnp.zeros((arenas, 2, MAP_SIDE**2), jnp.float32)
    for i in range(half):
        friends = friends + (bins[..., i, None] == jnp.arange(MAP_SIDE**2)).astype(jnp.float32)

    def for_both(plane: Array) -> Float32[Array, "arenas teams bins"]:
        return jnp.broadcast_to(plane.reshape(arenas, 1, -1).astype(jnp.float32), friends.shape)

    return [for_both(wall), for_both(lava), for_both(near), friends]
