"""Flags made from a configuration: every field under its own name, described as the field describes itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import tyro

from echelon_jax.fields import allowed, help_texts


def override_flags(
    kind: Any, name: str, leave_out: Iterable[str] = (), words: Mapping[str, tuple[str, str]] | None = None
) -> Any:
    """Return a frozen dataclass with every field of `kind`, each None unless the user gives it, described as `kind` does.

    Args:
        kind: the configuration.
        name: of the dataclass.
        leave_out: fields without a flag.
        words: for a field whose flag also takes a word, the word and what it means.
    """
    texts, types, skipped, words = help_texts(kind), allowed(kind), set(leave_out), words or {}

    def flag(field: str) -> Any:
        word, meaning = words.get(field, (None, ""))
        values = types[field].kind if word is None else types[field].kind | Literal[word]  # type: ignore[valid-type]
        text = f"{texts[field]} {meaning}".rstrip()
        return Annotated[values | None, tyro.conf.arg(help=text, help_behavior_hint=_hint)]

    fields = [
        (
            f.name,
            flag(f.name),
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


def given(flags: Any) -> dict[str, Any]:
    """The fields of a flags object that the user gave."""
    return {f.name: value for f in dataclasses.fields(flags) if (value := getattr(flags, f.name)) is not None}
