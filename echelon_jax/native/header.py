"""The header that hands the project's tables to the native code: constants, materials and weapons."""

from __future__ import annotations

import math
from collections.abc import Sequence

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants, materials, weapons

MAX_MECHS = 10 * int(EnvConfig.__dataclass_fields__["num_packs"].metadata["high"])
TIMERS = {timer: number for number, timer in enumerate(weapons.Timer)}


def _bits(numbers: Sequence[int]) -> int:
    return sum(1 << number for number in numbers)


def header() -> str:
    """C++ text of the file generated.h."""
    lines = ["#pragma once", "#include <cstdint>", "namespace echelon {", "namespace k {"]
    for name, value in vars(constants).items():
        if name.isupper() and isinstance(value, int | float):
            lines.append(f"constexpr double {name} = {float(value)!r};")
    lines.append("}")
    for material in materials.MATERIALS:
        lines.append(f"constexpr uint8_t {material.name} = {material.id};")
        lines.append(f"constexpr int16_t {material.name}_HP = {material.hp};")
    numbers = {
        "COLLIDES": _bits([m.id for m in materials.MATERIALS if m.collides]),
        "OPAQUE": _bits([m.id for m in materials.MATERIALS if m.opaque]),
        "FALLING": _bits(weapons.FALLING),
        "SUPPRESSING": _bits(weapons.SUPPRESSING),
    }
    lines += [f"constexpr uint32_t {name} = {value}u;" for name, value in numbers.items()]
    lines += [f"constexpr int {name} = {getattr(weapons, name)};" for name in ("MISSILE", "SMOKE", "PAINTER")]
    lines += [
        f"constexpr int {name} = {getattr(weapons, name)};" for name in ("PRIMARY", "SECONDARY", "TERTIARY", "SPECIAL")
    ]
    lines += [f"constexpr int {timer.name}_TIMER = {number};" for timer, number in TIMERS.items()]
    lines.append(f"constexpr int HITSCAN_WEAPONS = {len(weapons.HITSCAN)};")
    lines.append(f"constexpr int MAX_MECHS = {MAX_MECHS};")
    for name, cone in (
        ("KINETIC_FOCUS_COSINE", constants.KINETIC_FOCUS_CONE),
        ("KINETIC_COSINE", constants.KINETIC_CONE),
    ):
        lines.append(f"constexpr double {name} = {math.cos(cone)!r};")
    lines.append("}")
    return "\n".join(lines) + "\n"
