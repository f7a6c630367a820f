"""Modern actions: nine base components, a target among all hostile slots or none, three-way EWAR, the message."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import ECCM_THRESHOLD, Decision, base_commands, components, first_largest
from echelon_jax.env.modern.layout import action_layout
from echelon_jax.env.state import EnvState
from echelon_jax.rules.mechs import SCOUT, roster

_OFF, _ECM, _ECCM = range(3)


def _first_hostile(config: EnvConfig) -> np.ndarray:
    """[mechs] the mech in the first hostile slot of each mech; the others follow it in the roster."""
    return np.where(roster(config.num_packs).team == 0, config.team_size, 0).astype(np.int32)


def decide(config: EnvConfig, state: EnvState, actions: Float32[Array, "arenas mechs actions"]) -> Decision:
    """Read sanitised actions. There is no contact sorting and no filter: those controls stay as they are.

    Focus: the first largest target preference, unless it is "none", its mech is dead, or (partial mode) was never seen.
    """
    layout = action_layout(config)
    who = roster(config.num_packs)
    mechs = state.sim.mechs

    commands = base_commands(layout, actions)

    focus = jnp.full_like(mechs.focus, -1)
    if config.target_selection:
        choice, _ = first_largest(components(layout, actions, "target_preference"))
        target = jnp.asarray(_first_hostile(config)) + jnp.maximum(choice - 1, 0)
        valid = (choice > 0) & mechs.alive & jnp.take_along_axis(mechs.alive, target, axis=-1)
        if state.memory is not None and state.memory.age is not None:
            valid = valid & (jnp.take_along_axis(state.memory.age, target[..., None], axis=-1)[..., 0] >= 0)
        focus = jnp.where(valid, target, -1)

    ecm = eccm = jnp.zeros_like(mechs.alive)
    if config.ewar:
        able = mechs.alive & jnp.asarray(who.mech_class == SCOUT)
        mode, _ = first_largest(components(layout, actions, "ewar"))
        ecm, eccm = able & (mode == _ECM), able & (mode == _ECCM)
    ready = mechs.replace(focus=focus, ecm_on=ecm, eccm_on=eccm)
    return Decision(commands, ready, state.sort_mode, state.hostile_only)


def from_original(
    config: EnvConfig,
    actions: Float32[Array, "arenas mechs original"],
    target: Int32[Array, "arenas mechs"],
) -> Float32[Array, "arenas mechs actions"]:
    """The modern action that means the same as an original one, whose wanted target is given as a mech (-1: none).

    A scout's secondary component becomes the EWAR choice; sorting and filter are dropped.
    """
    base, message = actions[..., :9], actions[..., 18:]
    choice = jnp.where(target >= 0, target - jnp.asarray(_first_hostile(config)) + 1, 0)
    preference = choice[..., None] == jnp.arange(1 + config.team_size)
    switch = jnp.where(jnp.asarray(roster(config.num_packs).mech_class == SCOUT), base[..., 6], 0.0)
    mode = jnp.where(switch > ECCM_THRESHOLD, _ECCM, jnp.where(switch > 0, _ECM, _OFF))
    ewar = mode[..., None] == jnp.arange(3)
    return jnp.concatenate([base, preference.astype(jnp.float32), ewar.astype(jnp.float32), message], -1)
