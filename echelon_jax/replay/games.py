"""One game played to be watched: two players in one arena, step by step with the compiled step, every decision recorded."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.env.state import EnvParams
from echelon_jax.env.trace import Trace, trace_of
from echelon_jax.evaluation.players import AgentPlayer, Player, policy_outputs
from echelon_jax.replay.build import compiled_observation, compiled_step, start_state


@lru_cache(maxsize=8)
def _programs(config: EnvConfig, blue: Player, red: Player) -> tuple[Any, Any]:
    team = config.team_size

    def blue_rows(x: Array) -> Array:
        return x[:, :team]

    def red_rows(x: Array) -> Array:
        return x[:, team:]

    def act(params: EnvParams, numbers: Any, memories: Any, state: Any, observation: Array, key: Array) -> Any:
        keys = jax.random.split(key)
        memory_blue, ours = blue.act(numbers[0], params, memories[0], state, observation, blue_rows, keys[0])
        memory_red, theirs = red.act(numbers[1], params, memories[1], state, observation, red_rows, keys[1])
        values, probabilities = policy_outputs((memory_blue, memory_red), 1, team)
        probability = None if probabilities is None else jnp.concatenate(list(probabilities), 1)
        outputs = jnp.concatenate(list(values), 1), probability
        return (memory_blue, memory_red), jnp.concatenate([ours, theirs], 1), outputs

    def record(before: Any, actions: Array, keys: Array, stepped: Any, observation: Any, outputs: Any) -> Trace:
        return trace_of(0, before, actions, keys, stepped.over, stepped.rewards, observation, *outputs)

    options = compiling.for_short_runs()
    return jax.jit(act, compiler_options=options), jax.jit(record, compiler_options=options)


def play_game(
    config: EnvConfig,
    params: EnvParams,
    blue: tuple[Player, Any],
    red: tuple[Player, Any],
    seed: int,
    observe: bool = True,
) -> Trace:
    """Play one game in the first world of the bank and return its decisions, stacked, as numpy.

    Args:
        blue, red: players with their numbers.
        seed: of every draw of the game and the players.
        observe: keep what the mechs saw.
    """
    act, record = _programs(config, blue[0], red[0])
    step, look = compiled_step(config), compiled_observation(config)
    needed = observe or any(not isinstance(player, AgentPlayer) for player, _ in (blue, red))
    state = start_state(config, params)
    memories = tuple(player.init(params, state, config.team_size) for player, _ in (blue, red))
    numbers, key, rows = (blue[1], red[1]), jax.random.key(seed), []
    for d in range(config.max_steps):
        key_act, key_env = jax.random.split(jax.random.fold_in(key, d))
        seen = look(params.rules, state) if needed else jnp.zeros((1, config.num_mechs, 1), jnp.float32)
        memories, actions, outputs = act(params, numbers, memories, state, seen, key_act)
        keys = key_env[None]
        after, stepped = step(params, keys, state, actions)
        rows.append(record(state, actions, keys, stepped, seen if observe else None, outputs))
        state = after
        if d % 8 == 7 and bool(state.episode_over[0]):
            break
    trace: Trace = jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *rows)
    played = int(trace.running.sum())
    trace = jax.tree.map(lambda x: x[:played], trace)
    return trace if np.any(trace.value) else trace.replace(value=None)
