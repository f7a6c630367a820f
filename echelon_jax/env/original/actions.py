"""The original's actions: triggers, focus by contact slot, EWAR on the secondary component, observation controls.

Source: docs/spec/environment.md 1.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import ECCM_THRESHOLD, Decision, base_commands, components, first_largest
from echelon_jax.env.original.layout import action_layout
from echelon_jax.env.state import EnvState
from echelon_jax.rules.mechs import SCOUT, roster


def decide(config: EnvConfig, state: EnvState, actions: Float32[Array, "arenas mechs actions"]) -> Decision:
    """Read sanitised actions: triggers, focus by the last contact slots, EWAR, controls.

    Source: docs/spec/environment.md 1.1, 1.3, 1.4, 1.5.
    """
    layout = action_layout(config)
    who = roster(config.num_packs)
    mechs = state.sim.mechs

    commands = base_commands(layout, actions)

    focus = jnp.full_like(mechs.focus, -1)
    if config.target_selection:
        slot, wish = first_largest(components(layout, actions, "target_preference"))
        target = jnp.take_along_axis(state.contact_slots, slot[..., None], axis=-1)[..., 0]
        known = jnp.maximum(target, 0)
        enemy = jnp.asarray(who.team)[known] != jnp.asarray(who.team)
        valid = (wish > 0) & (target >= 0) & jnp.take_along_axis(mechs.alive, known, axis=-1) & enemy & mechs.alive
        focus = jnp.where(valid, target, -1)

    ecm = eccm = jnp.zeros_like(mechs.alive)
    if config.ewar:
        able = mechs.alive & jnp.asarray(who.mech_class == SCOUT)
        eccm = able & (actions[..., layout["secondary"].offset] > ECCM_THRESHOLD)
        ecm = able & (actions[..., layout["secondary"].offset] > 0) & ~eccm

    sort_mode, hostile_only = state.sort_mode, state.hostile_only
    if config.observation_control:
        sort_mode, _ = first_largest(components(layout, actions, "sort_mode"))
        hostile_only = actions[..., layout["hostile_only"].offset] > 0
    return Decision(commands, mechs.replace(focus=focus, ecm_on=ecm, eccm_on=eccm), sort_mode, hostile_only)
