"""Parts that a user brings: `package.module:Name` names an object that Python can import."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any


def is_import_path(name: str) -> bool:
    """Return whether `name` has the form `package.module:Name`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load(name: str, field: str) -> Any:
    """Return the object that `package.module:Name` names; modules in the working directory are found too.

    Args:
        name: the import path.
        field: the configuration field that holds it, for the error's sentence.

    Raises:
        ValueError: the text has another form, or the module or the name in it does not exist.
    """
    if not is_import_path(name):
        raise ValueError(f"{field} must be an import path such as my_package.my_module:MyClass, got {name!r}")
    module_name, _, attribute = name.partition(":")
    with contextlib.suppress(FileNotFoundError):  # a working directory that was removed has no modules
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # an installed command does not look in the working directory by itself
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        raise ValueError(f"{field} must name a module that can be imported, got {name!r}: {error}") from error
    if not hasattr(module, attribute):
        raise ValueError(f"{field} must name an object of {module_name}, which has no {attribute!r}")
    return getattr(module, attribute)
