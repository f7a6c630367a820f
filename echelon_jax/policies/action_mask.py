"""The action mask as data: a rule on the raw observation for every component and choice of the heads.

A program that evaluates the rules (`Heads.action_mask` in JAX, an exported policy in torch or ONNX) needs no table of the game.
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.env.interface import ALWAYS, NEVER, Condition, Rule
from echelon_jax.env.interfaces import actions_of, observation_of
from echelon_jax.rules.mechs import MECH_CLASSES, SCOUT
from echelon_jax.rules.weapons import TRIGGER_NAMES, TRIGGERS

WEAPON_TRIGGERS = {name: trigger for trigger, name in TRIGGER_NAMES.items()}


@cache
def mask_rules(config: EnvConfig) -> tuple[Rule, ...]:
    """Return a rule for each column of an action mask, in the order of the heads.

    The rules forbid vertical throttle without jets, the trigger of a weapon that the mech does not carry, a target in a slot
    without a known hostile, and EWAR for all but scouts. If the observation shows that a weapon cannot fire within the
    decision, its trigger is forbidden too. The first choice of every categorical head (none, off, the first order) is always
    allowed.
    """
    actions, observation = actions_of(config), observation_of(config)
    jets = {number for number, c in enumerate(MECH_CLASSES) if c.max_jet_accel > 0}
    rules: list[Rule] = [ALWAYS, ALWAYS, ((observation.is_class(config, jets),),), ALWAYS]
    rules += [_trigger_rule(config, name) for name in actions.triggers]
    known = [observation.target_known(config, slot) for slot in range(actions.target_slots(config))]
    rules += [ALWAYS, *(rule if config.target_selection else NEVER for rule in known)]
    scout: Rule = ((observation.is_class(config, {SCOUT}),),) if config.ewar else NEVER
    rules += [ALWAYS, scout, scout]
    if actions.sort_modes:
        rules += [ALWAYS, *[ALWAYS if config.observation_control else NEVER] * (actions.sort_modes - 1)]
    rules += [ALWAYS if config.communication else NEVER] * config.comm_dim
    return tuple(rules)


def _trigger_rule(config: EnvConfig, name: str) -> Rule:
    """One of the weapons on the trigger is carried, and is ready according to the observation."""
    if name not in WEAPON_TRIGGERS:
        return ALWAYS
    observation, alternatives = observation_of(config), []
    for weapon, by_class in TRIGGERS.items():
        carriers = {c for c, trigger in by_class.items() if trigger == WEAPON_TRIGGERS[name]}
        if carriers:
            alternatives.append((observation.is_class(config, carriers), *observation.weapon_ready(config, weapon)))
    return tuple(alternatives)


def rule_holds(rule: Rule, observation: Float32[Array, "*batch obs"]) -> Bool[Array, "*batch"]:
    """Return where a rule holds."""
    found = jnp.zeros(observation.shape[:-1], bool)
    for conditions in rule:
        holds = jnp.ones_like(found)
        for condition in conditions:
            holds = holds & _condition_holds(condition, observation)
        found = found | holds
    return found


def _condition_holds(condition: Condition, observation: Float32[Array, "*batch obs"]) -> Bool[Array, "*batch"]:
    if condition.kind == "at_most":
        return observation[..., condition.entries[0]] <= np.float32(condition.limit)
    some = jnp.zeros(observation.shape[:-1], bool)
    for entry in condition.entries:
        some = some | (observation[..., entry] > 0)
    return some if condition.kind == "any" else ~some
