"""Flags made from a configuration: every field under its own name, with the text that its class's docstring gives it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Annotated, Any

import tyro

_ENTRY = re.compile(r"^(?P<names>[a-z_0-9]+(?:(?:, *\n? *| \.\.\. )[a-z_0-9]+)*): ", re.MULTILINE)


def field_texts(kind: type) -> dict[str, str]:
    """What the docstring of a dataclass says of each field.

    The entries of its "Attributes:" section are "name: text" or "name, name: text". A field without an entry of its own gets
    the sentence that names it in backticks; a field that nothing names is left out.
    """
    section = (kind.__doc__ or "").partition("Attributes:\n")[2]
    lines = []
    for line in section.splitlines():
        if line.strip() and not line.startswith("        "):
            break
        lines.append(line[8:] if line.strip() else "")
    body = "\n".join(lines).strip() + "\n"
    starts = list(_ENTRY.finditer(body))
    texts: dict[str, str] = {}
    entries = []
    for match, following in zip(starts, [*starts[1:], None], strict=True):
        text = body[match.end() : following.start() if following else len(body)]
        text = " ".join(text.split())
        entries.append(text)
        texts.update(dict.fromkeys(re.split(r"[,\s]+", match["names"]), text))
    for field in (f.name for f in dataclasses.fields(kind)):
        if field not in texts:
            sentences = [part for text in entries for part in re.split(r"(?<=[.;]) ", text) if f"`{field}`" in part]
            if sentences:
                texts[field] = " ".join(sentences)
    return {name: text[0].upper() + text[1:] for name, text in texts.items()}


def override_flags(kind: Any, name: str, leave_out: Iterable[str] = (), texts: dict[str, str] | None = None) -> Any:
    """Return a frozen dataclass with every field of `kind`, each None unless the user gives it, described as `kind` does."""
    texts = field_texts(kind) | (texts or {})
    skipped = set(leave_out)
    fields = [
        (
            f.name,
            Annotated[_type_of(f) | None, tyro.conf.arg(help=texts.get(f.name, ""), help_behavior_hint=_hint)],
            dataclasses.field(default=None),
        )
        for f in dataclasses.fields(kind)
        if f.name not in skipped
    ]
    made = dataclasses.make_dataclass(name, fields, frozen=True)
    made.__module__ = __name__
    made.__doc__ = f"Fields of {kind.__name__}; what is not given comes from the preset, the rule set or --config."
    return made


def _hint(default: str) -> str:
    return "" if default == "None" else f"(default: {default})"


_TYPES = {"int": int, "float": float, "bool": bool, "str": str}


def _type_of(field: dataclasses.Field) -> Any:
    return _TYPES[str(field.type).split(" | ")[0]]


def given(flags: Any) -> dict[str, Any]:
    """The fields of a flags object that the user gave."""
    return {f.name: value for f in dataclasses.fields(flags) if (value := getattr(flags, f.name)) is not None}
