"""The fingerprint of a game: how it plays a short fixed rollout, as a hash that every machine reproduces.

The plain reference plays, not the compiled simulator: it computes in float64, whose rounding errors vanish when results are
rounded to four decimals, and it compiles nothing. Parity tests hold the two together (docs/parity.md).
"""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.reference.environment import ReferenceEnv
from echelon_jax.sim.noise import sample_noise
from echelon_jax.testing.scenes import fixed_actions
from echelon_jax.worldgen.bank import bank_contents, generate_worlds

DECISIONS = 24
SEEDS = (0, 1)
DECIMALS = 4


def fingerprint(config: EnvConfig) -> str:
    """Return the hash of how a game plays, 32 hexadecimal digits.

    It covers the tables of observation and action, the first maps of a bank, the names and shapes of a decision's draws, and
    observations, rewards, flags, mechs and voxels of two episodes of 24 decisions under fixed actions.

    Args:
        config: the game; observation, actions and reward must be of this package, which the reference knows.
    """
    digest = hashlib.sha256()
    for layout in (observation_layout(config), action_layout(config)):
        for entry in layout:
            digest.update(repr((entry.name, entry.offset, entry.size, entry.low, entry.high, entry.kind)).encode())
    for name, values in generate_worlds(config, bank_contents(0, 1, 2, 0))._asdict().items():
        _add(digest, name, values)
    draws = jax.eval_shape(lambda keys: sample_noise(config, keys), jax.random.split(jax.random.key(0), 1))
    for path, leaf in jax.tree_util.tree_leaves_with_path(draws):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
    for seed in SEEDS:
        _add_episode(digest, config, seed)
    return digest.hexdigest()[:32]


def _add_episode(digest: Any, config: EnvConfig, seed: int) -> None:
    env, size = ReferenceEnv(config), action_layout(config).size
    step = env.reset(seed)
    for decision in range(DECISIONS):
        step = env.step(fixed_actions(decision, len(SEEDS), config.num_mechs, size)[seed])
        for name in ("observation", "reward", "terminated", "truncated"):
            _add(digest, name, getattr(step, name))
        mechs = env.arena.battle.mechs
        _add(digest, "mechs", [(*mech.pos, mech.yaw, mech.hp, mech.leg_hp, mech.heat, mech.alive) for mech in mechs])
        _add(digest, "statistics", list(step.info["statistics"].values()))
    world = env.arena.battle.world
    _add(digest, "material", world.material)
    _add(digest, "hp", world.hp)


def _add(digest: Any, name: str, values: Any) -> None:
    """Add an array; what is rounded is also freed of minus zero."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        array = np.round(array.astype(np.float64), DECIMALS) + 0.0
    digest.update(f"{name} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
