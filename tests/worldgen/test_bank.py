"""The bank of worlds: flat arrays that agree with the maps, seeds that repeat, and workers that change nothing."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.rules.materials import COLLIDES, DEBRIS_FIELD, GLASS, OPAQUE, REINFORCED, SOLID, SOLID_DEBRIS
from echelon_jax.worldgen import bank
from echelon_jax.worldgen.bank import (
    EVALUATION_SEEDS,
    TRAINING_SEEDS,
    WorldBankFeeder,
    bank_contents,
    bank_seeds,
    column_words,
    evaluation_seeds,
    generate_worlds,
    pack_worlds,
    swapped_slice,
    telemetry_map,
)
from echelon_jax.worldgen.generate import generate_world
from echelon_jax.worldgen.workers import WorkerPool

DATA = Path(__file__).parents[1] / "data"
CONFIG = EnvConfig.original(size_x=30, size_y=26, size_z=12)


def assert_same(a, b):
    for name, left, right in zip(a._fields, a, b, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right, err_msg=name)


@pytest.fixture(scope="module")
def packed():
    worlds = [generate_world(CONFIG, seed) for seed in range(12)]
    return worlds, pack_worlds(worlds)


@pytest.fixture(scope="module")
def feeder():
    with WorldBankFeeder(CONFIG, base_seed=3, num_slices=2, slice_size=5, processes=2) as running:
        yield running


# ---------------------------------------------------------------- arrays


def test_arrays_have_the_documented_shapes_and_types(packed):
    cells, columns = 12 * 26 * 30, 26 * 30
    expected = {
        "material": (np.uint8, (12, cells)),
        "hp": (np.int16, (12, cells)),
        "collides": (np.uint32, (12, columns)),
        "opaque": (np.uint32, (12, columns)),
        "occupancy": (np.uint8, (12, columns)),
        "telemetry": (np.uint8, (12, 256)),
        "zone": (np.float32, (12, 3)),
        "position": (np.float32, (12, 10, 3)),
        "yaw": (np.float32, (12, 10)),
        "seed": (np.int32, (12,)),
    }
    assert {name: (a.dtype.type, a.shape) for name, a in packed[1]._asdict().items()} == expected


def test_a_row_is_its_world(packed):
    worlds, arrays = packed
    for i, world in enumerate(worlds):
        np.testing.assert_array_equal(arrays.material[i], world.material.ravel())
        np.testing.assert_array_equal(arrays.hp[i], world.hp.ravel())
        np.testing.assert_array_equal(arrays.position[i], world.position)
        np.testing.assert_array_equal(arrays.yaw[i], np.float32(world.yaw))
        np.testing.assert_array_equal(arrays.zone[i], np.float32(world.zone))
        assert arrays.seed[i] == world.seed


@pytest.mark.parametrize(("word", "table"), [("collides", COLLIDES), ("opaque", OPAQUE)])
def test_bit_z_of_a_column_word_is_its_voxel(packed, word, table):
    worlds, arrays = packed
    for i, world in enumerate(worlds):
        words = getattr(arrays, word)[i].reshape(26, 30)
        for z in range(12):
            np.testing.assert_array_equal((words >> z) & 1, table[world.material[z]])
        assert not (words >> 12).any()


@pytest.mark.parametrize("height", [1, 8, 9, 20, 31, 32])
def test_column_words_hold_up_to_32_levels(height):
    mask = np.random.default_rng(height).random((height, 3, 5)) < 0.5
    expected = [sum(int(mask[z, y, x]) << z for z in range(height)) for y in range(3) for x in range(5)]
    assert column_words(mask).tolist() == expected


def test_obstacle_map_counts_solid_and_solid_debris_below_the_clearance_only():
    world = generate_world(EnvConfig.original(size_x=20, size_y=20), 0)  # bare dirt
    material = world.material.copy()
    material[0, 1, 2] = SOLID
    material[3, 4, 5] = SOLID_DEBRIS
    material[4, 6, 7] = SOLID  # above clearance 4
    material[0, 8, 9:12] = GLASS, REINFORCED, DEBRIS_FIELD
    arrays = pack_worlds([world._replace(material=material)])
    assert np.argwhere(arrays.occupancy[0].reshape(20, 20)).tolist() == [[1, 2], [4, 5]]
    arrays = pack_worlds([world._replace(material=material)], clearance_z=5)
    assert np.argwhere(arrays.occupancy[0].reshape(20, 20)).tolist() == [[1, 2], [4, 5], [6, 7]]


@pytest.mark.parametrize(("size_y", "size_x"), [(40, 40), (100, 87), (12, 30)])
def test_telemetry_bins_agree_with_a_search_of_each_bin(size_y, size_x):
    solid = np.random.default_rng(size_x).random((size_y, size_x)) < 0.02
    bins = telemetry_map(solid).reshape(16, 16)
    assert bins.dtype == np.uint8
    for r in range(16):
        for c in range(16):
            y0, y1, x0, x1 = r * size_y // 16, (r + 1) * size_y // 16, c * size_x // 16, (c + 1) * size_x // 16
            assert bins[r, c] == solid[y0:y1, x0:x1].any()


def test_static_maps_agree_with_the_original_s_first_observations():
    with np.load(DATA / "worlds_episodes.npz") as golden:
        for case in json.loads(bytes(golden["meta"])):
            name, seed = case.pop("name"), case.pop("seed")
            config = EnvConfig.original(**case)
            world = generate_world(config, seed)
            arrays, obs = pack_worlds([world], config.clearance_z), golden[f"obs_{name}"]
            occupancy = arrays.occupancy[0].reshape(config.size_y, config.size_x)
            for mech in range(config.num_mechs):
                np.testing.assert_array_equal(obs[mech, 286:542], arrays.telemetry[0], err_msg=name)
                (x, y), yaw = world.position[mech, :2].astype(float), world.yaw[mech]
                a, b = np.mgrid[-5:6, -5:6]
                mx = np.trunc(x + np.cos(yaw) * a - np.sin(yaw) * b).astype(int)
                my = np.trunc(y + np.sin(yaw) * a + np.cos(yaw) * b).astype(int)
                inside = (mx >= 0) & (mx < config.size_x) & (my >= 0) & (my < config.size_y)
                local = np.ones((11, 11))
                local[inside] = occupancy[my[inside], mx[inside]]
                np.testing.assert_array_equal(obs[mech, 165:286].reshape(11, 11), local, err_msg=name)


# ---------------------------------------------------------------- seeds


def test_bank_seeds_differ_by_run_slice_and_swap_and_repeat_for_the_same():
    keys = [(run, i, swap) for run in (0, 1, 2**40) for i in (0, 1, 2) for swap in (0, 1, 2)]
    drawn = {key: bank_seeds(*key, 8).tolist() for key in keys}
    assert len({tuple(seeds) for seeds in drawn.values()}) == len(keys)
    assert drawn == {key: bank_seeds(*key, 8).tolist() for key in keys}


def test_bank_seeds_are_pinned():
    # A resumed run, and a repeated one, must meet the same worlds in every later version of the project.
    assert bank_seeds(0, 1, 2, 4).tolist() == [1492054202, 1817597185, 1079089412, 1654840274]
    assert evaluation_seeds(0, 4).tolist() == [673228719, 62914426, 607536617, 42777138]


def test_training_and_evaluation_never_share_a_seed():
    assert EVALUATION_SEEDS[-1] < TRAINING_SEEDS[0]
    for base_seed in range(20):
        assert all(int(seed) in TRAINING_SEEDS for seed in bank_seeds(base_seed, 0, 0, 500))
        assert all(int(seed) in EVALUATION_SEEDS for seed in evaluation_seeds(base_seed, 500))


def test_a_longer_evaluation_begins_with_the_maps_of_the_shorter():
    assert evaluation_seeds(4, 100)[:10].tolist() == evaluation_seeds(4, 10).tolist()
    assert len(set(evaluation_seeds(4, 1000).tolist())) == 1000


def test_the_bank_after_some_swaps_is_the_first_filling_with_those_slices_replaced():
    rows = [bank_seeds(7, i, 0, 4) for i in range(3)]
    for swap in range(10):
        if swap > 0:
            rows[swapped_slice(swap, 3)] = bank_seeds(7, swapped_slice(swap, 3), swap, 4)
        np.testing.assert_array_equal(bank_contents(7, 3, 4, swap), np.concatenate(rows))


@pytest.mark.parametrize("seeds", [[], [-1], [2**31]])
def test_seeds_out_of_range_are_refused_by_name(seeds):
    with pytest.raises(ValueError, match="seeds"):
        generate_worlds(CONFIG, seeds)


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("base_seed", lambda: bank_seeds(-1, 0, 0, 4)),
        ("swap_counter", lambda: swapped_slice(0, 4)),
        ("swap_counter", lambda: bank_contents(0, 2, 2, -1)),
        ("processes", lambda: generate_worlds(CONFIG, [1], processes=0)),
        ("processes", lambda: WorldBankFeeder(CONFIG, 0, 1, 1, processes=-1)),
        ("num_slices", lambda: WorldBankFeeder(CONFIG, 0, 0, 1)),
        ("slice_size", lambda: WorldBankFeeder(CONFIG, 0, 1, 0)),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(field, call):
    with pytest.raises(ValueError, match=field):
        call()


# ---------------------------------------------------------------- workers


def test_worlds_do_not_depend_on_the_number_of_processes():
    seeds = [9, 2, 2**31 - 1, 4, 4, 0, 77]
    alone = generate_worlds(CONFIG, seeds)
    assert alone.seed.tolist() == seeds
    assert_same(alone, generate_worlds(CONFIG, seeds, processes=2))


def test_a_batch_is_the_same_in_pieces_of_any_size(monkeypatch):
    whole = generate_worlds(CONFIG, range(7))
    monkeypatch.setattr(bank, "_CHUNK", 2)
    parts = [generate_worlds(CONFIG, chunk) for chunk in bank._chunks(list(range(7)), 1)]
    assert len(parts) == 4
    assert_same(whole, bank._join(parts))


def test_workers_import_neither_jax_nor_the_main_script():
    with WorkerPool(1) as pool:
        pool.submit(bank._generate_chunk, CONFIG, [1]).result()
        loaded = pool.submit(eval, "sorted(__import__('sys').modules)").result()
    assert "echelon_jax.worldgen.bank" in loaded
    assert not {"jax", "flax", "optax", "pytest"} & set(loaded)


def test_a_script_without_a_main_guard_may_use_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from echelon_jax.config import EnvConfig\n"
        "from echelon_jax.worldgen.bank import generate_worlds\n"
        "worlds = generate_worlds(EnvConfig.original(size_x=20, size_y=20), [5, 6, 7], processes=2)\n"
        "print(worlds.seed.tolist(), 'jax' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("[5, 6, 7] False\n", "", 0)


def test_feeder_hands_over_the_worlds_of_the_swap(feeder):
    for swap in (1, 2, 3):
        assert_same(feeder.take(swap), generate_worlds(CONFIG, bank_seeds(3, swapped_slice(swap, 2), swap, 5)))


def test_feeder_gives_the_same_worlds_in_any_order_and_whatever_was_prepared(feeder):
    with WorldBankFeeder(CONFIG, base_seed=3, num_slices=2, slice_size=5, processes=0) as inline:
        for swap in (5, 2, 2, 9, 1):
            assert_same(feeder.take(swap), inline.take(swap))
            if swap == 2:
                feeder.prepare(9)
                time.sleep(0.1)


def test_feeder_fills_the_whole_bank_as_of_any_swap(feeder):
    for swap in (0, 3):
        assert_same(feeder.whole_bank(swap), generate_worlds(CONFIG, bank_contents(3, 2, 5, swap)))


def test_feeder_prepares_the_next_swap_in_the_background(feeder):
    feeder.take(20)
    assert set(feeder._pending) == {21}
    assert [f.result() for f in feeder._pending[21]]  # ends without being asked for


def test_an_error_in_a_worker_surfaces_with_its_cause():
    config = EnvConfig.original(size_x=20, size_y=20)
    object.__setattr__(config, "clearance_z", 7)  # what the configuration itself would refuse
    with WorldBankFeeder(config, 0, 1, 2) as running:
        with pytest.raises(RuntimeError, match="clearance_z must be at most 5") as caught:
            running.take(1)
        assert isinstance(caught.value.__cause__, ValueError)


def test_a_killed_worker_surfaces_as_an_error_and_not_as_a_wait():
    with WorldBankFeeder(CONFIG, 0, 1, 2) as running:
        running.take(1)
        running._pool.submit(os._exit, 3).exception()
        with pytest.raises(RuntimeError, match="world generator process"):
            running.take(2)
            running.take(3)


def test_a_closed_feeder_has_no_workers_left_and_says_so():
    with WorldBankFeeder(CONFIG, 0, 2, 3, processes=2) as running:
        running.take(1)
        workers = list(running._pool._executor._processes.values())
        assert workers and all(worker.is_alive() for worker in workers)
    assert not any(worker.is_alive() for worker in workers)
    running.close()
    for call in (lambda: running.take(2), running.whole_bank, lambda: running.prepare(2)):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = (
        "import os, signal, time\n"
        "from echelon_jax.worldgen.workers import WorkerPool\n"
        "pool = WorkerPool(1)\n"
        "print(pool.submit(os.getpid).result(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=30)
    worker = int(done.stdout)
    deadline = time.monotonic() + 30
    while _running(worker):
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.05)


def _running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # an orphan that has ended may wait to be reaped
    return not (stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")
