"""What a traced program asks of the host."""

from __future__ import annotations

from typing import Any

import jax

# Primitives that cross to the host while a program runs.
HOST = ("callback", "debug", "infeed", "outfeed", "device_put", "host_local")


def host_calls(jaxpr: Any) -> list[str]:
    """Names of the primitives of a jaxpr, those inside loops and calls included, that cross to the host or move data."""
    found = []
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        moves = name != "device_put" or any(device is not None for device in equation.params.get("devices", ()))
        if any(word in name for word in HOST) and moves:
            found.append(name)
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += host_calls(inner)
    return found
