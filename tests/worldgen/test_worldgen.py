"""The world generator against the recorded maps of the original, and the properties every map must have."""

import hashlib
import itertools
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.connectivity import flood, ground_mask, teams_reach_zone

from echelon_jax.config import EnvConfig
from echelon_jax.rules.materials import AIR, COLLIDES, DIRT, LAVA, SOLID, TABLE_HP, WATER
from echelon_jax.rules.mechs import MECH_CLASSES, roster
from echelon_jax.worldgen import generate
from echelon_jax.worldgen.biomes import BIOME_NAMES, BIOMES
from echelon_jax.worldgen.brush import Brush, Quadrant
from echelon_jax.worldgen.generate import generate_world
from echelon_jax.worldgen.layout import make_layout
from echelon_jax.worldgen.spawns import TRANSFORMS, spawn_clear_size

DATA = Path(__file__).parents[1] / "data"
GOLDEN = Path(os.environ.get("ECHELON_GOLDEN", Path(__file__).parents[3] / "shared" / "golden"))
EDITED = ("hazard_", "lava_", "pairs_", "substep_1")  # their scenarios changed the grid after the reset

# docs/spec/worlds.md 13, by (size, seed): split, then SHA-256 prefixes after the layout, after the corridors, at the
# end.
VECTORS = {
    (40, 0): ((23, 24), "2e5b89905343d089", "8fb55a067171bfa9", "e69ff576a8415350"),
    (40, 1): ((16, 22), "15a64432bc7623b0", "82f2eec1b75ecbb2", "ad70953889125bb3"),
    (40, 2): ((18, 24), "a7de2a0a363aa9be", "6ba3de805df870cf", "802f59cd269280c1"),
    (40, 3): ((21, 20), "6df3fa8d368252c4", "78c23ce4ce3752ed", "d012f39c58d48e8b"),
    (60, 0): ((34, 36), "2fd766197cef12f0", "d4f523479bf06407", "ffb94acf8ba92d2a"),
    (60, 1): ((24, 33), "b9b469904c10bff2", "6874009cf2ab0b34", "906ef782332258f3"),
    (60, 2): ((27, 36), "a3608079cc6e27dc", "6b4cf7d798237ad1", "6d4a4448f3f7b37d"),
    (60, 3): ((32, 31), "635ca6d2965c5b4a", "c331b6697ce2b142", "30ac061ac5c036df"),
    (100, 0): ((56, 59), "ff8231ab17de8cea", "ec68d6f138a38089", "aa6d82b280b142f2"),
    (100, 1): ((40, 54), "d94851cf6ee84d2e", "b284456e36e25902", "dcf157853ade11d1"),
    (100, 2): ((45, 59), "4540896cae71cedc", "51ab13d553d8ac3c", "a103cda82e6c4d0b"),
    (100, 3): ((53, 51), "a68be18dd3afb9a8", "67354a75cbb0201c", "03cfe1594a7f016c"),
}


def square(size, **overrides):
    return EnvConfig.original(size_x=size, size_y=size, **overrides)


def digest(voxels):
    assert voxels.dtype == np.uint8
    return hashlib.sha256(np.ascontiguousarray(voxels).tobytes()).hexdigest()[:16]


def collider_free(world, mech_class, centre):
    """The box of a mech at `centre` lies inside the map and touches no colliding voxel."""
    half = np.array(MECH_CLASSES[mech_class].size) / 2
    low, high = np.array(centre, float) - half, np.array(centre, float) + half
    z, y, x = world.material.shape
    inside = (low >= -1e-5).all() and (high <= np.array([x, y, z]) + 1e-5).all()
    (x0, y0, z0), (x1, y1, z1) = np.floor(low + 1e-5).astype(int), np.ceil(high - 1e-5).astype(int)
    return inside and not COLLIDES[world.material[z0:z1, y0:y1, x0:x1]].any()


# ---------------------------------------------------------------- equality with the original


@pytest.mark.parametrize("size", [40, 60, 100])
def test_recorded_worlds_are_reproduced_bit_for_bit(size):
    with np.load(DATA / f"worlds_{size}.npz") as golden:
        meta = json.loads(bytes(golden["meta"]))
        for seed, world_meta in zip(meta["seeds"], meta["world_meta"], strict=True):
            world = generate_world(square(size), seed)
            np.testing.assert_array_equal(world.material, golden[f"voxels_{seed}"])
            np.testing.assert_array_equal(world.position, golden[f"spawn_{seed}"])
            np.testing.assert_array_equal(world.yaw, golden[f"yaw_{seed}"])
            assert world.zone[:2].tolist() == world_meta["capture_zone"]["center"]
            assert world.zone[2] == world_meta["capture_zone"]["radius"]
            for key, value in world.meta.items():
                assert value == world_meta[key], key
            assert list(world.meta["biome_layout"]) == list(world_meta["biome_layout"])  # fill order


def test_recorded_hit_points_and_spawns_of_a_reset_are_reproduced():
    with np.load(DATA / "worlds_episodes.npz") as golden:
        for case in json.loads(bytes(golden["meta"])):
            name, seed = case.pop("name"), case.pop("seed")
            world = generate_world(EnvConfig.original(**case), seed)
            assert world.hp.dtype == np.int16
            np.testing.assert_array_equal(world.hp, golden[f"hp_{name}"], err_msg=name)
            np.testing.assert_array_equal(world.material, golden[f"voxels_{name}"], err_msg=name)
            np.testing.assert_array_equal(world.position, golden[f"spawn_{name}"], err_msg=name)
            np.testing.assert_array_equal(world.yaw, golden[f"yaw_{name}"], err_msg=name)


@pytest.mark.parametrize(("size", "seed"), VECTORS)
def test_stage_hashes_match_the_spec(size, seed, monkeypatch):
    split, layout_hash, carved_hash, final_hash = VECTORS[size, seed]
    layout = make_layout(np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[0]), size, size, 20)
    assert (layout.split, digest(layout.voxels)) == (split, layout_hash)

    carved = []
    lay_ground = generate.lay_ground

    def spy(material):
        carved.append(digest(material))
        return lay_ground(material)

    monkeypatch.setattr(generate, "lay_ground", spy)
    final = digest(generate_world(square(size), seed).material)
    assert (carved, final) == ([carved_hash], final_hash)


@pytest.mark.golden
def test_every_recorded_episode_starts_on_our_map():
    files = sorted((GOLDEN / "episodes").glob("*.npz"))
    if not files:
        pytest.skip(f"no golden episodes under {GOLDEN} (set ECHELON_GOLDEN)")
    biomes = set()
    for file in files:
        with np.load(file) as golden:
            meta = json.loads(bytes(golden["meta"]))
            config = meta["env_config"]
            sizes = {axis: config["world"][axis] for axis in ("size_x", "size_y", "size_z")}
            world = generate_world(EnvConfig.original(**sizes, num_packs=config["num_packs"]), config["seed"])
            assert all(meta["world_meta"][key] == value for key, value in world.meta.items()), file.name
            if not file.name.startswith(EDITED):
                np.testing.assert_array_equal(world.material, golden["voxels0"], err_msg=file.name)
                np.testing.assert_array_equal(world.hp, golden["voxel_hp0"], err_msg=file.name)
                biomes |= set(world.meta["biome_layout"].values())
    assert biomes == set(BIOME_NAMES)  # so every biome is checked against the original


# ---------------------------------------------------------------- properties


@pytest.fixture(scope="module", params=[40, 60, 100])
def worlds(request):
    config = square(request.param)
    return config, [generate_world(config, 1000 + seed) for seed in range(25)]


def test_both_teams_walk_to_the_zone(worlds):
    for world in worlds[1]:
        for clearance in (1, 4, 5):
            assert teams_reach_zone(world, clearance) == (True, True), world.seed


def test_a_wall_across_the_lanes_is_seen_as_disconnected():
    world = generate_world(square(40), 3)  # blue above, red below, zone in the upper half
    material = world.material.copy()
    material[0, 18:21] = SOLID
    assert world.zone[1] > 21
    assert teams_reach_zone(world._replace(material=material)) == (True, False)


def test_flood_stays_within_its_component():
    mask = np.array([[1, 1, 0, 1], [0, 1, 0, 1], [1, 0, 1, 1]], bool)  # diagonals do not connect
    expected = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], bool)
    np.testing.assert_array_equal(flood(mask, (0, 0)), expected)
    assert not flood(mask, (2, 0)).any()


def test_ground_mask_needs_the_whole_square_inside_and_free():
    material = np.zeros((6, 7, 8), np.uint8)
    material[4, 3, 3] = SOLID  # above the clearance
    expected = np.zeros((7, 8), bool)
    expected[1:-1, 1:-1] = True
    np.testing.assert_array_equal(ground_mask(material), expected)
    material[3, 3, 3] = SOLID
    expected[2:5, 2:5] = False
    np.testing.assert_array_equal(ground_mask(material), expected)


def test_the_floor_has_no_air_and_dirt_water_and_lava_lie_only_there(worlds):
    for world in worlds[1]:
        assert (world.material[0] != AIR).all()
        assert not np.isin(world.material[1:], (DIRT, WATER, LAVA)).any()


def test_spawn_squares_and_zone_are_bare_dirt(worlds):
    config, maps = worlds
    clear = spawn_clear_size(config.size_x, config.size_y, config.team_size)
    yy, xx = np.mgrid[: config.size_y, : config.size_x] + 0.5
    for world in maps:
        x, y, radius = world.zone
        bare = (xx - x) ** 2 + (yy - y) ** 2 <= radius**2
        for corner in world.meta["spawn_corners"].values():
            in_x = xx < clear if corner[1] == "L" else xx > config.size_x - clear
            in_y = yy < clear if corner[0] == "B" else yy > config.size_y - clear
            bare |= in_x & in_y
        assert (world.material[0, bare] == DIRT).all() and (world.material[1:, bare] == AIR).all()


@pytest.mark.parametrize(("size_x", "size_y", "num_packs"), [(40, 40, 1), (60, 60, 2), (26, 90, 1), (64, 48, 3)])
def test_mechs_stand_free_inside_the_map_apart_from_each_other_and_face_the_zone(size_x, size_y, num_packs):
    config = EnvConfig.original(size_x=size_x, size_y=size_y, num_packs=num_packs)
    classes = roster(num_packs).mech_class
    half = np.array([MECH_CLASSES[c].size for c in classes]) / 2
    for seed in range(20):
        world = generate_world(config, seed)
        assert all(collider_free(world, c, p) for c, p in zip(classes, world.position, strict=True))
        gap = np.abs(world.position[:, None] - world.position[None]) - (half[:, None] + half[None])
        overlaps = (gap[..., :2] < -0.5).all(-1) & ~np.eye(config.num_mechs, dtype=bool)  # jitter may bring two close
        assert not overlaps.any()
        bearing = np.arctan2(world.zone[1] - world.position[:, 1], world.zone[0] - world.position[:, 0])
        assert (np.abs(np.angle(np.exp(1j * (world.yaw - bearing)))) <= 0.15 + 1e-4).all()


def test_teams_spawn_in_opposite_corners(worlds):
    config, maps = worlds
    middle = np.array([config.size_x, config.size_y]) / 2
    for world in maps:
        corners = world.meta["spawn_corners"]
        assert {corners["blue"], corners["red"]} in ({"BL", "TR"}, {"BR", "TL"})
        for team, side in (("blue", slice(0, 5)), ("red", slice(5, 10))):
            high = world.position[side, :2].mean(0) > middle
            assert ("BT"[int(high[1])] + "LR"[int(high[0])]) == corners[team]


def test_hit_points_fit_an_unflipped_map_where_something_collides(worlds):
    seen = set()
    for world in worlds[1]:
        solid = COLLIDES[world.material]
        agree = world.hp[solid] == TABLE_HP[world.material[solid]]
        seen.add(world.meta["transform"])
        if world.meta["transform"] == "identity":
            assert agree.all()
        assert np.isin(world.hp, TABLE_HP[:10]).all()
        assert (world.hp[0][world.material[0] == AIR] == 0).all()
    assert seen == set(TRANSFORMS)


def test_the_same_seed_gives_the_same_world_and_another_a_different_one():
    first, again, other = (generate_world(square(40), seed) for seed in (5, 5, 6))
    for a, b in zip(first[:5], again[:5], strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.meta == again.meta
    assert (first.material != other.material).any()


@pytest.mark.parametrize(("size_x", "size_y", "size_z"), [(20, 20, 8), (20, 20, 20), (30, 47, 10), (87, 64, 32)])
def test_small_odd_and_tall_maps_are_generated(size_x, size_y, size_z):
    config = EnvConfig.original(size_x=size_x, size_y=size_y, size_z=size_z)
    for seed in range(30):
        world = generate_world(config, seed)
        assert world.material.shape == world.hp.shape == (size_z, size_y, size_x)
        assert teams_reach_zone(world) == (True, True)
        x, y, radius = world.zone
        assert radius + 2 <= x + 1e-9 and x <= size_x - radius - 2 + 1e-9
        assert radius + 2 <= y + 1e-9 and y <= size_y - radius - 2 + 1e-9


@pytest.mark.parametrize("biome", BIOMES, ids=BIOME_NAMES)
def test_a_biome_stays_within_its_known_reach(biome):
    # docs/spec/worlds.md 4.17: cells written outside the quadrant, on a canvas that shows writes of AIR as well.
    reach = {"urban_residential": 1, "forest_park": 2, "dense_jungle": 2, "mining_pit": 1, "geo_front": 4}
    reach["arcology_spire"] = 3
    for seed in range(10):
        voxels = np.full((20, 70, 70), 255, np.uint8)
        biome(Brush(voxels, np.random.default_rng(seed)), Quadrant(10, 60, 10, 60))
        rows, columns = (voxels != 255).any(axis=0).nonzero()
        assert len(rows) > 0
        outside = max(10 - rows.min(), 10 - columns.min(), rows.max() - 59, columns.max() - 59)
        assert outside <= reach.get(biome.__name__, 0)


def test_drawing_a_table_is_drawing_its_numbers_one_by_one():
    from echelon_jax.worldgen.biomes import _draw_table

    for ranges in (((0, 17), (20, 47), (4, 8)), ((3, 4), (0, 2**20), (1, 3), (3, 8))):
        table = _draw_table(Brush(np.zeros((1, 1, 1), np.uint8), np.random.default_rng(7)), 31, ranges)
        rng = np.random.default_rng(7)
        assert table == [[int(rng.integers(low, high)) for low, high in ranges] for _ in range(31)]


def test_brush_draws_nothing_from_an_empty_range_or_for_a_box_that_does_not_fit():
    brush = Brush(np.zeros((1, 1, 1), np.uint8), np.random.default_rng(0))
    before = brush.rng.bit_generator.state
    assert brush.integer(5, 5) == 5 and brush.integer(9, 2) == 9
    assert brush.random_box(Quadrant(0, 5, 0, 50), (6, 10), (6, 10)) is None
    assert brush.rng.bit_generator.state == before


def test_box_writes_are_clipped_on_both_sides():
    voxels = np.zeros((4, 5, 6), np.uint8)
    brush = Brush(voxels, np.random.default_rng(0))
    brush.box(-9, -2, 0, 5, 0, 4, SOLID)
    brush.box(0, 6, 5, 9, 0, 4, SOLID)
    brush.box(3, 3, 0, 5, 0, 4, SOLID)
    assert not voxels.any()
    brush.box(-9, 2, 3, 99, -1, 1, SOLID)
    assert voxels.sum() == 2 * 2 * 1 and voxels[0, 3:, :2].all()


def test_a_ramp_can_be_walked_from_the_floor_to_its_top():
    voxels = np.full((20, 40, 40), SOLID, np.uint8)
    Brush(voxels, np.random.default_rng(0)).ramp((5, 20, -1), (30, 20, 10), 3)
    floors = []
    for x in range(7, 30):
        column = COLLIDES[voxels[:, 20, x]]
        gap = int(np.flatnonzero(~column)[0])
        assert not column[gap : gap + 4].any()
        floors.append(gap)
    assert floors[-1] >= 10 and all(0 <= b - a <= 1 for a, b in itertools.pairwise(floors))


@pytest.mark.parametrize(("field", "change"), [("seed", {}), ("clearance_z", {"clearance_z": 6})])
def test_what_the_guarantee_does_not_cover_is_refused_by_name(field, change):
    with pytest.raises(ValueError, match=field):
        generate_world(square(40, **change), -1 if field == "seed" else 0)


def test_a_tenth_of_the_size_is_truncated_like_the_original_does():
    assert all(math.trunc(0.1 * size) == size // 10 for size in range(1, 1001))
