"""Reward terms of one's own: functions of (state before, state after, tally), with weights in the configuration.

    python examples/own_reward.py

The same terms on the command line, from a directory in which this file lies:

    echelon train --preset smoke --reward-terms "own_reward:spread=0.02; own_reward:hold_fire=0.1"
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp

import echelon_jax
from echelon_jax.env.state import EnvState
from echelon_jax.sim.state import Tally

TERMS = "own_reward:spread=0.02; own_reward:hold_fire=0.1"
NEAR = 6.0  # voxels


def spread(before: EnvState, after: EnvState, tally: Tally) -> jax.Array:
    """Return 1 for a living mech with no living team mate within NEAR voxels after the decision, else 0."""
    mechs = after.sim.mechs
    n = mechs.alive.shape[-1]
    same_team = jnp.arange(n)[:, None] // (n // 2) == jnp.arange(n) // (n // 2)
    distance = jnp.linalg.norm(mechs.position[:, :, None] - mechs.position[:, None], axis=-1)
    near = (distance < NEAR) & same_team & ~jnp.eye(n, dtype=bool) & mechs.alive[:, None]
    return jnp.where(mechs.alive & ~near.any(-1), 1.0, 0.0)


def hold_fire(before: EnvState, after: EnvState, tally: Tally) -> jax.Array:
    """Return 1 for a mech that lived at the decision and launched nothing, else 0; the dead are paid nothing."""
    quiet = (tally.missile_launches + tally.kinetic_fires) == 0
    return jnp.where(before.sim.mechs.alive & quiet, 1.0, 0.0)


def main() -> None:
    """Play random actions and print what each term paid."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--name", default="5v5-28", help="environment, see echelon_jax.make")
    parser.add_argument("--arenas", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    flags = parser.parse_args()

    env, params = echelon_jax.make(flags.name, rules="original", worlds=4, reward_terms=TERMS)
    reset_key, key = jax.random.split(jax.random.key(0))
    state, step = env.reset_batch(jax.random.split(reset_key, flags.arenas), params)
    play = jax.jit(env.step_batch)
    total = jnp.zeros_like(step.info.term_rewards)
    for i in range(flags.steps):
        draw_key, env_key = jax.random.split(jax.random.fold_in(key, i))
        actions = env.action_space(params).sample(draw_key, (flags.arenas, env.config.num_mechs))
        state, step = play(jax.random.split(env_key, flags.arenas), state, actions, params)
        total = total + step.info.term_rewards
    # The weights are traced: another value plays on without compiling again.
    params = params.replace(term_weights=params.term_weights.at[0].set(0.0))
    state, step = play(jax.random.split(key, flags.arenas), state, actions, params)
    assert not step.info.term_rewards[..., 0].any()
    for name, paid in zip(("spread", "hold_fire"), total.mean((0, 1)), strict=True):
        print(f"{name}: {float(paid):.3f} per mech over {flags.steps} decisions")


if __name__ == "__main__":
    main()
