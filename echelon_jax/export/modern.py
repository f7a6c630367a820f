"""The `modern` network for other programs: its parameters under torch's names, and its plan as plain numbers.

The plan says what an observation and an action are made of (runs, slots, heads, what is legal, how an action is put together),
so that who plays the policy needs none of this project's tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import Layout, action_layout, observation_layout
from echelon_jax.export.weights import Arrays, ExportError
from echelon_jax.policies.distributions import LOG_STD_RANGE
from echelon_jax.policies.heads import COOLDOWNS, EWAR_LEVELS, WEAPON_TRIGGERS, Heads
from echelon_jax.policies.modern_network import SETS, ModernNetwork
from echelon_jax.policies.network import Params
from echelon_jax.rules.mechs import CLASS_NAMES, LIGHT, PACK_CLASSES, PACK_SIZE, SCOUT
from echelon_jax.rules.weapons import MISSILE, SMOKE, TRIGGERS, WEAPONS

Condition = list[Any]  # as torch_policy.Legality reads it
Rule = list[list[Condition]]  # alternatives, each a list of conditions
ALWAYS: Rule = [[]]
NEVER: Rule = []


def modern_dimensions(network: ModernNetwork, env_config: EnvConfig) -> dict[str, Any]:
    """Return sizes and switches by name."""
    module = network.module
    return {
        "observation": network.features.size,
        "action": env_config.action_size,
        "hidden": network.hidden,
        "lstm": network.lstm,
        "slot_width": module.slot_width,
        "plane_width": module.plane_width,
        "mechs": env_config.team_size,
        "layer_norm": network.layer_norm,
        "team_critic": network.team_critic,
        "attention": network.attention,
    }


def plan_of(network: ModernNetwork) -> dict[str, Any]:
    """Return what an observation and an action are made of; JSON."""
    features, structure, heads = network.features, network.structure, network.heads
    sets = [group for group in structure.slots if group.name in SETS]
    others = [(group.start, group.stop) for group in structure.slots if group.name not in SETS]
    low, high = LOG_STD_RANGE
    share = min(max((network.initial_log_std - low) / (high - low), 1e-3), 1 - 1e-3)
    return {
        "shared": [features.shared_start, features.shared_size],
        "numbers": [list(run) for run in sorted([*structure.numbers, *others])],
        "sets": [group._asdict() for group in sets],
        "targets": structure.targets,
        "planes": [list(run) for run in structure.planes],
        "alive": list(structure.alive),
        "heads": [
            {"name": h.name, "kind": h.kind, "size": h.size, "sample": _run(h.raw_action), "legal": _run(h.action_mask)}
            for h in heads.table
        ],
        "log_std": [low, high, math.log(share / (1 - share))],
        "legality": legality_rules(heads),
        "action": action_parts(heads),
        "classes": _class_rules(network),
    }


def _class_rules(network: ModernNetwork) -> list[Rule]:
    """A rule per set of layers: one for all mechs, or one for each class."""
    if not network.class_networks:
        return [ALWAYS]
    config = network.heads.config
    layout = observation_layout(config)
    return [[[_is_class(config, layout, {mech_class})]] for mech_class in range(len(CLASS_NAMES))]


def _run(columns: slice) -> list[int]:
    return [columns.start, columns.stop]


# -- Legality ---------------------------------------------------------------------------------------------------------------


def legality_rules(heads: Heads) -> list[Rule]:
    """Return a rule per column of a legality row: `Heads.action_mask` as numbers, entries counted in the raw observation."""
    config, layout = heads.config, observation_layout(heads.config)

    def scouts(also: bool) -> Rule:
        return [[_is_class(config, layout, {SCOUT})]] if also else NEVER

    rules: list[Rule] = []
    for head in heads.table:
        if head.name == "throttle":
            rules += [ALWAYS, ALWAYS, [[_is_class(config, layout, {SCOUT, LIGHT})]], ALWAYS]
        elif head.name == "trigger":
            rules += [_trigger(config, layout, name) for name in heads.triggers]
        elif head.name == "target":
            rules += [ALWAYS, *(_target(config, layout, slot) for slot in range(heads.targets))]
        elif head.name == "ewar":
            rules += [ALWAYS, *[scouts(config.ewar)] * (head.size - 1)]
        elif head.name == "sort":
            rules += [ALWAYS, *[ALWAYS if config.observation_control else NEVER] * (head.size - 1)]
        elif head.name == "message":
            rules += [ALWAYS if config.communication else NEVER] * head.size
        else:
            raise ExportError(f"the exporter knows no action head {head.name!r}")
    return rules


def _is_class(config: EnvConfig, layout: Layout, classes: set[int]) -> Condition:
    if config.observation == "modern":
        start = layout["self/pack_row"].offset
        return ["any", [start + row for row in range(PACK_SIZE) if PACK_CLASSES[row] in classes]]
    return ["any", [layout["hull"].offset + c for c in sorted(classes)]]


def _trigger(config: EnvConfig, layout: Layout, name: str) -> Rule:
    """One of the weapons on the trigger is carried and, in the modern observation, fires within the decision."""
    if name not in WEAPON_TRIGGERS:
        return ALWAYS
    rule = []
    for weapon, by_class in TRIGGERS.items():
        carriers = {c for c, trigger in by_class.items() if trigger == WEAPON_TRIGGERS[name]}
        if carriers:
            conditions = [_is_class(config, layout, carriers)]
            if config.observation == "modern":
                conditions += [["none", [layout["self/shutdown"].offset]], *_ready(config, layout, weapon)]
            rule.append(conditions)
    return rule


def _ready(config: EnvConfig, layout: Layout, weapon: int) -> Iterator[Condition]:
    if weapon in (MISSILE, SMOKE):  # one tube
        cooling = [("missile_cooldown", MISSILE), ("smoke_cooldown", SMOKE)]
    else:
        cooling = [COOLDOWNS[weapon]]
    for name, timed in cooling:
        limit = np.float32(config.decision_seconds / WEAPONS[timed].cooldown + 1e-3)
        yield ["at_most", layout[f"self/{name}"].offset, float(limit)]


def _target(config: EnvConfig, layout: Layout, slot: int) -> Rule:
    if not config.target_selection:
        return NEVER
    if config.observation == "modern":
        return [[["any", [layout[f"hostile_{slot}/known"].offset]]]]
    hostile = layout[f"contact_{slot}/relation"].offset + 1
    return [[["any", [layout[f"contact_{slot}/used"].offset]], ["any", [hostile]]]]


# -- Actions ----------------------------------------------------------------------------------------------------------------


def action_parts(heads: Heads) -> list[dict[str, Any]]:
    """Return how an action is put together from a raw action: `Heads.to_action` as data, in torch_policy's four kinds."""
    config = heads.config
    trigger = {name: heads["trigger"].raw_action.start + i for i, name in enumerate(heads.triggers)}
    throttle, target, ewar = (_run(heads[name].raw_action) for name in ("throttle", "target", "ewar"))

    def sign(name: str) -> dict[str, Any]:
        return {"kind": "sign", "sample": [trigger[name], trigger[name] + 1]}

    def choice(raw_action: list[int], first: int, stop: int, off: float) -> dict[str, Any]:
        return {"kind": "choice", "sample": raw_action, "first": first, "stop": stop, "off": off, "on": 1.0}

    parts: list[dict[str, Any]] = [{"kind": "tanh", "sample": throttle}]
    if config.actions == "modern":
        parts += [sign(name) for name in heads.triggers]
        parts += [choice(target, 0, 1 + heads.targets, 0.0), choice(ewar, 0, len(EWAR_LEVELS), 0.0)]
    else:
        for name in heads.triggers[:-1]:
            part = sign(name)
            if name == "secondary":
                part |= {"kind": "switch", "by": ewar, "levels": list(EWAR_LEVELS)}
            parts.append(part)
        parts += [choice(target, 1, 1 + heads.targets, -1.0)]
        parts += [choice(_run(heads["sort"].raw_action), 0, heads["sort"].size, -1.0), sign("hostile_only")]
    if config.comm_dim:
        parts.append({"kind": "tanh", "sample": _run(heads["message"].raw_action)})
    widths = [p.get("stop", 0) - p.get("first", 0) or p["sample"][1] - p["sample"][0] for p in parts]
    if sum(widths) != action_layout(config).size:
        raise ExportError(f"an action has {action_layout(config).size} entries, its parts {sum(widths)}")
    return parts


# -- Parameters -------------------------------------------------------------------------------------------------------------

_LISTS = ("slot_layers", "viewer_layers", "ask_layers", "plane_layers")


def modern_state_of(network: ModernNetwork, params: Params) -> Arrays:
    """Return the parameters under the names of `torch_policy.ModernPolicy`, in their dtype; kernels are transposed.

    Raises:
        ExportError: parameters that are not those of the network.
    """
    found = {"/".join(path): np.asarray(leaf) for path, leaf in flatten_dict(params).items()}
    expected = jax.eval_shape(network.init, jax.random.key(0))
    shapes = {"/".join(path): leaf.shape for path, leaf in flatten_dict(expected).items()}
    if {name: leaf.shape for name, leaf in found.items()} != shapes:
        odd = sorted(set(found) ^ set(shapes)) or [n for n in shapes if found[n].shape != shapes[n]]
        raise ExportError(f"the parameters are not those of the modern network: {', '.join(odd)}")
    if not network.class_networks:
        return _layers("layers.0", network, found)
    state: Arrays = {}
    for i in range(len(CLASS_NAMES)):
        state |= _layers(f"layers.{i}", network, {name: leaf[i] for name, leaf in found.items()})
    return state


def _layers(prefix: str, network: ModernNetwork, found: Arrays) -> Arrays:
    kernel, bias = found["lstm_kernel"], found["lstm_bias"]
    state = {
        "lstm.weight_ih_l0": kernel[: network.hidden].T,
        "lstm.weight_hh_l0": kernel[network.hidden :].T,
        "lstm.bias_ih_l0": bias,
        "lstm.bias_hh_l0": np.zeros_like(bias),
    }
    for path, leaf in found.items():
        if path in ("lstm_kernel", "lstm_bias"):
            continue
        if path.startswith("near_"):
            state[path.replace("near_", "near.")] = leaf
            continue
        layer, kind = path.split("/")
        for name in _LISTS:
            layer = layer.replace(f"{name}_", f"{name}.")
        state[f"{layer}.{_KINDS[kind]}"] = leaf.T if kind == "kernel" else leaf
    return {f"{prefix}.{name}": np.array(value, order="C") for name, value in state.items()}


_KINDS: Mapping[str, str] = {"kernel": "weight", "bias": "bias", "scale": "weight"}


# -- For comparisons --------------------------------------------------------------------------------------------------------


def head_columns(heads: Heads) -> dict[str, slice]:
    """Return by Gaussian head its columns among all log-stds."""
    sizes = {head.name: head.size for head in heads.table if head.kind == "gaussian"}
    ends = itertools.accumulate(sizes.values())
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
