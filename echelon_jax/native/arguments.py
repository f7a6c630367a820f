"""The arrays of the native call, in the order of `sources/fields.h`, which both sides read."""

from __future__ import annotations

import dataclasses
import re
import zlib
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from echelon_jax.config import EnvConfig
from echelon_jax.native.build import SOURCES
from echelon_jax.native.header import TIMERS
from echelon_jax.rules.mechs import CLASS_NAMES, roster
from echelon_jax.rules.weapons import HITSCAN, TRIGGERS, WEAPONS, barrel_of
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.slots import slots
from echelon_jax.sim.state import Commands, SimState

DTYPES = {
    "float": np.dtype(np.float32),
    "bool": np.dtype(bool),
    "int32_t": np.dtype(np.int32),
    "int16_t": np.dtype(np.int16),
    "uint8_t": np.dtype(np.uint8),
    "uint32_t": np.dtype(np.uint32),
}
NO_WEAPON = -1


class Field(NamedTuple):
    """One array of the call: its dtype, the object it belongs to, and its name there."""

    dtype: np.dtype
    group: str
    name: str


@cache
def fields(which: str) -> tuple[Field, ...]:
    """The arrays of a list of fields.h: `STATE`, `INPUT` or `SHARED`."""
    text = (SOURCES / "fields.h").read_text(encoding="utf-8")
    block = re.search(rf"#define ECHELON_{which}\(F\)((?:.*\\\n)+.*\n)", text)
    assert block is not None, which
    return tuple(
        Field(DTYPES[kind], group, name) for kind, group, name in re.findall(r"F\((\w+), (\w+), (\w+)\)", block[1])
    )


@cache
def number_names() -> tuple[str, ...]:
    """Names of the whole numbers that hold for a program."""
    text = (SOURCES / "fields.h").read_text(encoding="utf-8")
    return tuple(re.findall(r"F\((\w+)\)", text.split("#define ECHELON_NUMBERS(F)")[1]))


def numbers(config: EnvConfig) -> np.ndarray:
    """int32: sizes of the arenas and switches of the rules, in the order of `number_names`."""
    table = slots(config)
    known = {
        "packs": config.num_packs,
        "mechs": config.num_mechs,
        "slots": table.count,
        "clouds": table.clouds,
        "heavies": len(table.heavy),
        "rings": table.max_ring,
        "effective_damage": config.counts_effective_damage,
    }
    return np.array([known[n] if n in known else getattr(config, n) for n in number_names()], np.int32)


@cache
def tables(config: EnvConfig) -> dict[str, np.ndarray]:
    """What the roster, the weapons and the slots say of each mech, weapon and slot.

    `trigger` [weapons, mechs] is the action component that fires a weapon of a mech, -1 where it has none; `wreck_head` is the
    register of CRC32 behind "id:class", the start of the text of a mech's wreck (docs/spec/rules.md 8.7).
    """
    r, table = roster(config.num_packs), slots(config)
    barrels = [barrel_of(int(c)) for c in r.mech_class]
    heads = [f"{i}:{CLASS_NAMES[c]}" for i, c in zip(r.ids, r.mech_class, strict=True)]
    return {
        "team": r.team,
        "pack": r.pack,
        "heavy": table.heavy,
        "heavy_of": table.heavy_of,
        "barrel": np.array([NO_WEAPON if barrel is None else barrel for barrel in barrels], np.int32),
        "trigger": np.array(
            [[TRIGGERS[w].get(int(c), NO_WEAPON) for c in r.mech_class] for w in range(len(WEAPONS))], np.int32
        ),
        "hitscan": np.array(HITSCAN, np.int32),
        "timer": np.array([TIMERS[w.timer] for w in WEAPONS], np.int32),
        "slot_mech": table.mech,
        "slot_launcher": table.launcher,
        "slot_ring": table.ring,
        "wreck_head": np.array([zlib.crc32(head.encode()) ^ 0xFFFFFFFF for head in heads], np.uint32),
    }


def _owner(state: SimState, group: str) -> Any:
    return state if group == "state" else getattr(state, group)


def arguments(
    config: EnvConfig, rules: SimRules, state: SimState, commands: Commands, noise: Noise, resting: Array
) -> tuple[list[jax.Array], list[jax.Array]]:
    """The arrays that are written in place, and those that are only read. A count that the state does not hold is a zero array."""
    arenas = state.tick.shape[0]
    groups = {
        "arenas": {"resting": resting},
        "mechs": state.mechs,
        "commands": commands,
        "noise": noise,
        "rules": rules,
        "tables": tables(config),
    }

    def value(field: Field) -> jax.Array:
        owner = groups.get(field.group)
        found = owner[field.name] if isinstance(owner, dict) else getattr(owner, field.name)
        if found is None:  # a draw that the rules do not ask for
            found = jnp.zeros((arenas, 0), field.dtype)
        return jnp.asarray(found, field.dtype)

    written = []
    for field in fields("STATE"):
        found = getattr(_owner(state, field.group), field.name)
        written.append(jnp.zeros((arenas, config.num_mechs), field.dtype) if found is None else found)
    return written, [value(field) for field in (*fields("INPUT"), *fields("SHARED"))]


def with_results(state: SimState, results: list[jax.Array]) -> SimState:
    """The state with the arrays that the call wrote."""
    changes: dict[str, dict[str, jax.Array]] = {}
    for field, result in zip(fields("STATE"), results, strict=True):
        if getattr(_owner(state, field.group), field.name) is not None:
            changes.setdefault(field.group, {})[field.name] = result
    own = changes.pop("state")
    parts = {group: dataclasses.replace(getattr(state, group), **new) for group, new in changes.items()}
    return state.replace(**parts, **own)
