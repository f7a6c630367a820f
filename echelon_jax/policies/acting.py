"""One decision of a trained network from raw observations: how every player and `Policy.act` act."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.policies.features import read
from echelon_jax.policies.network import Network, Params
from echelon_jax.policies.normalize import Moments
from echelon_jax.policies.precision import products_in


def outlook(
    network: Network,
    clip: float | None,
    params: Params,
    moments: Moments,
    carry: Any,
    observation: Float32[Array, "arenas team obs"],
    reset: Bool[Array, "arenas team"],
) -> tuple[Any, Any, Float32[Array, "arenas team"]]:
    """Return the distribution of the next action, the memory after the decision, and the value; arguments as for `decide`."""
    seen = read(network.features, moments, clip, observation)
    with products_in("float32"):
        carry, distribution, value = network.apply(params, carry, seen, reset)
    return distribution, carry, value


def decide(
    network: Network,
    clip: float | None,
    deterministic: bool,
    params: Params,
    moments: Moments,
    carry: Any,
    observation: Float32[Array, "arenas team obs"],
    reset: Bool[Array, "arenas team"],
    key: Key[Array, ""] | None,
) -> tuple[Float32[Array, "arenas team actions"], Any, Float32[Array, "arenas team"]]:
    """Return the actions of one side's mechs, their memory after the decision, and the value in the critic's units.

    Args:
        network: the network, and how it reads an observation.
        clip: limit of normalised features, None for no limit.
        deterministic: take the most likely raw action; otherwise one is drawn with `key`.
        params, moments: of the network and of the observations' normaliser.
        carry: the memory before.
        observation: as the environment gives it.
        reset: where an episode begins with this observation, so that the memory starts empty.
        key: of the draw; unused where `deterministic`.
    """
    distribution, carry, value = outlook(network, clip, params, moments, carry, observation, reset)
    raw_action = distribution.mode() if deterministic else distribution.sample(key)
    return distribution.action(raw_action), carry, value


compiled_decide = partial(jax.jit, static_argnums=(0, 1, 2))(decide)
