"""Output to a person: consoles that print names as they are, on any terminal, and that never end a program."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from rich.console import Console


class PlainConsole(Console):
    """A console that takes square brackets and colons for what they are, and says when nobody reads any more.

    A run named `a[/1]` or `lr[0.001]` is printed as it is. What the terminal cannot encode becomes a question mark.

    Raises:
        BrokenPipeError: from a print, once the reader has gone.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})
        lenient(self.file)

    def on_broken_pipe(self) -> None:
        """Let the command decide how to end; the base class would end the process itself."""
        raise BrokenPipeError


def lenient(stream: Any) -> None:
    """Let a text stream replace what its encoding lacks, instead of failing on it."""
    if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


def lenient_output() -> None:
    """Do so for standard output and standard error."""
    streams: tuple[TextIO | None, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        lenient(stream)
