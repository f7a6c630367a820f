"""A loaded policy acts as the evaluation's player does, and can be read without this package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.checkpoint_states import ENV, TRAIN, state_at
from helpers.export_policies import random_modern, random_policy

import echelon_jax
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.evaluation.matches import policy_player
from echelon_jax.evaluation.players import PolicyMemory
from echelon_jax.runs import checkpoint
from echelon_jax.training.sides import learner_rows, opponent_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
ARENAS = 4


@pytest.fixture(scope="module", params=["original", "modern"])
def policy(request):
    return random_policy(hidden=8, lstm=8) if request.param == "original" else random_modern(hidden=8, lstm=8)


def observations(policy, steps: int) -> jax.Array:
    """Made-up observations of all mechs, [steps, arenas, mechs, obs], with flags as flags are."""
    config = policy.env_config
    layout = observation_layout(config)
    drawn = np.random.default_rng(0).normal(size=(steps, ARENAS, config.num_mechs, layout.size)).astype(np.float32)
    return jnp.asarray(np.where(layout.continuous, drawn, drawn > 0.5).astype(np.float32))


@pytest.mark.parametrize("deterministic", [True, False])
def test_it_acts_as_the_player_of_evaluation_games_does(policy, deterministic):
    player, numbers = policy_player(policy, deterministic)
    team, carry = policy.env_config.team_size, None
    memory = PolicyMemory(policy.network.initial_carry(ARENAS, team), jnp.zeros((ARENAS, team)))
    for step, seen in enumerate(observations(policy, 2)):
        key = jax.random.key(step)
        memory, expected = player.act(numbers, None, memory, None, seen, learner_rows, key)
        action, carry, value = policy.act(learner_rows(seen), carry, key=key, deterministic=deterministic)
        np.testing.assert_allclose(action, expected, atol=1e-5)
        np.testing.assert_allclose(value, memory.value, atol=1e-5)


def test_with_all_mechs_each_side_acts_for_itself(policy):
    seen = observations(policy, 2)
    carry = ours = theirs = None
    for now in seen:
        action, carry, _ = policy.act(now, carry, deterministic=True)
        first, ours, _ = policy.act(learner_rows(now), ours, deterministic=True)
        second, theirs, _ = policy.act(opponent_rows(now), theirs, deterministic=True)
        np.testing.assert_allclose(learner_rows(action), first, atol=1e-5)
        np.testing.assert_allclose(opponent_rows(action), second, atol=1e-5)


def test_one_arena_needs_no_axis_and_actions_lie_in_their_space(policy):
    seen = observations(policy, 1)[0]
    batch, _, values = policy.act(seen, deterministic=True)
    alone, _, value = policy.act(np.asarray(seen[1]), deterministic=True)
    assert alone.shape == (policy.env_config.num_mechs, action_layout(policy.env_config).size)
    assert value.shape == alone.shape[:1]
    np.testing.assert_allclose(alone, batch[1], atol=1e-5)
    np.testing.assert_allclose(value, values[1], atol=1e-5)
    assert (jnp.abs(batch) <= 1).all()


def test_a_reset_empties_the_memory(policy):
    first, second = observations(policy, 2)
    _, carry, _ = policy.act(first, deterministic=True)
    whole = jnp.ones(second.shape[:2], bool)
    again = policy.act(second, carry, whole, deterministic=True)[0]
    np.testing.assert_allclose(again, policy.act(second, deterministic=True)[0], atol=1e-5)
    assert not np.allclose(again, policy.act(second, carry, deterministic=True)[0], atol=1e-5)


def test_what_does_not_fit_is_refused_in_one_sentence():
    policy = random_policy(hidden=8, lstm=8)
    seen = observations(policy, 1)[0]
    size = seen.shape[-1]
    with pytest.raises(ValueError, match=rf"observation must be \[mechs, {size}\] .* with 5 or 10 mechs, got \[4, 4, "):
        policy.act(seen[:, :4], deterministic=True)
    with pytest.raises(ValueError, match="act must be given a key, or deterministic=True"):
        policy.act(seen)
    with pytest.raises(ValueError, match=r"reset must be \[4, 10\]"):
        policy.act(seen, reset=jnp.zeros(4, bool), deterministic=True)
    _, carry, _ = policy.act(seen[:1], deterministic=True)
    with pytest.raises(ValueError, match="carry must be of 4 arenas with 2 sides each"):
        policy.act(seen, carry, deterministic=True)


# -- Files ----------------------------------------------------------------------------------------------------------

BLOCKED = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "echelon_jax":
            raise ImportError("blocked by the test")

sys.meta_path.insert(0, Blocked())
"""
SHOW = """
tree = lambda node: {k: tree(v) if isinstance(v, dict) else v.tolist() for k, v in node.items()}
print(json.dumps({"params": tree(params), "moments": tree(policy["observation_moments"])}))
"""


def test_the_policy_restores_with_the_lines_of_the_page_where_this_package_cannot_be_imported(tmp_path):
    state = state_at(4)
    saved_at = checkpoint.save(tmp_path, state, TRAIN, ENV)
    section = PAGE.read_text().split("## Reading a checkpoint without this package")[1]
    lines = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    assert len([line for line in lines.splitlines() if line.strip()]) == 3
    code = BLOCKED + lines.replace("/path/to/RUN/checkpoints/00000040", str(saved_at)) + SHOW
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert sorted(told["params"]) == sorted(state.params)
    for name, leaf in state.params.items():
        np.testing.assert_array_equal(np.asarray(told["params"][name], np.float32), leaf)
    np.testing.assert_array_equal(told["moments"]["mean"], state.observation_moments.mean)


def test_the_door_loads_a_run(tmp_path):
    state = state_at(2)
    checkpoint.save(tmp_path, state, TRAIN, ENV)
    policy = echelon_jax.load_policy(tmp_path)
    assert policy.update == 2
    np.testing.assert_array_equal(policy.params["value_bias"], state.params["value_bias"])
