"""Scenes that an environment must handle, and what it makes of them: the evidence that `checks` judges.

Four arenas are stepped side by side by one program. Before a chosen decision three of them are changed by hand: in one a mech is
dead, in one a whole team is, and in one the time is nearly up. So deaths and ends of episodes are seen within five decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.env.state import EnvState, Step

PLAIN, DEATH, ELIMINATED, LATE = range(4)  # the arenas
ARENAS = 4
FORCED = 2  # the decision before which three arenas are changed
BAD = 3  # the decision at which an action is not finite: that of the first mech in the arena PLAIN
DECISIONS = 5
VICTIM = 1  # the mech that is dead in the arenas DEATH and LATE

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class Evidence(NamedTuple):
    """What an environment did; numpy, besides `signatures`.

    Attributes:
        reset: step of the reset.
        steps: steps of the decisions; `steps[FORCED]` is the one after the arenas were changed.
        states: states after the reset and after every decision.
        signatures: of the state that each decision was made from, by leaf: its shape and dtype.
        again: the last decision, computed a second time from the same state, key and actions.
        turned: the last decision with the arenas in the opposite order, put back in order.
        single: the last decision by `jax.vmap(env.step)`; None where that was not asked for.
    """

    reset: Step
    steps: tuple[Step, ...]
    states: tuple[Any, ...]
    signatures: tuple[dict[str, str], ...]
    again: Step
    turned: Step
    single: Step | None


@lru_cache(maxsize=8)
def batch_program(env: Any, compile: Compile) -> Callable[..., Any]:
    """Return the compiled step of an environment; `api_test` and `fingerprint` share it."""
    return compile(env.step_batch)


def fixed_actions(decision: int, arenas: int, mechs: int, size: int) -> np.ndarray:
    """Return actions in [-1, 1] by a fixed formula, float32 [arenas, mechs, size], exact on every machine."""
    arena, mech, component = np.indices((arenas, mechs, size))
    return (((37 * decision + 11 * arena + 7 * mech + 13 * component) % 17) / 8.0 - 1.0).astype(np.float32)


def force(state: EnvState, mechs: int, max_steps: int) -> EnvState:
    """Return the state with a dead mech, a dead team and an episode before its last decision."""
    dead = np.zeros((ARENAS, mechs), bool)
    dead[[DEATH, LATE], VICTIM] = True
    dead[ELIMINATED, mechs // 2 :] = True
    fighters, hurt = state.sim.mechs, jnp.asarray(dead)
    fighters = fighters.replace(alive=fighters.alive & ~hurt, hp=jnp.where(hurt, jnp.float32(0.0), fighters.hp))
    late = np.arange(ARENAS) == LATE
    count = jnp.where(jnp.asarray(late), jnp.int32(max_steps - 1), state.step_count)
    return state.replace(sim=state.sim.replace(mechs=fighters), step_count=count)


def gather(env: Any, params: Any, key: Any, vmapped: bool, compile: Compile) -> Evidence:
    """Play the scenes in an environment and return what it did."""
    mechs, size = env.config.num_mechs, env.action_space(params).shape[0]
    step_batch = batch_program(env, compile)
    keys = [jax.random.split(jax.random.fold_in(key, i), ARENAS) for i in range(DECISIONS + 1)]
    state, first = compile(env.reset_batch)(keys[DECISIONS], params)
    states, steps, signatures = [_host(state)], [], []
    for i in range(DECISIONS):
        if i == FORCED:
            state = force(state, mechs, env.config.max_steps)
        actions = fixed_actions(i, ARENAS, mechs, size)
        if i == BAD:
            actions[PLAIN, 0] = np.nan
        arguments = keys[i], state, jnp.asarray(actions)
        signatures.append(_signature(state))
        state, step = step_batch(*arguments, params)
        states.append(_host(state))
        steps.append(_host(step))
    # The last decision in other ways.
    again = step_batch(*arguments, params)[1]
    turned = step_batch(*jax.tree.map(lambda leaf: leaf[::-1], arguments), params)[1]
    single = compile(jax.vmap(env.step, (0, 0, 0, None)))(*arguments, params)[1] if vmapped else None
    return Evidence(
        reset=_host(first),
        steps=tuple(steps),
        states=tuple(states),
        signatures=tuple(signatures),
        again=_host(again),
        turned=jax.tree.map(lambda leaf: leaf[::-1], _host(turned)),
        single=None if single is None else _host(single),
    )


def _host(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def _signature(tree: Any) -> dict[str, str]:
    """What decides whether a program is compiled again, by leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): jax.typeof(leaf).str_short() + _weak(leaf) for path, leaf in leaves}


def _weak(leaf: Any) -> str:
    return " (a Python number)" if jax.typeof(leaf).weak_type else ""
