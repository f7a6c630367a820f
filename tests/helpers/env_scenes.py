"""Hand-made scenes on a bare 60 x 60 map: every arena is one scene, changed in place until `ready`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.beginning import Maps, fresh_state
from echelon_jax.env.interfaces import action_layout
from echelon_jax.rules.materials import COLLIDES, DIRT, OPAQUE, SOLID, SOLID_DEBRIS
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import HITSCAN
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.rules import sim_rules
from echelon_jax.sim.slots import slots
from echelon_jax.worldgen.bank import column_words, telemetry_map

ZONE = (30.0, 30.0, 5.0)
BODY_HIT = 0.9


class Scenes:
    """Arenas of resting, healthy mechs lined up outside the zone: blue at y = 4.2, red at y = 55.8, yaw 0."""

    def __init__(self, config: EnvConfig, count: int) -> None:
        self.config, self.count = config, count
        self.rules = sim_rules(config)
        self.ids = roster(config.num_packs).ids
        z, y, x = config.size_z, config.size_y, config.size_x
        self.voxels = np.zeros((count, z, y, x), np.uint8)
        self.voxels[:, 0] = DIRT
        half = np.asarray(self.rules.half)
        position = np.zeros((count, config.num_mechs, 3), np.float32)
        index = np.arange(config.num_mechs) % config.team_size
        position[..., 0] = 4.3 + 5.5 * index
        position[..., 1] = np.where(np.arange(config.num_mechs) < config.team_size, 4.2, 55.8)
        position[..., 2] = half[:, 2]
        maps = Maps(
            np.zeros((count, x * y * z), np.uint8),
            np.zeros((count, x * y * z), np.int16),
            np.zeros((count, x * y), np.uint32),
            np.zeros((count, x * y), np.uint32),
            np.zeros((count, x * y), np.uint8),
            np.zeros((count, 256), np.uint8),
        )
        state = fresh_state(
            config,
            self.rules,
            jax.tree.map(jnp.asarray, maps),
            jnp.tile(jnp.array(ZONE, jnp.float32), (count, 1)),
            jnp.asarray(position),
            jnp.zeros((count, config.num_mechs), jnp.float32),
            jnp.zeros(count, jnp.int32),
            jnp.full((count, config.num_mechs, 5), -1, jnp.int32),
        )
        self.state = jax.tree.map(np.array, state)  # writable copies

    def mech(self, name: str) -> int:
        return self.ids.index(name)

    def put(self, arena: int, name: str, x: float, y: float, z: float | None = None, **fields: object) -> int:
        """Move a mech and set fields of it; returns its index."""
        i, mechs = self.mech(name), self.state.sim.mechs
        mechs.position[arena, i, :2] = x, y
        if z is not None:
            mechs.position[arena, i, 2] = z
        return self.change(arena, name, **fields)

    def change(self, arena: int, name: str, **fields: object) -> int:
        i = self.mech(name)
        for field, value in fields.items():
            getattr(self.state.sim.mechs, field)[arena, i] = value
        return i

    def box(self, arena: int, x: range, y: range, z: range, material: int = SOLID) -> None:
        self.voxels[arena, z.start : z.stop, y.start : y.stop, x.start : x.stop] = material

    def smoke(self, arena: int, x: float, y: float, z: float) -> None:
        self.state.sim.smoke.position[arena, 0] = x, y, z
        self.state.sim.smoke.life[arena, 0] = 50

    def ready(self):
        """The batch of states, with column words and maps of the voxels."""
        grid, arena_map = self.state.sim.grid, self.state.arena_map
        for arena, voxels in enumerate(self.voxels):
            solid = (voxels == SOLID) | (voxels == SOLID_DEBRIS)
            grid.material[arena] = voxels.reshape(-1)
            grid.hp[arena] = np.where(solid, 100, 0).reshape(-1)
            grid.collides[arena] = column_words(COLLIDES[voxels])
            grid.opaque[arena] = column_words(OPAQUE[voxels])
            arena_map.occupancy[arena] = solid[: self.config.clearance_z].any(0).reshape(-1)
            arena_map.telemetry[arena] = telemetry_map(solid.any(0))
        return jax.tree.map(jnp.asarray, self.state)

    def actions(self) -> np.ndarray:
        return np.zeros((self.count, self.config.num_mechs, action_layout(self.config).size), np.float32)

    def act(self, actions: np.ndarray, arena: int, name: str, **components: float) -> None:
        for component, value in components.items():
            actions[arena, self.mech(name), action_layout(self.config)[component].offset] = value

    def noise(self) -> Noise:
        """Draws without a choice: roster order, body hits, no interception."""
        c, table = self.config, slots(self.config)
        s, n = c.substeps, c.num_mechs
        return Noise(
            ams=jnp.ones((self.count, s, len(table.heavy), table.max_ring, c.num_packs), jnp.float32),
            hit_height=jnp.full((self.count, s, n, len(HITSCAN)), BODY_HIT, jnp.float32),
            move_order=jnp.broadcast_to(jnp.arange(n, dtype=jnp.int32), (self.count, s, n)),
        )
