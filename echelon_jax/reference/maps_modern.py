"""The planes of the modern observation: small whole numbers around a mech and of the whole map, from the voxels as they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

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


class _Stack:
    """What the 3 x 3 columns around a sample hold together: by level whether something collides, whether sight ends; hazards."""

    def __init__(self, world: VoxelWorld, x: int, y: int) -> None:
        size_x, size_y, size_z = world.size
        inner = 1 <= x <= size_x - 2 and 1 <= y <= size_y - 2
        self.lava = self.water = False
        if not inner:  # a sample at the rim reaches beyond the map
            self.solid = [True] * TALLEST
            self.opaque = [True] * TALLEST
            return
        block = world.material[:, y - 1 : y + 2, x - 1 : x + 2].reshape(size_z, -1)
        rest = [False] * (TALLEST - size_z)
        self.solid = np.asarray(m.COLLIDES[block].any(-1)).tolist() + rest
        self.opaque = np.asarray(m.OPAQUE[block].any(-1)).tolist() + rest
        self.lava, self.water = m.LAVA in block[0], m.WATER in block[0]


def local_planes(world: VoxelWorld, mech: Mech) -> list[float]:
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
            stack = _Stack(world, x, y)
            below = [level for level in range(min(foot + STEPS, TALLEST)) if stack.solid[level]]
            highest = below[-1] + 1 if below else 0
            values = (
                foot < TALLEST and stack.solid[foot],
                any(stack.solid[foot + 1 : top]),
                eye < DRAWN and stack.opaque[eye],
                1.0 if stack.lava else -1.0 if stack.water else 0.0,
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
    for place in bins:
        plane[place] = 1.0
    return plane


def _shares(size: int) -> list[list[tuple[int, int]]]:
    """For each bin of an axis the voxels it holds and how many eighths of each."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(MAP_SIDE)]
    for voxel in range(size):
        for bin_ in range(MAP_SIDE):
            shared = min((voxel + 1) * MAP_SIDE, (bin_ + 1) * size) - max(voxel * MAP_SIDE, bin_ * size)
            if shared > 0:
                found[bin_].append((voxel, shared))
    return found


def share_plane(world: VoxelWorld, marked: Sequence[Sequence[bool]]) -> list[float]:
    """Quarters of each bin's columns that are marked [y][x], rounded up; columns cut by a border count in part."""
    size_x, size_y, _ = world.size
    plane = []
    for rows in _shares(size_y):
        for columns in _shares(size_x):
            total = sum(wy * wx for y, wy in rows for x, wx in columns if marked[y][x])
            plane.append(float(-(-total * QUARTERS // (size_x * size_y))))
    return plane


def team_planes(world: VoxelWorld, zone: Zone, mechs: Sequence[Mech]) -> list[list[float]]:
    """For blue and for red the planes blocked, hazard, zone and friends."""
    walls = np.asarray(m.COLLIDES[world.material[list(WALL_LEVELS)]].any(0)).tolist()
    lava = (world.material[0] == m.LAVA).tolist()
    touched = []
    for row in range(MAP_SIDE):
        for column in range(MAP_SIDE):
            gaps = []
            for axis, place, centre in ((0, column, zone.x), (1, row, zone.y)):
                size = world.size[axis] / MAP_SIDE
                gaps.append(max(place * size - centre, centre - (place + 1) * size, 0.0))
            touched.append(float(gaps[0] ** 2 + gaps[1] ** 2 < zone.radius**2))
    common = share_plane(world, walls) + share_plane(world, lava) + touched
    both = []
    for team in range(2):
        friends = [0.0] * MAP_SIDE**2
        for mech in mechs:
            if mech.alive and mech.team == team:
                friends[bin_of(world, mech.pos)] += 1.0
        both.append(common + friends)
    return both
