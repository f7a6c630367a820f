"""TrainStates to save, made without compiling anything: the shapes of a small learner, numbers from a counter."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train
from helpers.fake_env import CONFIG, CountingAgent, FakeEnv, fake_params

TRAIN = TrainConfig(
    network="original", arenas=2, rollout_steps=2, epochs=1, minibatches=1, hidden=4, lstm=4, opponent="random"
)
ENV = CONFIG


@cache
def trainer():
    return make_train(FakeEnv(), TRAIN, CountingAgent())


@cache
def template():
    return trainer().shapes(fake_params())


def state_at(update: int):
    """A state that differs from that of any other update in every leaf."""

    def leaf(like):
        if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.key(update)
        return jnp.asarray((np.arange(like.size).reshape(like.shape) + update).astype(like.dtype))

    return jax.tree.map(leaf, template()).replace(update=jnp.int32(update))


def same(a, b) -> bool:
    def raw(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return all(np.array_equal(raw(x), raw(y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
