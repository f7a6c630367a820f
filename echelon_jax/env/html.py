"""A state as HTML, for notebooks: the arenas in a table, and the first one from above. Plain text and SVG, no scripts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from echelon_jax.rules.mechs import CLASS_NAMES, MECH_CLASSES, PACK_SIZE, roster

if TYPE_CHECKING:
    from echelon_jax.env.state import EnvState

MOST_ARENAS = 8  # in the table
TEAMS, COLOURS = ("blue", "red"), ("#2a78d6", "#d9661f")  # orange is told from blue by everyone
ZONE = "#b58900"
WIDTH = 320  # pixels of the picture
_CELL = "padding:1px 8px;text-align:right"


def state_html(state: EnvState) -> str:
    """Return a table of the first arenas of a state, and mechs and zone of the first one from above.

    Args:
        state: of one arena or of a batch; its arrays must be known, so it cannot be used inside of a compiled function.
    """
    host = jax.tree.map(np.asarray, _shown(state))
    if host["step"].ndim == 0:
        host = jax.tree.map(lambda x: x[None], host)
    arenas = len(host["step"])
    note = f"{arenas} arenas, the first {MOST_ARENAS} of them" if arenas > MOST_ARENAS else f"{arenas} arenas"
    first = jax.tree.map(lambda x: x[0], host)
    body = _table(
        ("arena", "decision", "blue score", "red score", "blue alive", "red alive", "over"),
        [
            _arena_row(number, jax.tree.map(lambda x, i=number: x[i], host))
            for number in range(min(arenas, MOST_ARENAS))
        ],
    )
    return (
        f"<div><p><b>EnvState</b>: {note}; below, arena 0</p>{body}"
        f'<div style="display:flex;gap:16px;align-items:flex-start">{_picture(first)}{_mechs(first)}</div></div>'
    )


def _shown(state: EnvState) -> dict[str, Any]:
    """What is shown, by name."""
    mechs = state.sim.mechs
    return {
        "step": state.step_count,
        "score": state.score + state.score_carry,
        "over": state.episode_over,
        "zone": state.arena_map.zone,
        "position": mechs.position,
        "yaw": mechs.yaw,
        "hp": mechs.hp,
        "heat": mechs.heat,
        "alive": mechs.alive,
        "fallen": mechs.fallen > 0,
        "columns": state.sim.grid.opaque != 0,
    }


def _arena_row(number: int, arena: dict[str, np.ndarray]) -> list[str]:
    alive = arena["alive"].reshape(2, -1).sum(1)
    scores = [f"{score:.1f}" for score in arena["score"]]
    return [f"{number}", f"{arena['step']}", *scores, *(f"{n}" for n in alive), "yes" if arena["over"] else "no"]


def _mechs(arena: dict[str, np.ndarray]) -> str:
    who = roster(len(arena["alive"]) // (2 * PACK_SIZE))
    rows = []
    for i, (team, kind) in enumerate(zip(who.team, who.mech_class, strict=True)):
        mech, position = MECH_CLASSES[kind], ", ".join(f"{x:.1f}" for x in arena["position"][i])
        condition = "dead" if not arena["alive"][i] else "fallen" if arena["fallen"][i] else ""
        values = (f"{max(arena['hp'][i], 0):.0f} of {mech.hp:.0f}", f"{arena['heat'][i] / mech.heat_cap:.0%}", position)
        rows.append([f"{i}", TEAMS[team], CLASS_NAMES[kind], *values, condition])
    return _table(("mech", "team", "class", "hit points", "heat", "position", ""), rows)


def _picture(arena: dict[str, np.ndarray]) -> str:
    """Mechs, zone and, on a square map, what blocks sight, from above; y points upwards."""
    edge = math.isqrt(len(arena["columns"]))
    square = edge * edge == len(arena["columns"])
    size = edge if square else float(np.ceil(max(arena["position"][:, :2].max(), arena["zone"][:2].max()) + 2))
    parts = [f'<rect width="{size}" height="{size}" fill="#f2f2ee"/>']
    if square:
        blocked = np.flatnonzero(arena["columns"])
        path = "".join(f"M{i % edge} {size - 1 - i // edge}h1v1h-1z" for i in blocked.tolist())
        parts.append(f'<path d="{path}" fill="#c3c3ba"/>')
    x, y, radius = (float(v) for v in arena["zone"])
    parts.append(
        f'<circle cx="{x:.1f}" cy="{size - y:.1f}" r="{radius:.1f}" fill="{ZONE}" fill-opacity=".15" stroke="{ZONE}" '
        'stroke-width=".3"/>'
    )
    who = roster(len(arena["alive"]) // (2 * PACK_SIZE))
    for i, (team, kind) in enumerate(zip(who.team, who.mech_class, strict=True)):
        (x, y), yaw = (float(v) for v in arena["position"][i, :2]), float(arena["yaw"][i])
        half = MECH_CLASSES[kind].size[0] / 2 + 0.3
        fade = "" if arena["alive"][i] else ' opacity=".25"'
        parts.append(
            f'<g{fade}><circle cx="{x:.1f}" cy="{size - y:.1f}" r="{half:.2f}" fill="{COLOURS[team]}"/>'
            f'<line x1="{x:.1f}" y1="{size - y:.1f}" x2="{x + 2 * half * math.cos(yaw):.1f}" '
            f'y2="{size - y - 2 * half * math.sin(yaw):.1f}" stroke="{COLOURS[team]}" stroke-width=".4"/></g>'
        )
    return f'<svg viewBox="0 0 {size} {size}" width="{WIDTH}" height="{WIDTH}" role="img">{"".join(parts)}</svg>'


def _table(headings: tuple[str, ...], rows: list[list[str]]) -> str:
    head = "".join(f'<th style="{_CELL}">{heading}</th>' for heading in headings)
    lines = "".join(f"<tr>{''.join(f'<td style={chr(34)}{_CELL}{chr(34)}>{c}</td>' for c in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
