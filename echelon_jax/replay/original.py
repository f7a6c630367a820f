"""Reader of the original's JSON replay (docs/replays.md): frames after each decision, events, and the map at the start.

That file holds no first frame, no projectiles, no voxel edits and no actions (docs/spec/environment.md 8.3), so the replay
has none either and cannot be simulated again.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from echelon_jax.replay.checks import MOST, ReplayError, check
from echelon_jax.replay.model import (
    ALIVE,
    ARRAYS,
    ECCM,
    ECM,
    EVENT,
    FALLEN,
    HAZARD,
    LEG,
    LEGGED,
    PAINTED,
    REAR,
    SHUTDOWN,
    Replay,
    class_table,
    event_arrays,
)
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import CLASS_NAMES, TEAM_NAMES
from echelon_jax.rules.weapons import WEAPON_NAMES

# The original's event types: our name, and its fields for a and b.
ORIGINAL_EVENTS = {
    "laser_hit": ("beam", "shooter", "target"),
    "missile_launch": ("missile", "shooter", "target"),
    "kinetic_fire": ("kinetic", "shooter", ""),
    "smoke_launch": ("smoke", "shooter", ""),
    "paint": ("paint", "shooter", "target"),
    "ams_intercept": ("intercept", "defender", "shooter"),
    "projectile_hit": ("hit", "shooter", "target"),
    "assist": ("assist", "painter", ""),
    "kill": ("kill", "shooter", "target"),
    "explosion": ("explosion", "shooter", ""),
    "smoke_cloud": ("cloud", "", ""),
}


def from_original_json(data: bytes) -> Replay:
    """Return the replay of the original's file.

    Raises:
        ReplayError: in one sentence, whatever is wrong with it.
    """
    try:
        whole = json.loads(data)
        return _convert(whole)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ReplayError("this is neither an Echelon replay nor JSON") from error
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ReplayError(
            f"a field is missing or of the wrong type: {type(error).__name__} {str(error)[:80]}"
        ) from error
    except ReplayError:
        raise
    except ValueError as error:
        raise ReplayError(f"a field has a wrong value: {str(error)[:80]}") from error


def _convert(whole: dict[str, Any]) -> Replay:
    world, frames = whole["world"], whole["frames"]
    if not isinstance(frames, list) or not 1 <= len(frames) < MOST["F"]:
        raise ReplayError(f"frames must be a list of 1 to {MOST['F'] - 1}")
    material = _material(world)
    ids = list(frames[0]["mechs"])
    if not 1 <= len(ids) <= MOST["N"] or not all(isinstance(name, str) for name in ids):
        raise ReplayError(f"mechs must be 1 to {MOST['N']} with names")
    first = frames[0]["mechs"]
    mechs = [
        {"id": name, "team": TEAM_NAMES.index(first[name]["team"]), "class": CLASS_NAMES.index(first[name]["class"])}
        for name in ids
    ]
    ticks = [frame["tick"] for frame in frames]
    substeps = ticks[0]
    if not all(type(tick) is int for tick in ticks) or [*ticks] != [substeps * (i + 1) for i in range(len(ticks))]:
        raise ReplayError("tick must be a whole number that grows by the same amount from frame to frame")
    header, objective = _header(whole, mechs, frames), frames[0]["objective"]
    zone = [*objective["zone_center"], objective["zone_radius"]]
    arrays = _frames(frames, ids) | _events(frames, ids, substeps) | _clouds(frames, substeps)
    arrays |= {"material": material, "zone": np.array(zone, np.float32)}
    for name, spec in ARRAYS.items():
        if name.startswith(("edit_", "track_")):
            shape = tuple(0 if isinstance(n, str) else n for n in spec.shape)
            arrays[name] = np.zeros(shape, spec.dtype)
    replay = Replay(header, arrays)
    check(replay)
    return replay


def _material(world: dict[str, Any]) -> np.ndarray:
    size = world["size"]
    if not (isinstance(size, list) and len(size) == 3 and all(type(n) is int for n in size)):
        raise ReplayError("size must be three whole numbers")
    if not all(1 <= n <= most for n, most in zip(size, (MOST["X"], MOST["Y"], MOST["Z"]), strict=True)):
        raise ReplayError(f"size must be at most {MOST['X']}, {MOST['Y']} and {MOST['Z']}")
    material = np.zeros(size[::-1], np.uint8)
    walls = np.array(world["walls"], np.int64).reshape(-1, 4)
    if len(walls) and (walls.min() < 0 or (walls[:, :3] >= size).any() or walls[:, 3].max() > 255):
        raise ReplayError("walls must lie on the map")
    material[walls[:, 2], walls[:, 1], walls[:, 0]] = walls[:, 3]
    return material


def _header(whole: dict[str, Any], mechs: list[dict[str, Any]], frames: list[Any]) -> dict[str, Any]:
    last, objective = frames[-1], frames[0]["objective"]
    score, goal = last["objective"]["zone_score"], float(objective["zone_score_to_win"])
    winner = next((team for team in TEAM_NAMES if float(score[team]) >= goal), None)
    living = [any(m["alive"] for m in last["mechs"].values() if m["team"] == team) for team in TEAM_NAMES]
    if winner is None and living[0] != living[1]:
        winner = TEAM_NAMES[0] if living[0] else TEAM_NAMES[1]
    return {
        "format": "echelon-replay",
        "made_by": "the original's JSON",
        "game": {},
        "rules": "original",
        "seed": whole["world"].get("seed"),
        "decision_seconds": round(float(frames[0]["t"]), 6),
        "substeps": frames[0]["tick"],
        "score_to_win": goal,
        "smoke_radius": k.SMOKE_CLOUD_RADIUS,
        "ewar_radius": k.EWAR_RADIUS,
        "names": ["blue", "red"],
        "title": "Game of the original",
        "source": "original",
        "mechs": mechs,
        "classes": class_table(),
        "weapons": list(WEAPON_NAMES),
        "reward_components": [],
        "choices": [],
        "action_layout": [],
        "observation_layout": [],
        "winner": winner,
        "reason": "unknown",
    }


def _frames(frames: list[Any], ids: list[str]) -> dict[str, np.ndarray]:
    # There is no frame before the first decision: the first one stands in for it.
    rows = [[frame["mechs"][name] for name in ids] for frame in (frames[0], *frames)]

    def column(name: str, kind: Any = np.float32) -> np.ndarray:
        return np.array([[mech[name] for mech in row] for row in rows], kind)

    heat, cap = column("heat"), column("heat_cap")
    bits = (("alive", ALIVE), ("fallen", FALLEN), ("legged", LEGGED), ("ecm_on", ECM), ("eccm_on", ECCM))
    flags = sum(np.where(column(name, bool), bit, 0) for name, bit in bits) + np.where(heat > cap, SHUTDOWN, 0)
    seconds = np.array(
        [frame["objective"]["zone_score"][team] for frame in (frames[0], *frames) for team in TEAM_NAMES]
    )
    none = np.zeros(heat.shape, np.int16)
    return {
        "position": column("pos").reshape(*heat.shape, 3),
        "velocity": column("vel").reshape(*heat.shape, 3),
        "leg_hp": np.zeros(heat.shape, np.float32),
        **{name: column(name) for name in ("yaw", "hp", "stability")},
        "heat": heat,
        "flags": np.asarray(flags).astype(np.uint8),
        "painted": none,
        "suppressed": none,
        "focus": none - np.int16(1),
        "score": seconds.reshape(-1, 2).astype(np.float32),
    }


def _events(frames: list[Any], ids: list[str], substeps: int) -> dict[str, np.ndarray]:
    index = {name: i for i, name in enumerate(ids)}
    rows: list[tuple[Any, ...]] = []
    for number, frame in enumerate(frames):
        for event in frame["events"]:
            if event["type"] not in ORIGINAL_EVENTS:
                continue
            kind, a, b = ORIGINAL_EVENTS[event["type"]]
            if kind == "hit" and "is_leg_hit" not in event:
                kind = "splash"
            weapon = WEAPON_NAMES.index(event["weapon"]) if event.get("weapon") in WEAPON_NAMES else -1
            flags = sum(
                bit
                for name, bit in (("is_crit", REAR), ("is_leg_hit", LEG), ("is_painted", PAINTED))
                if event.get(name)
            )
            who = index.get(event.get(a, ""), HAZARD if kind == "kill" else -1)
            target = index.get(event.get(b, ""), -1)
            position = event.get("pos") or frame["mechs"][ids[max(target, 0)]]["pos"]
            amount = float(event.get("radius", event.get("damage", 0.0)))
            rows.append(((number + 1) * substeps, EVENT[kind], weapon, who, target, flags, amount, position))
    return event_arrays(rows)


def _clouds(frames: list[Any], substeps: int) -> dict[str, np.ndarray]:
    """Clouds as runs of frames that hold one at the same place."""
    running: dict[tuple[float, ...], list[int]] = {}
    done: list[tuple[int, int, tuple[float, ...]]] = []
    for number, frame in enumerate(frames):
        time = (number + 1) * substeps
        now = {tuple(float(x) for x in cloud["pos"]) for cloud in frame["smoke_clouds"]}
        for position in now:
            running.setdefault(position, [time, time])[1] = time
        for position in [position for position in running if position not in now]:
            first, last = running.pop(position)
            done.append((first, last, position))
    done += [(first, last, position) for position, (first, last) in running.items()]
    done.sort(key=lambda cloud: cloud[0])
    return {
        "cloud_start": np.array([c[0] for c in done], np.int32),
        "cloud_end": np.array([c[1] for c in done], np.int32),
        "cloud_position": np.array([c[2] for c in done], np.float32).reshape(-1, 3),
    }
