"""The sixteen biomes: each fills one quadrant of a map (docs/spec/worlds.md 4.1 to 4.16).

A later write overwrites an earlier one, and a biome may reach a little beyond its quadrant. Both are part of the game, and so
is the order of every draw. docs/spec/worlds.md G25 to G35 list the surprises that follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from echelon_jax.rules.materials import AIR, FOLIAGE, GLASS, LAVA, REINFORCED, SOLID, WATER
from echelon_jax.worldgen.brush import Brush, Quadrant


def _draw_table(brush: Brush, rows: int, ranges: tuple[tuple[int, int], ...]) -> list[list[int]]:
    """`rows` times one number from each non-empty half-open range, in order: the same draws as one call each."""
    low, high = np.array(ranges).T
    return brush.rng.integers(np.tile(low, (rows, 1)), np.tile(high, (rows, 1))).tolist()


def _rocks(brush: Brush, quadrant: Quadrant, count: int, sides: tuple[int, int], heights: tuple[int, int]) -> None:
    for _ in range(count):
        rock = brush.random_box(quadrant, sides, sides)
        if rock is not None:
            brush.block(*rock, brush.integer(*heights), SOLID)


def urban_residential(brush: Brush, quadrant: Quadrant) -> None:
    """Hollow houses on an even grid, each courtyard floored with glass."""
    filled, attempts = 0.0, 0
    while filled / max(1, quadrant.area) < 0.35 and attempts < 100:
        attempts += 1
        house = brush.random_box(quadrant, (6, 10), (6, 10))
        if house is None:
            continue
        x, y, w, h = house
        x -= x % 2
        y -= y % 2
        top = brush.integer(4, 9)
        brush.block(x, y, w, h, top, SOLID)
        brush.block(x + 2, y + 2, w - 4, h - 4, top, AIR)
        brush.block(x + 2, y + 2, w - 4, h - 4, 1, GLASS)
        filled += 0.75 * w * h


def industrial_refinery(brush: Brush, quadrant: Quadrant) -> None:
    """Dense small towers with long pipes along y."""
    filled, attempts = 0.0, 0
    while filled / max(1, quadrant.area) < 0.25 and attempts < 200:
        attempts += 1
        tower = brush.random_box(quadrant, (3, 6), (3, 6))
        if tower is None:
            continue
        brush.block(*tower, brush.integer(4, 12), SOLID)
        filled += tower[2] * tower[3]
        if brush.rng.random() < 0.3:
            pipe = brush.random_box(quadrant, (1, 2), (8, 15))
            if pipe is not None:
                brush.block(*pipe, brush.integer(2, 5), SOLID)


def civic_government(brush: Brush, quadrant: Quadrant) -> None:
    """Large halls, each on a walled plaza that cuts into its neighbours' ground floor."""
    filled, attempts = 0.0, 0
    while filled / max(1, quadrant.area) < 0.20 and attempts < 50:
        attempts += 1
        hall = brush.random_box(quadrant, (8, 15), (8, 15))
        if hall is None:
            continue
        x, y, w, h = hall
        top = brush.integer(6, 10)
        filled += w * h
        px, py = max(quadrant.x0, x - 2), max(quadrant.y0, y - 2)
        pw, ph = min(w + 4, quadrant.x1 - px), min(h + 4, quadrant.y1 - py)
        brush.block(px, py, pw, ph, 1, SOLID)
        brush.block(px + 1, py + 1, pw - 2, ph - 2, 1, AIR)
        brush.block(x, y, w, h, top, SOLID)


def forest_park(brush: Brush, quadrant: Quadrant) -> None:
    """Scattered trees with small canopies, and a few rocks."""
    ranges = ((quadrant.x0, quadrant.x1), (quadrant.y0, quadrant.y1), (1, 3), (3, 8))
    for x, y, s, top in _draw_table(brush, math.trunc(0.05 * quadrant.area), ranges):
        brush.block(x, y, s, s, top, SOLID)
        if top >= 4:
            brush.box(x - 1, x + s + 1, y - 1, y + s + 1, 3, 5, FOLIAGE)
    _rocks(brush, quadrant, math.trunc(0.01 * quadrant.area), (3, 5), (2, 4))


def barrens(brush: Brush, quadrant: Quadrant) -> None:
    """Only low rocks."""
    _rocks(brush, quadrant, math.trunc(0.02 * quadrant.area), (2, 4), (1, 3))


def arcology_spire(brush: Brush, quadrant: Quadrant) -> None:
    """A tower to the sky, platforms joined by ramps, and tunnels along x through all of it."""
    (cx, cy), size_z = quadrant.centre, brush.size_z
    a, b = (quadrant.width // 3) // 2, (quadrant.height // 3) // 2
    brush.box(cx - a, cx + a, cy - b, cy + b, 0, size_z - 2, SOLID)
    landings = []
    for _ in range(brush.integer(4, 8)):
        z = (5, 10, 15)[int(brush.rng.integers(0, 3))]
        if z >= size_z - 2:
            continue
        slab = brush.random_box(quadrant, (8, 12), (8, 12))
        if slab is not None:
            x, y, w, h = slab
            brush.box(x, x + w, y, y + h, z, z + 1, SOLID)
            brush.box(x, x + w, y, y + h, z + 1, z + 5, AIR)
            landings.append((x + w // 2, y + h // 2, z))
    here = (quadrant.x0 + 2, quadrant.y0 + 2, -1)
    for landing in landings:
        brush.ramp(here, landing, 3)
        here = landing
    for _ in range(brush.integer(2, 4)):
        y0 = brush.integer(quadrant.y0, quadrant.y1)
        y1 = brush.integer(quadrant.y0, quadrant.y1)
        z = brush.integer(2, size_z - 5)
        brush.tube((quadrant.x0, y0, z), (quadrant.x1, y1, z), 2)


def sunken_canal(brush: Brush, quadrant: Quadrant) -> None:
    """A canal across the quadrant with blocks on its banks and bridges over it."""
    horizontal = brush.rng.random() > 0.5
    half = brush.integer(8, 14) // 2
    (cx, cy), (ax, bx, ay, by) = quadrant.centre, quadrant
    (au, bu), (av, bv), centre = ((ax, bx), (ay, by), cy) if horizontal else ((ay, by), (ax, bx), cx)

    def box(u0: int, u1: int, v0: int, v1: int, z0: int, z1: int, material: int) -> None:
        # u runs along the canal, v across it.
        x, y = ((u0, u1), (v0, v1)) if horizontal else ((v0, v1), (u0, u1))
        brush.box(*x, *y, z0, z1, material)

    box(au, bu, centre - half, centre + half, 0, 1, WATER)
    box(au, bu, centre - half, centre + half, 1, brush.size_z, AIR)
    for _ in range(brush.integer(10, 20)):
        u, v = brush.integer(au, bu - 4), brush.integer(av, bv - 4)
        if abs(v - centre) >= half + 2:
            box(u, u + 4, v, v + 4, 0, brush.integer(4, 10), SOLID)
    for _ in range(brush.integer(2, 4)):
        u, z = brush.integer(au + 5, bu - 5), brush.integer(4, 8)
        box(u, u + 4, centre - half - 2, centre + half + 2, z, z + 1, SOLID)


def geo_front(brush: Brush, quadrant: Quadrant) -> None:
    """A solid plateau with two main tunnels, random ones, and pools of lava."""
    (cx, cy), (ax, bx, ay, by) = quadrant.centre, quadrant
    top = brush.integer(10, brush.size_z - 2)
    brush.box(ax, bx, ay, by, 0, top, SOLID)
    brush.tube((ax, cy, 2), (bx, cy, 2), 3)
    brush.tube((cx, ay, 2), (cx, by, 2), 3)
    for _ in range(brush.integer(5, 10)):
        x0, y0 = brush.integer(ax, bx), brush.integer(ay, by)
        x1, y1 = brush.integer(ax, bx), brush.integer(ay, by)
        z0, z1 = brush.integer(1, top - 3), brush.integer(1, top - 3)
        brush.tube((x0, y0, z0), (x1, y1, z1), 2)
    for _ in range(brush.integer(3, 6)):
        x, y = brush.integer(ax, bx - 4), brush.integer(ay, by - 4)
        brush.block(x, y, 4, 4, 1, LAVA)


def glass_desert(brush: Brush, quadrant: Quadrant) -> None:
    """Glass pillars and sheets; as many on a large map as on a small one."""
    for _ in range(brush.integer(10, 20)):
        pillar = brush.random_box(quadrant, (2, 5), (2, 5))
        if pillar is not None:
            brush.block(*pillar, brush.integer(5, 12), GLASS)
    for _ in range(brush.integer(5, 10)):
        sheet = brush.random_box(quadrant, (1, 8), (1, 8))
        if sheet is not None:
            brush.block(*sheet, 1, GLASS)


def command_outpost(brush: Brush, quadrant: Quadrant) -> None:
    """A bunker inside a low fence, the same every time."""
    cx, cy = quadrant.centre
    brush.block(cx - 6, cy - 6, 12, 12, 6, REINFORCED)
    brush.block(cx - 4, cy - 4, 8, 8, 5, SOLID)
    brush.block(cx - 6, cy - 2, 3, 4, 3, AIR)
    brush.block(cx - 14, cy - 14, 28, 28, 1, REINFORCED)
    brush.block(cx - 13, cy - 13, 26, 26, 1, AIR)


def dense_jungle(brush: Brush, quadrant: Quadrant) -> None:
    """Thin trunks everywhere under wide canopies."""
    ranges = ((quadrant.x0, quadrant.x1), (quadrant.y0, quadrant.y1), (4, 8))
    for x, y, top in _draw_table(brush, math.trunc(0.15 * quadrant.area), ranges):
        brush.block(x, y, 1, 1, top, SOLID)
        brush.box(x - 2, x + 3, y - 2, y + 3, 3, 6, FOLIAGE)


def mining_pit(brush: Brush, quadrant: Quadrant) -> None:
    """A plateau with a terraced round pit and a ramp; the same every time."""
    cx, cy = quadrant.centre
    radius = min(quadrant.width, quadrant.height) // 2 - 2
    brush.box(quadrant.x0, quadrant.x1, quadrant.y0, quadrant.y1, 0, 10, SOLID)
    for r in range(radius, 4, -4):
        z = 10 - (radius - r) // 2
        for x, y in sorted(set(_circle(cx, cy, r, 5))):
            brush.box(x - 2, x + 3, y - 2, y + 3, z, 10, AIR)
    brush.block(cx - 4, cy - 4, 9, 9, 10, AIR)
    brush.ramp((cx + radius, cy, 10), (cx, cy, 0), 4)


def volcanic_ridge(brush: Brush, quadrant: Quadrant) -> None:
    """A straight ridge through the middle, crossed by streams of lava."""
    horizontal = brush.rng.random() > 0.5
    (cx, cy), (ax, bx, ay, by) = quadrant.centre, quadrant
    if horizontal:
        brush.box(ax, bx, cy - 4, cy + 4, 0, 4, SOLID)
    else:
        brush.box(cx - 4, cx + 4, ay, by, 0, 4, SOLID)
    for _ in range(brush.integer(2, 4)):
        if horizontal:
            brush.block(brush.integer(ax, bx - 3), cy - 6, 3, 12, 1, LAVA)
        else:
            brush.block(cx - 6, brush.integer(ay, by - 3), 12, 3, 1, LAVA)


def hydroponic_lab(brush: Brush, quadrant: Quadrant) -> None:
    """Greenhouses: bricks of glass with rows of plants inside."""
    for _ in range(brush.integer(2, 4)):
        house = brush.random_box(quadrant, (10, 15), (10, 15))
        if house is None:
            continue
        x, y, w, h = house
        top = brush.integer(5, 8)
        brush.block(x, y, w, h, top, GLASS)
        brush.block(x, y, 1, 1, top, REINFORCED)
        brush.block(x + w - 1, y, 1, 1, top, REINFORCED)
        for row in range(y + 2, y + h - 2, 3):
            brush.block(x + 2, row, w - 4, 1, 2, FOLIAGE)


def server_farm(brush: Brush, quadrant: Quadrant) -> None:
    """A lattice of racks, some joined by glass conduits along x."""
    for y in range(quadrant.y0 + 1, quadrant.y1 - 5, 5):
        for x in range(quadrant.x0 + 1, quadrant.x1 - 5, 5):
            if brush.rng.random() > 0.3:
                brush.block(x, y, 2, 2, brush.integer(6, 12), REINFORCED)
                if brush.rng.random() > 0.5:
                    brush.box(x, x + 5, y, y + 1, 4, 5, GLASS)


def orbital_relay(brush: Brush, quadrant: Quadrant) -> None:
    """A closed ring of indestructible posts, with beams high above."""
    cx, cy = quadrant.centre
    for x, y in _circle(cx, cy, brush.integer(8, 12), 10):
        brush.block(x - 1, y - 1, 3, 3, brush.integer(8, 15), REINFORCED)
    for _ in range(brush.integer(2, 4)):
        x, z = brush.integer(quadrant.x0, quadrant.x1 - 10), brush.integer(10, 15)
        brush.box(x, x + 10, cy - 1, cy + 1, z, z + 1, SOLID)


def _circle(cx: int, cy: int, radius: int, step: int) -> list[tuple[int, int]]:
    """Cells (x, y) of a circle, one for every `step` degrees, counter-clockwise from +x."""
    angles = [math.radians(degrees) for degrees in range(0, 360, step)]
    return [(math.trunc(cx + radius * math.cos(a)), math.trunc(cy + radius * math.sin(a))) for a in angles]


# In catalogue order: a layout draws indices into this tuple.
BIOMES: tuple[Callable[[Brush, Quadrant], None], ...] = (
    urban_residential,
    industrial_refinery,
    civic_government,
    forest_park,
    barrens,
    arcology_spire,
    sunken_canal,
    geo_front,
    glass_desert,
    command_outpost,
    dense_jungle,
    mining_pit,
    volcanic_ridge,
    hydroponic_lab,
    server_farm,
    orbital_relay,
)
BIOME_NAMES = tuple(biome.__name__ for biome in BIOMES)
