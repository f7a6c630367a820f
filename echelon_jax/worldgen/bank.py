"""The bank of worlds: many maps as flat arrays, which seeds they come from, and a feeder that makes the next ones.

Nothing here imports JAX, so worker processes stay small; the trainer uploads the arrays and gathers rows of them.

A bank has `num_slices` slices of `slice_size` worlds. Swap 0 is the first filling of all slices; swap c = 1, 2, ...
replaces slice (c - 1) mod num_slices. What a slice holds depends on the run's seed, the slice and the swap alone, so a
resumed run rebuilds the same bank from its swap counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.rules.materials import COLLIDES, OPAQUE, SOLID, SOLID_DEBRIS
from echelon_jax.worldgen.generate import World, generate_world
from echelon_jax.worldgen.workers import WorkerPool, may_start

TELEMETRY_BINS = 16
# Training and evaluation never share a map: episode seeds have 31 bits, the highest tells the two apart.
TRAINING_SEEDS = range(2**30, 2**31)
EVALUATION_SEEDS = range(2**30)
_TRAINING_KEY, _EVALUATION_KEY, _VALIDATION_KEY = 0, 1, 2
_CHUNK = 64  # worlds per message from a worker: some 14 MB at 60 x 60 x 20


class WorldArrays(NamedTuple):
    """W worlds, flattened the way the simulator reads them: cell (z, y, x) at (z * Y + y) * X + x, column at y * X + x.

    Attributes:
        material: uint8 [W, Z*Y*X].
        hp: int16 [W, Z*Y*X].
        collides, opaque: uint32 [W, Y*X]; bit z is set where the voxel stops boxes, or sight.
        occupancy: uint8 [W, Y*X], 1 where SOLID or SOLID_DEBRIS stands below the clearance
            (docs/spec/environment.md 2.8).
        telemetry: uint8 [W, 256], the same at any height in 16 by 16 bins, row along y (docs/spec/environment.md 2.9).
        zone: float32 [W, 3], centre x, y and radius.
        position: float32 [W, N, 3], spawn box centres.
        yaw: float32 [W, N], radians.
        seed: int32 [W], episode seeds.
    """

    material: np.ndarray
    hp: np.ndarray
    collides: np.ndarray
    opaque: np.ndarray
    occupancy: np.ndarray
    telemetry: np.ndarray
    zone: np.ndarray
    position: np.ndarray
    yaw: np.ndarray
    seed: np.ndarray


def column_words(mask: np.ndarray) -> np.ndarray:
    """One uint32 per column of a bool [Z, Y, X], Z at most 32: uint32 [Y*X] with bit z = mask[z]."""
    octets = np.packbits(mask.reshape(mask.shape[0], -1), axis=0, bitorder="little").astype(np.uint32)
    words = np.zeros(octets.shape[1], np.uint32)
    for i, octet in enumerate(octets):
        words |= octet << np.uint32(8 * i)
    return words


def telemetry_map(solid: np.ndarray) -> np.ndarray:
    """uint8 [256]: which of 16 x 16 bins of the bool map [Y, X] hold anything; rows along y, empty bins 0."""
    total = np.zeros((solid.shape[0] + 1, solid.shape[1] + 1), np.int32)
    total[1:, 1:] = solid.cumsum(0).cumsum(1)
    rows, columns = (np.arange(TELEMETRY_BINS + 1) * size // TELEMETRY_BINS for size in solid.shape)
    at_edges = total[rows][:, columns]
    return (np.diff(np.diff(at_edges, axis=0), axis=1) > 0).astype(np.uint8).ravel()


def pack_worlds(worlds: Sequence[World], clearance_z: int = EnvConfig.clearance_z) -> WorldArrays:
    """Stack worlds of one size and derive their column words, local obstacle map and telemetry.

    Args:
        worlds: at least one, all of the same shape and team size.
        clearance_z: levels counted by the obstacle map.
    """
    material = np.stack([world.material for world in worlds])
    count, size_z = material.shape[:2]
    solid = (material == SOLID) | (material == SOLID_DEBRIS)
    return WorldArrays(
        material=material.reshape(count, -1),
        hp=np.stack([world.hp for world in worlds]).reshape(count, -1),
        collides=np.stack([column_words(COLLIDES[voxels]) for voxels in material]),
        opaque=np.stack([column_words(OPAQUE[voxels]) for voxels in material]),
        occupancy=solid[:, : min(clearance_z, size_z)].any(axis=1).reshape(count, -1).astype(np.uint8),
        telemetry=np.stack([telemetry_map(columns) for columns in solid.any(axis=1)]),
        zone=np.stack([world.zone for world in worlds]).astype(np.float32),
        position=np.stack([world.position for world in worlds]),
        yaw=np.stack([world.yaw for world in worlds]).astype(np.float32),
        seed=np.array([world.seed for world in worlds], np.int32),
    )


def _generate_chunk(config: EnvConfig, seeds: list[int]) -> WorldArrays:
    return pack_worlds([generate_world(config, seed) for seed in seeds], config.clearance_z)


def _chunks(seeds: list[int], processes: int) -> list[list[int]]:
    size = max(1, min(_CHUNK, -(-len(seeds) // processes)))
    return [seeds[i : i + size] for i in range(0, len(seeds), size)]


def _join(parts: Sequence[WorldArrays]) -> WorldArrays:
    return WorldArrays(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _checked_seeds(seeds: Iterable[int]) -> list[int]:
    result = [int(seed) for seed in seeds]
    if not result or min(result) < 0 or max(result) >= 2**31:
        raise ValueError("seeds must be one or more whole numbers from 0 to 2147483647")
    return result


def _result(futures: Sequence[Future[Any]]) -> WorldArrays:
    for future in futures:
        error = future.exception()  # waits
        if error is not None:
            raise RuntimeError(f"a world generator process failed: {type(error).__name__}: {error}") from error
    return _join([future.result() for future in futures])


def generate_worlds(config: EnvConfig, seeds: Iterable[int], processes: int = 1) -> WorldArrays:
    """Return the worlds of the given episode seeds in that order. The number of processes does not matter.

    Args:
        config: sizes and teams.
        seeds: one or more whole numbers from 0 to 2**31 - 1.
        processes: 1 works in this process; more start so many workers for the call, if this process may have any.

    Raises:
        ValueError: `seeds` or `processes` out of range.
        RuntimeError: a worker failed; the cause is attached.
    """
    todo = _checked_seeds(seeds)
    if processes == 1 or not may_start():
        return _generate_chunk(config, todo)
    with WorkerPool(processes) as pool:
        return _result([pool.submit(_generate_chunk, config, chunk) for chunk in _chunks(todo, processes)])


def _draw_seeds(base_seed: int, key: tuple[int, ...], count: int, allowed: range) -> np.ndarray:
    if base_seed < 0:
        raise ValueError(f"base_seed must be a whole number from 0, got {base_seed}")
    state = np.random.SeedSequence(base_seed, spawn_key=key).generate_state(count, np.uint32)
    return (allowed.start + state % np.uint32(len(allowed))).astype(np.int32)


def bank_seeds(base_seed: int, slice_index: int, swap_counter: int, slice_size: int) -> np.ndarray:
    """int32 [slice_size]: the episode seeds that swap `swap_counter` puts into slice `slice_index`.

    A pure function of its arguments (numpy's SeedSequence over them, which does not change between numpy versions),
    within TRAINING_SEEDS.
    """
    return _draw_seeds(base_seed, (_TRAINING_KEY, slice_index, swap_counter), slice_size, TRAINING_SEEDS)


def evaluation_seeds(base_seed: int, count: int) -> np.ndarray:
    """int32 [count]: episode seeds for evaluation, within EVALUATION_SEEDS. A longer list begins with the shorter one."""
    return _draw_seeds(base_seed, (_EVALUATION_KEY,), count, EVALUATION_SEEDS)


def validation_seeds(base_seed: int, count: int) -> np.ndarray:
    """int32 [count]: episode seeds for validation, within EVALUATION_SEEDS, drawn apart from those for evaluation.

    Two maps in common have a chance of count squared in 2**30. A longer list begins with the shorter one.
    """
    return _draw_seeds(base_seed, (_VALIDATION_KEY,), count, EVALUATION_SEEDS)


def swapped_slice(swap_counter: int, num_slices: int) -> int:
    """The slice that swap `swap_counter` (1 or more) replaces: each in turn."""
    if swap_counter < 1:
        raise ValueError(f"swap_counter must be a whole number from 1, got {swap_counter}")
    return (swap_counter - 1) % num_slices


def bank_contents(base_seed: int, num_slices: int, slice_size: int, swap_counter: int) -> np.ndarray:
    """int32 [num_slices * slice_size]: the seeds of the whole bank after swap `swap_counter`, 0 or more."""
    if swap_counter < 0:
        raise ValueError(f"swap_counter must be a whole number from 0, got {swap_counter}")
    last_swap = [0] * num_slices
    for swap in range(max(1, swap_counter - num_slices + 1), swap_counter + 1):
        last_swap[swapped_slice(swap, num_slices)] = swap
    return np.concatenate([bank_seeds(base_seed, i, swap, slice_size) for i, swap in enumerate(last_swap)])


class WorldBankFeeder:
    """Makes the bank's next slices in background processes while the device trains.

    The content depends on the arguments and the swap counter, never on timing: `take` waits until a slice is ready.

    Args:
        config: sizes and teams.
        base_seed: the run's bank seed.
        num_slices, slice_size: shape of the bank, both 1 or more.
        processes: background workers, 1 or more; 0 makes each slice in this process when it is taken, as does a process that
            may have no workers.

    Example:
        >>> with WorldBankFeeder(config, base_seed=0, num_slices=8, slice_size=64) as feeder:
        ...     bank = feeder.whole_bank(0)  # a resumed run passes its counter
        ...     new_rows = feeder.take(1)  # for slice swapped_slice(1, 8)
    """

    def __init__(
        self,
        config: EnvConfig,
        base_seed: int,
        num_slices: int,
        slice_size: int,
        processes: int = 1,
    ) -> None:
        for name, value, low in (
            ("num_slices", num_slices, 1),
            ("slice_size", slice_size, 1),
            ("processes", processes, 0),
        ):
            if value < low:
                raise ValueError(f"{name} must be a whole number from {low}, got {value}")
        self._config, self._base_seed = config, base_seed
        self._num_slices, self._slice_size = num_slices, slice_size
        self._processes = processes
        self._pool = WorkerPool(processes) if processes and may_start() else None
        self._pending: dict[int, list[Future[Any]]] = {}
        self._closed = False

    def whole_bank(self, swap_counter: int = 0) -> WorldArrays:
        """Return all num_slices * slice_size worlds as they are after swap `swap_counter`, and begin with the next swap."""
        self._require_open()
        seeds = bank_contents(self._base_seed, self._num_slices, self._slice_size, swap_counter).tolist()
        if self._pool is None:
            return _generate_chunk(self._config, seeds)
        futures = self._submit(seeds)
        self.prepare(swap_counter + 1)
        return _result(futures)

    def prepare(self, swap_counter: int) -> None:
        """Begin with swap `swap_counter` in the background, unless it has begun or there are no workers."""
        self._require_open()
        if self._pool is not None and swap_counter not in self._pending:
            self._pending[swap_counter] = self._submit(self._slice_seeds(swap_counter))

    def take(self, swap_counter: int) -> WorldArrays:
        """Return the slice_size worlds of swap `swap_counter`, and begin with the swap after it.

        Raises:
            RuntimeError: the feeder is closed, or a worker failed (the cause is attached).
        """
        self._require_open()
        if self._pool is None:
            return _generate_chunk(self._config, self._slice_seeds(swap_counter))
        self.prepare(swap_counter)
        futures = self._pending.pop(swap_counter)
        for stale in self._pending.keys() - {swap_counter + 1}:
            for future in self._pending.pop(stale):
                future.cancel()
        self.prepare(swap_counter + 1)
        return _result(futures)

    def close(self) -> None:
        """End the workers; a second call does nothing."""
        self._closed = True
        self._pending.clear()
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> WorldBankFeeder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("the world bank feeder is closed")

    def _slice_seeds(self, swap: int) -> list[int]:
        index = swapped_slice(swap, self._num_slices)
        return bank_seeds(self._base_seed, index, swap, self._slice_size).tolist()

    def _submit(self, seeds: list[int]) -> list[Future[Any]]:
        assert self._pool is not None
        return [self._pool.submit(_generate_chunk, self._config, chunk) for chunk in _chunks(seeds, self._processes)]
