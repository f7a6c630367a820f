"""The replay page: one HTML file that holds viewer, three.js and the game, and asks the network for nothing."""

from __future__ import annotations

import base64
import html
from functools import cache
from importlib.resources import files
from pathlib import Path

from echelon_jax.replay.file import to_bytes
from echelon_jax.replay.model import Replay

MARKS = {"style": "/*STYLE*/", "replay": "/*REPLAY*/", "script": "/*SCRIPT*/"}


@cache
def _asset(name: str) -> str:
    return (files("echelon_jax.replay") / "assets" / name).read_text(encoding="utf-8")


def page_of_bytes(data: bytes) -> str:
    """Return the page that shows the replay file `data`; the caller has checked it.

    The file goes in as base64, so nothing in it can end its element or run; the viewer shows its texts as text.
    """
    page = _asset("page.html")
    parts = {"style": _asset("viewer.css"), "replay": base64.b64encode(data).decode(), "script": _asset("viewer.js")}
    for name, mark in MARKS.items():
        before, after = page.split(mark)
        page = before + parts[name] + after
    return page


def page(replay: Replay) -> str:
    """Return the HTML page that shows a replay.

    Raises:
        ReplayError: the replay is not sound.
    """
    return page_of_bytes(to_bytes(replay))


def write_page(path: Path, replay: Replay) -> Path:
    """Write the page of a replay and return its path; it appears whole or not at all.

    Raises:
        ReplayError: the replay is not sound.
        OSError: the place cannot be written.
    """
    text = page(replay)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path


def frame(replay: Replay, height: int = 620) -> str:
    """Return the page inside an element for a notebook; scripts run in a frame without access to what is around it."""
    inner = html.escape(page(replay), quote=True)
    return f'<iframe sandbox="allow-scripts" srcdoc="{inner}" style="width:100%;height:{height}px;border:0"></iframe>'
