"""Reward terms of a user's own: functions of a decision step that a configuration names, each with its weight.

    def spread(before: EnvState, after: EnvState, tally: Tally) -> Float32[Array, "arenas mechs"]: ...

    EnvConfig(reward_terms="my_module:spread=0.02; my_module:hold_fire=0.1")

`before` and `after` are the states at the two ends of the decision, `tally` is what every mech did and suffered in it. The
function is traced into the step, so it uses jax.numpy only. Its result times its weight is added to the reward that
`config.reward` names. A term decides itself whether it pays the dead: `before.sim.mechs.alive` says who lived at the decision.
Nothing is paid in an arena whose game had ended before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float32

from echelon_jax.config import EnvConfig, parse_reward_terms
from echelon_jax.env.state import REWARD_COMPONENTS, EnvState, Info
from echelon_jax.plugins import load
from echelon_jax.sim.state import Tally

TermFunction = Callable[[EnvState, EnvState, Tally], Float32[Array, "arenas mechs"]]


class Term(NamedTuple):
    """One reward term: its name in the metrics, its function, and its weight unless the parameters hold another."""

    name: str
    function: TermFunction
    weight: float


@cache
def terms_of(config: EnvConfig) -> tuple[Term, ...]:
    """Return the reward terms that `config.reward_terms` names, in order.

    Raises:
        ValueError: a module or function that does not exist, something that cannot be called, or a name that is taken.
    """
    found = []
    for text in parse_reward_terms(config.reward_terms):
        if text.name in REWARD_COMPONENTS:
            raise ValueError(f"reward_terms must have names of their own, and every reward has a part {text.name}")
        function = load(text.path, "reward_terms")
        if not callable(function):
            raise ValueError(f"reward_terms must name functions, and {text.path} is a {type(function).__name__}")
        found.append(Term(text.name, function, text.weight))
    return tuple(found)


def term_names(config: EnvConfig) -> tuple[str, ...]:
    """Return the names of the reward terms, in order; no module is imported."""
    return tuple(term.name for term in parse_reward_terms(config.reward_terms))


def reward_part_names(config: EnvConfig) -> tuple[str, ...]:
    """Return the names of all parts of the reward: REWARD_COMPONENTS, then the terms."""
    return (*REWARD_COMPONENTS, *term_names(config))


def reward_parts(info: Info) -> Float32[Array, "arenas mechs parts"]:
    """Return all parts of a step's reward, in the order of `reward_part_names`; their sum is the reward."""
    if info.term_rewards is None:
        return info.reward_components
    return jnp.concatenate([info.reward_components, info.term_rewards], -1)


def check_term_weights(
    config: EnvConfig, weights: Float32[Array, " terms"] | None = None
) -> Float32[Array, " terms"] | None:
    """Return the weights of the reward terms, those of the configuration without `weights`; None where there are no terms.

    Raises:
        ValueError: a term cannot be found, or there is not one weight for each.
    """
    terms = terms_of(config)
    if weights is not None and jnp.shape(weights) != (len(terms),):
        raise ValueError(f"term_weights must be [{len(terms)}], one for each reward term, got {jnp.shape(weights)}")
    if not terms:
        return None
    given = [term.weight for term in terms] if weights is None else weights
    return jnp.asarray(given, jnp.float32)


def term_rewards(
    config: EnvConfig,
    weights: Float32[Array, " terms"] | None,
    before: EnvState,
    after: EnvState,
    tally: Tally,
) -> Float32[Array, "arenas mechs terms"]:
    """Return what every term pays for a decision step, weights included.

    Raises:
        ValueError: a term's result is not [arenas, mechs].
    """
    shape = before.sim.mechs.alive.shape
    columns = []
    for term in terms_of(config):
        paid = jnp.asarray(term.function(before, after, tally))
        if paid.shape != shape:
            raise ValueError(
                f"reward_terms must return [arenas, mechs] = {shape}, and {term.name} returns {paid.shape}"
            )
        columns.append(paid.astype(jnp.float32))
    numbers = check_term_weights(config) if weights is None else weights
    assert numbers is not None  # there are terms
    return jnp.stack(columns, -1) * numbers
