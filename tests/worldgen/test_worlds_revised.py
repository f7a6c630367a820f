"""The revised rules of world generation: each switch does what it says, and off it leaves the original's fault in place."""

import dataclasses
import itertools
import re

import numpy as np
import pytest
from helpers.connectivity import ground_mask, heavies_reach_zone, teams_reach_zone, window_mask

from echelon_jax.config import EnvConfig
from echelon_jax.rules.formation import ALLEY, formation_pitch, formation_reach, smallest_map
from echelon_jax.rules.materials import AIR, COLLIDES, REINFORCED, SOLID, TABLE_HP
from echelon_jax.rules.mechs import HEAVY, MECH_CLASSES, roster
from echelon_jax.worldgen.corridors import LANE_HEIGHT, Corridor, carve_corridors
from echelon_jax.worldgen.generate import generate_world
from echelon_jax.worldgen.spawns import formation, place_mechs, require_no_overlap, spawn_area
from echelon_jax.worldgen.zone import Ways, path_lengths

WORLD_SWITCHES = ("spawn_without_overlap", "true_voxel_hp", "fair_zone", "terrain_on_small_maps", "corridors_complete")
ALL_ON = dict.fromkeys(WORLD_SWITCHES, True)


def square(size, **overrides):
    return EnvConfig.original(size_x=size, size_y=size, **overrides)


def half_extents(mechs):
    return np.array([MECH_CLASSES[c].size for c in mechs.mech_class]) / 2


def overlapping_pairs(position, mechs):
    """How many pairs of boxes share volume, by comparing every pair of intervals."""
    low, high = position - half_extents(mechs), position + half_extents(mechs)
    pairs = itertools.combinations(range(mechs.size), 2)
    return sum(bool(((low[a] < high[b] - 1e-4) & (low[b] < high[a] - 1e-4)).all()) for a, b in pairs)


def in_spawn_corner(world, team, columns):
    """Distance of cell middles `columns` [K, 2] from the two edges at a team's corner: [K, 2]."""
    corner = world.meta["spawn_corners"][team]
    size_y, size_x = world.material.shape[1:]
    x = columns[:, 0] if corner[1] == "L" else size_x - columns[:, 0]
    y = columns[:, 1] if corner[0] == "B" else size_y - columns[:, 1]
    return np.stack([x, y], axis=1)


# ---------------------------------------------------------------- spawn_without_overlap


@pytest.mark.parametrize("packs", [1, 2, 3, 4])
def test_boxes_never_overlap_at_the_start(packs):
    mechs = roster(packs)
    for size, seed in itertools.product((20, 40) if packs < 2 else (40, 60), range(120)):
        corners = [("BL", "TR"), ("BR", "TL"), ("TL", "BR"), ("TR", "BL")][seed % 4]
        centres = formation(mechs, corners, size, size, formation_pitch(without_overlap=True))
        position, _ = place_mechs(np.random.default_rng(seed), mechs, centres, (9.0, 9.0), size, size)
        require_no_overlap(mechs, position)
        assert overlapping_pairs(position, mechs) == 0
        reach = np.abs(position - [size / 2, size / 2, 0]) + half_extents(mechs)
        assert (reach[:, :2] <= size / 2).all()


def test_generated_teams_stand_apart_with_the_switch_and_not_always_without():
    for packs, size in ((1, 20), (2, 40), (3, 60)):
        mechs, on = roster(packs), square(size, num_packs=packs, spawn_without_overlap=True)
        off = dataclasses.replace(on, spawn_without_overlap=False)
        assert not any(overlapping_pairs(generate_world(on, seed).position, mechs) for seed in range(30))
        assert any(overlapping_pairs(generate_world(off, seed).position, mechs) for seed in range(30))


def test_an_overlap_is_refused_by_name_and_a_touch_is_not():
    mechs = roster(1)
    centres = formation(mechs, ("BL", "TR"), 40, 40, pitch=4.0)
    position = np.concatenate([centres, half_extents(mechs)[:, 2:]], axis=1)
    position[1, 0] = position[0, 0] + (3.5 + 2.5) / 2
    require_no_overlap(mechs, position)
    position[1, 0] -= 0.01
    with pytest.raises(ValueError, match=r"spawn_without_overlap.*blue_0.*blue_1"):
        require_no_overlap(mechs, position)


@pytest.mark.parametrize("terrain", [False, True])
@pytest.mark.parametrize("packs", range(1, 9))
def test_the_cleared_area_contains_the_formation(packs, terrain):
    for without_overlap in (False, True):
        config = square(
            90, num_packs=packs, spawn_without_overlap=without_overlap, terrain_on_small_maps=terrain, fair_zone=True
        )
        area, world = spawn_area(config), generate_world(config, packs)
        mechs = roster(packs)
        high = np.concatenate(
            [
                in_spawn_corner(world, team, world.position[mechs.team == i, :2])
                + half_extents(mechs)[:, :2][: 5 * packs]
                for i, team in enumerate(("blue", "red"))
            ]
        )
        reach = formation_reach(packs, formation_pitch(without_overlap))
        assert (high <= np.array(reach) + 1e-4).all() and (high.max(axis=0) > np.array(reach) - 0.5).all()
        assert (np.array(reach) <= area).all()


# ---------------------------------------------------------------- true_voxel_hp


@pytest.mark.parametrize("others", [{}, ALL_ON])
def test_every_voxel_starts_with_its_materials_hit_points(others):
    on = square(40, **{**others, "true_voxel_hp": True})
    off = dataclasses.replace(on, true_voxel_hp=False)
    wrong = 0
    for seed in range(12):
        world, faulty = generate_world(on, seed), generate_world(off, seed)
        assert world.hp.dtype == faulty.hp.dtype
        np.testing.assert_array_equal(world.hp, TABLE_HP[world.material])
        np.testing.assert_array_equal(world.material, faulty.material)
        wrong += (faulty.hp != TABLE_HP[faulty.material]).any()
    assert wrong >= 6


# ---------------------------------------------------------------- fair_zone


def walking_distance(world, target):
    """Shortest paths on the ground to a cell (x, y) by relaxation: 1 a step, 1.414 a diagonal past two free cells."""
    free = np.pad(ground_mask(world.material), 1)
    cost = np.where(free, np.inf, np.nan)
    cost[target[1] + 1, target[0] + 1] = 0.0
    while True:
        best = cost.copy()
        for dy, dx in itertools.product((-1, 0, 1), repeat=2):
            step = np.roll(cost, (dy, dx), (0, 1)) + (1.414 if dx and dy else 1.0)
            if dx and dy:
                step[~(np.roll(free, dy, 0) & np.roll(free, dx, 1))] = np.inf
            best = np.fmin(best, step)
        best[~free] = np.nan
        if np.array_equal(best, cost, equal_nan=True):
            return cost[1:-1, 1:-1]
        cost = best


def lane_starts(world):
    return [c["points"][0] for c in world.meta["corridors"] if c["kind"].endswith("lane_main")]


def ratio(lengths):
    return max(lengths) / max(min(lengths), 1e-9)


FAIR = [(40, {}), (40, ALL_ON), (60, {}), (60, ALL_ON)]


@pytest.mark.parametrize(("size", "others"), FAIR)
def test_ways_on_the_ground_differ_by_a_fifth_at_most(size, others):
    config = square(size, **{**others, "fair_zone": True})
    for seed in range(5):
        world = generate_world(config, seed)
        cell = tuple(int(np.round(c)) for c in world.zone[:2])
        distance = walking_distance(world, cell)
        starts = [(int(x), int(y)) for x, y in lane_starts(world)]
        walked = [distance[y, x] for x, y in starts]
        assert ratio(walked) <= 1.2
        # What the choice rests on: terrain never lengthens a way.
        for team, length in enumerate(walked):
            ways = Ways(tuple(starts), tuple(np.split(world.position[:, :2], 2)))
            _, on_grid, _ = path_lengths(ways, team, world.zone[:1], world.zone[1:2])[:, 0]
            assert length == pytest.approx(on_grid)


@pytest.mark.parametrize(("size_x", "size_y", "packs"), [(40, 40, 1), (60, 60, 2), (100, 100, 1), (90, 36, 1)])
def test_straight_ways_from_lane_start_and_from_the_mechs_differ_by_a_fifth_at_most(size_x, size_y, packs):
    base = EnvConfig.original(size_x=size_x, size_y=size_y, num_packs=packs)
    for switches in ({"fair_zone": True}, ALL_ON):
        config = dataclasses.replace(base, **switches)
        for seed in range(40):
            world = generate_world(config, seed)
            assert ratio([np.hypot(*(world.zone[:2] - np.array(p) - 0.5)) for p in lane_starts(world)]) <= 1.2 + 1e-9
            teams = np.split(world.position[:, :2], 2)
            means = [np.hypot(*(team - world.zone[:2]).T).mean() for team in teams]
            assert ratio(means) <= 1.25  # the spawn jitter comes on top
    unfair = [
        ratio([np.hypot(*(w.zone[:2] - np.array(p) - 0.5)) for p in lane_starts(w)])
        for w in (generate_world(base, seed) for seed in range(20))
    ]
    assert np.mean(np.array(unfair) > 1.2) > 0.4


def test_fair_zones_use_both_quarters_without_a_spawn_and_leave_the_exact_middle_line():
    config, counts, ratios = square(60, **ALL_ON), {}, []
    for seed in range(200):
        world = generate_world(config, seed)
        blue = world.meta["spawn_corners"]["blue"]
        corner = world.meta["capture_zone"]["corner"]
        assert corner not in world.meta["spawn_corners"].values()
        x, y = world.zone[:2] > 30
        assert corner == "BT"[int(y)] + "LR"[int(x)]
        same_x_as_blue = corner[1] == blue[1]
        counts[same_x_as_blue] = counts.get(same_x_as_blue, 0) + 1
        ratios.append(ratio([np.hypot(*(world.zone[:2] - np.array(p) - 0.5)) for p in lane_starts(world)]))
    assert min(counts.values()) > 70  # of 200, either way
    assert np.mean(np.array(ratios) > 1.05) > 0.4


def test_no_zone_reaches_into_a_formation_when_terrain_is_kept():
    for size, seed in itertools.product((30, 40, 60), range(60)):
        config = square(size, **ALL_ON)
        world = generate_world(config, seed)
        yy, xx = np.mgrid[:size, :size] + 0.5
        columns = np.stack([xx.ravel(), yy.ravel()], axis=1)
        zone = np.hypot(*(columns - world.zone[:2]).T) < world.zone[2]
        for team in ("blue", "red"):
            assert not (zone & (in_spawn_corner(world, team, columns) < spawn_area(config)).all(axis=1)).any()


# ---------------------------------------------------------------- terrain_on_small_maps


def test_a_small_map_keeps_its_terrain_and_a_large_one_is_what_it_was():
    def obstacles(config):
        return np.mean([COLLIDES[generate_world(config, seed).material[:4]].any(axis=0).mean() for seed in range(60)])

    assert obstacles(square(40, terrain_on_small_maps=True)) > 1.5 * obstacles(square(40))
    on, off = (generate_world(square(100, terrain_on_small_maps=switch), 1) for switch in (True, False))
    np.testing.assert_array_equal(on.material, off.material)


def test_terrain_begins_where_the_fitted_area_ends():
    config, kept = square(40, terrain_on_small_maps=True), 0
    for seed in range(20):
        world = generate_world(config, seed)
        area = np.array(spawn_area(config))
        yy, xx = np.nonzero(COLLIDES[world.material].any(axis=0))
        for team in ("blue", "red"):
            inside = in_spawn_corner(world, team, np.stack([xx, yy], axis=1) + 0.5)
            assert not (inside < area).all(axis=1).any()
            kept += (inside < 25).all(axis=1).sum()  # what the original clears
    assert kept > 1000


@pytest.mark.parametrize("without_overlap", [False, True])
@pytest.mark.parametrize("packs", [1, 2, 4, 8])
def test_maps_too_small_for_two_formations_and_a_zone_are_refused_by_name(packs, without_overlap):
    wide, deep = smallest_map(packs, formation_pitch(without_overlap))
    given = {"num_packs": packs, "terrain_on_small_maps": True, "spawn_without_overlap": without_overlap}
    fits = EnvConfig.original(size_x=wide - 1, size_y=deep, **given)
    with pytest.raises(ValueError, match=rf"size_y must be at least {deep} .*size_x at least {wide}.*{deep - 1}$"):
        dataclasses.replace(fits, size_y=deep - 1)
    dataclasses.replace(fits, terrain_on_small_maps=False)

    # The bound is right: areas of both teams and a disc of the smallest radius 3.75 fit side by side, and no smaller map
    # of that kind leaves them a gap.
    x, y = spawn_area(fits)
    assert deep - 2 * y >= 7.5 > deep - 1 - 2 * y
    reach_x, reach_y = formation_reach(packs, formation_pitch(without_overlap))
    assert reach_x <= x and reach_y + ALLEY <= y


def test_one_pack_needs_28_voxels():
    assert spawn_area(square(28, **ALL_ON)) == (20, 10)
    with pytest.raises(ValueError, match=re.escape("size_y must be at least 28 (or size_x at least 48) with terrain")):
        square(27, **ALL_ON)


# ---------------------------------------------------------------- corridors_complete


def carved(corridor, complete, size=40):
    material = np.full((8, size, size), SOLID, np.uint8)
    carve_corridors(material, [corridor], complete)
    assert (material[LANE_HEIGHT:] == SOLID).all()
    return (material[:LANE_HEIGHT] == AIR).all(axis=0)


def test_corridor_steps_at_the_low_edges_are_clipped_like_those_at_the_high_ones():
    rng = np.random.default_rng(0)
    lost = 0
    for _ in range(60):
        start, end = rng.uniform(1, 38, 2), rng.uniform(1, 38, 2)
        end[rng.integers(2)] = rng.choice([1.0, 38.0])
        line = Corridor("flank", 4.0, (tuple(start), tuple(end)))
        mask = carved(line, complete=True)
        # Cell by cell: within half a width of a sample on both axes, as docs/spec/worlds.md 4.0 words it.
        samples = start + (end - start) * np.linspace(0, 1, max(1, int(1.5 * np.hypot(*(end - start)))) + 1)[:, None]
        cells = np.arange(40)
        near = (np.floor(samples[..., None] - 2) <= cells) & (cells <= np.floor(samples[..., None] + 2))
        np.testing.assert_array_equal(mask, (near[:, 1, :, None] & near[:, 0, None, :]).any(axis=0))
        lost += (mask & ~carved(line, complete=False)).any()
    assert lost > 10


def test_a_ring_near_the_low_edges_has_all_four_sides_with_the_switch_only():
    ring = Corridor("objective_ring", 4.0, ((1.0, 1.0), (17.0, 1.0), (17.0, 17.0), (1.0, 17.0)))
    whole, broken = carved(ring, complete=True), carved(ring, complete=False)
    assert whole[1, :18].all() and whole[:18, 1].all() and whole[17, :18].all() and whole[:18, 17].all()
    assert not broken[1, :14].any() and not broken[:14, 1].any()


def test_complete_corridors_only_ever_open_ground():
    opened = 0
    for seed in range(40):
        on, off = (generate_world(square(60, corridors_complete=switch), seed) for switch in (True, False))
        changed = on.material != off.material
        assert not COLLIDES[on.material[changed]].any() and not changed[LANE_HEIGHT:].any()
        opened += changed.any()
    assert opened > 3


# ---------------------------------------------------------------- together


def test_a_window_is_free_only_when_all_of_it_is():
    material = np.zeros((6, 7, 9), np.uint8)
    material[4, 3, 4] = SOLID  # above a heavy
    assert window_mask(material).shape == (4, 6) and window_mask(material).all()
    material[3, 3, 4] = REINFORCED
    mask = window_mask(material)
    expected = [[not (y <= 3 < y + 4 and x <= 4 < x + 4) for x in range(6)] for y in range(4)]
    np.testing.assert_array_equal(mask, expected)


def test_a_gap_of_three_cells_stops_a_heavy_and_one_of_four_does_not():
    world = generate_world(square(60, **ALL_ON), 3)
    wall = round((world.position[0, 1] + world.zone[1]) / 2)
    for gap, passes in ((3, False), (4, True)):
        material = np.zeros_like(world.material)
        material[:, wall, :] = SOLID
        material[:, wall, 30 : 30 + gap] = AIR
        assert heavies_reach_zone(world._replace(material=material))[0] is passes


@pytest.mark.parametrize("bits", range(32))
def test_heavies_reach_the_zone_under_every_combination_of_switches(bits):
    switches = {name: bool(bits >> i & 1) for i, name in enumerate(WORLD_SWITCHES)}
    for size, packs, seeds in ((40, 1, 6), (60, 2, 3), (30, 1, 4)):
        config = square(size, num_packs=packs, **switches)
        for seed in range(seeds):
            world = generate_world(config, 31 * bits + seed)
            assert heavies_reach_zone(world) == (True, True), (size, world.seed)
            assert teams_reach_zone(world) == (True, True), (size, world.seed)


@pytest.mark.parametrize(("size", "packs", "seeds"), [(28, 1, 60), (40, 1, 60), (60, 4, 30), (100, 1, 20)])
def test_heavies_reach_the_zone_on_many_revised_maps(size, packs, seeds):
    config = square(size, num_packs=packs, **ALL_ON)
    for seed in range(seeds):
        assert heavies_reach_zone(generate_world(config, 500 + seed)) == (True, True), seed


def test_nobody_starts_inside_terrain_on_revised_maps():
    for size, packs in ((28, 1), (40, 2), (60, 4)):
        mechs, config = roster(packs), square(size, num_packs=packs, **ALL_ON)
        for seed in range(30):
            world = generate_world(config, seed)
            for centre, half in zip(world.position, half_extents(mechs), strict=True):
                low = np.floor(centre - half + 1e-4).astype(int)
                high = np.ceil(centre + half - 1e-4).astype(int)
                assert (low >= 0).all() and (high <= [size, size, 20]).all()
                assert not COLLIDES[world.material[low[2] : high[2], low[1] : high[1], low[0] : high[0]]].any()


def test_a_heavy_can_drive_along_the_front_of_its_formation():
    config = square(40, **ALL_ON)
    _, depth = spawn_area(config)
    for seed in range(20):
        world = generate_world(config, seed)
        blue = world.position[:5]
        half = half_extents(roster(1))[:5]
        front = in_spawn_corner(world, "blue", blue[:, :2]) + half[:, :2]
        assert depth - front[:, 1].max() >= MECH_CLASSES[HEAVY].size[0]


def test_revised_worlds_are_a_function_of_the_seed_and_keep_the_layout_of_the_original():
    config = square(40, **ALL_ON)
    first, again, plain = generate_world(config, 5), generate_world(config, 5), generate_world(square(40), 5)
    for a, b in zip(first[:5], again[:5], strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.meta == again.meta
    for key in ("biome_layout", "transform", "spawn_corners"):
        assert first.meta[key] == plain.meta[key]


def test_the_original_has_every_switch_of_worlds_off():
    config = EnvConfig.original()
    assert not any(getattr(config, switch) for switch in WORLD_SWITCHES)
