"""The registry: every name makes an agent of the one interface, for both games; a wrong one is told in a sentence."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from echelon_jax.agents.base import Agent
from echelon_jax.agents.random import RandomAgent
from echelon_jax.agents.registry import is_agent_name, make_agent
from echelon_jax.agents.skill.levels import NAMES
from echelon_jax.config import EnvConfig
from echelon_jax.training.config import TrainConfig

LEVELS = [f"scripted:{name}" for name in NAMES]
GAMES = [EnvConfig(size_x=28, size_y=28), EnvConfig.original(size_x=20, size_y=20)]


@dataclasses.dataclass(frozen=True)
class Statue(RandomAgent):
    """A user's own agent: it does nothing."""

    def act(self, params, agent_params, agent_state, state, keys):
        return agent_state, jnp.zeros((keys.shape[0], self.config.num_mechs, self.config.action_size))


class Unhashable(Statue):
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("game", GAMES, ids=["default", "original"])
@pytest.mark.parametrize("name", ["scripted", "scripted:0.5", "scripted:original", "random", *LEVELS])
def test_every_name_makes_an_agent(name: str, game: EnvConfig) -> None:
    agent, params = make_agent(name, game)
    assert isinstance(agent, Agent)
    assert is_agent_name(name)
    assert params.fire_probability.shape == ()


def test_all_levels_are_one_program() -> None:
    agents = [make_agent(name, GAMES[0]) for name in LEVELS]
    assert len({made.agent for made in agents}) == 1
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), made.params) for made in agents]
    assert all(shape == shapes[0] for shape in shapes)


def test_a_class_of_the_users_own_is_made_by_its_import_path() -> None:
    agent, _ = make_agent(f"{__name__}:Statue", GAMES[0])
    assert agent == Statue(GAMES[0])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("scripted:godlike", "opponents must be scripted"),
        ("scripted:1.5", "opponents must be scripted"),
        ("random:0.5", "opponents must be scripted"),
        ("no_such_package.bots:Bot", "no_such_package"),
        (f"{__name__}:Nobody", "Nobody"),
        ("echelon_jax.config:RULE_SETS", "must be a class"),
        ("builtins:repr", "lacks one"),
        (f"{__name__}:Unhashable", "hashable"),
    ],
)
def test_a_wrong_name_is_told_in_a_sentence(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as error:
        make_agent(name, GAMES[0])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["scripted", "random", "scripted:original", "my.bots:Bot", *LEVELS])
def test_a_run_may_be_trained_against_every_kind(name: str) -> None:
    assert TrainConfig(opponent=name).validate().opponent == name


@pytest.mark.parametrize("name", ["nobody", "runs/one", "scripted:0.5"])
def test_a_run_may_not_be_trained_against_what_is_no_agent_or_tells_a_rate(name: str) -> None:
    with pytest.raises(ValueError, match="opponent must be one of scripted, random"):
        TrainConfig(opponent=name).validate()
