"""The planes of the modern observation: small whole numbers around a mech and of the whole map, from the present voxels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from echelon_jax.reference.rewards import Zone
from echelon_jax.reference.state import Mech
from echelon_jax.reference.vec import Vec, clip
from echelon_jax.reference.world import VoxelWorld
from echelon_jax.rules import materials as m

LOCAL_SIDE, SPACING = 7, 2  # samples a side, voxels between them
MAP_SIDE, QUARTERS = 8, 4  # bins a side of the whole map, steps of a share
STEPS = 4  # voxels up and down that the step plane tells apart
WALL_LEVELS = (1, 2, 3)  # of a column: what a mech on the ground cannot step over
SLACK = 0.02  # feet this little below a level stand on it
TALLEST = 32  # outside the map is a wall of this height
DRAWN = 30  # levels whose sight is drawn
_REACH = LOCAL_SIDE // 2


class Surroundings:
    """The contents of each column together with its eight neighbours, computed once for all mechs.

    Attributes:
        solid, opaque: bool [32, Y, X] whether something collides there, whether something ends sight.
        lava, water: bool [Y, X] whether there is some on the lowest level.
    """

    def __init__(self, world: VoxelWorld) -> None:
        self.size = world.size
        tall = np.zeros((TALLEST - world.size[2], world.size[1], world.size[0]), bool)
        self.solid = _with_neighbours(np.concatenate([m.COLLIDES[world.material], tall]))
        self.opaque = _with_neighbours(np.concatenate([m.OPAQUE[world.material], tall]))
        self.lava, self.water = (_with_neighbours(world.material[0] == hazard) for hazard in (m.LAVA, m.WATER))

    def column(self, x: int, y: int) -> tuple[list[bool], list[bool], float]:
        """Solid and opaque levels around column (x, y), and 1 for lava, -1 for water; a sample at the rim reaches a wall."""
        if not (1 <= x <= self.size[0] - 2 and 1 <= y <= self.size[1] - 2):
            return [True] * TALLEST, [True] * TALLEST, 0.0
        hazard = 1.0 if self.lava[y, x] else -1.0 if self.water[y, x] else 0.0
        return self.solid[:, y, x].tolist(), self.opaque[:, y, x].tolist(), hazard


def _with_neighbours(marked: np.ndarray) -> np.ndarray:
    """Whether [..., y, x] or one of the eight cells around it is marked; the rim is left false."""
    found = np.zeros_like(marked)
    size_y, size_x = marked.shape[-2:]
    for dy in range(3):
        for dx in range(3):
            found[..., 1:-1, 1:-1] |= marked[..., dy : size_y - 2 + dy, dx : size_x - 2 + dx]
    return found


def local_planes(around: Surroundings, mech: Mech) -> list[float]:
    """The planes foot, body, opaque, hazard and step, rows forward, columns to the left."""
    cos, sin = math.cos(mech.yaw), math.sin(mech.yaw)
    foot = max(math.floor(mech.pos[2] - mech.half[2] + SLACK), 0)
    top = foot + 1 + math.ceil(2.0 * mech.half[2])  # above the box raised by a step
    eye = int(clip(math.floor(mech.pos[2]), 0, TALLEST - 1))
    planes: list[list[float]] = [[] for _ in range(5)]
    for a in range(-_REACH, _REACH + 1):
        for b in range(-_REACH, _REACH + 1):
            forward, left = SPACING * a, SPACING * b
            x = math.floor(mech.pos[0] + (cos * forward - sin * left))
            y = math.floor(mech.pos[1] + (sin * forward + cos * left))
            solid, opaque, hazard = around.column(x, y)
            highest = max((level + 1 for level in range(min(foot + STEPS, TALLEST)) if solid[level]), default=0)
            values = (
                foot < TALLEST and solid[foot],
                any(solid[foot + 1 : top]),
                eye < DRAWN and opaque[eye],
                hazard,
                clip(highest - foot, -STEPS, STEPS) / STEPS,
            )
            for plane, value in zip(planes, values, strict=True):
                plane.append(float(value))
    return [value for plane in planes for value in plane]


def marks_around(friends: Iterable[tuple[float, float]], hostiles: Iterable[tuple[float, float]]) -> list[float]:
    """The local plane of mechs, given as offsets forward and to the left: 1 a friend, -1 a hostile."""
    plane = [0.0] * LOCAL_SIDE**2
    for offsets, mark in ((friends, 1.0), (hostiles, -1.0)):
        for forward, left in offsets:
            row = math.floor(forward / SPACING + 0.5) + _REACH
            column = math.floor(left / SPACING + 0.5) + _REACH
            if 0 <= row < LOCAL_SIDE and 0 <= column < LOCAL_SIDE:
                plane[row * LOCAL_SIDE + column] = mark
    return plane


def bin_of(world: VoxelWorld, pos: Vec) -> int:
    """The bin of the whole map that a point is in, rows along y, columns along x."""
    column, row = (int(clip(math.floor(pos[axis] * MAP_SIDE / world.size[axis]), 0, MAP_SIDE - 1)) for axis in range(2))
    return row * MAP_SIDE + column


def marked_bins(bins: Iterable[int]) -> list[float]:
    """1 in the bins given."""
    plane = [0.0] * MAP_SIDE**2
    for cell in bins:
        plane[cell] = 1.0
    return plane


@cache
def _shares(size: int) -> np.ndarray:
    """[bins, size] how many eighths of each voxel of an axis each bin holds."""
    return np.array(
        [
            [max(0, min((v + 1) * MAP_SIDE, (b + 1) * size) - max(v * MAP_SIDE, b * size)) for v in range(size)]
            for b in range(MAP_SIDE)
        ]
    )


def share_plane(marked: np.ndarray) -> list[float]:
    """Quarters of each bin's columns that are marked [y, x], rounded up; columns cut by a border count in part."""
    size_y, size_x = marked.shape
    total = _shares(size_y) @ marked.astype(int) @ _shares(size_x).T
    return (-(-total * QUARTERS // (size_x * size_y))).reshape(-1).astype(float).tolist()  # type: ignore[no-any-return]


def team_planes(world: VoxelWorld, zone: Zone, mechs: Sequence[Mech]) -> list[list[float]]:
    """For blue and for red the planes blocked, hazard, zone and friends."""
    walls = np.asarray(m.COLLIDES[world.material[list(WALL_LEVELS)]].any(0))
    lava = world.material[0] == m.LAVA
    touched = []
    for row in range(MAP_SIDE):
        for column in range(MAP_SIDE):
            gaps = []
            for axis, cell, centre in ((0, column, zone.x), (1, row, zone.y)):
                size = world.size[axis] / MAP_SIDE
                gaps.append(max(cell * size - centre, centre - (cell + 1) * size, 0.0))
            touched.append(float(gaps[0] ** 2 + gaps[1] ** 2 < zone.radius**2))
    common = share_plane(walls) + share_plane(lava) + touched
    both = []
    for team in range(2):
        friends = [0.0] * MAP_SIDE**2
        for mech in mechs:
            if mech.alive and mech.team == team:
                friends[bin_of(world, mech.pos)] += 1.0
        both.append(common + friends)
    return both
