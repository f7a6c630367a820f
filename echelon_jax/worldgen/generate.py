"""One world from one seed: layout, flip, spawns, zone, corridors, ground, mechs (worldgen spec 2)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.rules.materials import TABLE_HP
from echelon_jax.rules.mechs import roster
from echelon_jax.worldgen.corridors import LANE_HEIGHT, carve_corridors, plan_corridors
from echelon_jax.worldgen.layout import CORNERS, lay_ground, make_layout
from echelon_jax.worldgen.spawns import (
    TRANSFORMS,
    clear_spawns,
    mirror_corner,
    place_mechs,
    spawn_anchor,
    spawn_clear_size,
    spawn_square,
)
from echelon_jax.worldgen.zone import clear_zone, sample_zone


class World(NamedTuple):
    """A generated map and where everybody stands on it.

    Attributes:
        material: uint8 [Z, Y, X], material ids.
        hp: int16 [Z, Y, X], hit points; out of step with `material` where the map was flipped or carved (quirk 15, 16).
        zone: float64 [3], centre x, y and radius in voxels.
        position: float32 [N, 3], box centres in roster order.
        yaw: float64 [N], radians.
        seed: the episode seed.
        meta: biome_layout (before the flip, quirk 17), generator, transform, spawn_corners, spawn_clear,
            capture_zone, corridors; plain Python values with the original's keys.
    """

    material: np.ndarray
    hp: np.ndarray
    zone: np.ndarray
    position: np.ndarray
    yaw: np.ndarray
    seed: int
    meta: dict[str, Any]


def generate_world(config: EnvConfig, seed: int) -> World:
    """The world that the original makes from an episode seed, bit for bit.

    The original then searches for a path from each team to the zone and digs where there is none. The main lanes make
    that search succeed for every clearance up to their height, so it is left out here and tested instead.

    Args:
        config: sizes and teams.
        seed: episode seed, 0 or more.

    Raises:
        ValueError: `seed` is negative, or `clearance_z` is above the height of a lane.
    """
    if seed < 0:
        raise ValueError(f"seed must be a whole number from 0, got {seed}")
    if config.clearance_z > LANE_HEIGHT:
        raise ValueError(f"clearance_z must be at most {LANE_HEIGHT}, the height of a lane, got {config.clearance_z}")
    size_x, size_y = config.size_x, config.size_y
    # Children: world, sim, variants. The simulation's own draws come from elsewhere.
    world_seed, _, variant_seed = np.random.SeedSequence(seed).spawn(3)
    rng = np.random.default_rng(variant_seed)

    layout = make_layout(np.random.default_rng(world_seed), size_x, size_y, config.size_z)
    hp = TABLE_HP[layout.voxels]

    canonical = int(rng.integers(0, 4))  # blue's corner; the diagonal opposite of CORNERS[i] is CORNERS[3 - i]
    transform = TRANSFORMS[int(rng.integers(0, 4))]
    flip_x, flip_y = transform in ("flip_x", "flip_xy"), transform in ("flip_y", "flip_xy")
    blue = mirror_corner(CORNERS[canonical], flip_x, flip_y)
    red = mirror_corner(CORNERS[3 - canonical], flip_x, flip_y)
    # Materials are flipped, hit points are not (quirk 15).
    material = np.ascontiguousarray(layout.voxels[:, :: -1 if flip_y else 1, :: -1 if flip_x else 1])

    clear = spawn_clear_size(size_x, size_y, config.team_size)
    squares = [spawn_square(corner, clear, size_x, size_y) for corner in (blue, red)]
    clear_spawns(material, hp, squares)
    zone = sample_zone(rng, material, squares)
    clear_zone(material, zone)
    anchors = (spawn_anchor(blue, clear, size_x, size_y), spawn_anchor(red, clear, size_x, size_y))
    corridors = plan_corridors(rng, zone, anchors, size_x, size_y)
    carve_corridors(material, corridors)
    hp[0][lay_ground(material)] = 0

    position, yaw = place_mechs(rng, roster(config.num_packs), (blue, red), (zone.x, zone.y), size_x, size_y)
    meta = {
        "biome_layout": layout.biomes,
        "generator": "layout_v2",
        "transform": transform,
        "spawn_corners": {"blue": blue, "red": red},
        "spawn_clear": clear,
        "capture_zone": {"center": [zone.x, zone.y], "radius": zone.radius, "corner": zone.corner},
        "corridors": [
            {"kind": c.kind, "width": c.width, "points": [list(point) for point in c.points]} for c in corridors
        ],
    }
    return World(material, hp, np.array([zone.x, zone.y, zone.radius]), position, yaw, seed, meta)
