"""The dense layer: what it computes, its own gradient against JAX's, and its parameters against flax's layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from echelon_jax.policies import dense
from echelon_jax.policies.dense import Dense, product, together

ARENAS, MECHS, OUTPUTS = 3, 4, 5


@pytest.fixture(scope="module")
def parts():
    """Two inputs of a layer: one for each mech, and one that the mechs of an arena share."""
    keys = jax.random.split(jax.random.key(0), 2)
    return jax.random.normal(keys[0], (2, ARENAS, MECHS, 6)), jax.random.normal(keys[1], (2, ARENAS, 1, 3))


@pytest.fixture(params=[1, dense.FEW_ROWS], ids=["many rows", "few rows"], autouse=True)
def few(request, monkeypatch):
    """Each rule holds for parts that are multiplied on their own and for parts that are put side by side."""
    monkeypatch.setattr(dense, "FEW_ROWS", request.param)


def joined(own, shared):
    return jnp.concatenate([own, jnp.broadcast_to(shared, (*own.shape[:-1], shared.shape[-1]))], -1)


def test_a_product_has_the_gradients_that_jax_derives(parts):
    x, kernel = parts[0], jax.random.normal(jax.random.key(1), (6, OUTPUTS))
    weight = jax.random.normal(jax.random.key(2), (*x.shape[:-1], OUTPUTS))

    def scalar(multiply, x, kernel):
        return (jnp.sin(multiply(x, kernel)) * weight).sum()

    found = jax.grad(scalar, (1, 2))(product, x, kernel)
    expected = jax.grad(scalar, (1, 2))(jnp.matmul, x, kernel)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_the_parameters_are_those_of_flax_at_initialisation(parts):
    init, key = nn.initializers.orthogonal(1.0), jax.random.key(3)
    ours = Dense(OUTPUTS, init).init(key, *parts)
    theirs = nn.Dense(OUTPUTS, kernel_init=init).init(key, joined(*parts))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_parts_are_read_side_by_side(parts):
    layer, plain = Dense(OUTPUTS, nn.initializers.normal()), nn.Dense(OUTPUTS)
    params = layer.init(jax.random.key(4), *parts)
    params = jax.tree.map(lambda x: x + 0.1, params)  # a bias that is not 0
    np.testing.assert_allclose(layer.apply(params, *parts), plain.apply(params, joined(*parts)), rtol=1e-5, atol=1e-5)


def test_gradients_of_parts_are_those_of_the_joined_input(parts):
    layer, plain = Dense(OUTPUTS, nn.initializers.normal(1.0)), nn.Dense(OUTPUTS)
    params = layer.init(jax.random.key(5), *parts)
    weight = jax.random.normal(jax.random.key(6), (2, ARENAS, MECHS, OUTPUTS))
    found = jax.grad(lambda p, *x: (jnp.sin(layer.apply(p, *x)) * weight).sum(), (0, 1, 2))(params, *parts)
    expected = jax.grad(lambda p, *x: (jnp.sin(plain.apply(p, joined(*x))) * weight).sum(), (0, 1, 2))(params, *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected)


def test_a_part_of_one_number_counts_as_any_other(parts):
    one = parts[0][..., :1]
    layer, plain = Dense(OUTPUTS, nn.initializers.normal(1.0)), nn.Dense(OUTPUTS)
    params = layer.init(jax.random.key(8), parts[0], one)
    expected = plain.apply(params, joined(parts[0], one))
    np.testing.assert_allclose(layer.apply(params, parts[0], one), expected, rtol=1e-5, atol=1e-5)


def test_layers_together_give_what_each_gives_alone(parts):
    class Pair(nn.Module):
        def setup(self):
            self.first = Dense(3, nn.initializers.normal(1.0))
            self.second = Dense(4, nn.initializers.normal(1.0), use_bias=False)

        def __call__(self, x):
            return together(x, self.first, self.second), [self.first(x), self.second(x)]

    params = jax.tree.map(lambda x: x + 0.1, Pair().init(jax.random.key(9), parts[0]))
    for one, other in zip(*Pair().apply(params, parts[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_layer_without_bias_has_a_kernel_only(parts):
    params = Dense(OUTPUTS, nn.initializers.normal(), use_bias=False).init(jax.random.key(7), parts[0])["params"]
    assert set(params) == {"kernel"} and params["kernel"].shape == (6, OUTPUTS)
