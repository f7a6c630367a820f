"""A configuration field in one place: its default, its text and its allowed values.

Flags, help texts, validation and docs/configuration.md all read the metadata that `field` writes.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import math
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from echelon_jax.plugins import is_import_path

MAX_WHOLE = 2**31 - 1  # counters are int32 on the device
MAX_SEED = 2**32 - 1  # a PRNG key holds 32 bits of its seed: a larger seed would silently draw what a smaller one does

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Allowed:
    """The allowed values of a field. `low` and `high` are inclusive, `above` is not; None means no bound."""

    kind: type  # int, float, bool or str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False  # whether None is allowed, for "the default of something else"
    importable: bool = False  # whether `package.module:Name`, a user's own, is allowed besides the choices

    def words(self) -> str:
        """The allowed values in words, as they stand after "must be"."""
        if self.choices:
            own = " or an import path package.module:Name" if self.importable else ""
            return f"one of {', '.join(self.choices)}{own}"
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "a text"
        noun = "a whole number" if self.kind is int else "a number"
        low = f"above {self.above:g}" if self.above is not None else None if self.low is None else f"from {self.low:g}"
        high = None if self.high is None else f"{self.high:.10g}"
        if high is None:
            return noun if low is None else f"{noun} {low}"
        return f"{noun} {low} to {high}" if self.above is None else f"{noun} {low} and at most {high}"

    def holds(self, value: object) -> bool:
        """Whether a value is one of them."""
        if value is None:
            return self.optional
        if self.kind in (bool, str):
            own = self.importable and isinstance(value, str) and is_import_path(value)
            return isinstance(value, self.kind) and (not self.choices or value in self.choices or own)
        if isinstance(value, bool) or not isinstance(value, int if self.kind is int else (int, float)):
            return False
        # A whole number may be too large for a float, so that isfinite is asked of floats alone.
        finite = not isinstance(value, float) or math.isfinite(value)
        above = self.above is None or value > self.above
        return (
            finite and above and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        )


def field(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Sequence[str] = (),
    importable: bool = False,
) -> Any:
    """A dataclass field with its description and its allowed values; used as `name: int = field(3, "...", low=1)`.

    Args:
        default: the value where nothing else is given.
        help: one or two sentences in the words of the field.
        low, high: inclusive bounds of a number; a whole number is never above `MAX_WHOLE` unless `high` says so.
        above: an exclusive lower bound instead of `low`.
        choices: all values that a text may have.
        importable: whether a text may also be an import path, `package.module:Name`.
    """
    told = {"help": help, "low": low, "high": high, "above": above, "choices": tuple(choices), "importable": importable}
    return dataclasses.field(default=default, metadata=told)


def allowed(kind: type) -> dict[str, Allowed]:
    """The allowed values of each field of a dataclass made with `field`, by name."""
    types, result = typing.get_type_hints(kind), {}
    for item in dataclasses.fields(kind):
        told = dict(item.metadata)
        told.pop("help", None)
        options = [option for option in (types[item.name], *typing.get_args(types[item.name])) if option in _KINDS]
        if options[0] is int and told.get("high") is None:
            told["high"] = MAX_WHOLE
        result[item.name] = Allowed(options[0], optional=type(None) in typing.get_args(types[item.name]), **told)
    return result


def help_texts(kind: type) -> dict[str, str]:
    """The text of each field of a dataclass, by name."""
    return {item.name: item.metadata.get("help", "") for item in dataclasses.fields(kind)}


def documented(kind: type[Config]) -> type[Config]:
    """A class decorator: add the fields' texts to the class's docstring, where Python keeps docstrings."""
    if kind.__doc__ is not None:
        texts = "\n".join(f"    {name}: {text}" for name, text in help_texts(kind).items())
        kind.__doc__ = f"{kind.__doc__.rstrip()}\n\nAttributes:\n{texts}\n"
    return kind


def check(config: Any) -> None:
    """Check every field of a configuration against its allowed values.

    Raises:
        ValueError: one sentence that names the field, what it may be and what it is.
    """
    for name, may_be in allowed(type(config)).items():
        value = getattr(config, name)
        if not may_be.holds(value):
            raise ValueError(f"{name} must be {may_be.words()}, got {value!r}")


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return a seed as a plain number.

    Raises:
        ValueError: it is not a whole number from 0 to `MAX_SEED`.
    """
    seed = plain(seed)
    may_be = Allowed(int, low=0, high=MAX_SEED)
    if not may_be.holds(seed):
        raise ValueError(f"{name} must be {may_be.words()}, got {seed!r}")
    return seed


def seed_argument(text: str) -> int:
    """A seed on the command line, as `type` of an argument of argparse.

    Raises:
        argparse.ArgumentTypeError: it is not a whole number from 0 to `MAX_SEED`.
    """
    try:
        return check_seed(int(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"seed must be a whole number from 0 to {MAX_SEED}, got {text!r}") from error


def plain(value: Any) -> Any:
    """Return a numpy, JAX or enum scalar as the plain number, bool or text that it holds; anything else as it is."""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, np.generic) or (getattr(value, "ndim", None) == 0 and hasattr(value, "item")):
        value = value.item()
    return value


def make_plain(config: Any) -> None:
    """Replace the scalars of a frozen dataclass by plain values, in place; for its `__post_init__`."""
    for item in dataclasses.fields(config):
        object.__setattr__(config, item.name, plain(getattr(config, item.name)))


_KINDS = (int, float, bool, str)
