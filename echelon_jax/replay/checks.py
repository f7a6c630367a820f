"""Checks of a replay before its use. A broken or hostile one is refused in one sentence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from echelon_jax.replay.model import ARRAYS, EVENTS, HAZARD, Replay, counts_of
from echelon_jax.rules.materials import MATERIALS
from echelon_jax.rules.mechs import CLASS_NAMES
from echelon_jax.rules.weapons import WEAPON_NAMES

MOST = {"X": 1000, "Y": 1000, "Z": 32, "N": 80, "F": 50_001, "C": 100_000}
MOST_TEXT = 200  # characters of a name


class ReplayError(ValueError):
    """A replay that cannot be used; the message is one sentence."""


def _number(header: dict[str, Any], name: str, low: float, high: float) -> None:
    value = header.get(name)
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or not low <= value <= high:  # type: ignore[operator]
        raise ReplayError(f"{name} must be a number from {low:g} to {high:g}")


def _text(value: Any, name: str) -> None:
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise ReplayError(f"{name} must be text of at most {MOST_TEXT} characters")


def check_header(header: dict[str, Any]) -> None:
    """Check the plain values of a replay.

    Raises:
        ReplayError: naming the value and what it may be.
    """
    if header.get("format") != "echelon-replay":
        raise ReplayError("format must be 'echelon-replay'")
    _number(header, "decision_seconds", 1e-3, 100)
    _number(header, "substeps", 1, 50)
    if not isinstance(header["substeps"], int):
        raise ReplayError("substeps must be a whole number from 1 to 50")
    _number(header, "score_to_win", 0, 1e6)
    for name in ("smoke_radius", "ewar_radius"):
        _number(header, name, 0, 1000)
    for name in ("title", "source", "reason"):
        _text(header.get(name), name)
    if header.get("winner") not in ("blue", "red", "draw", None):
        raise ReplayError("winner must be blue, red, draw or null")
    names = header.get("names")
    if not isinstance(names, list) or len(names) != 2:
        raise ReplayError("names must be the names of both sides")
    for name in names:
        _text(name, "names")
    _check_mechs(header.get("mechs"))
    _check_classes(header.get("classes"))
    for name in ("reward_components", "weapons", "choices"):
        texts = header.get(name)
        if not isinstance(texts, list) or len(texts) > 100:
            raise ReplayError(f"{name} must be a list of names")
        for text in texts:
            _text(text, name)
    for name in ("action_layout", "observation_layout"):
        _check_layout(header.get(name), name)
    if not isinstance(header.get("game"), dict):
        raise ReplayError("game must be the fields of the game's configuration")


def _check_mechs(mechs: Any) -> None:
    if not isinstance(mechs, list) or not 1 <= len(mechs) <= MOST["N"]:
        raise ReplayError(f"mechs must be a list of 1 to {MOST['N']}")
    for mech in mechs:
        if not isinstance(mech, dict) or mech.get("team") not in (0, 1) or isinstance(mech["team"], bool):
            raise ReplayError("mechs must each have the team 0 or 1")
        _text(mech.get("id"), "mechs")
        kind = mech.get("class")
        if not isinstance(kind, int) or isinstance(kind, bool) or not 0 <= kind < len(CLASS_NAMES):
            raise ReplayError(f"mechs must each have a class from 0 to {len(CLASS_NAMES) - 1}")


def _check_classes(classes: Any) -> None:
    if not isinstance(classes, list) or len(classes) != len(CLASS_NAMES):
        raise ReplayError(f"classes must be a list of {len(CLASS_NAMES)}")
    for entry in classes:
        if not isinstance(entry, dict):
            raise ReplayError("classes must be objects")
        _text(entry.get("name"), "classes")
        for name in ("width", "height", "hp", "leg_hp", "heat_cap"):
            _number(entry, name, 1e-3, 1e6)


def _check_layout(layout: Any, name: str) -> None:
    if not isinstance(layout, list) or len(layout) > 20_000:
        raise ReplayError(f"{name} must be a list of entries")
    offset = 0
    for entry in layout:
        good = isinstance(entry, list) and len(entry) == 3 and all(type(n) is int for n in entry[1:])
        if not good or entry[1] != offset or not 0 < entry[2] <= 100_000:
            raise ReplayError(f"{name} must be entries of name, offset and size that follow each other")
        _text(entry[0], name)
        offset += entry[2]


def check(replay: Replay) -> None:
    """Check a whole replay: header, shapes, types and every index.

    Raises:
        ReplayError: naming what is wrong.
    """
    check_header(replay.header)
    for name, spec in ARRAYS.items():
        if name not in replay:
            if spec.needed:
                raise ReplayError(f"{name} is missing")
            continue
        array = replay[name]
        if array.dtype.name != spec.dtype or array.ndim != len(spec.shape):
            raise ReplayError(f"{name} must be {spec.dtype} with {len(spec.shape)} axes")
    counts = counts_of(replay)
    for letter, most in MOST.items():
        if counts[letter] > most:
            raise ReplayError(f"the replay is too large: {letter} must be at most {most}, got {counts[letter]}")
    if min(counts[letter] for letter in "XYZNF") < 1 or counts["N"] != len(replay.header["mechs"]):
        raise ReplayError("a replay must have a map, a frame, and as many mechs as its header lists")
    for name, spec in ARRAYS.items():
        if name in replay:
            expected = tuple(counts[n] if isinstance(n, str) else n for n in spec.shape)
            if replay[name].shape != expected:
                raise ReplayError(f"{name} must have the shape {expected}, got {replay[name].shape}")
    for name, letter in (("action_layout", "A"), ("observation_layout", "O")):
        layout = replay.header[name]
        if letter in counts and counts[letter] and (not layout or layout[-1][1] + layout[-1][2] != counts[letter]):
            raise ReplayError(f"{name} must describe all {counts[letter]} numbers")
    for letter, name in (("R", "reward_components"), ("Q", "choices")):
        if letter in counts and counts[letter] != len(replay.header[name]):
            raise ReplayError(f"{name} must name all {counts[letter]} numbers")
    _check_values(replay, counts)


def _within(replay: Replay, name: str, low: int, high: int) -> None:
    array = replay[name]
    if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
        raise ReplayError(f"{name} must be from {low} to {high}")


def _check_values(replay: Replay, counts: dict[str, int]) -> None:
    for name in ("zone", "position", "velocity", "yaw", "hp", "leg_hp", "heat", "stability", "score"):
        if not np.isfinite(replay[name]).all():
            raise ReplayError(f"{name} must be finite")
    for name in ("event_amount", "event_position", "cloud_position", "rewards", "value"):
        if name in replay and not np.isfinite(replay[name]).all():
            raise ReplayError(f"{name} must be finite")
    last, mechs = counts["S"], counts["N"] - 1
    _within(replay, "material", 0, len(MATERIALS) - 1)
    _within(replay, "edit_material", 0, len(MATERIALS) - 1)
    _within(replay, "edit_voxel", 0, counts["X"] * counts["Y"] * counts["Z"] - 1)
    for name in ("event_time", "edit_time", "track_start", "cloud_start"):
        _within(replay, name, 0, last)
    for name in ("event_time", "edit_time"):
        if (np.diff(replay[name]) < 0).any():
            raise ReplayError(f"{name} must not go back")
    _within(replay, "event_kind", 0, len(EVENTS) - 1)
    _within(replay, "event_weapon", -1, len(WEAPON_NAMES) - 1)
    _within(replay, "track_weapon", 0, len(WEAPON_NAMES) - 1)
    for name, low in (("event_a", HAZARD), ("event_b", -1), ("track_shooter", -1), ("track_target", -1), ("focus", -1)):
        _within(replay, name, low, mechs)
    _within(replay, "track_points", 1, last + 2)
    if int(replay["track_points"].sum(dtype=np.int64)) != counts["P"]:
        raise ReplayError("track_points must add up to the points stored")
