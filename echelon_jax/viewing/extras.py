"""Packages that only drawing needs; imported when something is drawn, because that takes a second."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class MissingExtra(RuntimeError):
    """A package for drawing is not installed; the message says how to get it."""


def drawing(name: str) -> ModuleType:
    """Import a module of a drawing package, which the base installation has.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = {"PIL": "pillow"}.get(name.partition(".")[0], name.partition(".")[0])
        raise MissingExtra(f"pictures need {package}, which is not installed: pip install {package}") from error
