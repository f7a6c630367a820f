"""The `modern` network: a set of mechs, embedded maps, memory, heads, a critic that sees the team."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CONFIG as FAKE
from helpers.fake_env import CountingAgent, FakeEnv, fake_params

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.policies import dense
from echelon_jax.policies.features import Observation, features_of
from echelon_jax.policies.memories import MEMORIES
from echelon_jax.policies.modern_network import ModernNetwork
from echelon_jax.policies.normalize import batch_moments
from echelon_jax.policies.registry import make_network
from echelon_jax.policies.structure import structure_of
from echelon_jax.rules.mechs import HEAVY, PACK_CLASSES
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import summarize
from echelon_jax.training.trainer import make_train

CONFIG = EnvConfig(size_x=28, size_y=28, comm_dim=8)
FEATURES, STRUCTURE = features_of(CONFIG, factored=True), structure_of(CONFIG)
NETWORK = ModernNetwork(FEATURES, STRUCTURE, hidden=16, lstm=16)
ARENAS, TEAM, STEPS = 2, CONFIG.team_size, 5
PARAMS = jax.jit(NETWORK.init)(jax.random.key(0))
# Last layers start small; made larger here so that what they read shows.
PARAMS = jax.tree.map(lambda x: x * 3.0, PARAMS)
apply = jax.jit(functools.partial(NETWORK.apply, PARAMS))
HOSTILE = next(group for group in STRUCTURE.slots if group.name == "hostile")
HEADS = NETWORK.heads


def random_rows(seed=0, steps=None):
    """Random observations of living mechs with about half of the slots used."""
    rng = np.random.default_rng(seed)
    shape = (ARENAS, TEAM) if steps is None else (steps, ARENAS, TEAM)
    own = rng.normal(size=(*shape, FEATURES.own_size)).astype(np.float32)
    for group in STRUCTURE.slots:
        for slot in range(group.number):
            place = group.start + slot * group.width
            used = rng.random(shape) < 0.6
            own[..., place : place + group.width] *= used[..., None]
            own[..., place + group.flag] = used
    own[..., STRUCTURE.alive[0]] = 1.0
    shared = rng.integers(0, 2, (*shape[:-1], FEATURES.shared_size)).astype(np.uint8)
    return own, shared, np.ones((*shape, HEADS.mask_size), bool)


def observe(own, shared, action_mask):
    return Observation(jnp.asarray(own), jnp.asarray(shared), jnp.asarray(action_mask))


def run(own, shared, action_mask, carry=None, reset=None):
    carry = NETWORK.initial_carry(ARENAS, TEAM) if carry is None else carry
    reset = jnp.zeros((ARENAS, TEAM), bool) if reset is None else reset
    return apply(carry, observe(own, shared, action_mask), reset)


def close(a, b, atol=1e-5):
    return all(np.allclose(x, y, atol=atol) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("config", [CONFIG, EnvConfig.original(), EnvConfig(size_x=60, size_y=60, num_packs=2)])
def test_every_entry_of_an_observation_is_read_once(config):
    structure, seen = structure_of(config), np.zeros(features_of(config).own_size, int)
    for start, stop in (*structure.numbers, *structure.planes, *((g.start, g.stop) for g in structure.slots)):
        seen[start:stop] += 1
    assert (seen == 1).all()
    assert structure.shared == features_of(config).shared_size


@pytest.mark.parametrize("by_class", [False, True])
def test_outputs_and_gradients_do_not_depend_on_how_a_layer_reads_its_parts(by_class, monkeypatch):
    network = dataclasses.replace(NETWORK, class_networks=by_class)
    params = jax.jit(network.init)(jax.random.key(1))
    observation = observe(*random_rows(steps=STEPS))

    def value(params):
        distribution, values = network.unroll(params, network.initial_carry(ARENAS, TEAM), observation, never)
        return (values**2).sum() + sum((x**2).sum() for x in distribution.outputs.values())

    never = jnp.zeros((STEPS, ARENAS, TEAM), bool)
    expected = jax.value_and_grad(value)(params)
    monkeypatch.setattr(dense, "FEW_ROWS", 1)  # parts are multiplied on their own, as in a large batch
    found = jax.value_and_grad(value)(params)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_sequence_gives_what_its_steps_give():
    own, shared, action_mask = random_rows(1, STEPS)
    reset = jnp.asarray(np.random.default_rng(2).random((STEPS, ARENAS, TEAM)) < 0.3)
    carry = NETWORK.initial_carry(ARENAS, TEAM)
    distribution, value = jax.jit(NETWORK.unroll)(PARAMS, carry, observe(own, shared, action_mask), reset)
    last = jax.jit(NETWORK.final_carry)(PARAMS, carry, observe(own, shared, action_mask), reset)
    for t in range(STEPS):
        carry, now, v = run(own[t], shared[t], action_mask[t], carry, reset[t])
        assert close(now, jax.tree.map(lambda x, t=t: x[t], distribution)) and np.allclose(v, value[t], atol=1e-5)
    assert close(carry, last)


def test_a_reset_memory_is_an_empty_one():
    rows = random_rows(3)
    carry, _, _ = run(*random_rows(4))
    fresh = run(*rows)
    forgot = run(*rows, carry, jnp.ones((ARENAS, TEAM), bool))
    kept = run(*rows, carry)
    assert close(fresh, forgot) and not close(fresh, kept, 1e-3)


def test_permuting_the_hostiles_permutes_the_choice_of_target_and_nothing_else():
    own, shared, action_mask = random_rows(5)
    order = np.array([3, 0, 4, 1, 2])
    slots = own[..., HOSTILE.start : HOSTILE.stop].reshape(ARENAS, TEAM, HOSTILE.number, HOSTILE.width)
    turned = own.copy()
    turned[..., HOSTILE.start : HOSTILE.stop] = slots[:, :, order].reshape(ARENAS, TEAM, -1)
    (carry_a, a, value_a), (carry_b, b, value_b) = run(own, shared, action_mask), run(turned, shared, action_mask)
    assert close((carry_a, value_a), (carry_b, value_b))
    target = np.asarray(a.outputs["target"])
    assert np.allclose(b.outputs["target"], target[..., [0, *(1 + order)]], atol=1e-5)
    assert not np.allclose(target[..., 1], target[..., 2], atol=1e-4)
    for name in ("throttle", "trigger", "ewar", "message"):
        assert np.allclose(a.outputs[name], b.outputs[name], atol=1e-5)


@pytest.mark.parametrize("kind", ["friend", "hostile"])
def test_what_stands_in_an_unused_slot_of_a_mech_does_not_matter(kind):
    own, shared, action_mask = random_rows(6)
    group = next(g for g in STRUCTURE.slots if g.name == kind)
    own[..., group.start + group.flag] = 0.0
    other = own.copy()
    other[..., group.start : group.start + group.width] = 7.0
    other[..., group.start + group.flag] = 0.0
    assert close(run(own, shared, action_mask), run(other, shared, action_mask))


def test_a_mechs_policy_does_not_see_its_team_mates_memories_but_its_value_does():
    own, shared, action_mask = random_rows(7)
    other = own.copy()
    other[0, 1] = random_rows(8)[0][0, 1]
    (_, a, value_a), (_, b, value_b) = run(own, shared, action_mask), run(other, shared, action_mask)
    assert np.allclose(a.outputs["throttle"][0, 0], b.outputs["throttle"][0, 0], atol=1e-6)
    assert abs(float(value_a[0, 0] - value_b[0, 0])) > 1e-4
    assert np.allclose(value_a[1], value_b[1], atol=1e-6)  # another arena


def test_the_dead_lend_nothing_to_the_teams_value_and_are_given_one():
    own, shared, action_mask = random_rows(9)
    own[0, 1, STRUCTURE.alive[0]] = 0.0
    other = own.copy()
    other[0, 1] = random_rows(10)[0][0, 1]
    other[0, 1, STRUCTURE.alive[0]] = 0.0
    value_a, value_b = run(own, shared, action_mask)[2], run(other, shared, action_mask)[2]
    assert np.allclose(value_a[0, [0, 2, 3, 4]], value_b[0, [0, 2, 3, 4]], atol=1e-6)
    moved = own.copy()
    moved[0, 0] = random_rows(11)[0][0, 0]
    assert abs(float(value_a[0, 1] - run(moved, shared, action_mask)[2][0, 1])) > 1e-4


def test_slots_of_a_kind_are_normalised_alike():
    """The pooled moments of a run of slots are those of all its slots' rows together."""
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(400, FEATURES.own_size)) * rng.uniform(0.5, 3, FEATURES.own_size), jnp.float32)
    pooled = FEATURES.pooled(batch_moments(rows, jnp.ones(400, bool)))
    together = np.asarray(rows)[:, HOSTILE.start : HOSTILE.stop].reshape(-1, HOSTILE.width)
    for slot in range(HOSTILE.number):
        place = slice(HOSTILE.start + slot * HOSTILE.width, HOSTILE.start + (slot + 1) * HOSTILE.width)
        assert np.allclose(pooled.mean[place], together.mean(0), atol=1e-4)
        assert np.allclose(pooled.var[place], together.var(0), rtol=1e-3)
    numbers = slice(0, STRUCTURE.slots[0].start)
    assert np.allclose(pooled.mean[numbers], np.asarray(rows).mean(0)[numbers], atol=1e-5)


def test_legality_is_read_from_the_raw_observation():
    layout = observation_layout(CONFIG)
    raw = np.zeros((1, TEAM, layout.size), np.float32)
    raw[0, 0, layout["hostile_1/known"].offset] = 1.0
    action_mask = np.asarray(FEATURES.split(jnp.asarray(raw)).action_mask)
    assert action_mask[0, 0, HEADS["target"].action_mask].tolist() == [True, False, True, False, False, False]
    assert action_mask[0, 1, HEADS["target"].action_mask].tolist() == [True] + [False] * 5


@pytest.mark.parametrize("part", ["layer_norm", "team_critic", "attention"])
def test_each_part_can_be_left_out(part):
    config = TrainConfig(hidden=16, lstm=16)
    whole = make_network(config, CONFIG)
    without = make_network(TrainConfig(hidden=16, lstm=16, **{part: False}), CONFIG)
    assert getattr(whole, part) and not getattr(without, part)
    shapes = [jax.eval_shape(network.init, jax.random.key(0)) for network in (whole, without)]
    sizes = [sum(x.size for x in jax.tree.leaves(tree)) for tree in shapes]
    assert sizes[1] < sizes[0]


def test_class_networks_give_each_mech_the_network_of_its_class():
    """Equal networks for all classes act as one; another heavy's network changes the heavy and, through the critic, values."""
    network = dataclasses.replace(NETWORK, class_networks=True)
    fresh = jax.eval_shape(network.init, jax.random.key(0))
    assert jax.tree.map(lambda x: x.shape, fresh) == jax.tree.map(lambda x: (4, *x.shape), PARAMS)
    alike = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape)), PARAMS)
    own, shared, action_mask = random_rows(12, 2)
    observation, carry = observe(own, shared, action_mask), NETWORK.initial_carry(ARENAS, TEAM)
    reset = jnp.zeros((2, ARENAS, TEAM), bool)
    unroll = jax.jit(network.unroll)
    one, value = jax.jit(NETWORK.unroll)(PARAMS, carry, observation, reset)
    many, values = unroll(alike, carry, observation, reset)
    assert close((one.outputs, value), (many.outputs, values))
    other, _ = unroll(jax.tree.map(lambda x: x.at[HEAVY].multiply(0.5), alike), carry, observation, reset)
    changed = np.abs(np.asarray(other.outputs["throttle"] - many.outputs["throttle"])).max((0, 1, 3)) > 1e-5
    assert changed.tolist() == [c == HEAVY for c in PACK_CLASSES]


def test_targets_of_two_kinds_are_refused():
    mixed = EnvConfig(size_x=28, size_y=28, actions="original")
    with pytest.raises(
        ValueError, match="network must be original where actions choose among other slots than the observation shows"
    ):
        make_network(TrainConfig(), mixed)
    assert make_network(TrainConfig(network="original"), mixed).head_names == ("action",)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_network_has_the_memory_that_is_asked_for(memory):
    network = make_network(TrainConfig(hidden=12, lstm=8, memory=memory), CONFIG)
    params = jax.eval_shape(network.init, jax.random.key(0))
    kind = MEMORIES[memory]
    assert params[f"{memory}_bias"].shape == (8 * kind.gates,)
    assert params[f"{memory}_kernel"].shape == (20 if kind.reads_itself else 12, 8 * kind.gates)
    assert not any(name.startswith(f"{other}_") for other in MEMORIES if other != memory for name in params)


@pytest.mark.extended  # test_trainer.py asks the same of the original network
def test_it_learns_to_remember_a_sign_that_was_shown_once():
    """The learning test: a tiny game whose best play needs the memory, from nothing to the threshold."""
    config = TrainConfig(
        arenas=16,
        rollout_steps=16,
        updates=60,
        updates_per_call=4,
        minibatches=2,
        learning_rate=3e-3,
        chunk=8,
        target_kl=0.1,
        hidden=16,
        lstm=16,
        opponent="random",
    )
    train = make_train(FakeEnv(FAKE), config, CountingAgent())
    params = fake_params(death_rate=0.02, decided_rate=0.02)
    state, metrics = train.init(jax.random.key(0), params), []
    for _ in range(config.updates // config.updates_per_call):
        state, m = train.run_updates(state, params)
        metrics.append(m)
    before, after = summarize(metrics[:1], 5, train.network.head_names), summarize(metrics[-2:], 5)
    assert abs(before["reward_per_decision"]) < 0.15 and "update/head_kl/target" in before
    assert after["reward_per_decision"] > 0.7  # 1 is perfect; without memory 1/6 is
    for m in metrics:
        assert float(m.update.ratio_error[:, 0, 0].max()) < 1e-4
    assert train.run_updates._cache_size() == 1  # nothing compiled after the first launch
