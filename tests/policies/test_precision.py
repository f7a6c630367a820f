"""Matrix products have the precision that is asked for, whatever JAX's global setting is (docs/gpu.md)."""

import jax
import jax.numpy as jnp
import pytest
from helpers.fake_env import CountingAgent, FakeEnv
from helpers.jaxprs import equations
from helpers.small_runs import PARAMS, TRAIN

from echelon_jax.evaluation.players import PolicyNumbers, PolicyPlayer
from echelon_jax.fields import allowed
from echelon_jax.policies.precision import PRECISIONS, products_in
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train

EXACT = jax.lax.Precision.HIGHEST


def precisions(jaxpr):
    """The precision of every product of a program, loops and branches included."""
    return [e.params["precision"] for e in equations(jaxpr) if e.primitive.name == "dot_general"]


def learner(precision):
    import dataclasses

    return make_train(FakeEnv(), dataclasses.replace(TRAIN, matmul_precision=precision), CountingAgent())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_learner_computes_its_products_in_the_configured_precision(precision):
    trainer = learner(precision)
    state = jax.eval_shape(trainer.init, jax.random.key(0), PARAMS)
    with jax.default_matmul_precision("bfloat16" if precision != "bfloat16" else "float32"):
        found = precisions(jax.make_jaxpr(trainer.update)(state, PARAMS).jaxpr)
    with products_in(precision):
        wanted = precisions(jax.make_jaxpr(jnp.matmul)(jnp.ones((2, 2)), jnp.ones((2, 2))).jaxpr)
    assert len(found) > 10 and set(map(str, found)) == set(map(str, wanted))


def test_evaluation_computes_in_float32_under_any_global_setting():
    trainer = learner("tensorfloat32")
    state = jax.eval_shape(trainer.init, jax.random.key(0), PARAMS)
    player = PolicyPlayer(trainer.network)
    numbers = PolicyNumbers(state.params, state.observation_moments)

    def act(numbers, observation):
        memory = player.init(None, type("Board", (), {"step_count": jnp.zeros(2)}), 5)
        return player.act(numbers, None, memory, None, observation, lambda x: x, jax.random.key(0))

    seen = jax.ShapeDtypeStruct((2, 5, trainer.features.size), jnp.float32)
    with jax.default_matmul_precision("bfloat16"):
        found = precisions(jax.make_jaxpr(act)(numbers, seen).jaxpr)
    assert found and all(set(pair) == {EXACT} for pair in found)


def test_an_unknown_precision_is_refused_by_name():
    assert allowed(TrainConfig)["matmul_precision"].choices == PRECISIONS
    with pytest.raises(ValueError, match="matmul_precision must be one of float32, tensorfloat32, bfloat16"):
        TrainConfig(matmul_precision="half").validate()
