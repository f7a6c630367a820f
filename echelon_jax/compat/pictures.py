"""The frame of one arena from the state of either simulator, drawn as an image or as text."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.state import EnvState
from echelon_jax.evaluation.recording import Frame
from echelon_jax.reference.environment import Arena
from echelon_jax.rules.materials import AIR
from echelon_jax.rules.mechs import CLASS_NAMES, MECH_CLASSES, roster
from echelon_jax.rules.weapons import WEAPON_NAMES
from echelon_jax.viewing.topdown import draw_frame

SCALE = 12  # pixels to a voxel
TALL = 4  # levels from which the text shows a wall


def frame_of_state(config: EnvConfig, state: EnvState) -> Frame:
    """Return the frame of a state of one arena; beams of the last decision are not part of a state and are left out."""
    host = jax.tree.map(np.asarray, state)
    mechs, shots = host.sim.mechs, host.sim.projectiles
    return _frame(
        config,
        host.sim.grid.material.reshape(config.size_z, -1),
        step=host.step_count,
        score=host.score + host.score_carry,
        zone=host.arena_map.zone,
        position=mechs.position,
        yaw=mechs.yaw,
        hp=mechs.hp,
        heat=mechs.heat / _heat_caps(config),
        alive=mechs.alive,
        fallen=mechs.fallen > 0,
        shot_alive=shots.alive,
        shot_weapon=shots.weapon,
        shot_position=shots.position,
        smoke_life=host.sim.smoke.life,
        smoke_position=host.sim.smoke.position,
    )


def frame_of_reference(config: EnvConfig, arena: Arena) -> Frame:
    """Return the frame of the numpy reference's arena."""
    battle, mechs = arena.battle, arena.battle.mechs
    shots, clouds = battle.projectiles, battle.clouds
    return _frame(
        config,
        battle.world.material.reshape(config.size_z, -1),
        step=np.int32(arena.step_count),
        score=np.array(arena.scores, np.float32),
        zone=np.array([arena.zone.x, arena.zone.y, arena.zone.radius], np.float32),
        position=np.array([mech.pos for mech in mechs], np.float32),
        yaw=np.array([mech.yaw for mech in mechs], np.float32),
        hp=np.array([mech.hp for mech in mechs], np.float32),
        heat=np.array([mech.heat / mech.spec.heat_cap for mech in mechs], np.float32),
        alive=np.array([mech.alive for mech in mechs]),
        fallen=np.array([mech.fallen for mech in mechs]),
        shot_alive=np.ones(len(shots), bool),
        shot_weapon=np.array([shot.weapon for shot in shots], np.int32),
        shot_position=np.array([shot.pos for shot in shots], np.float32).reshape(-1, 3),
        smoke_life=np.ones(len(clouds), np.int32),
        smoke_position=np.array([cloud.pos for cloud in clouds], np.float32).reshape(-1, 3),
    )


def image(config: EnvConfig, frame: Frame) -> np.ndarray:
    """Return the arena from above, uint8 [height, width, 3]."""
    return np.array(draw_frame(config, frame, SCALE).convert("RGB"), np.uint8)


def text(config: EnvConfig, frame: Frame) -> str:
    """Return the arena from above as lines of characters, north first, and a line with the score.

    A mech is the first letter of its class, upper case for blue and lower case for red; # is a wall, : lower ground, o the
    zone's edge.
    """
    height = np.asarray(frame.height).reshape(config.size_y, config.size_x)
    shown = np.full(height.shape, ".", dtype="<U1")
    shown[height > 1] = ":"
    shown[height >= TALL] = "#"
    x, y, radius = (float(v) for v in frame.zone)
    columns, rows = np.meshgrid(np.arange(config.size_x) + 0.5, np.arange(config.size_y) + 0.5)
    shown[np.abs(np.hypot(columns - x, rows - y) - radius) < 0.5] = "o"
    who = roster(config.num_packs)
    for i in np.flatnonzero(frame.alive):
        column, row = (int(np.clip(v, 0, size - 1)) for v, size in zip(frame.position[i, :2], height.shape[::-1]))
        letter = CLASS_NAMES[who.mech_class[i]][0]
        shown[row, column] = letter.upper() if who.team[i] == 0 else letter.lower()
    blue, red = (float(v) for v in frame.score)
    seconds = float(frame.step) * config.decision_seconds
    lines = ["".join(row) for row in shown[::-1]]
    return "\n".join([f"{seconds:.2f} s   blue {blue:.2f}   red {red:.2f}", *lines])


def _heat_caps(config: EnvConfig) -> np.ndarray:
    return np.array([MECH_CLASSES[kind].heat_cap for kind in roster(config.num_packs).mech_class], np.float32)


def _frame(config: EnvConfig, grid: np.ndarray, **fields: Any) -> Frame:
    levels = np.arange(1, config.size_z + 1, dtype=np.int32)[:, None]
    height = np.where(grid != AIR, levels, 0).max(0)
    top = np.take_along_axis(grid, np.maximum(height - 1, 0)[None], 0)[0]
    weapons = (config.num_mechs, len(WEAPON_NAMES))
    arrays: dict[str, Any] = {
        "over": np.bool_(False),
        "height": height,
        "material": top.astype(np.int32),
        "fired": np.zeros(weapons, np.float32),
        "target": np.zeros(weapons, np.int32),
    }
    return Frame(**arrays, **fields)
