"""The `modern` network for other programs: its parameters under torch's names, and its plan as plain numbers.

The plan describes the parts of an observation and of an action: runs, slots, heads, action masks, and how an action is put
together. So a program that plays the policy needs none of this project's tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from echelon_jax.config import EnvConfig
from echelon_jax.env.interface import ALWAYS, Condition, Rule
from echelon_jax.env.interfaces import action_layout, observation_of
from echelon_jax.export.weights import Arrays, ExportError
from echelon_jax.policies.action_mask import mask_rules
from echelon_jax.policies.distributions import LOG_STD_RANGE
from echelon_jax.policies.heads import Heads
from echelon_jax.policies.modern_network import SETS, ModernNetwork
from echelon_jax.policies.network import Params
from echelon_jax.rules.mechs import CLASS_NAMES


def modern_dimensions(network: ModernNetwork, env_config: EnvConfig) -> dict[str, Any]:
    """Return sizes and switches by name."""
    module = network.module
    return {
        "observation": network.features.size,
        "action": action_layout(env_config).size,
        "hidden": network.hidden,
        "lstm": network.lstm,
        "slot_width": module.slot_width,
        "plane_width": module.plane_width,
        "mechs": env_config.team_size,
        "layer_norm": network.layer_norm,
        "team_critic": network.team_critic,
        "attention": network.attention,
        "memory": network.memory,
    }


def plan_of(network: ModernNetwork) -> dict[str, Any]:
    """Return the parts of an observation and of an action as plain data for JSON."""
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
            {
                "name": h.name,
                "kind": h.kind,
                "size": h.size,
                "raw_action": _run(h.raw_action),
                "action_mask": _run(h.action_mask),
            }
            for h in heads.table
        ],
        "log_std": [low, high, math.log(share / (1 - share))],
        "mask_rules": [_plain_rule(rule) for rule in mask_rules(heads.config)],
        "action": action_parts(heads),
        "classes": _class_rules(network),
    }


def _class_rules(network: ModernNetwork) -> list[list[list[list[Any]]]]:
    """A rule per set of layers: one for all mechs, or one for each class."""
    if not network.class_networks:
        return [_plain_rule(ALWAYS)]
    config = network.heads.config
    shown = observation_of(config)
    return [_plain_rule(((shown.is_class(config, {c}),),)) for c in range(len(CLASS_NAMES))]


def _run(columns: slice) -> list[int]:
    return [columns.start, columns.stop]


# -- Rules and actions as plain numbers -------------------------------------------------------------------------------------


def _plain_rule(rule: Rule) -> list[list[list[Any]]]:
    """A rule as torch_policy reads it: alternatives, each a list of conditions."""
    return [[_plain_condition(condition) for condition in conditions] for conditions in rule]


def _plain_condition(condition: Condition) -> list[Any]:
    if condition.kind == "at_most":
        return ["at_most", condition.entries[0], condition.limit]
    return [condition.kind, list(condition.entries)]


def action_parts(heads: Heads) -> list[dict[str, Any]]:
    """Return how an action is put together from a raw action: `ActionInterface.pieces` in torch_policy's words."""
    parts: list[dict[str, Any]] = []
    for piece in heads.actions.pieces(heads.config):
        head = heads[piece.head]
        columns = _run(head.raw_action)
        if piece.kind == "tanh":
            parts.append({"kind": "tanh", "raw_action": columns})
        elif piece.kind == "choice":
            parts.append(
                {
                    "kind": "choice",
                    "raw_action": columns,
                    "first": piece.first,
                    "stop": head.size,
                    "off": piece.off,
                    "on": 1.0,
                }
            )
        else:
            trigger = columns[0] + heads.triggers.index(piece.entry)
            part: dict[str, Any] = {"kind": "sign", "raw_action": [trigger, trigger + 1]}
            if piece.kind == "switch":
                part |= {"kind": "switch", "by": _run(heads["ewar"].raw_action), "levels": list(piece.levels)}
            parts.append(part)
    widths = [p.get("stop", 0) - p.get("first", 0) or p["raw_action"][1] - p["raw_action"][0] for p in parts]
    size = action_layout(heads.config).size
    if sum(widths) != size:
        raise ExportError(f"an action has {size} entries, its parts {sum(widths)}")
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
    state = _memory(network, found)
    for path, leaf in found.items():
        if path.startswith(f"{network.memory}_"):
            continue
        if path.startswith("near_"):
            state[path.replace("near_", "near.")] = leaf
            continue
        layer, kind = path.split("/")
        for name in _LISTS:
            layer = layer.replace(f"{name}_", f"{name}.")
        state[f"{layer}.{_KINDS[kind]}"] = leaf.T if kind == "kernel" else leaf
    return {f"{prefix}.{name}": np.array(value, order="C") for name, value in state.items()}


def _memory(network: ModernNetwork, found: Arrays) -> Arrays:
    """The parameters of the memory, an LSTM's as `torch.nn.LSTM` has them."""
    kernel, bias = found[f"{network.memory}_kernel"], found[f"{network.memory}_bias"]
    if network.memory != "lstm":
        return {"memory.weight": kernel.T, "memory.bias": bias}
    return {
        "lstm.weight_ih_l0": kernel[: network.hidden].T,
        "lstm.weight_hh_l0": kernel[network.hidden :].T,
        "lstm.bias_ih_l0": bias,
        "lstm.bias_hh_l0": np.zeros_like(bias),
    }


_KINDS: Mapping[str, str] = {"kernel": "weight", "bias": "bias", "scale": "weight"}


# -- For comparisons --------------------------------------------------------------------------------------------------------


def head_columns(heads: Heads) -> dict[str, slice]:
    """Return, by Gaussian head, its columns among all log-stds."""
    sizes = {head.name: head.size for head in heads.table if head.kind == "gaussian"}
    ends = itertools.accumulate(sizes.values())
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
