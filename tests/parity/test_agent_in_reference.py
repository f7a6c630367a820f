"""Scripted opponents in the plain reference decide what they decide in the JAX environment."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from echelon_jax.agents.registry import make_agent
from echelon_jax.parity.agent_in_reference import AgentInReference
from echelon_jax.parity.recorded.golden import env_states, load_episode
from echelon_jax.reference.golden import Episode as ReferenceEpisode
from echelon_jax.sim.rules import sim_rules

SEED, ROW = 9, 40


@pytest.mark.parametrize("name", ["scripted", "scripted:easy", "scripted:expert"])
def test_an_opponent_in_the_reference_acts_as_in_the_jax_environment(data, name: str) -> None:
    """Both are shown one moment of a recorded game."""
    path = data / "episodes" / "match_40_1.npz"
    recorded = load_episode(path)
    made = make_agent(name, recorded.config, alone=True)
    key = jax.random.fold_in(jax.random.key(SEED), 0)
    params = SimpleNamespace(rules=sim_rules(recorded.config))
    state = env_states(recorded, [ROW])
    act = jax.jit(lambda s: made.agent.act(params, made.params, made.agent.init(params, s), s, key[None])[1][0])
    expected = np.asarray(act(state))
    side = AgentInReference(made, recorded.config)
    arena = ReferenceEpisode(path).arena(ROW)
    side.reset(arena, SEED)
    assert np.abs(expected[:, :9]).max() > 0, "somebody moves or pulls a trigger"
    np.testing.assert_allclose(side.act(arena), expected, atol=1e-5)
