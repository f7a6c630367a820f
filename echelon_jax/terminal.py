"""Output to a person: consoles that print names as they are, on any terminal, and that never end a program."""

from __future__ import annotations

import codecs
import sys
from typing import Any, TextIO

from rich.console import Console

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
