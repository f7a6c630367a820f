"""What both kinds of actions share: sanitising, the base components, messages.

Source: docs/spec/environment.md 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import Layout
from echelon_jax.sim.state import Commands, Mechs

ECCM_THRESHOLD = 0.5


class Decision(NamedTuple):
    """The actions of one decision step, read: commands, mechs with focus and EWAR set, observation controls."""

    commands: Commands
    mechs: Mechs
    sort_mode: Int32[Array, "arenas mechs"]
    hostile_only: Bool[Array, "arenas mechs"]


def sanitise(
    config: EnvConfig, layout: Layout, actions: Float32[Array, "arenas mechs actions"]
) -> tuple[Float32[Array, "arenas mechs actions"], Bool[Array, "arenas mechs"]]:
    """Actions with non-finite components set to 0 and the rest clipped to [-1, 1], and whose actions had one.

    Source: docs/spec/environment.md 1.2.

    Raises:
        ValueError: if the last two axes are not (mechs, action components).
    """
    expected = (config.num_mechs, layout.size)
    if actions.shape[-2:] != expected:
        raise ValueError(f"actions must have the shape [arenas, {expected[0]}, {expected[1]}], got {actions.shape}")
    finite = jnp.isfinite(actions)
    return jnp.clip(jnp.where(finite, actions, 0.0), -1.0, 1.0).astype(jnp.float32), ~finite.all(-1)


def first_largest(values: list[Array]) -> tuple[Int32[Array, "*batch"], Array]:
    """Index of the first maximum of a few arrays, and the maximum."""
    index, best = jnp.zeros(values[0].shape, jnp.int32), values[0]
    for i, value in enumerate(values[1:], 1):
        larger = value > best
        index, best = jnp.where(larger, i, index), jnp.where(larger, value, best)
    return index, best


def broadcast(
    config: EnvConfig,
    layout: Layout,
    alive: Bool[Array, "arenas mechs"],
    actions: Float32[Array, "arenas mechs actions"],
) -> Float32[Array, "arenas mechs comm"]:
    """Messages in force after the step: the living speak, the dead and a silenced game send zeros.

    Source: docs/spec/environment.md 1.6.
    """
    if not config.comm_dim:
        return jnp.zeros((*alive.shape, 0), jnp.float32)
    if not config.communication:
        return jnp.zeros((*alive.shape, config.comm_dim), jnp.float32)
    return jnp.where(alive[..., None], actions[..., layout["message"].slice], 0.0)


def base_commands(layout: Layout, actions: Float32[Array, "arenas mechs actions"]) -> Commands:
    """Return throttles and pressed triggers of sanitised actions; every trigger is pressed above 0."""

    def component(name: str) -> Array:
        return actions[..., layout[name].offset]

    return Commands(
        throttle=actions[..., layout["forward"].offset : layout["yaw_rate"].offset + 1],
        primary=component("primary") > 0,
        vent=component("vent") > 0,
        secondary=component("secondary") > 0,
        tertiary=component("tertiary") > 0,
        special=component("special") > 0,
    )


def components(
    layout: Layout, actions: Float32[Array, "arenas mechs actions"], name: str
) -> list[Float32[Array, "arenas mechs"]]:
    """Return the components of one named entry, one array each."""
    entry = layout[name]
    return [actions[..., entry.offset + i] for i in range(entry.size)]
