"""Generalised advantage estimation with ends of three kinds (docs/spec/learner.md 4.2; D6, T5, T10)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32


def generalized_advantages(
    reward: Float32[Array, "time arenas team"],
    value: Float32[Array, "time arenas team"],
    terminated: Bool[Array, "time arenas team"],
    truncated: Bool[Array, "time arenas team"],
    alive: Bool[Array, "time arenas team"],
    final_value: Float32[Array, "time arenas team"],
    last_value: Float32[Array, "arenas team"],
    gamma: float,
    lam: float,
    continuation: Float32[Array, "time arenas team"] | None = None,
) -> tuple[Float32[Array, "time arenas team"], Float32[Array, "time arenas team"]]:
    """Return advantages and returns (advantage + value), with all values in reward units.

    delta_t = r_t + gamma V'_t - V_t. A_t = delta_t + gamma lam A_{t+1} if the mech goes on, else A_t = delta_t. V'_t is

    - 0 where `terminated`: the mech died, or the game was decided;
    - `final_value` where `truncated`: time ran out, and this is the value of the state in which the episode ended;
    - the value at t + 1 elsewhere, and `last_value` after the last step.

    `continuation`, if given, multiplies both V'_t and the trace after t. It is the share of what comes after t that the
    decision at t answers for. Rows of mechs that were dead at the decision (`alive` is false) are 0 and affect nothing.
    """
    next_value = jnp.concatenate([value[1:], last_value[None]])
    ahead = jnp.where(terminated, 0.0, jnp.where(truncated, final_value, next_value))
    share = jnp.ones_like(reward) if continuation is None else continuation
    delta = jnp.where(alive, reward + gamma * share * ahead - value, 0.0)
    decay = jnp.where(alive & ~terminated & ~truncated, gamma * lam * share, 0.0)

    def back(
        advantage: Float32[Array, "arenas team"], x: tuple[Float32[Array, "arenas team"], Float32[Array, "arenas team"]]
    ) -> tuple[Float32[Array, "arenas team"], Float32[Array, "arenas team"]]:
        now, kept = x
        advantage = now + kept * advantage
        return advantage, advantage

    _, advantage = jax.lax.scan(back, jnp.zeros_like(last_value), (delta, decay), reverse=True)
    return advantage, jnp.where(alive, advantage + value, 0.0)
