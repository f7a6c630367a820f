"""Training against every kind of opponent: the whole update is traced, nothing is compiled."""

import jax
import jax.numpy as jnp
import pytest

from echelon_jax.agents.skill.agent import SkillState
from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.env.state import Bank, EnvParams
from echelon_jax.sim.rules import sim_rules
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train
from echelon_jax.worldgen.bank import generate_worlds

GAME = EnvConfig(size_x=28, size_y=28)


def abstract_params() -> EnvParams:
    """The shapes of a bank of one world."""
    worlds = generate_worlds(GAME, [1])._asdict()
    mechs = GAME.num_mechs
    worlds["observation"] = jnp.zeros((1, mechs, observation_layout(GAME).size), jnp.float32)
    worlds["contact_slots"] = jnp.zeros((1, mechs, 5), jnp.int32)
    bank = Bank(**{name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in worlds.items()})
    return EnvParams(rules=sim_rules(GAME), rewards=Echelon(GAME).default_rewards(), bank=bank)


@pytest.mark.parametrize("name", ["random", "scripted:progressive"])
def test_an_update_against_the_opponent_keeps_its_memory(name: str) -> None:
    config = TrainConfig.preset("smoke", opponent=name)
    trainer = make_train(AutoReset(Echelon(GAME)), config)
    params = abstract_params()
    state = jax.eval_shape(trainer.init, jax.random.key(0), params)
    after, _ = jax.eval_shape(trainer.update, state, params)
    assert after.runner_state.opponent_state == state.runner_state.opponent_state
    assert isinstance(state.runner_state.opponent_state, SkillState) is name.startswith("scripted:")
