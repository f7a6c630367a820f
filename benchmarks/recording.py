"""What recording one arena costs the others: the same compiled rollout with and without it, turn by turn (docs/replays.md).

    python benchmarks/recording.py --arenas 256 --decisions 32 --rounds 8

Random actions, so that nothing but the environment stands beside the recording. Prints one line of JSON: milliseconds of CPU time
per batch decision without and with the recording of one arena, observation included, and their ratio; medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
from jaxtyping import Array

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.trace import trace_of
from echelon_jax.worldgen.bank import generate_worlds


def rollout(env: Echelon, params, arenas: int, decisions: int, record: bool):
    """The compiled rollout (state, observation, key, arena) -> (state, observation, rewards, recorded rows)."""
    size = (env.config.num_mechs, action_layout(env.config).size)

    def decide(carry, key: Array):
        state, observation, arena, paid = carry
        keys = jax.random.split(key, arenas)
        actions = jax.vmap(lambda k: jax.random.uniform(k, size, minval=-1.0))(keys)
        after, step = env.step_batch(keys, state, actions, params)
        row = None
        if record:
            row = trace_of(arena, state, actions, keys, step.episode_over, step.info.reward_components, observation)
        # Every rollout reads its rewards; without this XLA would leave them out where nothing is recorded.
        return (after, step.observation, arena, paid + step.reward), row

    def play(state, observation, key, arena):
        nothing = jnp.zeros((arenas, env.config.num_mechs), jnp.float32)
        start = state, observation, arena, nothing
        (state, observation, _, paid), rows = jax.lax.scan(decide, start, jax.random.split(key, decisions))
        return state, observation, paid, rows

    return jax.jit(play)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arenas", type=int, default=256)
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--decisions", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    env = Echelon(EnvConfig(size_x=given.size, size_y=given.size, max_episode_seconds=3600.0))
    params = env.params(env.make_bank(generate_worlds(env.config, range(8))))
    state, step = env.reset_batch(jax.random.split(jax.random.key(0), given.arenas), params)
    plays = [rollout(env, params, given.arenas, given.decisions, record) for record in (False, True)]
    for play in plays:
        jax.block_until_ready(play(state, step.observation, jax.random.key(0), jnp.int32(0)))
    spent: list[list[float]] = [[], []]
    for i in range(given.rounds):
        for which in (0, 1) if i % 2 else (1, 0):
            start = time.process_time()
            jax.block_until_ready(plays[which](state, step.observation, jax.random.key(i), jnp.int32(i)))
            spent[which].append(1000 * (time.process_time() - start) / given.decisions)
    plain, recorded = (statistics.median(times) for times in spent)
    print(json.dumps({"arenas": given.arenas, "plain_ms": plain, "recorded_ms": recorded, "ratio": recorded / plain}))


if __name__ == "__main__":
    main()
