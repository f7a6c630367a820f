"""Output to a person: consoles that print names as they are, on any terminal, and that never end a program."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

LENIENT = "echelon-lenient"


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


def number_table(first: str, columns: Sequence[str], title: str | None = None) -> Table:
    """Return a table for a terminal of 80 columns: names at the left, numbers at the right of them.

    A heading has a line for each of its words. Numbers are never cut; where they leave too little room, a name goes on in the
    next line.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, title=title, title_justify="left")
    table.add_column(first, overflow="fold")
    for name in columns:
        table.add_column("\n".join(name.split()), justify="right", no_wrap=True)
    return table


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for characters that an encoding lacks: their own bytes for those of a file name, else question marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return b"".join(bytes([ord(c) - 0xDC00]) if 0xDC80 <= ord(c) <= 0xDCFF else b"?" for c in lost), error.end


codecs.register_error(LENIENT, _replaced)


def lenient(stream: Any) -> None:
    """Let a text stream replace what its encoding lacks, instead of failing on it.

    That is a stream that fails on everything, or, as Python opens it in the locale C, on everything but names of files.
    """
    if getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=LENIENT)


def lenient_output() -> None:
    """Do so for standard output and standard error."""
    streams: tuple[TextIO | None, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        lenient(stream)
