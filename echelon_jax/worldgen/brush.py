"""The tools every biome paints with: boxes, tubes, ramps and two ways to draw numbers.

Source: docs/spec/worlds.md 1 and 4.0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from echelon_jax.rules.materials import AIR, SOLID

RAMP_HEADROOM = 4  # levels of air above a ramp; fixed, whatever the configured clearance (G20)


class Quadrant(NamedTuple):
    """A half-open rectangle of columns, [x0, x1) by [y0, y1), that one biome fills."""

    x0: int
    x1: int
    y0: int
    y1: int

    @property
    def width(self) -> int:
        """Columns along x."""
        return self.x1 - self.x0

    @property
    def height(self) -> int:
        """Columns along y."""
        return self.y1 - self.y0

    @property
    def area(self) -> int:
        """Columns in all."""
        return self.width * self.height

    @property
    def centre(self) -> tuple[int, int]:
        """Middle column (x, y), rounded down."""
        return (self.x0 + self.x1) // 2, (self.y0 + self.y1) // 2


class Brush:
    """Paints a voxel grid in place and draws numbers from one numpy generator.

    Only materials are painted. While a layout is painted, hit points always equal the material's table value, so
    they are looked up once at the end.

    Args:
        voxels: uint8 [Z, Y, X], written in place.
        rng: the generator of every draw; same calls in the same order give the original's map.
    """

    def __init__(self, voxels: np.ndarray, rng: np.random.Generator) -> None:
        self.voxels = voxels
        self.rng = rng
        self.size_z, self.size_y, self.size_x = voxels.shape

    def integer(self, low: int, high: int) -> int:
        """A whole number in [low, high); an empty range gives `low` and draws nothing."""
        return low if low >= high else int(self.rng.integers(low, high))

    def random_box(
        self, quadrant: Quadrant, widths: tuple[int, int], heights: tuple[int, int]
    ) -> tuple[int, int, int, int] | None:
        """A random rectangle (x, y, w, h) inside the quadrant, sides within the inclusive ranges; None if none fits."""
        (w_low, w_high), (h_low, h_high) = widths, heights
        if quadrant.width < w_low or quadrant.height < h_low:
            return None
        w = self.integer(w_low, min(w_high, quadrant.width) + 1)
        h = self.integer(h_low, min(h_high, quadrant.height) + 1)
        x = self.integer(quadrant.x0, quadrant.x1 - w + 1)
        y = self.integer(quadrant.y0, quadrant.y1 - h + 1)
        return x, y, w, h

    def box(self, x0: int, x1: int, y0: int, y1: int, z0: int, z1: int, material: int) -> None:
        """Write `material` into the half-open box, clipped to the grid."""
        # A negative stop would count from the far end, so both ends are clipped at 0; numpy clips the high side.
        self.voxels[max(z0, 0) : max(z1, 0), max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)] = material

    def block(self, x: int, y: int, w: int, h: int, top: int, material: int) -> None:
        """Write `material` from the floor up to the exclusive height `top` over a w by h rectangle."""
        self.box(x, x + w, y, y + h, 0, top, material)

    def tube(self, start: tuple[int, int, int], end: tuple[int, int, int], radius: int) -> None:
        """Dig a tunnel of cubes of half-width `radius` along the line between two (x, y, z) points.

        Source: docs/spec/worlds.md 4.0.
        """
        steps = max(1, math.trunc(2 * math.dist(start, end)))
        t = np.arange(steps + 1) / steps
        cells = [np.trunc(a + (b - a) * t).astype(int).tolist() for a, b in zip(start, end)]
        for x, y, z in sorted(set(zip(*cells))):  # all AIR, so neither order nor repetition matters
            self.box(x - radius, x + radius + 1, y - radius, y + radius + 1, z - radius, z + radius + 1, AIR)

    def ramp(self, start: tuple[int, int, int], end: tuple[int, int, int], width: int) -> None:
        """Lay a one-voxel-thick sloping floor with headroom between two (x, y, z) points (docs/spec/worlds.md 4.0)."""
        distance = math.hypot(end[0] - start[0], end[1] - start[1])
        if distance < 1e-6:
            return
        steps = max(1, math.trunc(1.5 * distance))
        for i in range(steps + 1):
            x, y, z = (a + (b - a) * (i / steps) for a, b in zip(start, end))
            level = math.trunc(z)
            x0, x1 = math.trunc(x - width / 2), math.trunc(x + width / 2 + 1)
            y0, y1 = math.trunc(y - width / 2), math.trunc(y + width / 2 + 1)
            if level >= 0:
                self.box(x0, x1, y0, y1, level, level + 1, SOLID)
            self.box(x0, x1, y0, y1, level + 1, level + 1 + RAMP_HEADROOM, AIR)
