"""Factored action heads: what is legal, what a raw action means, and the distribution over samples."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.policies.factored import Factored
from echelon_jax.policies.heads import BERNOULLI, CATEGORICAL, GAUSSIAN, heads_of
from echelon_jax.rules.mechs import HEAVY, LIGHT, MEDIUM, PACK_CLASSES, SCOUT
from echelon_jax.rules.weapons import TRIGGERS

MODERN, ORIGINAL = EnvConfig(size_x=28, size_y=28, comm_dim=8), EnvConfig.original()
GAMES = {"modern": MODERN, "original": ORIGINAL, "two_packs": EnvConfig(size_x=60, size_y=60, num_packs=2)}


def observation_of(config, mech_class, **entries):
    """One mech's raw observation, zeros but for its class and some entries."""
    layout = observation_layout(config)
    row = np.zeros(layout.size, np.float32)
    if config.observation == "modern":
        row[layout["self/pack_row"].offset + PACK_CLASSES.index(mech_class)] = 1.0
    else:
        row[layout["hull"].offset + mech_class] = 1.0
    for name, value in entries.items():
        row[layout[name.replace("__", "/")].offset] = value
    return jnp.asarray(row)


def legal_of(config, mech_class, head, **entries):
    heads = heads_of(config)
    return np.asarray(heads.action_mask(observation_of(config, mech_class, **entries)))[
        heads[head].action_mask
    ].tolist()


def random_legal_samples(config, count, seed=0):
    """Random samples that are legal under random legality rows (the first choice is always legal), and those rows."""
    heads, rng = heads_of(config), np.random.default_rng(seed)
    action_mask = rng.random((count, heads.mask_size)) < 0.6
    raw_action = np.zeros((count, heads.raw_action_size), np.float32)
    for head in heads.table:
        rows = action_mask[:, head.action_mask]
        if head.kind == GAUSSIAN:
            raw_action[:, head.raw_action] = np.where(rows, rng.normal(size=rows.shape), 0.0)
        elif head.kind == BERNOULLI:
            raw_action[:, head.raw_action] = rows & (rng.random(rows.shape) < 0.5)
        else:
            action_mask[:, head.action_mask.start] = True
            scores = np.where(action_mask[:, head.action_mask], rng.random(rows.shape), -1.0)
            raw_action[:, head.raw_action] = scores.argmax(-1)[:, None]
    return raw_action, action_mask


def random_distribution(config, count, seed=0, action_mask=None):
    heads, rng = heads_of(config), np.random.default_rng(seed + 1)
    outputs, log_stds = {}, {}
    for head in heads.table:
        outputs[head.name] = jnp.asarray(rng.normal(size=(count, head.size)) * 1.5, jnp.float32)
        if head.kind == GAUSSIAN:
            log_stds[head.name] = jnp.asarray(rng.uniform(-2, 0.5, (count, head.size)), jnp.float32)
    return Factored(heads, outputs, log_stds, jnp.asarray(action_mask))


# -- Legality --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [MODERN, ORIGINAL], ids=["modern", "original"])
@pytest.mark.parametrize("mech_class", [SCOUT, LIGHT, MEDIUM, HEAVY])
def test_a_trigger_is_legal_exactly_for_who_carries_a_weapon_on_it(config, mech_class):
    carried = {by_class[mech_class] for by_class in TRIGGERS.values() if mech_class in by_class}
    names = heads_of(config).triggers
    component = {name: action_layout(config)[name].offset for name in names}
    expected = [name in ("vent", "hostile_only") or component[name] in carried for name in names]
    assert legal_of(config, mech_class, "trigger") == expected


@pytest.mark.parametrize("config", [MODERN, ORIGINAL], ids=["modern", "original"])
def test_only_scouts_and_lights_have_jets_and_only_scouts_have_ewar(config):
    for mech_class in (SCOUT, LIGHT, MEDIUM, HEAVY):
        assert legal_of(config, mech_class, "throttle") == [True, True, mech_class in (SCOUT, LIGHT), True]
        scout = mech_class == SCOUT
        assert legal_of(config, mech_class, "ewar") == [True, scout, scout]


def test_a_weapon_that_cannot_cool_within_the_decision_is_not_legal():
    trigger = heads_of(MODERN).triggers.index("tertiary")  # a heavy's gauss, 4 s
    ready = MODERN.decision_seconds / 4.0
    assert legal_of(MODERN, HEAVY, "trigger", self__kinetic_cooldown=ready)[trigger]
    assert not legal_of(MODERN, HEAVY, "trigger", self__kinetic_cooldown=ready + 0.05)[trigger]
    # A medium's autocannon shares the trigger with its painter, which is still ready.
    assert legal_of(MODERN, MEDIUM, "trigger", self__kinetic_cooldown=1.0)[trigger]
    assert not legal_of(MODERN, MEDIUM, "trigger", self__kinetic_cooldown=1.0 + 5, self__painter_cooldown=1.0)[trigger]


def test_smoke_and_missiles_wait_for_their_one_tube():
    names = heads_of(MODERN).triggers
    for entry in ("self__missile_cooldown", "self__smoke_cooldown"):
        action_mask = legal_of(MODERN, HEAVY, "trigger", **{entry: 1.0})
        assert not action_mask[names.index("secondary")] and not action_mask[names.index("special")]
        assert action_mask[names.index("primary")]


def test_a_mech_that_is_shut_down_can_only_vent():
    action_mask = legal_of(MODERN, HEAVY, "trigger", self__shutdown=1.0)
    assert [name for name, yes in zip(heads_of(MODERN).triggers, action_mask) if yes] == ["vent"]


def test_a_target_is_a_known_hostile_or_none():
    assert legal_of(MODERN, HEAVY, "target") == [True] + [False] * 5
    assert (
        legal_of(MODERN, HEAVY, "target", hostile_2__known=1.0, friend_0__known=1.0)[1:]
        == [False, False, True] + [False] * 2
    )


def test_a_friendly_contact_is_no_target():
    layout = observation_layout(ORIGINAL)
    row = np.array(observation_of(ORIGINAL, HEAVY, contact_0__used=1.0, contact_1__used=1.0))
    row[layout["contact_0/relation"].offset] = 1.0  # friendly
    row[layout["contact_1/relation"].offset + 1] = 1.0  # hostile
    heads = heads_of(ORIGINAL)
    action_mask = np.asarray(heads.action_mask(jnp.asarray(row)))[heads["target"].action_mask]
    assert action_mask.tolist() == [True, False, True, False, False, False]


# -- Samples and actions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_an_action_leads_back_to_its_sample(game):
    config = GAMES[game]
    heads = heads_of(config)
    raw_action, _ = random_legal_samples(config, 200)
    scout = np.arange(200) % 2 == 0
    if (
        config.actions == "original"
    ):  # a scout has no weapon on the trigger that is its EWAR switch, nobody else has EWAR
        place = heads["trigger"].raw_action.start + heads.triggers.index("secondary")
        raw_action[scout, place] = 0.0
    raw_action[~scout, heads["ewar"].raw_action] = 0.0
    action = heads.to_action(jnp.asarray(raw_action))
    assert action.shape == (200, action_layout(config).size) and float(jnp.abs(action).max()) <= 1.0
    back = heads.from_action(action, jnp.asarray(scout))
    assert np.allclose(back, raw_action, atol=2e-3)


def test_an_action_says_what_was_chosen():
    heads, layout = heads_of(MODERN), action_layout(MODERN)
    raw_action = np.zeros(heads.raw_action_size, np.float32)
    raw_action[heads["throttle"].raw_action] = [0.5, -0.5, 0.0, 2.0]
    raw_action[heads["trigger"].raw_action.start + heads.triggers.index("vent")] = 1.0
    raw_action[heads["target"].raw_action] = 3
    raw_action[heads["ewar"].raw_action] = 2
    action = np.asarray(heads.to_action(jnp.asarray(raw_action)))
    assert np.allclose(action[:4], np.tanh([0.5, -0.5, 0.0, 2.0]))
    assert [action[layout[name].offset] > 0 for name in heads.triggers] == [False, True, False, False, False]
    assert action[layout["target_preference"].slice].argmax() == 3
    assert action[layout["ewar"].slice].argmax() == 2


# -- The distribution --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", ["modern", "original"])
def test_samples_are_legal_and_so_is_the_mode(game):
    config = GAMES[game]
    heads = heads_of(config)
    _, action_mask = random_legal_samples(config, 300, seed=3)
    distribution = random_distribution(config, 300, action_mask=action_mask)
    for raw_action in (distribution.sample(jax.random.key(0)), distribution.mode()):
        raw_action = np.asarray(raw_action)
        for head in heads.table:
            part, rows = raw_action[:, head.raw_action], action_mask[:, head.action_mask]
            if head.kind == CATEGORICAL:
                assert rows[np.arange(300), part[:, 0].astype(int)].all()
            else:
                assert not part[~rows].any()


def test_densities_are_those_of_the_textbook():
    raw_action, action_mask = random_legal_samples(MODERN, 50, seed=5)
    distribution = random_distribution(MODERN, 50, seed=5, action_mask=action_mask)
    found = np.asarray(distribution.head_log_prob(jnp.asarray(raw_action)))
    for i, head in enumerate(heads_of(MODERN).table):
        for row in range(50):
            output, yes = (
                np.asarray(distribution.outputs[head.name][row], np.float64),
                action_mask[row, head.action_mask],
            )
            x = raw_action[row, head.raw_action].astype(np.float64)
            if head.kind == GAUSSIAN:
                s = np.exp(np.asarray(distribution.log_stds[head.name][row], np.float64))
                each = -0.5 * ((x - output) / s) ** 2 - np.log(s * math.sqrt(2 * math.pi))
                expected = each[yes].sum()
            elif head.kind == BERNOULLI:
                p = 1 / (1 + np.exp(-output))
                expected = np.log(np.where(x > 0.5, p, 1 - p))[yes].sum()
            else:
                weight = np.where(yes, np.exp(output), 0.0)
                expected = np.log(weight[int(x[0])] / weight.sum())
            assert found[row, i] == pytest.approx(expected, abs=2e-4)


def test_the_triggers_probabilities_add_up_to_one():
    _, action_mask = random_legal_samples(MODERN, 1, seed=7)
    heads = heads_of(MODERN)
    distribution = random_distribution(MODERN, 1, seed=7, action_mask=action_mask)
    head = heads["trigger"]
    total = 0.0
    free = [i for i in range(head.size) if action_mask[0, head.action_mask.start + i]]
    for bits in itertools.product((0.0, 1.0), repeat=len(free)):
        raw_action = np.zeros((1, heads.raw_action_size), np.float32)
        raw_action[0, [head.raw_action.start + i for i in free]] = bits
        total += math.exp(float(distribution.head_log_prob(jnp.asarray(raw_action))[0, heads.names.index("trigger")]))
    assert total == pytest.approx(1.0, abs=1e-5)


def test_an_even_choice_has_entropy_one_and_no_choice_has_none():
    heads = heads_of(MODERN)
    action_mask = np.ones((2, heads.mask_size), bool)
    action_mask[1] = False
    for head in heads.table:
        if head.kind == CATEGORICAL:
            action_mask[1, head.action_mask.start] = True
    outputs = {head.name: jnp.zeros((2, head.size)) for head in heads.table}
    log_stds = {head.name: jnp.zeros((2, head.size)) for head in heads.table if head.kind == GAUSSIAN}
    entropy = Factored(heads, outputs, log_stds, jnp.asarray(action_mask)).head_entropy(jax.random.key(0))
    for i, head in enumerate(heads.table):
        if head.kind != GAUSSIAN:
            assert float(entropy[0, i]) == pytest.approx(1.0, abs=1e-5)
        assert float(entropy[1, i]) == pytest.approx(0.0, abs=1e-5)


def test_the_gaussians_entropy_is_the_mean_of_minus_log_prob():
    """Its estimate, averaged, against the average of -log p of samples, per component, less log 2."""
    heads = heads_of(MODERN)
    count = 20_000
    action_mask = np.ones((count, heads.mask_size), bool)
    one = random_distribution(MODERN, 1, seed=2, action_mask=action_mask[:1])
    wide = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape[1:])), one)
    estimate = wide.head_entropy(jax.random.key(1)).mean(0)
    surprise = -wide.head_action_log_prob(wide.sample(jax.random.key(2))).mean(0)
    for name in ("throttle", "message"):
        i, size = heads.names.index(name), heads[name].size
        assert float(estimate[i]) == pytest.approx(float(surprise[i]) / size - math.log(2), abs=0.03)


def test_illegal_choices_get_no_gradient():
    raw_action, action_mask = random_legal_samples(MODERN, 40, seed=11)
    distribution = random_distribution(MODERN, 40, seed=11, action_mask=action_mask)

    def both(outputs):
        now = distribution.replace(outputs=outputs)
        return now.head_log_prob(jnp.asarray(raw_action)).sum() + now.head_entropy(jax.random.key(0)).sum()

    gradient = jax.grad(both)(distribution.outputs)
    for head in heads_of(MODERN).table:
        assert not np.asarray(gradient[head.name])[~action_mask[:, head.action_mask]].any()
        assert np.isfinite(gradient[head.name]).all()


def test_a_target_counts_only_where_a_weapon_was_fired():
    heads = heads_of(MODERN)
    action_mask = np.ones((3, heads.mask_size), bool)
    action_mask[2, heads["target"].action_mask.start + 1 :] = False
    raw_action = np.zeros((3, heads.raw_action_size), np.float32)
    start = heads["trigger"].raw_action.start
    raw_action[0, start + heads.triggers.index("vent")] = 1.0
    raw_action[1:, start + heads.triggers.index("primary")] = 1.0
    counts = np.asarray(random_distribution(MODERN, 3, action_mask=action_mask).loss_mask(jnp.asarray(raw_action)))
    assert counts[:, heads.names.index("target")].tolist() == [False, True, False]
    assert counts[:, heads.names.index("throttle")].all()
