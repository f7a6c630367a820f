"""How often the loops iterate whose trip count is data: measured where the program runs, on the CPU, by counting them.

While a step is traced, `jax.lax.while_loop` is replaced by one that carries a counter, which a callback reports. The speed of such
a step says nothing; its numbers are those of the plain step.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from echelon_jax.agents.base import AgentParams
from echelon_jax.agents.scripted import Scripted
from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout
from echelon_jax.gpu.cost import loop_key
from echelon_jax.gpu.hlo import is_ours
from echelon_jax.worldgen.bank import bank_seeds, generate_worlds

WORLDS = 16


@dataclasses.dataclass(frozen=True)
class Trips:
    """Iterations of loops, by key.

    Attributes:
        mean: a decision step, all loops of a key together.
        most: of a single run of a loop.
        arenas, steps, who: where measured: how many side by side, how many steps counted, who acted.
    """

    mean: dict[str, float]
    most: dict[str, int]
    arenas: int
    steps: int
    who: str


def caller_key() -> str:
    """Return the `loop_key` of whoever of the project is being traced."""
    names, frame = [], sys._getframe(1)
    while frame is not None:
        if is_ours(frame.f_code.co_filename):
            names.append(frame.f_code.co_qualname.split(".<locals>")[0])
        frame = frame.f_back  # type: ignore[assignment]
    return loop_key(reversed(names))


@contextlib.contextmanager
def counted_loops(report: Callable[[str, int], None]) -> Iterator[None]:
    """Make every while loop traced inside report its key and iterations, once per run of it."""
    plain = jax.lax.while_loop

    def counting(cond: Callable[..., Any], body: Callable[..., Any], init: Any) -> Any:
        key = caller_key()
        out, done = plain(lambda c: cond(c[0]), lambda c: (body(c[0]), c[1] + 1), (init, jnp.int32(0)))
        jax.debug.callback(lambda n: report(key, int(n)), done)
        return out

    jax.lax.while_loop = counting  # type: ignore[assignment]
    try:
        yield
    finally:
        jax.lax.while_loop = plain


def measure_trips(config: EnvConfig, arenas: int, steps: int, every: int, scripted: bool) -> Trips:
    """Play so many decision steps and count the loops in each `every`-th.

    Args:
        config: the game.
        arenas: side by side; more arenas make rounds longer, because a batch waits for its longest.
        steps, every: length of the game, and how often to count.
        scripted: whether the second team is the scripted opponent, as in training; otherwise all actions are uniform draws.
    """
    env = Echelon(config, kernels="xla")
    resetting = AutoReset(env)
    params = env.params(env.make_bank(generate_worlds(config, bank_seeds(0, 0, 0, WORLDS))))
    opponent, always = Scripted(config), AgentParams(fire_probability=jnp.float32(1.0))
    shape = (arenas, config.num_mechs, action_layout(config).size)

    def step(state: Any, memory: Any, params: Any, key: Any) -> tuple[Any, Any]:
        env_key, action_key, other_key = jax.random.split(key, 3)
        actions = jax.random.uniform(action_key, shape, jnp.float32, -1.0, 1.0)
        if scripted:
            memory, theirs = opponent.act(params, always, memory, state, jax.random.split(other_key, arenas))
            actions = jnp.concatenate([actions[:, : config.team_size], theirs[:, config.team_size :]], axis=1)
        state, out = resetting.step_batch(jax.random.split(env_key, arenas), state, actions, params)
        if scripted:
            memory = opponent.reset_where(memory, state, out.episode_over)
        return state, memory

    state, _ = jax.jit(env.reset_batch)(jax.random.split(jax.random.key(0), arenas), params)
    memory = opponent.init(params, state) if scripted else None
    sums: collections.Counter[str] = collections.Counter()
    most: dict[str, int] = {}

    def report(key: str, iterations: int) -> None:
        sums[key] += iterations
        most[key] = max(most.get(key, 0), iterations)

    arguments = (state, memory, params, jax.random.key(0))
    plain = jax.jit(lambda *a: step(*a), donate_argnums=(0, 1)).lower(*arguments).compile()
    with counted_loops(report):
        counting = jax.jit(lambda *a: step(*a), donate_argnums=(0, 1)).lower(*arguments).compile()
    counted = 0
    for i in range(steps):
        sample = i % every == every - 1
        state, memory = (counting if sample else plain)(state, memory, params, jax.random.key(i))
        counted += sample
    jax.block_until_ready(state)
    jax.effects_barrier()
    who = "random against scripted" if scripted else "random"
    return Trips({key: total / counted for key, total in sums.items()}, most, arenas, counted, who)
