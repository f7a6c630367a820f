"""The moving average of the network's parameters: the last steps of a run scatter around a place that is better than they are.

Training goes on from the parameters themselves, so the average changes nothing of what is learnt. It is what plays: validation
games, the policy of a checkpoint, exports and evaluation read it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from echelon_jax.policies.network import Params


def begin(params: Params, decay: float) -> Params | None:
    """Return the average of a learner that begins with these parameters: a copy, as both are donated. None without a decay."""
    return jax.tree.map(jnp.copy, params) if decay else None


def follow(average: Params | None, params: Params, decay: float) -> Params | None:
    """Return the average after an update that led to these parameters."""
    if average is None:
        return None
    return jax.tree.map(lambda old, new: decay * old + (1.0 - decay) * new, average, params)
