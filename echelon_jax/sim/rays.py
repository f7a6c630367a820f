"""Line of sight through the voxels: the traversal over flat lists of rays, and smoke (docs/spec/rules.md 3.1, 3.2).

Every ray runs in lock step with the others of its list, one cell per iteration, so the functions here take lists (a
leading `rays` axis) and an arena number per ray instead of being vmapped. Arithmetic is float32: against float64 no
difference was found in 46,080 random rays; end points exactly on cell borders differ in a few per thousand (Q9).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.sim.queues import compact
from echelon_jax.sim.state import Smoke
from echelon_jax.sim.widths import LoopWidths, loop_widths

Carry = TypeVar("Carry")
RayOf = Callable[[Int32[Array, " rays"]], tuple[Array, Array, Array]]

_FAR = 1e30
_MOST_WRITTEN_OUT = 5  # turns of a fixed number that are written out one after the other, which saves copies on a GPU
_X_UNIT, _Y_UNIT, _Z_UNIT = 1, 1 << 10, 1 << 20
_FIELD = (1 << 10) - 1


class Traversal(NamedTuple):
    """First cell, goal cell, direction signs, and per axis the ray parameter of the next border and between borders."""

    cell: tuple[Array, Array, Array]
    goal: tuple[Array, Array, Array]
    sign: tuple[Array, Array, Array]
    tau: tuple[Array, Array, Array]
    delta: tuple[Array, Array, Array]
    moving: Array  # false for a ray without length, which is never blocked


def _traversal(start: Float32[Array, "rays 3"], end: Float32[Array, "rays 3"]) -> Traversal:
    cell, goal, sign, tau, delta = [], [], [], [], []
    squared = jnp.zeros(start.shape[:-1], jnp.float32)
    for axis in range(3):
        s, e = start[..., axis], end[..., axis]
        d = e - s
        c = jnp.floor(s)
        step = jnp.where(d == 0, _FAR, 1.0 / jnp.abs(jnp.where(d == 0, 1.0, d)))
        tau.append(jnp.where(d > 0, (c + 1.0 - s) * step, jnp.where(d < 0, (s - c) * step, _FAR)))
        delta.append(step)
        cell.append(c.astype(jnp.int32))
        goal.append(jnp.floor(e).astype(jnp.int32))
        sign.append(jnp.sign(d).astype(jnp.int32))
        squared = squared + d * d
    return Traversal(tuple(cell), tuple(goal), tuple(sign), tuple(tau), tuple(delta), squared > 1e-18)  # type: ignore[arg-type]


class _Going(NamedTuple):
    """What changes of a ray on its way: linear column, level, border parameters, and the steps left packed into one number.

    `left` is 0 once the goal was reached and -1 once the ray was blocked.
    """

    column: Array
    z: Array
    tau: tuple[Array, Array, Array]
    left: Array


def _most_steps(config: EnvConfig) -> int:
    """No ray takes more steps inside the map, into it from the cell above it, or out of it (docs/spec/rules.md 12.4)."""
    return config.size_x + config.size_y + config.size_z


def steps_within(reach: float) -> int:
    """Steps that a ray of length `reach` takes at most (docs/spec/rules.md 12.4)."""
    return math.floor(math.sqrt(3.0) * reach) + 3


def _turns(turn: Callable[[Carry], Carry], more: Callable[[Carry], Array], start: Carry, number: int | None) -> Carry:
    """Take turns while there is `more` to do, or a fixed `number` of them; a turn leaves alone what has ended."""
    if number is None:
        return jax.lax.while_loop(more, turn, start)
    written_out = number if number <= _MOST_WRITTEN_OUT else math.gcd(number, _MOST_WRITTEN_OUT)
    return jax.lax.fori_loop(0, number, lambda _, carry: turn(carry), start, unroll=written_out)


def sight(
    config: EnvConfig,
    opaque: UInt32[Array, "arenas columns"],
    arena: Int32[Array, " rays"],
    start: Float32[Array, "rays 3"],
    end: Float32[Array, "rays 3"],
    wanted: Bool[Array, " rays"],
    widths: LoopWidths | None = None,
    compaction_rounds: int = 0,
    reach: float | None = None,
) -> Bool[Array, " rays"]:
    """Whether the terrain between two points leaves the view clear (docs/spec/rules.md 3.1 with the end cell left out).

    x and y of both ends must lie inside the map (mech centres always do); z may lie above it. Rays not `wanted` cost
    nothing and read clear. A step on an axis that has none left skips the goal for ever (Q9): blocked. The bits of a ray
    do not depend on widths or rounds.

    Args:
        config: sizes of the map.
        opaque: per arena and column a word, bit z of which says that the voxel at z hides what is behind it.
        arena: of each ray.
        start, end: in voxels.
        wanted: rays to walk.
        widths: of the loop; those of the backend without them.
        compaction_rounds: how often the rays still under way are packed together, each time that three of four have ended;
            never under `fixed_rounds`.
        reach: length of the longest wanted ray if it is known, which saves turns under `fixed_rounds`.
    """
    widths = widths or loop_widths(opaque.shape[0])
    columns, width, top = opaque.shape[1], config.size_x, config.size_z
    words = opaque.reshape(-1)
    t = _traversal(start, end)
    (cx, cy, cz), (gx, gy, gz), (sx, sy, sz) = t.cell, t.goal, t.sign
    left = jnp.abs(gx - cx) + jnp.abs(gy - cy) * _Y_UNIT + jnp.abs(gz - cz) * _Z_UNIT
    going = _Going(arena * columns + cy * width + cx, cz, t.tau, jnp.where(wanted & t.moving, left, 0))
    moves = (t.delta, (sx, sy * width, sz))
    most = _most_steps(config) if reach is None else min(_most_steps(config), steps_within(reach))
    number = -(-most // widths.ray_steps) if widths.fixed_rounds else None

    def walked(going: _Going, moves: tuple, enough: int) -> _Going:
        """The rays once no more than `enough` are under way."""
        (dx, dy, dz), (sx, row, sz) = moves

        def step(ray: _Going) -> tuple[_Going, Array]:
            """The ray in its next cell, as if nothing were in its way, and whether something is."""
            (tx, ty, tz), left = ray.tau, ray.left
            live = left > 0
            on_z = tz <= jnp.minimum(tx, ty)
            on_y = ~on_z & (ty <= tx)
            on_x = ~on_z & ~on_y
            field = jnp.where(on_z, left >> 20, jnp.where(on_y, left >> 10, left)) & _FIELD
            skipped = field == 0
            after = left - jnp.where(on_z, _Z_UNIT, jnp.where(on_y, _Y_UNIT, _X_UNIT))
            column = ray.column + jnp.where(skipped | on_z | ~live, 0, jnp.where(on_y, row, sx))
            z = ray.z + jnp.where(on_z, sz, 0)
            word = words.at[column].get(mode="promise_in_bounds")
            solid = (word >> jnp.clip(z, 0, 31).astype(jnp.uint32)) & 1
            hits = live & (after > 0) & ((solid == 1) | (z >= top))
            tau = (tx + jnp.where(on_x, dx, 0.0), ty + jnp.where(on_y, dy, 0.0), tz + jnp.where(on_z, dz, 0.0))
            return _Going(column, z, tau, jnp.where(live, jnp.where(skipped, -1, after), left)), hits

        def turn(ray: _Going) -> _Going:
            # Where the ray goes must not depend on what it meets within a turn: a GPU compiler fuses some 14 such steps into
            # one kernel, but only 4 if each had to wait for the word that the one before it read.
            ray, blocked = step(ray)
            for _ in range(widths.ray_steps - 1):
                ray, hits = step(ray)
                blocked = blocked | hits
            return ray._replace(left=jnp.where(blocked, -1, ray.left))

        def more(ray: _Going) -> Array:
            live = ray.left > 0
            return live.any() if enough == 0 else live.sum(dtype=jnp.int32) > enough

        return _turns(turn, more, going, number)

    rays = left.shape[0]
    compaction_rounds = 0 if widths.fixed_rounds else compaction_rounds
    ray_number, size, clear = jnp.arange(rays, dtype=jnp.int32), rays, jnp.zeros(rays, bool)
    for level in range(compaction_rounds + 1):
        enough = size // 4 if level < compaction_rounds else 0
        going = walked(going, moves, enough)
        reached = going.left == 0
        clear = reached if level == 0 else clear.at[ray_number].set(reached, mode="drop")
        if enough == 0:
            break
        item, count = compact(going.left > 0, enough)
        filled, pick = jnp.arange(enough, dtype=jnp.int32) < count, jnp.minimum(item, size - 1)
        going, moves, ray_number = jax.tree.map(lambda values, p=pick: values[p], (going, moves, ray_number))
        going = going._replace(left=jnp.where(filled, going.left, 0))
        ray_number, size = jnp.where(filled, ray_number, rays), enough
    return clear


class Walk(NamedTuple):
    """Outcome of a general traversal: blocked or not, whether a cell was struck, and which (x, y, z).

    A walk cut short after some steps can be `unfinished`; `cell` and `tau` are then where it goes on from.
    """

    blocked: Bool[Array, " rays"]
    struck: Bool[Array, " rays"]
    cell: Int32[Array, "rays 3"]
    unfinished: Bool[Array, " rays"]
    tau: Float32[Array, "rays 3"]


def walk(
    config: EnvConfig,
    opaque: UInt32[Array, "arenas columns"],
    arena: Int32[Array, " rays"],
    start: Float32[Array, "rays 3"],
    end: Float32[Array, "rays 3"],
    wanted: Bool[Array, " rays"],
    include_end: bool,
    widths: LoopWidths | None = None,
    most_steps: int | None = None,
    onward: tuple[Bool[Array, " rays"], Int32[Array, "rays 3"], Float32[Array, "rays 3"]] | None = None,
) -> Walk:
    """The whole traversal of docs/spec/rules.md 3.1 for any end points, with the struck cell.

    For the short rays of projectiles and splash. A ray that skips its goal (Q9) runs on to the first opaque cell or the
    border, as in the original. The original's budget of steps is never what ends it: every step moves away from the start,
    so the border comes first.

    Args:
        most_steps: under `fixed_rounds`, stop after that many steps (rounded up to whole turns of the loop); by default no
            ray needs more.
        onward: rays that go on with an earlier walk of theirs, and its `cell` and `tau`.
    """
    widths = widths or loop_widths(opaque.shape[0])
    columns, width = opaque.shape[1], config.size_x
    limit = (config.size_x, config.size_y, config.size_z)
    words = opaque.reshape(-1)
    t = _traversal(start, end)
    gx, gy, gz = t.goal
    sx, sy, sz = t.sign
    dx, dy, dz = t.delta

    def looks(x: Array, y: Array, z: Array) -> tuple[Array, Array]:
        inside = (x >= 0) & (x < limit[0]) & (y >= 0) & (y < limit[1]) & (z >= 0) & (z < limit[2])
        column = arena * columns + jnp.clip(y, 0, limit[1] - 1) * width + jnp.clip(x, 0, limit[0] - 1)
        word = words.at[column].get(mode="promise_in_bounds")
        return inside, inside & (((word >> jnp.clip(z, 0, 31).astype(jnp.uint32)) & 1) == 1)

    at_goal = (t.cell[0] == gx) & (t.cell[1] == gy) & (t.cell[2] == gz)
    _, first_solid = looks(*t.cell)
    # 0: on the way, 1: clear, 2: blocked by the border, 3: blocked by the current cell
    status = jnp.where(at_goal, jnp.where(first_solid & include_end, 3, 1), 0)
    status = jnp.where(wanted & t.moving, status, 1)
    cell: tuple[Array, ...] = t.cell
    tau: tuple[Array, ...] = t.tau
    if onward is not None:
        again, old_cell, old_tau = onward
        status = jnp.where(again & wanted, 0, status)
        cell = tuple(jnp.where(again, old_cell[:, axis], cell[axis]) for axis in range(3))
        tau = tuple(jnp.where(again, old_tau[:, axis], tau[axis]) for axis in range(3))

    Ray = tuple[Array, ...]

    def more(carry: Ray) -> Array:
        return (carry[-1] == 0).any()

    def step(carry: Ray) -> tuple[Ray, Array]:
        """The ray in its next cell, as if nothing but goal and border could end it, and whether that cell is opaque."""
        x, y, z, tx, ty, tz, status = carry
        live = status == 0
        on_z = live & (tz <= jnp.minimum(tx, ty))
        on_y = live & ~on_z & (ty <= tx)
        on_x = live & ~on_z & ~on_y
        x, y, z = x + jnp.where(on_x, sx, 0), y + jnp.where(on_y, sy, 0), z + jnp.where(on_z, sz, 0)
        inside, solid = looks(x, y, z)
        goal = (x == gx) & (y == gy) & (z == gz)
        solid = solid if include_end else solid & ~goal
        return (
            x,
            y,
            z,
            tx + jnp.where(on_x, dx, 0.0),
            ty + jnp.where(on_y, dy, 0.0),
            tz + jnp.where(on_z, dz, 0.0),
            jnp.where(live, jnp.where(goal, 1, jnp.where(inside, 0, 2)), status),
        ), solid & live

    def turn(carry: Ray) -> Ray:
        # As in `sight`: the way of a turn is independent of the words read on it.
        carry, solid = step(carry)
        found: tuple[Array, ...] = carry[:3]
        met = solid
        for _ in range(widths.walk_steps - 1):
            carry, solid = step(carry)
            found = tuple(jnp.where(met, old, new) for old, new in zip(found, carry[:3], strict=True))
            met = met | solid
        return (*found, *carry[3:6], jnp.where(met, 3, carry[6]))

    most = _most_steps(config) if most_steps is None else most_steps
    number = -(-most // widths.walk_steps) if widths.fixed_rounds else None
    x, y, z, tx, ty, tz, status = _turns(turn, more, (*cell, *tau, status), number)
    return Walk(status >= 2, status == 3, jnp.stack([x, y, z], -1), status == 0, jnp.stack([tx, ty, tz], -1))


def smoke_clear(
    cloud: Float32[Array, "rays clouds 3"],
    life: Int32[Array, "rays clouds"],
    start: Float32[Array, "rays 3"],
    end: Float32[Array, "rays 3"],
) -> Bool[Array, " rays"]:
    """Whether no living cloud touches the segment; a segment without length is always clear.

    Source: docs/spec/rules.md 3.2.
    """
    ax, ay, az = (start[:, None, axis] for axis in range(3))
    dx, dy, dz = (end[:, None, axis] - start[:, None, axis] for axis in range(3))
    length2 = dx * dx + dy * dy + dz * dz
    ox, oy, oz = cloud[..., 0] - ax, cloud[..., 1] - ay, cloud[..., 2] - az
    t = jnp.clip((ox * dx + oy * dy + oz * dz) / jnp.maximum(length2, 1e-9), 0.0, 1.0)
    qx, qy, qz = ox - t * dx, oy - t * dy, oz - t * dz
    near = (life > 0) & (qx * qx + qy * qy + qz * qz <= k.SMOKE_CLOUD_RADIUS**2)
    return ~near.any(-1) | (length2[:, 0] < 1e-9)


def queued_sight(
    config: EnvConfig,
    opaque: UInt32[Array, "arenas columns"],
    needed: Bool[Array, " items"],
    ray_of: RayOf,
    widths: LoopWidths,
    chunk: int | None = None,
    smoke: Smoke | None = None,
    compaction_rounds: int = 0,
) -> Bool[Array, " items"]:
    """Which of the `needed` rays of a long list are clear; false for the others.

    They are packed into one queue and walked `chunk` (by default `widths.rays`) at a time, or all in one pass under
    `fixed_rounds`.

    Args:
        ray_of: arena, start and end of rays by their numbers.
        smoke: clouds that block the view too; without them only terrain does.
        compaction_rounds: of `sight`, for the rays of a chunk.
    """
    items = needed.shape[0]

    def look(item: Int32[Array, " rays"], wanted: Bool[Array, " rays"]) -> Bool[Array, " rays"]:
        ground, start, end = ray_of(item)
        clear = sight(config, opaque, ground, start, end, wanted, widths, compaction_rounds)
        return clear if smoke is None else clear & smoke_clear(smoke.position[ground], smoke.life[ground], start, end)

    if widths.fixed_rounds:
        return look(jnp.arange(items, dtype=jnp.int32), needed) & needed
    chunk = min(items, chunk or widths.rays)
    size = -(-items // chunk) * chunk  # a whole number of chunks, so that no slice is cut short
    queue, count = compact(needed, size)

    def more(carry: tuple[Array, Array]) -> Array:
        return carry[0] < count

    def walk_chunk(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        done, clear = carry
        item = jax.lax.dynamic_slice(queue, (done,), (chunk,))
        wanted = done + jnp.arange(chunk, dtype=jnp.int32) < count
        seen = look(jnp.minimum(item, items - 1), wanted)
        return done + chunk, clear.at[item].set(seen, mode="drop")

    _, clear = jax.lax.while_loop(more, walk_chunk, (jnp.int32(0), jnp.zeros(items, bool)))
    return clear & needed


def pair_sight(
    config: EnvConfig,
    opaque: UInt32[Array, "arenas columns"],
    position: Float32[Array, "rows mechs 3"],
    needed: Bool[Array, "rows mechs mechs"],
    smoke: Smoke | None = None,
    arena: Int32[Array, " rows"] | None = None,
    chunk: int | None = None,
    widths: LoopWidths | None = None,
    compaction_rounds: int = 0,
) -> Bool[Array, "rows mechs mechs"]:
    """Whether mech i sees mech j, for the pairs that are `needed`; false for the others.

    Args:
        smoke: clouds that block the view too; without them only terrain does.
        arena: the arena of each row, where rows are a selection of arenas; by default row r is arena r.
        chunk: rays walked together, if not `widths.rays`.
        compaction_rounds: of `sight`, for the rays of a chunk.
    """
    rows, n = position.shape[:2]
    widths = widths or loop_widths(opaque.shape[0])
    where = position.reshape(-1, 3)

    def ray_of(item: Int32[Array, " rays"]) -> tuple[Array, Array, Array]:
        row, pair = item // (n * n), item % (n * n)
        start, end = where[row * n + pair // n], where[row * n + pair % n]
        return row if arena is None else arena[row], start, end

    clear = queued_sight(config, opaque, needed.reshape(-1), ray_of, widths, chunk, smoke, compaction_rounds)
    return clear.reshape(rows, n, n)
