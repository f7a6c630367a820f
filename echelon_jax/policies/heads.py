"""Factored action heads: what a policy chooses, which choices are legal, and how a choice becomes an action.

Heads stand in a fixed order: throttle (squashed Gaussian), trigger (Bernoulli each), target, ewar and, where the observation
is the original's, sort (categorical), message (squashed Gaussian). A raw action is a flat row of numbers: the Gaussians' values
before the squash, 0 or 1 per trigger, the index of each choice.
"""

from __future__ import annotations

import dataclasses
from functools import cache, cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import action_layout, observation_layout
from echelon_jax.policies.distributions import from_action
from echelon_jax.rules.mechs import LIGHT, PACK_CLASSES, PACK_SIZE, SCOUT
from echelon_jax.rules.weapons import (
    AUTOCANNON,
    FLAMER,
    GAUSS,
    LASER,
    MISSILE,
    PAINTER,
    PRIMARY,
    SECONDARY,
    SMOKE,
    SPECIAL,
    TERTIARY,
    TRIGGERS,
    WEAPONS,
)

GAUSSIAN, BERNOULLI, CATEGORICAL = "gaussian", "bernoulli", "categorical"
THROTTLES = ("forward", "strafe", "vertical", "yaw_rate")
WEAPON_TRIGGERS = {"primary": PRIMARY, "secondary": SECONDARY, "tertiary": TERTIARY, "special": SPECIAL}
# A scout's secondary component is its EWAR switch in the original's actions: off, ECM, ECCM.
EWAR_LEVELS = (-1.0, 0.25, 1.0)
# Cooldown entries of the modern observation that must have run out before a weapon fires.
COOLDOWNS = {
    LASER: ("laser_cooldown", LASER),
    FLAMER: ("kinetic_cooldown", FLAMER),
    GAUSS: ("kinetic_cooldown", GAUSS),
    AUTOCANNON: ("kinetic_cooldown", AUTOCANNON),
    PAINTER: ("painter_cooldown", PAINTER),
}


class Head(NamedTuple):
    """One head: its name, kind, number of components or choices, and its columns in raw actions and in action masks."""

    name: str
    kind: str
    size: int
    raw_action: slice
    action_mask: slice


@dataclasses.dataclass(frozen=True)
class Heads:
    """The heads of an environment's actions; frozen and hashable.

    Example:
        >>> [head.name for head in Heads(EnvConfig.revised()).table]
        ['throttle', 'trigger', 'target', 'ewar', 'message']
    """

    config: EnvConfig

    @cached_property
    def table(self) -> tuple[Head, ...]:
        """The heads in order."""
        parts: list[tuple[str, str, int]] = [
            ("throttle", GAUSSIAN, len(THROTTLES)),
            ("trigger", BERNOULLI, len(self.triggers)),
            ("target", CATEGORICAL, 1 + self.targets),
            ("ewar", CATEGORICAL, len(EWAR_LEVELS)),
        ]
        if self.config.actions == "original":
            parts.append(("sort", CATEGORICAL, action_layout(self.config)["sort_mode"].size))
        if self.config.comm_dim:
            parts.append(("message", GAUSSIAN, self.config.comm_dim))
        heads, column, row = [], 0, 0
        for name, kind, size in parts:
            width = 1 if kind == CATEGORICAL else size
            heads.append(Head(name, kind, size, slice(column, column + width), slice(row, row + size)))
            column, row = column + width, row + size
        return tuple(heads)

    def __getitem__(self, name: str) -> Head:
        return next(head for head in self.table if head.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """The heads' names in order."""
        return tuple(head.name for head in self.table)

    @property
    def raw_action_size(self) -> int:
        """Numbers in a raw action."""
        return self.table[-1].raw_action.stop

    @property
    def mask_size(self) -> int:
        """Entries in a row of legality: one per component or choice."""
        return self.table[-1].action_mask.stop

    @property
    def triggers(self) -> tuple[str, ...]:
        """Components of the trigger head: the action components that are read by their sign."""
        names = ("primary", "vent", "secondary", "tertiary", "special")
        return (*names, "hostile_only") if self.config.actions == "original" else names

    @property
    def targets(self) -> int:
        """Slots that a target is chosen among."""
        return action_layout(self.config)["target_preference"].size - (self.config.actions == "modern")

    # -- Legality --------------------------------------------------------------------------------------------------------

    def action_mask(self, observation: Float32[Array, "*batch obs"]) -> Bool[Array, "*batch mask"]:
        """Return what each head may choose, from a raw observation.

        No vertical throttle without jets, no trigger for a weapon that is not carried (or, in the modern observation, cannot
        fire within the decision: shut down or still cooling), no target in an empty or friendly slot, EWAR only for scouts.
        The first choice of every categorical head (none, off, the first order) is always legal.
        """
        config, layout = self.config, observation_layout(self.config)
        modern = config.observation == "modern"

        def entry(name: str) -> Array:
            return observation[..., layout[name].offset]

        def one_of(name: str, columns: list[int]) -> Array:
            start = layout[name].offset
            found = jnp.zeros(observation.shape[:-1], bool)
            for column in columns:
                found = found | (observation[..., start + column] > 0)
            return found

        def is_class(classes: set[int]) -> Array:
            if modern:
                return one_of("self/pack_row", [row for row in range(PACK_SIZE) if PACK_CLASSES[row] in classes])
            return one_of("hull", sorted(classes))

        always = jnp.ones(observation.shape[:-1], bool)
        columns: list[Array] = [always, always, is_class({SCOUT, LIGHT}), always]

        # Triggers.
        running = ~(entry("self/shutdown") > 0) if modern else always

        def ready(weapon: int) -> Array:
            if not modern:
                return always
            if weapon in (MISSILE, SMOKE):  # one tube
                cooling: tuple[tuple[str, int], ...] = (
                    ("self/missile_cooldown", MISSILE),
                    ("self/smoke_cooldown", SMOKE),
                )
            else:
                cooling = ((f"self/{COOLDOWNS[weapon][0]}", COOLDOWNS[weapon][1]),)
            able = running
            for name, timed in cooling:
                soon = np.float32(config.decision_seconds / WEAPONS[timed].cooldown + 1e-3)
                able = able & (entry(name) <= soon)
            return able

        for name in self.triggers:
            if name not in WEAPON_TRIGGERS:
                columns.append(always)
                continue
            fires = jnp.zeros_like(always)
            for weapon, by_class in TRIGGERS.items():
                carriers = {c for c, trigger in by_class.items() if trigger == WEAPON_TRIGGERS[name]}
                if carriers:
                    fires = fires | (is_class(carriers) & ready(weapon))
            columns.append(fires)

        # Targets: none, then the slots.
        columns.append(always)
        for slot in range(self.targets):
            if not config.target_selection:
                columns.append(jnp.zeros_like(always))
            elif modern:
                columns.append(entry(f"hostile_{slot}/known") > 0)
            else:
                hostile = observation[..., layout[f"contact_{slot}/relation"].offset + 1] > 0
                columns.append((entry(f"contact_{slot}/used") > 0) & hostile)

        scout = is_class({SCOUT}) if config.ewar else jnp.zeros_like(always)
        columns += [always, scout, scout]
        if config.actions == "original":
            sorts = always if config.observation_control else jnp.zeros_like(always)
            columns += [always, *[sorts] * (self["sort"].size - 1)]
        if config.comm_dim:
            columns += [always if config.communication else jnp.zeros_like(always)] * config.comm_dim
        return jnp.stack(columns, -1)

    # -- Samples and actions -----------------------------------------------------------------------------------------------

    def to_action(self, raw_action: Float32[Array, "*batch raw"]) -> Float32[Array, "*batch actions"]:
        """Return the environment's action of a raw action."""
        config = self.config
        parts = [jnp.tanh(raw_action[..., self["throttle"].raw_action])]
        trigger = jnp.where(raw_action[..., self["trigger"].raw_action] > 0.5, 1.0, -1.0)
        pulled = {name: trigger[..., i : i + 1] for i, name in enumerate(self.triggers)}
        target, ewar = (raw_action[..., self[name].raw_action] for name in ("target", "ewar"))
        if config.actions == "modern":
            parts += [pulled[name] for name in self.triggers]
            parts.append((target == jnp.arange(1 + self.targets)).astype(jnp.float32))
            parts.append((ewar == jnp.arange(len(EWAR_LEVELS))).astype(jnp.float32))
        else:
            # Only a scout's choice of EWAR is ever above "off", and a scout has no weapon on that trigger.
            level = jnp.asarray(EWAR_LEVELS, jnp.float32)[ewar.astype(jnp.int32)]
            pulled["secondary"] = jnp.where(ewar > 0.5, level, pulled["secondary"])
            parts += [pulled[name] for name in self.triggers[:-1]]
            parts.append(jnp.where(target == 1 + jnp.arange(self.targets), 1.0, -1.0))
            parts.append(
                jnp.where(raw_action[..., self["sort"].raw_action] == jnp.arange(self["sort"].size), 1.0, -1.0)
            )
            parts.append(pulled["hostile_only"])
        if config.comm_dim:
            parts.append(jnp.tanh(raw_action[..., self["message"].raw_action]))
        return jnp.concatenate(parts, -1)

    def from_action(
        self, action: Float32[Array, "*batch actions"], scout: Bool[Array, "*batch"]
    ) -> Float32[Array, "*batch raw"]:
        """Return the raw action whose action means the same to the environment; `scout` says which mechs are scouts.

        `from_action(to_action(s), scout)` is s for every legal s, the Gaussians' values up to the squash's clamp.
        """
        config, layout = self.config, action_layout(self.config)

        def first_largest(name: str) -> Array:
            return jnp.argmax(action[..., layout[name].slice], -1)[..., None].astype(jnp.float32)

        pulled = {name: action[..., layout[name].slice] > 0 for name in self.triggers}
        preference = action[..., layout["target_preference"].slice]
        if config.actions == "modern":
            target, ewar = first_largest("target_preference"), first_largest("ewar")
        else:
            target = jnp.where(preference.max(-1, keepdims=True) > 0, 1.0 + first_largest("target_preference"), 0.0)
            level = action[..., layout["secondary"].slice]
            mode = jnp.where(level > 0.5, 2.0, jnp.where(level > 0, 1.0, 0.0))
            ewar = jnp.where(scout[..., None], mode, 0.0)
            pulled["secondary"] = pulled["secondary"] & ~scout[..., None]
        parts = [from_action(action[..., layout["forward"].offset : layout["yaw_rate"].offset + 1])]
        parts += [pulled[name].astype(jnp.float32) for name in self.triggers]
        parts += [target, ewar]
        if config.actions == "original":
            parts.append(first_largest("sort_mode"))
        if config.comm_dim:
            parts.append(from_action(action[..., layout["message"].slice]))
        return jnp.concatenate(parts, -1)


@cache
def heads_of(config: EnvConfig) -> Heads:
    """Return the heads of an environment's actions."""
    return Heads(config)
