"""Gradients by part, dead units, and the entries with the worst ratios, against plain numpy."""

from __future__ import annotations

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.jaxprs import equations

from echelon_jax.config import EnvConfig
from echelon_jax.gpu.programs import update_program
from echelon_jax.policies.features import Observation
from echelon_jax.policies.registry import make_network
from echelon_jax.rules.mechs import CLASS_NAMES
from echelon_jax.training import loss, ppo, vector
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.diagnostics import (
    dead_units,
    gradient_parts,
    in_rollout,
    largest_in,
    part_norms,
    worst_of,
    worst_ratios,
)

T, ARENAS, TEAM, HEADS, RAW, CHUNKS = 6, 4, 2, 3, 2, 3


@functools.cache
def random_gradient(network: str, **fields: object) -> tuple[object, object]:
    """A network and a random tree of the shapes of its parameters."""
    made = make_network(TrainConfig.smoke(network=network, hidden=8, lstm=8, **fields), EnvConfig(size_x=28, size_y=28))
    shapes = jax.eval_shape(made.init, jax.random.key(0))
    rng = np.random.default_rng(3)
    return made, jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)


@pytest.mark.parametrize("network", ["modern", "original"])
def test_norms_of_groups_add_up_to_the_whole(network: str) -> None:
    made, grads = random_gradient(network)
    found = jax.jit(functools.partial(part_norms, made))(vector.joined(grads), grads)
    norms = dict(zip(found.names, found.norms, strict=True))
    whole = sum((x.astype(np.float64) ** 2).sum() for x in jax.tree.leaves(grads))
    assert sum(float(x) ** 2 for x in norms.values()) == pytest.approx(whole, rel=1e-5)
    for name, part in gradient_parts(made, grads).items():
        entries = np.concatenate([np.ravel(x) for x in jax.tree.leaves(part)])
        assert float(norms[name]) == pytest.approx(np.linalg.norm(entries), rel=1e-5), name
    assert ("mingru" if network == "modern" else "lstm") in "".join(norms) and len(norms) > 5


def test_every_head_has_a_norm_of_its_own_columns() -> None:
    made, grads = random_gradient("modern")
    parts = gradient_parts(made, grads)
    assert [name.removeprefix("head/") for name in parts if name.startswith("head/")] == list(made.head_names)
    sizes = {name: sum(x.size for x in jax.tree.leaves(tree)) for name, tree in parts.items()}
    assert sum(sizes.values()) == sum(x.size for x in jax.tree.leaves(grads))
    by_class = gradient_parts(*random_gradient("modern", class_networks=True))
    times = {name: sum(x.size for x in jax.tree.leaves(tree)) / sizes[name] for name, tree in by_class.items()}
    assert times == dict.fromkeys(sizes, len(CLASS_NAMES))


def test_the_worst_entry_is_found_where_it_was_in_the_rollout() -> None:
    """Chunks and minibatches move entries about; a log-prob that is its own address shows where each came from."""
    rng = np.random.default_rng(0)
    address = np.arange(T * ARENAS * TEAM * HEADS, dtype=np.float32).reshape(T, ARENAS, TEAM, HEADS)
    ratio = rng.normal(size=address.shape).astype(np.float32)
    fields = {
        "a": jnp.asarray(address),
        "r": jnp.asarray(ratio),
        "x": jnp.asarray(rng.normal(size=(T, ARENAS, TEAM, RAW))),
    }
    order = rng.permutation(CHUNKS * ARENAS).astype(np.int32)

    @jax.jit
    def look(fields, parts):
        chunked, found = ppo.in_chunks(fields, CHUNKS), []
        for part in parts:
            mine = loss.take_sequences(chunked, part)
            found.append(in_rollout(worst_ratios(4, mine["r"], mine["a"], mine["x"]), part, ARENAS, T // CHUNKS))
        return worst_of(jax.tree.map(lambda *x: jnp.stack(x), *found))

    best = look(fields, np.split(order, 2))
    assert best is not None
    places = tuple(np.asarray(x, int) for x in (best.time, best.arena, best.mech, best.head))
    assert np.array_equal(address[places], best.old_log_prob)
    assert np.array_equal(best.log_ratio, ratio[places])
    assert np.array_equal(np.abs(best.log_ratio), np.sort(np.abs(ratio).ravel())[::-1][:4])
    assert np.allclose(best.new_log_prob, best.old_log_prob + best.log_ratio)
    assert np.array_equal(best.raw_action, np.asarray(fields["x"])[places[:3]])


def test_no_entry_is_kept_where_none_is_asked_for() -> None:
    assert worst_ratios(0, jnp.zeros((1, 1, 1, 1)), jnp.zeros((1, 1, 1, 1)), jnp.zeros((1, 1, 1, 1))) is None
    assert TrainConfig(ratio_alarm=0.0).ppo.worst_ratios == 0 < TrainConfig().ppo.worst_ratios


def test_a_unit_is_dead_that_is_zero_for_every_living_mech() -> None:
    x = np.zeros((T, ARENAS, TEAM, 4), np.float32)
    alive = np.ones((T, ARENAS, TEAM), bool)
    alive[:, 0, 0] = False
    x[0, 1, 1, 0] = 0.1  # alive, and the first decision is looked at
    x[:, 0, 0, 1] = 5.0  # a dead mech
    x[T - 1, 2, 0, 2] = -1.0
    shared = np.zeros((T, ARENAS, 2), np.float32)
    shared[:, 3, 1] = 1.0
    layers = {"own": jnp.asarray(x), "shared": jnp.asarray(shared)}
    observation = Observation(jnp.zeros((T, ARENAS, TEAM, 1)), jnp.zeros((T, ARENAS, 1), jnp.uint8))

    def activations(params: object, seen: Observation) -> dict[str, jax.Array]:
        steps = np.unique(np.linspace(0, T - 1, 4).astype(int))
        assert seen.own.shape[0] == len(steps)
        return jax.tree.map(lambda y: y[steps], layers)

    network = types.SimpleNamespace(activations=activations)
    look = functools.partial(dead_units, network, None)
    found = jax.jit(look)(observation, jnp.asarray(alive))  # type: ignore[arg-type]
    assert {name: float(share) for name, share in found.items()} == {"own": 0.75, "shared": 0.5}


def test_a_network_that_shows_no_activations_has_none() -> None:
    made, grads = random_gradient("original")
    assert dead_units(made, grads, None, None) == {}  # type: ignore[arg-type]


def test_the_modern_network_shows_every_relu_layer_and_a_bias_can_kill_one() -> None:
    made, params = random_gradient("modern")
    features, shape = made.features, (2, 1, 5)
    own = np.random.default_rng(1).normal(size=(*shape, features.own_size)).astype(np.float32)
    observation = Observation(jnp.asarray(own), jnp.ones((2, 1, features.shared_size), jnp.uint8))
    silent = {"kernel": 0 * params["self_layer"]["kernel"], "bias": 0 * params["self_layer"]["bias"] - 1}
    look = jax.jit(functools.partial(dead_units, made))
    found = look({**params, "self_layer": silent}, observation, jnp.ones(shape, bool))
    layers = [name for name in params if name.endswith("_layer") or name.startswith(("slot_layers", "plane_layers"))]
    assert set(found) == set(layers) - {"head_layer", "pointer_layer", "value_layer"}
    assert float(found["self_layer"]) == 1.0 and float(found["trunk_layer"]) < 1.0


@pytest.mark.parametrize(("rows", "columns", "k"), [(6, 40, 8), (40, 6, 8), (3, 2, 6), (1, 9, 4)])
def test_the_largest_numbers_are_found_with_the_first_of_equals_first(rows: int, columns: int, k: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 9, (rows, columns)).astype(np.float32)  # many are equal
    expected = np.argsort(-numbers.ravel(), kind="stable")[:k]
    np.testing.assert_array_equal(jax.jit(largest_in, static_argnums=1)(numbers, k), expected)


def test_an_update_of_the_gpu_preset_searches_no_more_than_xla_can_split() -> None:
    made = update_program(EnvConfig(), dataclasses.replace(TrainConfig.gpu(), devices=1))
    program = made.function.trace(*made.arguments).jaxpr  # type: ignore[attr-defined]
    lengths = [e.invars[0].aval.shape[-1] for e in equations(program) if e.primitive.name == "top_k"]
    assert lengths and max(lengths) < 2**20
