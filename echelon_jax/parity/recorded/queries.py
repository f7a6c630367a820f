"""Recorded line-of-sight queries and generated worlds of the original against this library."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.parity.recorded.maps import column_words
from echelon_jax.rules.materials import COLLIDES, OPAQUE
from echelon_jax.sim.grid import levels_hit, levels_under
from echelon_jax.sim.rays import sight, walk
from echelon_jax.worldgen.generate import generate_world

LATTICE_SHARE = 5  # the first fifth of the rays has lattice points as ends
REQUIRED_SHARE = 0.9995  # of the other rays


@dataclasses.dataclass
class QueryCount:
    """Number of queries of one kind, and of those that were answered as recorded."""

    rows: int = 0
    exact: int = 0

    @property
    def share(self) -> float:
        """Share of queries answered as recorded; 1 without queries."""
        return self.exact / self.rows if self.rows else 1.0

    def add(self, agrees: np.ndarray) -> None:
        """Count answers."""
        self.rows += int(agrees.size)
        self.exact += int(agrees.sum())

    def merge(self, other: QueryCount) -> None:
        """Count another file's answers."""
        self.rows += other.rows
        self.exact += other.exact


def check_rays(path: Path) -> dict[str, QueryCount]:
    """Check every ray and box of a recorded file. A ray gives a result and the struck voxel, with and without the end voxel.

    Returns:
        counts for "boxes", "rays" (random end points), "lattice_rays" (nothing but ties: float32 decides some otherwise) and
        "sight" (the lean traversal of mech pairs, on the random rays that start and end inside the map).
    """
    with np.load(path) as file:
        data = {name: file[name] for name in file.files}
    height, depth, width = data["voxels"].shape
    config = EnvConfig.original(size_x=width, size_y=depth, size_z=height)
    opaque = jnp.asarray(column_words(data["voxels"].reshape(1, -1), OPAQUE, config))
    start, end = jnp.asarray(data["start"]), jnp.asarray(data["end"])
    count = len(start)
    arena, wanted = jnp.zeros(count, jnp.int32), jnp.ones(count, bool)
    lattice = np.arange(count) < count // LATTICE_SHARE
    result = {"rays": QueryCount(), "lattice_rays": QueryCount(), "sight": QueryCount()}
    for include_end, suffix in ((False, "noend"), (True, "end")):
        walked = jax.device_get(
            jax.jit(walk, static_argnums=(0, 6))(config, opaque, arena, start, end, wanted, include_end)
        )
        cell = np.where(walked.struck[:, None], walked.cell, -1)
        agrees = (walked.blocked == data[f"blocked_{suffix}"]) & (cell == data[f"voxel_{suffix}"]).all(-1)
        result["rays"].add(agrees[~lattice])
        result["lattice_rays"].add(agrees[lattice])
    inside = np.ones(count, bool)
    for points in (data["start"], data["end"]):
        inside &= ((points >= 0) & (points[:, :] < (width, depth, np.inf))).all(-1)
    clear = jax.device_get(jax.jit(sight, static_argnums=0)(config, opaque, arena, start, end, jnp.asarray(inside)))
    result["sight"].add((clear != data["blocked_noend"])[inside & ~lattice])
    result["boxes"] = QueryCount()
    result["boxes"].add(_box_answers(config, data) == data["aabb_collides"])
    return result


def _box_answers(config: EnvConfig, data: dict[str, np.ndarray]) -> np.ndarray:
    """BoxHitsWorld (docs/spec/rules.md 2.4) of every recorded box, bool [boxes]."""
    words = jnp.asarray(column_words(data["voxels"].reshape(1, -1), COLLIDES, config))
    lo, hi = (jnp.asarray(data["aabb_center"] + sign * data["aabb_half"]) for sign in (-1, 1))
    span = int(np.ceil(2 * data["aabb_half"].max())) + 1

    def answer(lo: jax.Array, hi: jax.Array) -> jax.Array:
        arena = jnp.zeros(len(lo), jnp.int32)
        under = levels_under(config, words, arena, (lo[:, 0], lo[:, 1]), (hi[:, 0], hi[:, 1]), span)
        return levels_hit(config, under, lo[:, 2], hi[:, 2])

    return np.asarray(jax.jit(answer)(lo, hi))


def check_worlds(path: Path) -> QueryCount:
    """Check every generated world of a recorded file: materials, spawn points, yaws and zone, bit for bit."""
    count = QueryCount()
    with np.load(path) as file:
        meta = json.loads(file["meta"].tobytes())
        for seed in sorted(int(name.removeprefix("voxels_")) for name in file.files if name.startswith("voxels_")):
            height, depth, width = file[f"voxels_{seed}"].shape
            mechs = len(file[f"yaw_{seed}"])
            config = EnvConfig.original(size_x=width, size_y=depth, size_z=height, num_packs=mechs // 10)
            world = generate_world(config, seed)
            zone = meta["world_meta"][meta["seeds"].index(seed)]["capture_zone"]
            agrees = (
                np.array_equal(world.material, file[f"voxels_{seed}"])
                and np.array_equal(world.position, file[f"spawn_{seed}"])
                and np.array_equal(world.yaw, file[f"yaw_{seed}"])
                and [*world.zone] == [*zone["center"], zone["radius"]]
            )
            count.add(np.array([agrees]))
    return count
