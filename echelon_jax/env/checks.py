"""What the environment's callers may hand in, checked where shapes are known: a wrong call is one sentence, not a broadcast."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.layout import Layout


def check_keys(keys: Any, arenas: int | None = None) -> int:
    """Check that there is a key for every arena; return how many there are.

    Args:
        keys: typed keys [arenas], or raw ones, uint32 [arenas, words].
        arenas: how many there must be; None where the keys decide.

    Raises:
        ValueError: one key instead of several, or another number than that of the arenas.
    """
    typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    if keys.ndim != (1 if typed else 2):
        raise ValueError(
            f"keys must hold one key for each arena, got an array of shape {tuple(keys.shape)}; "
            "jax.random.split(key, arenas) makes them"
        )
    if arenas is not None and keys.shape[0] != arenas:
        raise ValueError(f"keys must hold one key for each of {arenas} arenas, got {keys.shape[0]}")
    return keys.shape[0]


def check_world_index(world_index: Any, arenas: int, worlds: int) -> Int32[Array, " arenas"]:
    """Check rows of the bank, one for each arena, and return them as int32.

    The rows of a traced index are not known here; `mark_unknown_worlds` marks what they lead to.

    Raises:
        ValueError: not whole numbers, another number of them than of arenas, or one that the bank does not have.
    """
    index = world_index if isinstance(world_index, jax.Array) else np.asarray(world_index)
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(f"world_index must hold whole numbers, got {index.dtype}")
    if index.shape != (arenas,):
        raise ValueError(f"world_index must have shape ({arenas},), one row for each arena, got {tuple(index.shape)}")
    if not isinstance(index, jax.core.Tracer):
        rows = np.asarray(index)
        wrong = rows[(rows < 0) | (rows >= worlds)]
        if wrong.size:
            raise ValueError(f"world_index must be from 0 to {worlds - 1}, got {wrong[0]}")
    return jnp.asarray(index, jnp.int32)


def one_row(world_index: Any) -> Any:
    """Return the row of one arena as a batch of one."""
    return world_index[None] if hasattr(world_index, "ndim") else np.asarray([world_index])


def mark_unknown_worlds(
    observation: Float32[Array, "arenas mechs features"], world_index: Int32[Array, " arenas"], worlds: int
) -> Float32[Array, "arenas mechs features"]:
    """Return the first observation, all NaN where the row is none of the bank's; a compiled program cannot refuse it."""
    known = (world_index >= 0) & (world_index < worlds)
    return jnp.where(known[:, None, None], observation, jnp.nan)


def check_actions(config: EnvConfig, layout: Layout, actions: Any, arenas: int) -> None:
    """Check the shape of a batch of actions.

    Raises:
        ValueError: it is not [arenas, mechs, components].
    """
    wanted = (arenas, config.num_mechs, layout.size)
    if jnp.shape(actions) != wanted:
        raise ValueError(
            f"actions must have shape {wanted} (arenas, mechs, components of an action), got {jnp.shape(actions)}"
        )
