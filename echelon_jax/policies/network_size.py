"""The size of a network: its parameters, and its floating-point operations for one decision of one mech."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from echelon_jax.policies.features import Observation
from echelon_jax.policies.network import Network


class NetworkSize(NamedTuple):
    """Parameters, and multiplications and additions in matrix products per decision of one mech (forward pass)."""

    parameters: int
    flops: int

    def __str__(self) -> str:
        return f"{self.parameters:,} parameters, {self.flops / 1e6:.2f} MFLOP per decision of a mech"


def network_size(network: Network, team_size: int) -> NetworkSize:
    """Return the size of a network. The products are counted in the traced program of one team's decision; nothing is compiled."""
    features = network.features
    params = jax.eval_shape(network.init, jax.random.key(0))
    action_mask = None
    if features.heads is not None:
        action_mask = jnp.ones((1, team_size, features.heads.mask_size), bool)
    observation = Observation(
        jnp.zeros((1, team_size, features.own_size), jnp.float32),
        jnp.zeros((1, features.shared_size), jnp.uint8),
        action_mask,
    )
    carry, reset = network.initial_carry(1, team_size), jnp.zeros((1, team_size), bool)
    traced = jax.make_jaxpr(network.apply)(params, carry, observation, reset)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    return NetworkSize(parameters, round(_product_flops(traced.jaxpr) / team_size))


def _product_flops(jaxpr: Any) -> int:
    """Two per element of the result and contracted element, for every matrix product of a program."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            ((contracted, _), _) = equation.params["dimension_numbers"]
            depth = 1
            for axis in contracted:
                depth *= equation.invars[0].aval.shape[axis]
            total += 2 * depth * equation.outvars[0].aval.size
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += _product_flops(inner)
    return total
