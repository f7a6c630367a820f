"""PettingZoo's own tests pass for both engines, and the flags keep their meaning."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from pettingzoo.test import parallel_api_test, parallel_seed_test, render_test
from pettingzoo.test.state_test import test_parallel_env as parallel_state_test
from pettingzoo.test.state_test import test_state as state_test
from pettingzoo.test.state_test import test_state_space as state_space_test
from pettingzoo.utils import parallel_to_aec

from echelon_jax.compat.pettingzoo import EchelonParallel, parallel_env
from tests.helpers.adaptors import GAME, RULES, STEPS

REFERENCE = {"name": "5v5-28", "engine": "reference", **RULES}
OPTIONS = {"jax": GAME, "reference": REFERENCE}


@pytest.fixture(scope="module", params=OPTIONS)
def engine(request):
    """An engine; environments around it share its compiled programs."""
    return parallel_env(**OPTIONS[request.param]).engine


def stand_still(env, seed):
    """Every turn of an episode in which no mech does anything, so that nothing but the clock ends it."""
    env.reset(seed=seed)
    turns = []
    while env.agents:
        turns.append(env.step({agent: np.zeros(env.action_space(agent).shape, np.float32) for agent in env.agents}))
    return turns


def test_it_passes_pettingzoos_parallel_api_test(engine):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(EchelonParallel(engine), num_cycles=2 * STEPS)


def test_it_passes_pettingzoos_seed_test(engine):
    parallel_seed_test(lambda: EchelonParallel(type(engine)(*made_with(engine))), num_cycles=4)


def made_with(engine):
    """Arguments of another engine of the same game."""
    return (engine.env, engine.params) if hasattr(engine, "params") else (engine.config,)


def test_it_passes_pettingzoos_render_test(engine, capsys):
    render_test(lambda render_mode: parallel_to_aec(EchelonParallel(engine, render_mode)))
    assert " s   blue " in capsys.readouterr().out  # the mode `human`


def test_it_passes_pettingzoos_state_test(engine):
    env = parallel_to_aec(EchelonParallel(engine))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*infinity. This is probably too")  # the original clips few entries
        warnings.filterwarnings("ignore", message=".*state space values are equal")
        state_space_test(env)
    state_test(env, 2)
    parallel_state_test(EchelonParallel(engine))


def test_agents_have_the_names_of_the_roster(engine):
    env = EchelonParallel(engine)
    env.reset(seed=0)
    assert env.agents == [f"{team}_{i}" for team in ("blue", "red") for i in range(5)]


def test_when_time_is_up_the_living_are_truncated_and_the_end_has_a_reason(engine):
    turns = stand_still(EchelonParallel(engine), 3)
    assert len(turns) == STEPS
    _, _, terminations, truncations, infos = turns[-1]
    assert all(truncations.values()) and not any(terminations.values())
    assert {info["reason"] for info in infos.values()} == {"time_up"}
    assert not any(info for info in turns[-2][4].values())


def test_a_dead_mech_is_terminated_once_and_then_gone():
    env = EchelonParallel(parallel_env(**REFERENCE).engine)
    env.reset(seed=0)
    victim = env.engine._env.arena.battle.mechs[3]
    victim.hp, victim.alive = 0.0, False
    observations, _, terminations, truncations, _ = env.step(
        {agent: np.zeros(env.action_space(agent).shape, np.float32) for agent in env.agents}
    )
    assert [agent for agent, ended in terminations.items() if ended] == ["blue_3"] and not any(truncations.values())
    assert not observations["blue_3"].any()
    assert "blue_3" not in env.agents and len(env.agents) == 9


def test_the_same_seed_is_the_same_episode_and_unseeded_ones_follow_from_it(engine):
    env = EchelonParallel(engine)
    firsts = []
    for _ in range(2):
        env.reset(seed=5)
        firsts.append([env.state(), env.reset() and env.state(), env.reset() and env.state()])
    np.testing.assert_array_equal(firsts[0], firsts[1])


def test_a_discrete_agent_plays_a_row_of_the_table(engine):
    from echelon_jax.compat.choices import action_table, choice_names

    table = action_table(engine.config)
    choice = choice_names().index("forward left fire")
    discrete, plain = EchelonParallel(engine, discrete=True), EchelonParallel(engine)
    for env, action in ((discrete, np.int64(choice)), (plain, table[choice])):
        env.reset(seed=1)
        env.step(dict.fromkeys(env.agents, action))
    np.testing.assert_array_equal(discrete.state(), plain.state())
    assert discrete.action_space("red_0").n == len(table)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda actions: actions.pop("red_1"), "missing: red_1"),
        (lambda actions: actions.update(red_9=actions["red_1"]), "not there: red_9"),
        (lambda actions: actions.update(red_1=np.zeros(3, np.float32)), r"shape \(\d+,\), got \(3,\) for red_1"),
    ],
)
def test_wrong_actions_are_refused_in_one_sentence(engine, change, sentence):
    env = EchelonParallel(engine)
    env.reset(seed=0)
    actions = {agent: env.action_space(agent).sample() for agent in env.agents}
    change(actions)
    with pytest.raises(ValueError, match=sentence):
        env.step(actions)


def test_a_step_before_a_reset_and_an_unknown_engine_are_refused(engine):
    with pytest.raises(RuntimeError, match="reset must be called before step"):
        EchelonParallel(engine).step({})
    with pytest.raises(ValueError, match="engine must be one of jax, reference, got 'numba'"):
        parallel_env(engine="numba")
    with pytest.raises(ValueError, match="reward_terms must be empty for the reference"):
        parallel_env(engine="reference", reward_terms="my_module:spread=1")
    with pytest.raises(ValueError, match="render_mode must be one of human, ansi, rgb_array or None"):
        EchelonParallel(engine, "film")


def test_the_reference_plays_without_a_device_of_jax():
    """A platform that does not exist: the first array that JAX makes would fail."""
    program = (
        "from echelon_jax.compat.pettingzoo import parallel_env\n"
        f"env = parallel_env(**{REFERENCE!r}, render_mode='rgb_array')\n"
        "env.reset(seed=0)\n"
        "actions = {agent: env.action_space(agent).sample() for agent in env.agents}\n"
        "print(len(env.step(actions)), env.render().ndim)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAX_PLATFORMS": "no_such_device"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["5", "3"]
