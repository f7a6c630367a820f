"""Actions: sanitising, and what they mean to the simulation and to the next observation.

Source: docs/spec/environment.md 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import action_layout
from echelon_jax.env.state import EnvState
from echelon_jax.rules.mechs import SCOUT, roster
from echelon_jax.sim.state import Commands, Mechs

ECCM_THRESHOLD = 0.5


class Decision(NamedTuple):
    """The actions of one decision step, read: commands, mechs with focus and EWAR set, observation controls."""

    commands: Commands
    mechs: Mechs
    sort_mode: Int32[Array, "arenas mechs"]
    hostile_only: Bool[Array, "arenas mechs"]


def sanitise(
    config: EnvConfig, actions: Float32[Array, "arenas mechs actions"]
) -> tuple[Float32[Array, "arenas mechs actions"], Bool[Array, "arenas mechs"]]:
    """Actions with non-finite components set to 0 and the rest clipped to [-1, 1], and whose actions had one.

    Source: docs/spec/environment.md 1.2.

    Raises:
        ValueError: if the last two axes are not (mechs, action components).
    """
    expected = (config.num_mechs, config.action_size)
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


def decide(config: EnvConfig, state: EnvState, actions: Float32[Array, "arenas mechs actions"]) -> Decision:
    """Read sanitised actions: triggers, focus by the last contact slots, EWAR, controls.

    Source: docs/spec/environment.md 1.1, 1.3, 1.4, 1.5.
    """
    layout = action_layout(config)
    who = roster(config.num_packs)
    mechs = state.sim.mechs

    def component(name: str, i: int = 0) -> Array:
        return actions[..., layout[name].offset + i]

    def components(name: str) -> list[Array]:
        return [component(name, i) for i in range(layout[name].size)]

    commands = Commands(
        throttle=actions[..., layout["forward"].offset : layout["yaw_rate"].offset + 1],
        primary=component("primary") > 0,
        vent=component("vent") > 0,
        secondary=component("secondary") > 0,
        tertiary=component("tertiary") > 0,
        special=component("special") > 0,
    )

    focus = jnp.full_like(mechs.focus, -1)
    if config.target_selection:
        slot, wish = first_largest(components("target_preference"))
        target = jnp.take_along_axis(state.contact_slots, slot[..., None], axis=-1)[..., 0]
        known = jnp.maximum(target, 0)
        enemy = jnp.asarray(who.team)[known] != jnp.asarray(who.team)
        valid = (wish > 0) & (target >= 0) & jnp.take_along_axis(mechs.alive, known, axis=-1) & enemy & mechs.alive
        focus = jnp.where(valid, target, -1)

    ecm = eccm = jnp.zeros_like(mechs.alive)
    if config.ewar:
        able = mechs.alive & jnp.asarray(who.mech_class == SCOUT)
        eccm = able & (component("secondary") > ECCM_THRESHOLD)
        ecm = able & (component("secondary") > 0) & ~eccm

    sort_mode, hostile_only = state.sort_mode, state.hostile_only
    if config.observation_control:
        sort_mode, _ = first_largest(components("sort_mode"))
        hostile_only = component("hostile_only") > 0
    return Decision(commands, mechs.replace(focus=focus, ecm_on=ecm, eccm_on=eccm), sort_mode, hostile_only)


def broadcast(
    config: EnvConfig, alive: Bool[Array, "arenas mechs"], actions: Float32[Array, "arenas mechs actions"]
) -> Float32[Array, "arenas mechs comm"]:
    """Messages in force after the step: the living speak, the dead and a silenced game send zeros.

    Source: docs/spec/environment.md 1.6.
    """
    if not config.comm_dim:
        return jnp.zeros((*alive.shape, 0), jnp.float32)
    if not config.communication:
        return jnp.zeros((*alive.shape, config.comm_dim), jnp.float32)
    return jnp.where(alive[..., None], actions[..., action_layout(config)["message"].slice], 0.0)
