"""A replay in memory: a header of plain values and named arrays, whichever file it came from.

Times are substeps since the start of the game: a decision is `substeps` of them, frame d is the state after d decisions.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from echelon_jax.rules.mechs import MECH_CLASSES

VERSION = 1

EVENTS = (
    "beam",  # laser or flamer: a shooter, b target, amount damage
    "missile",  # launched: a shooter, b target
    "kinetic",  # gauss or autocannon fired: a shooter
    "smoke",  # shell launched: a shooter
    "paint",  # a painter, b target
    "intercept",  # a defender, b shooter of the missile
    "hit",  # projectile on a mech: a shooter, b target, amount damage
    "splash",  # explosion on a mech: a shooter, b target, amount damage
    "assist",  # a painter, b target
    "kill",  # a shooter (HAZARD for lava and debris), b who died
    "explosion",  # a shooter, amount radius
    "cloud",  # smoke opened: a shooter, amount radius
    "impact",  # projectile on terrain: a shooter
    "expired",  # projectile gone without effect: a shooter
    "knockdown",  # b who fell
    "stood_up",  # b
    "shutdown",  # b whose heat passed the cap
    "restarted",  # b
    "legged",  # b who lost its legs
)
EVENT = {name: i for i, name in enumerate(EVENTS)}
HAZARD = -2
REAR, LEG, PAINTED = 1, 2, 4  # bits of an event's flags: hit from behind, on the legs, with a paint bonus
ALIVE, FALLEN, LEGGED, SHUTDOWN, ECM, ECCM = 1, 2, 4, 8, 16, 32  # bits of a mech's flags
TRACK_UNIT = 64.0  # steps per voxel of stored projectile tracks
POSE_UNIT = 64.0  # steps per voxel of stored substep positions
TURN_UNIT = 65536.0 / (2 * np.pi)


class Spec(NamedTuple):
    """What an array of a replay must be: numpy type, and its shape in named counts or numbers."""

    dtype: str
    shape: tuple[str | int, ...]
    needed: bool = True


# Counts: X, Y, Z map; N mechs; D decisions; F = D + 1 frames; S substeps in all; E events; V edits; K tracks; P points;
# C clouds; A action components; O observation entries; R reward components; Q choices of a policy's heads.
ARRAYS: dict[str, Spec] = {
    "material": Spec("uint8", ("Z", "Y", "X")),
    "zone": Spec("float32", (3,)),
    # Frames.
    "position": Spec("float32", ("F", "N", 3)),
    "velocity": Spec("float32", ("F", "N", 3)),
    "yaw": Spec("float32", ("F", "N")),
    "hp": Spec("float32", ("F", "N")),
    "leg_hp": Spec("float32", ("F", "N")),
    "heat": Spec("float32", ("F", "N")),
    "stability": Spec("float32", ("F", "N")),
    "flags": Spec("uint8", ("F", "N")),
    "painted": Spec("int16", ("F", "N")),  # substeps left
    "suppressed": Spec("int16", ("F", "N")),
    "focus": Spec("int16", ("F", "N")),
    "score": Spec("float32", ("F", 2)),
    # Every substep, in steps of POSE_UNIT and TURN_UNIT.
    "pose": Spec("int16", ("S", "N", 4), False),
    # What happened.
    "event_time": Spec("int32", ("E",)),
    "event_kind": Spec("uint8", ("E",)),
    "event_weapon": Spec("int8", ("E",)),
    "event_a": Spec("int16", ("E",)),
    "event_b": Spec("int16", ("E",)),
    "event_flags": Spec("uint8", ("E",)),
    "event_amount": Spec("float32", ("E",)),
    "event_position": Spec("float32", ("E", 3)),
    "edit_time": Spec("int32", ("V",)),
    "edit_voxel": Spec("int32", ("V",)),
    "edit_material": Spec("uint8", ("V",)),
    "track_weapon": Spec("int8", ("K",)),
    "track_shooter": Spec("int16", ("K",)),
    "track_target": Spec("int16", ("K",)),
    "track_start": Spec("int32", ("K",)),
    "track_points": Spec("int32", ("K",)),  # points of each track, one per substep
    "track_position": Spec("int16", ("P", 3)),
    "cloud_start": Spec("int32", ("C",)),
    "cloud_end": Spec("int32", ("C",)),
    "cloud_position": Spec("float32", ("C", 3)),
    # What re-simulation needs.
    "actions": Spec("float32", ("D", "N", "A"), False),
    "keys": Spec("uint32", ("D", 2), False),
    "digest": Spec("uint8", ("F", 16), False),  # of everything in each frame's state, maps included
    # What the mechs saw, were paid and expected.
    "rewards": Spec("float32", ("D", "N", "R"), False),
    "observation": Spec("float16", ("D", "N", "O"), False),
    "value": Spec("float32", ("D", "N"), False),
    "probability": Spec("float16", ("D", "N", "Q"), False),  # of each of the header's choices
}


@dataclasses.dataclass
class Replay:
    """One game.

    Attributes:
        header: plain values, see `docs/replays.md`.
        arrays: by name, each as `ARRAYS` says.
    """

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    @property
    def decisions(self) -> int:
        """Decision steps of the game."""
        return len(self.arrays["position"]) - 1

    @property
    def seconds(self) -> float:
        """Length of the game."""
        return self.decisions * float(self.header["decision_seconds"])

    def _repr_html_(self) -> str:
        """The viewer, as a frame in a notebook."""
        from echelon_jax.replay.page import frame

        return frame(self)


def counts_of(replay: Replay) -> dict[str, int]:
    """Return the named counts of a replay from its arrays and header."""
    size_z, size_y, size_x = replay["material"].shape
    frames, mechs = replay["flags"].shape
    counts = {
        "X": size_x,
        "Y": size_y,
        "Z": size_z,
        "N": mechs,
        "F": frames,
        "D": frames - 1,
        "S": (frames - 1) * int(replay.header["substeps"]),
        "E": len(replay["event_time"]),
        "V": len(replay["edit_time"]),
        "K": len(replay["track_start"]),
        "P": len(replay["track_position"]),
        "C": len(replay["cloud_start"]),
    }
    for letter, name in (("A", "actions"), ("O", "observation"), ("R", "rewards"), ("Q", "probability")):
        if name in replay:
            counts[letter] = replay[name].shape[-1]
    return counts


EventRow = tuple[int, int, int, int, int, int, float, Any]  # time, kind, weapon, a, b, flags, amount, place


def event_arrays(rows: list[EventRow]) -> dict[str, np.ndarray]:
    """Return events as a replay's arrays."""
    out = {}
    for column, name in enumerate(("time", "kind", "weapon", "a", "b", "flags", "amount", "position")):
        spec = ARRAYS[f"event_{name}"]
        shape = (len(rows), *(n for n in spec.shape[1:] if isinstance(n, int)))
        out[f"event_{name}"] = np.array([row[column] for row in rows], spec.dtype).reshape(shape)
    return out


def class_table() -> list[dict[str, Any]]:
    """Return the numbers of each mech class that a picture needs."""
    names = ("hp", "leg_hp", "heat_cap")
    return [
        {"name": c.name, "width": c.size[0], "height": c.size[2], **{n: getattr(c, n) for n in names}}
        for c in MECH_CLASSES
    ]
