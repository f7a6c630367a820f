"""Opponents by name, for all commands and functions that take one (train, evaluate, arena).

scripted, scripted:0.5     the original's heuristic, at full or at some fire rate
scripted:hard              a skill level (`skill.levels`)
random                     uniform actions
my_package.bots:Rusher     a class of the user's own, made with the EnvConfig, that follows `base.Agent`
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from echelon_jax.agents.base import Agent, AgentParams
from echelon_jax.agents.built_in import BuiltIn, BuiltInParams
from echelon_jax.agents.random import RandomAgent
from echelon_jax.agents.scripted import Scripted
from echelon_jax.agents.skill.agent import Skilled
from echelon_jax.agents.skill.levels import NAMES, skill_params
from echelon_jax.config import EnvConfig
from echelon_jax.plugins import is_import_path, load

SCRIPTED, RANDOM = "scripted", "random"
ORIGINAL = "original"
ZOO = "zoo:"  # begins the name of a policy that comes with the package (runs/zoo.py), never of an agent
TRAINING_OPPONENTS = (SCRIPTED, RANDOM, *(f"{SCRIPTED}:{name}" for name in (ORIGINAL, *NAMES)))  # besides import paths
FORMS = (
    f"scripted, scripted:RATE with a fire rate from 0 to 1, scripted:LEVEL with one of {', '.join(NAMES)}, random, or "
    "package.module:Class"
)


class Made(NamedTuple):
    """An agent and its parameters."""

    agent: Agent
    params: AgentParams


def is_zoo_name(name: object) -> bool:
    """Return whether a name or path is that of a policy of the zoo, whether or not there is one (runs/zoo.py)."""
    return str(name).startswith(ZOO)


def is_agent_name(name: str) -> bool:
    """Whether a name has the form of an agent's name, and not that of a policy's path. The agent is not made."""
    own = is_import_path(name) and not is_zoo_name(name)
    return name in (SCRIPTED, RANDOM) or name.startswith(f"{SCRIPTED}:") or own


def make_agent(name: str, env_config: EnvConfig, fire_probability: float = 1.0, alone: bool = False) -> Made:
    """Return the agent of a name, made for a game.

    Args:
        name: one of the forms above.
        env_config: the game.
        fire_probability: fire rate of a scripted opponent whose name gives none.
        alone: make `scripted` and `random` as agents of their own. Each is a smaller program, but they do not share it.

    Raises:
        ValueError: an unknown name, a rate out of range, or a class that cannot be imported or is no agent.
    """
    kind, colon, what = name.partition(":")
    if name == RANDOM:
        return _built_in(env_config, fire_probability, random=True, alone=alone)
    if kind != SCRIPTED:
        return _own(name, env_config, fire_probability)
    if what in NAMES:
        return Made(Skilled(env_config), skill_params(what, fire_probability))
    if not colon or what == ORIGINAL:
        return _built_in(env_config, fire_probability, random=False, alone=alone)
    try:
        rate = float(what)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ValueError(f"opponents must be {FORMS}, got {name!r}")
    return _built_in(env_config, rate, random=False, alone=alone)


def _built_in(env_config: EnvConfig, fire_probability: float, random: bool, alone: bool) -> Made:
    if alone:
        agent: Agent = RandomAgent(env_config) if random else Scripted(env_config)
        return Made(agent, AgentParams(fire_probability=jnp.float32(fire_probability)))
    params = BuiltInParams(fire_probability=jnp.float32(fire_probability), random=jnp.asarray(random))
    return Made(BuiltIn(env_config), params)


def _own(name: str, env_config: EnvConfig, fire_probability: float) -> Made:
    if not is_import_path(name):
        raise ValueError(f"opponents must be {FORMS}, got {name!r}")
    make = load(name, "opponents")
    if not callable(make):
        raise ValueError(f"opponents must be a class that is made with the EnvConfig, {name!r} is none")
    agent = make(env_config)
    if not isinstance(agent, Agent):
        raise ValueError(f"opponents must have init, act and reset_where (agents.base.Agent), {name!r} lacks one")
    try:
        hash(agent)
    except TypeError as error:
        raise ValueError(f"opponents must be hashable, such as a frozen dataclass; {name!r} is not") from error
    return Made(agent, AgentParams(fire_probability=jnp.float32(fire_probability)))
