"""What a traced program consists of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

# Primitives that cross to the host while a program runs.
HOST = ("callback", "debug", "infeed", "outfeed", "device_put", "host_local")


def equations(program: Any) -> Iterator[Any]:
    """All equations of a jaxpr, closed or not, those inside loops and calls included."""
    for equation in getattr(program, "jaxpr", program).eqns:
        yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(getattr(value, "jaxpr", value), "eqns"):
                yield from equations(value)


def host_calls(program: Any) -> list[str]:
    """Names of the primitives of a jaxpr that cross to the host or move data."""
    found = []
    for equation in equations(program):
        name = equation.primitive.name
        moves = name != "device_put" or any(device is not None for device in equation.params.get("devices", ()))
        if any(word in name for word in HOST) and moves:
            found.append(name)
    return found
