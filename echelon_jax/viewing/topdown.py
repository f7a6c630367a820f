"""A game from above as a GIF: terrain by height, mechs with side, class and heading, shots, smoke and the zone (pillow)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.evaluation.recording import Frame
from echelon_jax.rules.materials import AIR, DEBRIS_FIELD, DIRT, FOLIAGE, GLASS, LAVA, WATER
from echelon_jax.rules.mechs import CLASS_NAMES, MECH_CLASSES, roster
from echelon_jax.rules.weapons import FLAMER, HITSCAN, MISSILE, PAINTER, SMOKE
from echelon_jax.viewing.extras import drawing

TEAM_COLOURS = ((64, 132, 244), (236, 76, 62))
ZONE_COLOUR = (250, 210, 70)
GROUND, HIGH = np.array([46, 50, 44]), np.array([196, 196, 188])
TINTS = {LAVA: (214, 84, 20), WATER: (44, 96, 170), FOLIAGE: (60, 120, 52), GLASS: (150, 205, 215), DIRT: (92, 74, 54)}
TINTS[DEBRIS_FIELD] = (128, 98, 66)
BEAMS = dict.fromkeys(HITSCAN, (255, 90, 220)) | {FLAMER: (255, 160, 40), PAINTER: (120, 255, 120)}
SHOTS = {MISSILE: (255, 120, 60), SMOKE: (210, 210, 210)}
OTHER_SHOT = (255, 245, 160)
BANNER = 18  # pixels above the map for the score


def terrain(config: EnvConfig, frame: Frame) -> np.ndarray:
    """uint8 [size_y, size_x, 3]: the highest voxel of each column, brighter where it is higher; row 0 is y = 0."""
    height = np.asarray(frame.height).reshape(config.size_y, config.size_x)
    material = np.asarray(frame.material).reshape(config.size_y, config.size_x)
    share = (height / config.size_z)[..., None]
    colours = GROUND + (HIGH - GROUND) * np.sqrt(share)
    for which, tint in TINTS.items():
        colours = np.where((material == which)[..., None], 0.35 * colours + 0.65 * np.array(tint), colours)
    colours = np.where((material == AIR)[..., None], GROUND, colours)
    return colours.clip(0, 255).astype(np.uint8)


def draw_frame(config: EnvConfig, frame: Frame, scale: int = 12, a_is_blue: bool = True) -> Any:
    """One frame as a pillow image, y upwards, `scale` pixels to a voxel; `a_is_blue` says which side player A is.

    Raises:
        MissingExtra: pillow is not installed.
    """
    image_module, draw_module = drawing("PIL.Image"), drawing("PIL.ImageDraw")
    width, height = config.size_x * scale, config.size_y * scale
    ground = image_module.fromarray(terrain(config, frame)[::-1]).resize((width, height), 0)
    image = image_module.new("RGB", (width, height + BANNER), (16, 16, 18))
    image.paste(ground, (0, BANNER))
    pen = draw_module.Draw(image, "RGBA")

    def spot(point: Any) -> tuple[float, float]:
        return float(point[0]) * scale, BANNER + height - float(point[1]) * scale

    def disc(point: Any, radius: float, **style: Any) -> None:
        x, y = spot(point)
        r = radius * scale
        pen.ellipse((x - r, y - r, x + r, y + r), **style)

    # Zone and smoke lie under everything that moves.
    disc(frame.zone, float(frame.zone[2]), outline=(*ZONE_COLOUR, 255), width=2, fill=(*ZONE_COLOUR, 36))
    for cloud in np.flatnonzero(frame.smoke_life > 0):
        disc(frame.smoke_position[cloud], 4.0, fill=(220, 220, 220, 90))

    who = roster(config.num_packs)
    for i in np.flatnonzero(~np.asarray(frame.alive)):
        x, y = spot(frame.position[i])
        pen.line((x - 4, y - 4, x + 4, y + 4), fill=(*TEAM_COLOURS[who.team[i]], 150), width=2)
        pen.line((x - 4, y + 4, x + 4, y - 4), fill=(*TEAM_COLOURS[who.team[i]], 150), width=2)
    for weapon, colour in BEAMS.items():
        for i in np.flatnonzero(frame.fired[:, weapon] > 0):
            pen.line(
                (*spot(frame.position[i]), *spot(frame.position[frame.target[i, weapon]])), fill=(*colour, 230), width=2
            )
    for i in np.flatnonzero(frame.alive):
        _draw_mech(pen, frame, int(i), who, scale, spot)
    for i in np.flatnonzero(frame.shot_alive):
        disc(frame.shot_position[i], 0.3, fill=SHOTS.get(int(frame.shot_weapon[i]), OTHER_SHOT))

    seconds = float(frame.step) * config.decision_seconds
    names = ("A", "B") if a_is_blue else ("B", "A")
    score = "   ".join(f"{'blue' if s == 0 else 'red'} {names[s]} {float(frame.score[s]):.1f}" for s in range(2))
    pen.text((4, 3), f"{seconds:5.1f} s   zone {score}   to win {config.score_to_win:.0f}", fill=(235, 235, 235))
    return image


def _draw_mech(pen: Any, frame: Frame, i: int, who: Any, scale: int, spot: Any) -> None:
    """A square of the mech's size turned by its yaw, a line ahead, the class's first letter, hit points and heat above."""
    kind = MECH_CLASSES[who.mech_class[i]]
    half, yaw = kind.size[0] / 2, float(frame.yaw[i])
    forward, left = np.array([math.cos(yaw), math.sin(yaw)]), np.array([-math.sin(yaw), math.cos(yaw)])
    centre = np.asarray(frame.position[i, :2])
    corners = [centre + half * (a * forward + b * left) for a, b in ((1, 1), (1, -1), (-1, -1), (-1, 1))]
    over_cap = float(frame.heat[i]) > 1.0
    edge = (255, 150, 0) if over_cap else (255, 255, 255)
    fill = (*TEAM_COLOURS[who.team[i]], 120 if frame.fallen[i] else 255)
    pen.polygon([spot(corner) for corner in corners], fill=fill, outline=edge)
    pen.line((*spot(centre), *spot(centre + (half + 0.9) * forward)), fill=edge, width=2)
    x, y = spot(centre)
    pen.text((x - 3, y - 6), CLASS_NAMES[who.mech_class[i]][0].upper(), fill=(255, 255, 255))
    wide, top = 1.2 * max(half, 0.8) * scale, y - half * scale - 7
    for row, (share, colour) in enumerate(
        ((float(frame.hp[i]) / kind.hp, (90, 220, 90)), (min(float(frame.heat[i]), 1.0), (255, 120, 40)))
    ):
        level = top + 3 * row
        pen.line((x - wide, level, x + wide, level), fill=(0, 0, 0, 160), width=2)
        if share > 0:
            pen.line((x - wide, level, x - wide + 2 * wide * min(share, 1.0), level), fill=colour, width=2)


def write_gif(
    path: Path,
    config: EnvConfig,
    frames: Sequence[Frame],
    *,
    scale: int = 12,
    speed: float = 2.0,
    a_is_blue: bool = True,
) -> Path:
    """Write a game as an animated GIF and return its path.

    Args:
        frames: from a `Recorder`, one per decision.
        scale: pixels to a voxel.
        speed: times faster than the game's clock.

    Raises:
        ValueError: no frames.
        MissingExtra: pillow is not installed.
    """
    if not frames:
        raise ValueError("frames must hold at least one decision of the game, got none")
    # One palette for all frames keeps the terrain from flickering.
    palette = draw_frame(config, frames[len(frames) // 2], scale, a_is_blue).quantize(128)
    images = (draw_frame(config, frame, scale, a_is_blue).quantize(palette=palette, dither=0) for frame in frames)
    first = next(images)
    shown = max(20, round(1000 * config.decision_seconds / speed))
    first.save(path, save_all=True, append_images=list(images), duration=shown, loop=0, optimize=False)
    return path
