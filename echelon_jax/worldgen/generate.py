"""One world from one seed: layout, flip, spawns, zone, corridors, ground, mechs (docs/spec/worlds.md 2)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.rules.formation import formation_pitch
from echelon_jax.rules.materials import TABLE_HP
from echelon_jax.rules.mechs import BLUE, RED, roster
from echelon_jax.worldgen.corridors import LANE_HEIGHT, carve_corridors, plan_corridors
from echelon_jax.worldgen.layout import CORNERS, lay_ground, make_layout
from echelon_jax.worldgen.spawns import (
    TRANSFORMS,
    clear_spawns,
    formation,
    mirror_corner,
    place_mechs,
    require_no_overlap,
    spawn_anchor,
    spawn_area,
    spawn_rectangle,
)
from echelon_jax.worldgen.zone import Ways, clear_zone, largest_radius_between, sample_fair_zone, sample_zone


class World(NamedTuple):
    """A generated map and the positions of the mechs on it.

    Attributes:
        material: uint8 [Z, Y, X], material ids.
        hp: int16 [Z, Y, X], hit points; without `true_voxel_hp` out of step with `material` where the map was flipped or
            carved (G15, G16).
        zone: float64 [3], centre x, y and radius in voxels.
        position: float32 [N, 3], box centres in roster order.
        yaw: float64 [N], radians.
        seed: the episode seed.
        meta: biome_layout (before the flip, G17), generator, transform, spawn_corners, spawn_clear (edge of the
            square, or [x, y] edges with `terrain_on_small_maps`), capture_zone, corridors; plain Python values with
            the original's keys.
    """

    material: np.ndarray
    hp: np.ndarray
    zone: np.ndarray
    position: np.ndarray
    yaw: np.ndarray
    seed: int
    meta: dict[str, Any]


def generate_world(config: EnvConfig, seed: int) -> World:
    """Return the world of an episode seed. With the five switches of worlds off it is the original's, bit for bit.

    The switches are spawn_without_overlap, true_voxel_hp, fair_zone, terrain_on_small_maps and corridors_complete. They do
    not change the layout, the flip and the corners of a seed.

    The original then searches for a path from each team to the zone and digs where there is none. The main lanes make
    that search succeed for every clearance up to their height. So it is left out here, and a test checks the paths.

    Args:
        config: sizes, teams and switches.
        seed: episode seed, 0 or more.

    Raises:
        ValueError: `seed` is negative, `clearance_z` is above the height of a lane, or two boxes overlap although
            `spawn_without_overlap` is on.
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
    # Materials are flipped, hit points are not (G15).
    material = np.ascontiguousarray(layout.voxels[:, :: -1 if flip_y else 1, :: -1 if flip_x else 1])

    area = spawn_area(config)
    blue_area, red_area = (spawn_rectangle(corner, area, size_x, size_y) for corner in (blue, red))
    anchors = (spawn_anchor(blue, area, size_x, size_y), spawn_anchor(red, area, size_x, size_y))
    clear_spawns(material, hp, [blue_area, red_area])
    mechs = roster(config.num_packs)
    centres = formation(mechs, (blue, red), size_x, size_y, formation_pitch(config.spawn_without_overlap))
    areas = [blue_area, red_area]
    largest = largest_radius_between(area, size_x, size_y) if config.terrain_on_small_maps else math.inf
    if config.fair_zone:
        ways = Ways(anchors, (centres[mechs.team == BLUE], centres[mechs.team == RED]))
        zone = sample_fair_zone(rng, material, areas, ways, largest)
    else:
        zone = sample_zone(rng, material, areas, largest)
    clear_zone(material, zone)
    corridors = plan_corridors(rng, zone, anchors, size_x, size_y)
    carve_corridors(material, corridors, complete=config.corridors_complete)
    hp[0][lay_ground(material)] = 0
    if config.true_voxel_hp:
        hp = TABLE_HP[material]

    position, yaw = place_mechs(rng, mechs, centres, (zone.x, zone.y), size_x, size_y)
    if config.spawn_without_overlap:
        require_no_overlap(mechs, position)
    meta = {
        "biome_layout": layout.biomes,
        "generator": "layout_v2",
        "transform": transform,
        "spawn_corners": {"blue": blue, "red": red},
        "spawn_clear": list(area) if config.terrain_on_small_maps else area[0],
        "capture_zone": {"center": [zone.x, zone.y], "radius": zone.radius, "corner": zone.corner},
        "corridors": [
            {"kind": c.kind, "width": c.width, "points": [list(point) for point in c.points]} for c in corridors
        ],
    }
    return World(material, hp, np.array([zone.x, zone.y, zone.radius]), position, yaw, seed, meta)
