"""Factored action heads: what a policy chooses, and how a choice becomes an action.

Heads stand in a fixed order: throttle (squashed Gaussian), trigger (one Bernoulli each), target and ewar (categorical), sort
(categorical, only if the actions have it) and message (squashed Gaussian). A raw action is a flat row of numbers: the Gaussians'
values before the squash, 0 or 1 per trigger, and the index of each choice.
"""

from __future__ import annotations

import dataclasses
from functools import cache, cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import ECCM_THRESHOLD
from echelon_jax.env.interface import BERNOULLI, CATEGORICAL, GAUSSIAN, ActionInterface
from echelon_jax.env.interfaces import actions_of
from echelon_jax.policies.action_mask import mask_rules, rule_holds
from echelon_jax.policies.distributions import from_action

THROTTLES = ("forward", "strafe", "vertical", "yaw_rate")
EWAR_MODES = 3  # off, ECM, ECCM


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
            ("ewar", CATEGORICAL, EWAR_MODES),
        ]
        if self.actions.sort_modes:
            parts.append(("sort", CATEGORICAL, self.actions.sort_modes))
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
        """Entries in a row of an action mask: one per component or choice."""
        return self.table[-1].action_mask.stop

    @property
    def choices(self) -> tuple[str, ...]:
        """Names of what the heads choose from, as head/choice: each trigger, then the choices of each categorical head."""
        named = []
        for head in self.table:
            if head.kind != GAUSSIAN:
                numbers = self.triggers if head.kind == BERNOULLI else range(head.size)
                named += [f"{head.name}/{number}" for number in numbers]
        return tuple(named)

    @property
    def actions(self) -> ActionInterface:
        """The action interface of the configuration."""
        return actions_of(self.config)

    @property
    def triggers(self) -> tuple[str, ...]:
        """Components of the trigger head: the entries of an action that are read by their sign."""
        return self.actions.triggers

    @property
    def targets(self) -> int:
        """Number of slots among which a target is chosen."""
        return self.actions.target_slots(self.config)

    def action_mask(self, observation: Float32[Array, "*batch obs"]) -> Bool[Array, "*batch mask"]:
        """Return what each head may choose, from a raw observation (`mask_rules`)."""
        columns = [rule_holds(rule, observation) for rule in mask_rules(self.config)]
        return jnp.stack(columns, -1)

    def to_action(self, raw_action: Float32[Array, "*batch raw"]) -> Float32[Array, "*batch actions"]:
        """Return the environment's action of a raw action, put together piece by piece (`ActionInterface.pieces`)."""
        parts = []
        for piece in self.actions.pieces(self.config):
            head = self[piece.head]
            chosen = raw_action[..., head.raw_action]
            if piece.kind == "tanh":
                parts.append(jnp.tanh(chosen))
            elif piece.kind == "choice":
                numbers = jnp.arange(piece.first, head.size)
                parts.append(jnp.where(chosen == numbers, 1.0, piece.off))
            else:
                column = self.triggers.index(piece.entry)
                pressed = jnp.where(chosen[..., column : column + 1] > 0.5, 1.0, -1.0)
                if piece.kind == "switch":
                    mode = raw_action[..., self["ewar"].raw_action]
                    level = jnp.asarray(piece.levels, jnp.float32)[mode.astype(jnp.int32)]
                    pressed = jnp.where(mode > 0.5, level, pressed)
                parts.append(pressed)
        return jnp.concatenate(parts, -1)

    def from_action(
        self, action: Float32[Array, "*batch actions"], scout: Bool[Array, "*batch"]
    ) -> Float32[Array, "*batch raw"]:
        """Return the raw action whose action means the same to the environment; `scout` says which mechs are scouts.

        `from_action(to_action(s), scout)` is s for every s that the action mask allows, the Gaussians' values up to the
        squash's clamp.
        """
        layout, found = self.actions.layout(self.config), {}
        pressed = {}
        for piece in self.actions.pieces(self.config):
            entry = layout[piece.entry]
            if piece.kind == "tanh":
                found[piece.head] = from_action(action[..., entry.offset : entry.offset + self[piece.head].size])
            elif piece.kind == "choice":
                values = action[..., entry.slice]
                largest = jnp.argmax(values, -1)[..., None].astype(jnp.float32)
                some = values.max(-1, keepdims=True) > 0
                found[piece.head] = jnp.where(some, piece.first + largest, 0.0) if piece.first else largest
            else:
                value = action[..., entry.slice]
                pressed[piece.entry] = value > 0
                if piece.kind == "switch":
                    mode = jnp.where(value > ECCM_THRESHOLD, 2.0, jnp.where(value > 0, 1.0, 0.0))
                    found["ewar"] = jnp.where(scout[..., None], mode, 0.0)
                    pressed[piece.entry] = pressed[piece.entry] & ~scout[..., None]
        found["trigger"] = jnp.concatenate([pressed[name].astype(jnp.float32) for name in self.triggers], -1)
        return jnp.concatenate([found[head.name] for head in self.table], -1)

    def taught_components(self, taught: Bool[np.ndarray, " actions"]) -> Bool[np.ndarray, " raw"]:
        """Return which components of a raw action `from_action` makes of entries of an action that are marked in `taught`."""
        layout, found = self.actions.layout(self.config), np.zeros(self.raw_action_size, bool)
        for piece in self.actions.pieces(self.config):
            if taught[layout[piece.entry].offset]:
                head = self[piece.head].raw_action
                if piece.kind in ("tanh", "choice"):
                    found[head] = True
                else:
                    found[head.start + self.triggers.index(piece.entry)] = True
                    if piece.kind == "switch":
                        found[self["ewar"].raw_action] = True
        return found


@cache
def heads_of(config: EnvConfig) -> Heads:
    """Return the heads of an environment's actions."""
    return Heads(config)
