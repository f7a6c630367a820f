"""The fingerprint of an environment: how it plays a short fixed rollout, in numbers that other machines reproduce."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np

from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.testing.scenes import ARENAS, batch_program, fixed_actions
from echelon_jax.versions import Fingerprint

DECISIONS = 10
SEED = 20
# Floats of one decision differ between processors by about 1e-6 of their size; a change of the game moves them further.
TOLERANCE = 2e-5


def fingerprint(env: Any, params: Any) -> Fingerprint:
    """Return how an environment plays ten fixed decisions in four arenas.

    Args:
        env: an environment with the batch functions of `AutoReset`.
        params: its parameters; the worlds of the bank are part of the fingerprint.
    """
    digest = hashlib.sha256()
    for layout in (observation_layout(env.config), action_layout(env.config)):
        for entry in layout:
            digest.update(repr((entry.name, entry.offset, entry.size, entry.low, entry.high, entry.kind)).encode())
    _add_whole_numbers(digest, params.bank)
    mechs, size = env.config.num_mechs, action_layout(env.config).size
    keys = [jax.random.split(jax.random.fold_in(jax.random.key(SEED), i), ARENAS) for i in range(DECISIONS + 1)]
    state, step = jax.jit(env.reset_batch)(keys[DECISIONS], params)
    step_batch = batch_program(env, jax.jit)
    rewards, observations = [], []
    for i in range(DECISIONS):
        state, step = step_batch(keys[i], state, fixed_actions(i, ARENAS, mechs, size), params)
        _add_whole_numbers(digest, state)
        rewards.append(_weighted(step.reward) * step.reward.size)
        observations.append(_weighted(step.observation))
    return Fingerprint(digest.hexdigest()[:32], _rounded(rewards), _rounded(observations))


def compare(found: Fingerprint, kept: Fingerprint) -> list[str]:
    """Return a sentence for every part of a fingerprint that is not as it was."""
    faults = []
    if found.exact != kept.exact:
        faults.append(f"tables, maps or whole numbers of the states have changed: {found.exact} was {kept.exact}")
    for name in ("rewards", "observations"):
        now, was = getattr(found, name), getattr(kept, name)
        if len(now) != len(was) or not np.allclose(now, was, TOLERANCE, TOLERANCE):
            faults.append(f"{name} have changed: {now} were {was}")
    return faults


def _add_whole_numbers(digest: Any, tree: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        if array.dtype.kind in "biu":
            digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())


def _weighted(values: Any) -> float:
    """Mean of an array with fixed weights between -1 and 1, so that no two entries count alike for long."""
    flat = np.asarray(values, np.float64).ravel()
    return float(np.mean(flat * np.sin(np.arange(1, flat.size + 1))))


def _rounded(values: list[float]) -> tuple[float, ...]:
    return tuple(round(value, 7) for value in values)
