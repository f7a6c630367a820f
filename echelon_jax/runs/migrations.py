"""Migrations: ordered steps from one checkpoint format to the next, and the meaning of fields that are missing.

A change that an old checkpoint does not know has an entry here:

- a new field of the configurations: nothing if its default is what was done before; otherwise BEFORE;
- a new leaf of the TrainState: NEW_LEAVES of a new FORMAT (an older checkpoint gets that of a fresh run);
- a leaf that has gone or moved: DROPPED_LEAVES, MOVED_LEAVES;
- a tree like the parameters that has become one vector: JOINED_TREES;
- anything else in the manifest: a step in STEPS and a new FORMAT;
- and for every FORMAT that a release wrote, a small run in tests/data/checkpoints, which the tests read and resume.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.runs.tree_files import Flat, TreeError, nested_path
from echelon_jax.training.config import TrainConfig

FORMAT = 5
NESTED_POLICY = 3  # the format that began to store the policy as a tree of named layers

# What a run did before a field of TrainConfig existed, where that is not the field's default.
BEFORE: dict[str, Any] = {
    "after_death": 0.0,
    "after_death_ramp": 0,
    "target_kl": 0.0,
    "guard": False,
    "memory": "lstm",
    "accumulate": 1,
}

# Leaves of the TrainState, by the beginning of their path, that a format brought.
NEW_LEAVES: dict[int, tuple[str, ...]] = {2: ("['guard']",)}

# Leaves, likewise, that a format no longer has; 2 works out the learning rate from the update number.
DROPPED_LEAVES: dict[int, tuple[str, ...]] = {2: ("['optimizer'][1][1].",)}

# Leaves that lay elsewhere before a format: beginning of the path now, and before.
MOVED_LEAVES: dict[int, tuple[tuple[str, str], ...]] = {
    2: (("['optimizer'][1].", "['optimizer'][1][0]."),),
    3: (
        ("['runner_state'].env_state.arena_map.", "['actors'].env_state.place."),
        ("['runner_state'].env_state.memory.last_seen", "['actors'].env_state.recall.place"),
        ("['runner_state'].env_state.memory.", "['actors'].env_state.recall."),
        ("['runner_state'].", "['actors']."),
    ),
    4: (
        ("['runner_state'].env_state.sim.mechs.insertion_index", "['runner_state'].env_state.sim.mechs.stamp"),
        ("['runner_state'].env_state.sim.mechs.loudness", "['runner_state'].env_state.sim.mechs.noise"),
        ("['runner_state'].env_state.sim.next_insertion_index", "['runner_state'].env_state.sim.next_stamp"),
    ),
}

# Trees like the parameters that a format joined to one vector (training/vector.py), by their path now.
JOINED_TREES: dict[int, tuple[str, ...]] = {5: ("['optimizer'][1].mu", "['optimizer'][1].nu")}

# Fields of TrainConfig that had another name before: the name now, by the name then. A configuration may hold either.
RENAMED_FIELDS = {"updates_per_launch": "updates_per_call", "return_memory": "return_ema_decay"}

# Fields without which a configuration was never saved: if one is missing it is damage, not age.
_ALWAYS_TRAIN = frozenset(
    {"seed", "arenas", "rollout_steps", "updates", "updates_per_call", "epochs", "minibatches", "learning_rate"}
    | {"anneal", "gamma", "gae_lambda", "clip", "entropy_coefficient", "value_coefficient", "max_grad_norm"}
    | {"network", "hidden", "lstm", "forget_bias", "initial_log_std", "normalize_observations", "observation_clip"}
    | {"return_ema_decay", "opponent", "fire_start", "fire_end", "fire_ramp"}
    | {"bank_size", "bank_swap_every", "bank_swap_size"}
)
_ALWAYS_ENV = frozenset(
    {"size_x", "size_y", "size_z", "num_packs", "dt", "substeps", "max_episode_seconds", "observation_mode", "comm_dim"}
    | {"target_selection", "ewar", "observation_control", "communication", "voxel_size_m", "clearance_z"}
)

_Config = TypeVar("_Config", TrainConfig, EnvConfig)


class FormatError(ValueError):
    """A manifest of a format that this version cannot read; the message is one sentence."""


def train_config(fields: Mapping[str, Any]) -> TrainConfig:
    """Return the training configuration of a saved dictionary. A missing field means what was done before it existed.

    Raises:
        ValueError: a field is unknown, damaged or out of range; it is named.
    """
    fields = renamed(fields)
    return _config(TrainConfig, {**BEFORE, **fields}, fields, _ALWAYS_TRAIN).validate()


def env_config(fields: Mapping[str, Any]) -> EnvConfig:
    """Return the game's configuration of a saved dictionary. A missing field means the original's rules.

    Raises:
        ValueError: a field is unknown, damaged or out of range; it is named.
    """
    letter = dataclasses.asdict(EnvConfig.original())
    return _config(EnvConfig, {**letter, **fields}, fields, _ALWAYS_ENV)


def renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved training fields under their present names."""
    return {RENAMED_FIELDS.get(name, name): value for name, value in fields.items()}


def upgrade(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest in the present format, migrated step by step; "was_format" holds its old format.

    Raises:
        FormatError: newer than this version, or unknown.
    """
    was = manifest.get("format")
    if not isinstance(was, int) or isinstance(was, bool) or was not in (*STEPS, FORMAT):
        newer = " of a newer version" if isinstance(was, int) and was > FORMAT else ""
        raise FormatError(f"has checkpoint format {was!r}{newer}, this version reads {min(STEPS)} to {FORMAT}")
    made = {**manifest, "was_format": was}
    for number in range(was, FORMAT):
        made = STEPS[number](made)
    return made


def may_lack(was_format: int) -> Callable[[str], bool]:
    """Return whether a checkpoint of that format may lack a leaf of the TrainState, as a function of the leaf's path."""
    new = tuple(p for number, paths in NEW_LEAVES.items() if number > was_format for p in paths)
    return lambda name: name.startswith(new) if new else False


def may_drop(was_format: int) -> Callable[[str], bool]:
    """Return whether a leaf of a checkpoint of that format was dropped from the TrainState, as a function of its path."""
    gone = tuple(p for number, paths in DROPPED_LEAVES.items() if number > was_format for p in paths)
    return lambda name: name.startswith(gone) if gone else False


def old_path(was_format: int) -> Callable[[str], str]:
    """Return a function from the present path of a leaf of the TrainState to its path in a checkpoint of that format."""

    def path(name: str) -> str:
        for number in range(FORMAT, was_format, -1):
            for now, before in MOVED_LEAVES.get(number, ()):
                if name.startswith(now):
                    name = before + name.removeprefix(now)
        return name

    return path


def join_trees(was_format: int, leaves: Sequence[str]) -> Callable[[Flat], Flat]:
    """Return a function that joins the trees of a checkpoint of that format which are vectors now.

    Args:
        leaves: the paths of the parameters' leaves, in their order.

    Raises:
        TreeError: by the function, if the checkpoint lacks a part of one.
    """

    def join(flat: Flat) -> Flat:
        for number, trees in JOINED_TREES.items():
            for tree in trees if number > was_format else ():
                path = old_path(was_format)(tree)
                lacking = [path + leaf for leaf in leaves if path + leaf not in flat]
                if lacking:
                    raise TreeError(f"the checkpoint does not hold {lacking[0]}, which this version expects")
                parts = [flat[path + leaf].reshape(-1) for leaf in leaves]
                rest = {name: value for name, value in flat.items() if not name.startswith(path)}
                flat = rest | {path: np.concatenate(parts)}
        return flat

    return join


def policy_path(was_format: int) -> Callable[[str], str]:
    """Return where a checkpoint of that format has a leaf of its policy; until format 2 the policy was stored flat."""
    return nested_path if was_format >= NESTED_POLICY else lambda name: name


def _one_to_two(manifest: dict[str, Any]) -> dict[str, Any]:
    """Format 2 knows which run and which worlds it belongs to, and how well it played."""
    return {**manifest, "format": 2, "run": None, "bank": None, "score": None}


def _two_to_three(manifest: dict[str, Any]) -> dict[str, Any]:
    """Format 3 renamed leaves and fields, which are looked up where they are read."""
    return {**manifest, "format": 3}


def _three_to_four(manifest: dict[str, Any]) -> dict[str, Any]:
    """Format 4 renamed leaves."""
    return {**manifest, "format": 4}


def _four_to_five(manifest: dict[str, Any]) -> dict[str, Any]:
    """Format 5 joined trees."""
    return {**manifest, "format": 5}


STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _one_to_two,
    2: _two_to_three,
    3: _three_to_four,
    4: _four_to_five,
}


def _config(kind: type[_Config], complete: dict[str, Any], saved: Mapping[str, Any], always: frozenset[str]) -> _Config:
    known = {f.name for f in dataclasses.fields(kind)}
    for problem, names in (("unknown", set(saved) - known), ("missing", always - set(saved))):
        if names:
            raise ValueError(f"{kind.__name__} has {problem} fields {', '.join(sorted(names))}")
    return kind(**complete)
