"""A short list of actions for learners that choose one of several: throttle, turn, and fire or not."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout

WAIT = 4  # the choice that does nothing, which is the one of the dead
TRIGGERS = ("primary", "secondary", "tertiary", "special")
_THROTTLE, _TURN = ("back", "halt", "forward"), ("right", "straight", "left")


def choice_names() -> tuple[str, ...]:
    """Return the names of the choices in order, such as "forward left fire"; the last one vents heat and stands still."""
    moves = [f"{throttle} {turn}" for throttle, turn in product(_THROTTLE, _TURN)]
    return (*moves, *(f"{move} fire" for move in moves), "vent")


@cache
def action_table(config: EnvConfig) -> np.ndarray:
    """Return the action of every choice, float32 [choices, components].

    No choice names a target, switches electronic warfare on or sends a message: weapons then take the nearest enemy in reach.

    Raises:
        ValueError: the actions of this configuration have no component of one of the names.
    """
    layout = action_layout(config)
    names = choice_names()
    table = np.zeros((len(names), layout.size), np.float32)
    for name in (*TRIGGERS, "vent"):
        table[:, layout[name].offset] = -1.0
    for row, name in enumerate(names):
        words = name.split()
        if words == ["vent"]:
            table[row, layout["vent"].offset] = 1.0
            continue
        table[row, layout["forward"].offset] = _THROTTLE.index(words[0]) - 1
        table[row, layout["yaw_rate"].offset] = _TURN.index(words[1]) - 1
        if words[2:] == ["fire"]:
            for trigger in TRIGGERS:
                table[row, layout[trigger].offset] = 1.0
    table.setflags(write=False)
    return table
