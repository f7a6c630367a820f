"""Wrecks: the debris of a dead mech in the grid, and the CRC32 roll of its material (docs/spec/rules.md 8.7)."""

from __future__ import annotations

import zlib
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.rules.materials import AIR, DEBRIS_FIELD, DIRT, SOLID_DEBRIS, TABLE_HP
from echelon_jax.rules.mechs import CLASS_NAMES, roster
from echelon_jax.sim.queues import Rows, first_true, pick_rows
from echelon_jax.sim.rules import MAX_BOX_COLUMNS, SimRules
from echelon_jax.sim.state import Grid, Mechs
from echelon_jax.sim.widths import LoopWidths

_NUMBERS = 6  # of a wreck's text
_MOST_DIGITS = 4  # coordinates are below 10,000


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return table.astype(np.uint32)


@cache
def _crc_parts(config: EnvConfig) -> tuple[np.ndarray, np.ndarray]:
    """What the parts of a wreck's text add to its CRC32, each by what follows it.

    CRC32 is linear: fed with a byte, the register becomes M(register) xor table[byte], where M(r) = table[r & 255] xor (r >> 8).
    So the CRC of a text is the xor of what each part leaves in an empty register, sent through M once for each byte behind it.

    Returns:
        uint32 [mechs, length of the numbers]: of the part "id:class" with the register's start value.
        uint32 [bytes behind it, coordinates]: of a part ":coordinate".
    """
    r = roster(config.num_packs)
    table = _crc_table()

    def passed(register: np.ndarray) -> np.ndarray:
        return table[register & 0xFF] ^ (register >> np.uint32(8))

    def behind(register: np.ndarray, most: int) -> np.ndarray:
        rows = [register]
        for _ in range(most):
            rows.append(passed(rows[-1]))
        return np.stack(rows)

    longest = _NUMBERS * (1 + _MOST_DIGITS)
    heads = [f"{i}:{CLASS_NAMES[c]}" for i, c in zip(r.ids, r.mech_class, strict=True)]
    start = np.array([zlib.crc32(head.encode()) ^ 0xFFFFFFFF for head in heads], np.uint32)
    coordinate = []
    for value in range(max(config.size_x, config.size_y, config.size_z) + 1):
        register = np.uint32(0)
        for byte in f":{value}".encode():
            register = table[(register ^ np.uint32(byte)) & np.uint32(0xFF)] ^ (register >> np.uint32(8))
        coordinate.append(register)
    return behind(start, longest).T, behind(np.array(coordinate, np.uint32), longest - 1 - _MOST_DIGITS)


def wreck_roll(
    config: EnvConfig, mech: Int32[Array, " wrecks"], bounds: Int32[Array, "wrecks 6"]
) -> UInt32[Array, " wrecks"]:
    """CRC32 of "id:class:lo_x:lo_y:lo_z:hi_x:hi_y:hi_z" for each wreck, from tables instead of strings (`_crc_parts`)."""
    heads, coordinates = (jnp.asarray(part) for part in _crc_parts(config))
    length, found = jnp.zeros_like(mech), jnp.zeros(mech.shape, jnp.uint32)
    for number in range(_NUMBERS - 1, -1, -1):
        value = bounds[:, number]
        found = found ^ coordinates[length, value]
        length = length + 2
        for power in range(1, _MOST_DIGITS):
            length = length + (value >= 10**power)
    return heads[mech, length] ^ found ^ jnp.uint32(0xFFFFFFFF)


def box_cells(
    config: EnvConfig, rules: SimRules, mech: Int32[Array, " wrecks"], centre: Float32[Array, "wrecks 3"]
) -> tuple[Int32[Array, "wrecks 3"], Int32[Array, "wrecks 3"]]:
    """The cells a mech's box touches inside the map: first, and one past the last."""
    size = jnp.array([config.size_x, config.size_y, config.size_z], jnp.int32)
    half = rules.half[mech]
    lo = jnp.maximum(jnp.floor(centre - half).astype(jnp.int32), 0)
    return lo, jnp.minimum(jnp.ceil(centre + half).astype(jnp.int32), size)


def _as_roll(hashed: UInt32[Array, "*batch"]) -> Float32[Array, "*batch"]:
    return hashed.astype(jnp.float32) / jnp.float32(2**32)


def hashed_rolls(config: EnvConfig, rules: SimRules, mechs: Mechs) -> Float32[Array, "arenas mechs"]:
    """The roll of the wreck that each mech would leave where it stands, from its hash, for all mechs at once."""
    arenas, n = mechs.alive.shape
    mech = jnp.tile(jnp.arange(n, dtype=jnp.int32), arenas)
    bounds = jnp.concatenate(box_cells(config, rules, mech, mechs.position.reshape(-1, 3)), -1)
    return _as_roll(wreck_roll(config, mech, bounds)).reshape(arenas, n)


def place_wrecks(
    config: EnvConfig,
    rules: SimRules,
    grid: Grid,
    mechs: Mechs,
    others: Bool[Array, "wrecks mechs"],
    arena: Int32[Array, " wrecks"],
    mech: Int32[Array, " wrecks"],
    wanted: Bool[Array, " wrecks"],
    rolls: Float32[Array, "arenas mechs"] | None = None,
) -> Grid:
    """Turn the AIR and DIRT cells of each dead mech's box into debris, except under the boxes of `others`.

    Source: docs/spec/rules.md 8.7.

    Args:
        others: for each wreck, the mechs that count as living at that moment.
        arena, mech: whose wreck. Two wanted wrecks of an arena must not both fill a cell.
        wanted: rows that are real.
        rolls: of each mech's wreck; without them the hash of name and position is computed here.
    """
    arenas, n = mechs.alive.shape
    size = jnp.array([config.size_x, config.size_y, config.size_z], jnp.int32)
    lo, hi = box_cells(config, rules, mech, mechs.position.reshape(-1, 3)[arena * n + mech])
    if rolls is None:
        roll = _as_roll(wreck_roll(config, mech, jnp.concatenate([lo, hi], -1)))
    else:
        roll = rolls.reshape(-1)[arena * n + mech]
    debris = jnp.where(roll < rules.solid_wreck_probability[mech], SOLID_DEBRIS, DEBRIS_FIELD).astype(jnp.uint8)

    edge = np.arange(MAX_BOX_COLUMNS)
    offsets = jnp.asarray(np.stack(np.meshgrid(edge, edge, edge, indexing="ij"), -1).reshape(-1, 3), jnp.int32)
    cell = lo[:, None, :] + offsets  # [wrecks, cells, 3]
    inside = ((cell < hi[:, None, :]) & (cell < size)).all(-1) & wanted[:, None]
    other_lo = (mechs.position[arena] - rules.half)[:, None]  # [wrecks, 1, mechs, 3]
    other_hi = (mechs.position[arena] + rules.half)[:, None]
    corner = cell[:, :, None, :].astype(jnp.float32)
    covered = ((corner < other_hi) & (corner + 1.0 > other_lo)).all(-1) & others[:, None, :]
    column = jnp.where(inside, cell[..., 1] * config.size_x + cell[..., 0], 0)
    level = jnp.where(inside, cell[..., 2], 0)
    voxel = level * (config.size_x * config.size_y) + column
    material = grid.material.at[arena[:, None], voxel].get(mode="clip")
    filled = inside & ~covered.any(-1) & ((material == AIR) | (material == DIRT))
    row = jnp.where(filled, arena[:, None], arenas)
    bit = jnp.uint32(1) << level.astype(jnp.uint32)
    hp = grid.hp  # left as it was (Q5)
    if config.true_voxel_hp:
        full = jnp.asarray(TABLE_HP)[debris.astype(jnp.int32)]
        hp = hp.at[row, voxel].set(jnp.broadcast_to(full[:, None], row.shape), mode="drop")
    return Grid(
        material=grid.material.at[row, voxel].set(jnp.broadcast_to(debris[:, None], row.shape), mode="drop"),
        hp=hp,
        collides=grid.collides.at[row, column].add(bit, mode="drop"),
        opaque=grid.opaque.at[row, column].add(bit, mode="drop"),
    )


def next_wrecks(
    dead: Bool[Array, "arenas mechs"], alive: Bool[Array, "arenas mechs"], rows: Rows
) -> tuple[Int32[Array, " rows"], Bool[Array, " rows"], Bool[Array, "rows mechs"]]:
    """For some arenas: the first dead mech without a wreck, whether there is one, and who still counts as living for it.

    A mech that died in the same loop but later in roster order still reserves its cells (Q25).
    """
    unburied = rows.take(dead) & rows.real[:, None]
    any_dead, mech = first_true(unburied)
    others = rows.take(alive) | (unburied & (jnp.arange(dead.shape[1]) > mech[:, None]))
    return mech, any_dead, others


def next_buried(
    dead: Bool[Array, "arenas mechs"], rows: Rows, mech: Int32[Array, " rows"]
) -> Bool[Array, "arenas mechs"]:
    """`dead` without the mechs whose wrecks were just placed."""
    return rows.put(dead, rows.take(dead) & (jnp.arange(dead.shape[1]) != mech[:, None]))


def bury(
    config: EnvConfig,
    rules: SimRules,
    grid: Grid,
    mechs: Mechs,
    dead: Bool[Array, "arenas mechs"],
    widths: LoopWidths,
    rolls: Float32[Array, "arenas mechs"] | None = None,
) -> Grid:
    """Place the wrecks of all `dead` mechs (already marked as not alive), in roster order within an arena."""
    arenas, n = dead.shape
    if widths.fixed_rounds:
        # All at once: a cell of two of these boxes is kept free by the later mech for the earlier one's wreck (Q25), so that
        # no two of them fill the same cell, and none of them reads what another one writes.
        mech = jnp.arange(n, dtype=jnp.int32)
        others = mechs.alive[:, None] | (dead[:, None] & (mech[None, :] > mech[:, None]))
        arena = jnp.repeat(jnp.arange(arenas, dtype=jnp.int32), n)
        return place_wrecks(
            config, rules, grid, mechs, others.reshape(-1, n), arena, jnp.tile(mech, arenas), dead.reshape(-1), rolls
        )

    def more(carry: tuple[Grid, Bool[Array, "arenas mechs"]]) -> Bool[Array, ""]:
        return carry[1].any()

    def one_round(carry: tuple[Grid, Bool[Array, "arenas mechs"]]) -> tuple[Grid, Bool[Array, "arenas mechs"]]:
        grid, left = carry
        rows = pick_rows(left.any(-1), widths.wrecks)
        mech, wanted, others = next_wrecks(left, mechs.alive, rows)
        grid = place_wrecks(config, rules, grid, mechs, others, rows.arena, mech, wanted, rolls)
        return grid, next_buried(left, rows, mech)

    return jax.lax.while_loop(more, one_round, (grid, dead))[0]
