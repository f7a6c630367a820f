"""The one exception that a command turns into a sentence and exit status 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class UsageError(Exception):
    """A request of the user that cannot be fulfilled; the message is one clear sentence."""


def checked(make: Callable[..., T], *args: object, **kwargs: object) -> T:
    """Call a constructor or validator and turn its ValueError into a UsageError."""
    try:
        return make(*args, **kwargs)
    except ValueError as error:
        raise UsageError(str(error)) from error
