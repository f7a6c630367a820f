"""The tables of docs/rules.md, generated from the rules: `python -m echelon_jax.rules.page docs/rules.md` writes them in place."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from echelon_jax.markdown import table
from echelon_jax.rules.materials import MATERIALS
from echelon_jax.rules.mechs import CLASS_NAMES, MECH_CLASSES, PACK_CLASSES
from echelon_jax.rules.weapons import TRIGGER_NAMES, WEAPONS, Kind


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return table(head, [[f"{c:g}" if isinstance(c, float) else c for c in cells] for cells in rows])


def mech_table() -> str:
    """Mech classes: one row per number, one column per class."""
    labels = {
        "max_speed": "top speed, voxels/s",
        "max_yaw_rate": "turn rate, rad/s",
        "max_jet_accel": "jet acceleration, voxels/s²",
        "hp": "hit points",
        "leg_hp": "leg hit points",
        "heat_cap": "heat cap",
        "heat_dissipation": "heat dissipation /s",
        "tonnage": "tonnage",
        "solid_wreck_probability": "chance of a solid wreck",
        "loudness_factor": "loudness factor",
    }
    rows: list[list[object]] = [["size, voxels", *(" x ".join(f"{s:g}" for s in c.size) for c in MECH_CLASSES)]]
    rows += [[label, *(getattr(c, field) for c in MECH_CLASSES)] for field, label in labels.items()]
    rows.append(["in a pack of five", *(PACK_CLASSES.count(c) for c in range(len(CLASS_NAMES)))])
    return _table(["", *CLASS_NAMES], rows)


def weapon_table() -> str:
    """Weapons: numbers, and who fires them with which trigger."""
    rows = []
    for w in WEAPONS:
        carriers = ", ".join(f"{CLASS_NAMES[c]} ({TRIGGER_NAMES[t]})" for c, t in sorted(w.triggers.items()))
        arc = w.arc_deg if w.kind in (Kind.HITSCAN, Kind.HOMING, Kind.PAINTER) else "-"
        splash = f"{w.splash_radius:g}" if w.splash_radius else "-"
        rows.append(
            [
                *(w.name, w.kind.value, w.range, w.damage, w.stability_damage, w.heat, w.heat_transfer or "-"),
                *(w.cooldown, w.timer.value, arc, w.speed or "-", splash, carriers),
            ]
        )
    head = ["weapon", "kind", "range", "damage", "stability", "heat", "heat to the target"]
    head += ["cooldown s", "timer", "arc °", "speed", "radius", "carried by"]
    return _table(head, rows)


def material_table() -> str:
    """Voxel materials."""
    rows = [
        [m.name.lower().replace("_", " "), m.hp, "yes" if m.collides else "no", "yes" if m.opaque else "no"]
        for m in MATERIALS
    ]
    return _table(["material", "hit points", "stops mechs", "blocks sight"], rows)


TABLES = {"mechs": mech_table, "weapons": weapon_table, "materials": material_table}


def fill(text: str) -> str:
    """The page with every `<!-- table: name -->` section replaced by the table as it stands in the rules."""
    for name, make in TABLES.items():
        head, tail = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(head)
        _, _, after = rest.partition(tail)
        text = f"{before}{head}{make()}\n{tail}{after}"
    return text


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(fill(page.read_text()))
