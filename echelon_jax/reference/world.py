"""Voxels, box queries, rays, smoke and the spatial grid (docs/spec/rules.md 2 and 3)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from echelon_jax.reference.vec import Cell, Vec, add, clip, dot, f32, mul, sub
from echelon_jax.rules import constants as c
from echelon_jax.rules import materials as m

# Indexed by a voxel id; plain lists of bools are faster to read one at a time than numpy arrays.
_COLLIDES = [bool(value) for value in m.COLLIDES]
_OPAQUE = [bool(value) for value in m.OPAQUE]

_NEVER = 1e30  # the crossing parameter of an axis along which a ray does not move


class VoxelWorld:
    """The voxel ids and hit points of one arena: mutable simulation state (docs/spec/rules.md 2.1).

    Args:
        material: uint8 [Z, Y, X] voxel ids.
        hp: [Z, Y, X] voxel hit points, held as float32.
    """

    def __init__(self, material: np.ndarray, hp: np.ndarray) -> None:
        if material.ndim != 3 or material.shape != hp.shape:
            raise ValueError(
                f"material and hp must be two arrays of one shape [Z, Y, X], got {material.shape} and {hp.shape}"
            )
        size_z, size_y, size_x = material.shape
        self.size: Cell = (int(size_x), int(size_y), int(size_z))
        # One bytearray seen twice: flat for the scalar loops below, as a numpy array for everyone else.
        self._cells = bytearray(np.ascontiguousarray(material, np.uint8).tobytes())
        self.material = np.frombuffer(self._cells, np.uint8).reshape(material.shape)
        self.hp = np.array(hp, np.float32)

    def copy(self) -> VoxelWorld:
        """An independent copy."""
        return VoxelWorld(self.material, self.hp)

    def inside(self, cell: Cell) -> bool:
        """Whether the cell (x, y, z) is inside the grid."""
        return all(0 <= i < n for i, n in zip(cell, self.size, strict=True))

    def voxel(self, cell: Cell) -> int:
        """The id of a cell; SOLID outside the grid on any side (docs/spec/rules.md 2.3)."""
        if not self.inside(cell):
            return m.SOLID
        x, y, z = cell
        return self._cells[(z * self.size[1] + y) * self.size[0] + x]

    def box_hits(self, low: Vec, high: Vec) -> bool:
        """Whether a box hits the world; outside the grid it is free, except below z = 0 (docs/spec/rules.md 2.4)."""
        if low[2] < 0:  # 1
            return True
        size_x, size_y, size_z = self.size
        # 2: cells floor(low) .. ceil(high) - 1, intersected with the grid; 3: an empty range never enters the loops.
        x0, x1 = max(0, math.floor(low[0])), min(size_x, math.ceil(high[0]))
        y0, y1 = max(0, math.floor(low[1])), min(size_y, math.ceil(high[1]))
        z0, z1 = max(0, math.floor(low[2])), min(size_z, math.ceil(high[2]))
        for z in range(z0, z1):
            for y in range(y0, y1):
                row = (z * size_y + y) * size_x
                for x in range(x0, x1):
                    if _COLLIDES[self._cells[row + x]]:  # 4
                        return True
        return False

    def damage(self, cell: Cell, amount: float, true_hp: bool = False) -> None:
        """Damage a cell (docs/spec/rules.md 2.5); an amount of 0 counts (Q7), hazards and dirt are not exempt (Q8).

        With `true_hp` (the switch true_voxel_hp) both: nothing happens without damage, and hazards and dirt stay.
        """
        if not self.inside(cell) or self.voxel(cell) in (m.AIR, m.REINFORCED):
            return
        if true_hp and (amount <= 0 or self.voxel(cell) in (m.DIRT, m.LAVA, m.WATER)):
            return
        x, y, z = cell
        left = f32(float(self.hp[z, y, x]) - f32(amount))
        if left <= 0:
            self.material[z, y, x] = m.AIR
            left = 0.0
        self.hp[z, y, x] = left

    def ray(self, start: Vec, end: Vec, include_end: bool) -> tuple[bool, Cell | None]:
        """Whether a ray is blocked, in float64, and by which cell if it was one (docs/spec/rules.md 3.1).

        The start cell is never tested (unless it is the goal and include_end is set); the goal only with include_end.
        """
        size_x, size_y, size_z = self.size
        sx, sy, sz = start
        dx, dy, dz = end[0] - sx, end[1] - sy, end[2] - sz
        length = math.sqrt(dx * dx + dy * dy + dz * dz)
        if length <= 1e-9:  # 1
            return False, None
        ux, uy, uz = dx / length, dy / length, dz / length  # 2
        x, y, z = math.floor(sx), math.floor(sy), math.floor(sz)
        goal_x, goal_y, goal_z = math.floor(end[0]), math.floor(end[1]), math.floor(end[2])
        step_x, delta_x, tau_x = _axis(sx, x, ux)  # 3
        step_y, delta_y, tau_y = _axis(sy, y, uy)
        step_z, delta_z, tau_z = _axis(sz, z, uz)
        cells = self._cells
        for _ in range(int(2.0 * length) + size_x + size_y + size_z + 2):  # 4
            if x == goal_x and y == goal_y and z == goal_z:  # 4.1
                if not include_end:
                    return False, None
                inside = 0 <= x < size_x and 0 <= y < size_y and 0 <= z < size_z
                if inside and _OPAQUE[cells[(z * size_y + y) * size_x + x]]:
                    return True, (x, y, z)
                return False, None
            if tau_z <= min(tau_x, tau_y):  # 4.2: on equality z beats x and y, y beats x
                z += step_z
                tau_z += delta_z
            elif tau_y <= tau_x:
                y += step_y
                tau_y += delta_y
            else:
                x += step_x
                tau_x += delta_x
            at_goal = x == goal_x and y == goal_y and z == goal_z
            if not (0 <= x < size_x and 0 <= y < size_y and 0 <= z < size_z):  # 4.3
                return not at_goal, None
            if at_goal and not include_end:  # 4.4
                return False, None
            if _OPAQUE[cells[(z * size_y + y) * size_x + x]]:  # 4.5
                return True, (x, y, z)
        return True, None  # 5

    def terrain_los(self, start: Vec, end: Vec) -> bool:
        """Whether the terrain leaves the view between two points clear (docs/spec/rules.md 3.1)."""
        return not self.ray(start, end, include_end=False)[0]


def _axis(start: float, cell: int, direction: float) -> tuple[int, float, float]:
    """Step, parameter per cell and parameter of the first border along one axis of a ray.

    Source: docs/spec/rules.md 3.1 step 3.
    """
    if direction > 0:
        delta = abs(1.0 / direction)
        return 1, delta, (cell + 1.0 - start) * delta
    if direction < 0:
        delta = abs(1.0 / direction)
        return -1, delta, (start - cell) * delta
    return 0, _NEVER, _NEVER


@dataclasses.dataclass
class SmokeCloud:
    """A living smoke cloud: centre, radius, seconds left (docs/spec/rules.md 6.9)."""

    pos: Vec
    radius: float
    life: float


def smoke_clear(clouds: Iterable[SmokeCloud], start: Vec, end: Vec) -> bool:
    """Whether no living cloud lies on the segment (docs/spec/rules.md 3.2); a segment of no length is always clear."""
    d = sub(end, start)
    length_squared = dot(d, d)
    if length_squared < 1e-9:
        return True
    for cloud in clouds:
        t = clip(f32(dot(sub(cloud.pos, start), d) / length_squared), 0.0, 1.0)
        off = sub(cloud.pos, add(start, mul(d, t)))
        if dot(off, off) <= cloud.radius * cloud.radius:
            return False
    return True


class SpatialGrid:
    """Mechs hashed by (x, y) into cells of edge 10; it decides the *order* of neighbour queries.

    Source: docs/spec/rules.md 2.6.

    A cell's list is in order of arrival: a mech that changes cell goes to the end of its new cell's list.
    """

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], list[int]] = {}
        self._cell_of: dict[int, tuple[int, int]] = {}

    @staticmethod
    def cell(pos: Vec) -> tuple[int, int]:
        """The grid cell of a position: (trunc(x/10), trunc(y/10))."""
        return int(f32(pos[0] / c.GRID_CELL)), int(f32(pos[1] / c.GRID_CELL))

    def place(self, mech: int, pos: Vec) -> None:
        """Insert a mech, or move it to the end of its new cell's list if its cell has changed."""
        cell = self.cell(pos)
        if self._cell_of.get(mech) == cell:
            return
        self.remove(mech)
        self.cells.setdefault(cell, []).append(mech)
        self._cell_of[mech] = cell

    def remove(self, mech: int) -> None:
        """Remove a mech, if it is there."""
        cell = self._cell_of.pop(mech, None)
        if cell is not None:
            self.cells[cell].remove(mech)

    def near(self, pos: Vec, radius: float) -> list[int]:
        """Mechs of the cells within ceil(radius/10) of the position's cell, in grid order."""
        n = math.ceil(radius / c.GRID_CELL)
        cell_x, cell_y = self.cell(pos)
        found: list[int] = []
        for i in range(-n, n + 1):
            for j in range(-n, n + 1):
                found.extend(self.cells.get((cell_x + i, cell_y + j), ()))
        return found

    def rank(self, mech: int) -> int:
        """The index of a mech in its cell's list; -1 if it is not in the grid."""
        cell = self._cell_of.get(mech)
        return -1 if cell is None else self.cells[cell].index(mech)
