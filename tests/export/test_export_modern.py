"""The torch module of the `modern` network: JAX's numbers, masks and choices on real observations; whole files or none."""

import dataclasses
import json
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.export_policies import ENV, MODERN, modern_sequence, random_modern, real_sequence, wide
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'echelon-jax[torch]'")
pytest.importorskip("safetensors", reason="needs safetensors: pip install 'echelon-jax[torch]'")

from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.export import torch_policy
from echelon_jax.export.modern import modern_state_of
from echelon_jax.export.original import write_original
from echelon_jax.export.parity import by_head, check_sequence, differences, factored_of, jax_steps, torch_steps
from echelon_jax.export.torch_files import state_arrays, torch_module, write_torch
from echelon_jax.export.torch_policy import MaskRules, PolicyError, State, load_policy
from echelon_jax.export.weights import ExportError
from echelon_jax.policies.heads import heads_of
from echelon_jax.policies.memories import MEMORIES
from echelon_jax.runs.policy import Policy

torch.set_num_threads(1)
TEAMS = {"one_mech": (1, 1), "65_rows": (13, 5)}
MODERN_HEADS = {"throttle", "trigger", "target", "ewar", "message"}


def worst_by_head(policy, module, seen, done, alive, seed=0):
    """Largest difference per head, log-probabilities of a legal sample among them."""
    made = torch_steps(module, seen, done)
    heads = [torch.from_numpy(made[name]) for name in module.head_outputs]
    heads[2] = heads[2] > 0.5
    raw_action = module.choose(heads, False, torch.Generator().manual_seed(seed)).numpy()
    got = by_head(policy, torch_steps(module, seen, done, raw_action))
    return differences(by_head(policy, jax_steps(policy, seen, done, raw_action)), got, alive)


# -- Parity -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", TEAMS)
@pytest.mark.parametrize("memory", MEMORIES)
def test_whole_episodes_agree_in_float32(rows, memory):
    teams, mechs = TEAMS[rows]
    policy = random_modern(1, memory=memory)
    seen, done, alive = modern_sequence(teams, mechs=mechs)
    if teams > 1:
        assert done[1:].any() and not done[1:].all((1, 2)).any() and not alive.all()
    worst = worst_by_head(policy, torch_module(policy), seen, done, alive)
    assert {f"{name} log_prob" for name in MODERN_HEADS} | MODERN_HEADS <= set(worst)
    assert {"value", "h", "c", "action_mask", "throttle log_std", "message log_std"} <= set(worst)
    assert max(worst.values()) <= 1e-5, worst


@pytest.mark.parametrize("rows", TEAMS)
def test_whole_episodes_agree_in_float64(rows):
    teams, mechs = TEAMS[rows]
    seen, done, alive = modern_sequence(teams, mechs=mechs)
    narrow = random_modern(2)  # a policy is made in float32; only its arithmetic is widened
    with jax.enable_x64(True):
        policy = wide(narrow)
        module = torch_module(narrow).double()
        module.load_state_dict({name: torch.from_numpy(value) for name, value in state_arrays(policy).items()})
        worst = worst_by_head(policy, module, seen.astype(np.float64), done, alive)
    assert max(worst.values()) <= 1e-9, worst


def test_observations_and_actions_of_the_original_agree():
    policy = random_modern(3, ENV)
    seen, done = (x.reshape(len(x), 2, 5, *x.shape[2:]) for x in real_sequence(10))
    hull = observation_layout(ENV)["hull"]
    alive = (seen[..., hull.slice] > 0).any(-1)
    worst = worst_by_head(policy, torch_module(policy), seen, done, alive)
    assert {"sort", "sort log_prob"} <= set(worst) and max(worst.values()) <= 1e-5, worst


# Every example compiles, so a failing one is shown as it is. A LayerNorm of two or three numbers would magnify roundings.
@settings(max_examples=4, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(
    seed=st.integers(0, 2**20),
    hidden=st.integers(8, 20),
    lstm=st.integers(8, 20),
    clip=st.sampled_from([0.0, 0.7]),
    switches=st.fixed_dictionaries(dict.fromkeys(("layer_norm", "team_critic", "attention"), st.booleans())),
    start=st.floats(-3.0, 0.5),
    memory=st.sampled_from(list(MEMORIES)),
)
def test_random_networks_agree(seed, hidden, lstm, clip, switches, start, memory):
    fields = {"observation_clip": clip, "initial_log_std": start, "entropy_end": 0.5, "memory": memory, **switches}
    policy = random_modern(seed, hidden=hidden, lstm=lstm, **fields)
    seen, done, alive = modern_sequence(2, 12)
    worst = worst_by_head(policy, torch_module(policy), seen, done, alive, seed)
    assert max(worst.values()) <= 1e-5, worst


def test_layers_of_each_class_are_used_by_its_mechs():
    policy = random_modern(4, class_networks=True)
    seen, done, alive = modern_sequence(2, 20)
    module = torch_module(policy)
    assert len(module.layers) == 4
    worst = worst_by_head(policy, module, seen, done, alive)
    assert max(worst.values()) <= 1e-5, worst


def test_the_sequence_of_the_command_is_real_play_by_teams():
    policy = random_modern(5, dataclasses.replace(MODERN, max_episode_seconds=1.0), 2, 2)
    play = check_sequence(policy, 6)
    assert play.observation.shape == (6, 2, 5, 1142) and play.alive.all()
    assert play.done.all((1, 2)).tolist() == [True, False, False, False, True, False]
    alive = observation_layout(MODERN)["self/alive"].offset
    assert (play.observation[..., alive] == 1).all()


# -- Action masks, choices, actions ------------------------------------------------------------------------------------------------

GAMES = {
    "modern": MODERN,
    "modern_bare": dataclasses.replace(MODERN, ewar=False, target_selection=False, comm_dim=0),
    "original": ENV,
    "original_bare": dataclasses.replace(ENV, ewar=False, observation_control=False, communication=False),
}


@pytest.mark.parametrize("game", GAMES)
def test_what_is_legal_is_what_jax_says(game):
    """On real rows, where their layout fits, and on rows of numbers and flags at random."""
    config, heads = GAMES[game], heads_of(GAMES[game])
    rng = np.random.default_rng(0)
    layout = observation_layout(config)
    rows = rng.uniform(-0.2, 1.0, (400, layout.size)).astype(np.float32) * (rng.random((400, layout.size)) < 0.5)
    real = {"modern": lambda: modern_sequence(2)[0], "original": lambda: real_sequence(10)[0]}
    if game in real:
        rows = np.concatenate([rows, real[game]().reshape(-1, layout.size)])
    if config.observation == "modern":  # at the very limits too
        for i, entry in enumerate(e for e in layout if e.name.endswith("_cooldown") and e.name.startswith("self/")):
            rows[10 * i : 10 * i + 10, entry.offset] = np.linspace(0.0, 0.3, 10)
    expected = np.asarray(heads.action_mask(jnp.asarray(rows)))
    assert 0 < expected.mean() < 1
    found = torch_module(random_modern(0, config, 2, 2)).mask_rules(torch.from_numpy(rows)).numpy()
    assert np.array_equal(found, expected)


def test_a_limit_is_legal_and_the_next_number_is_not():
    rule = MaskRules([[[["at_most", 1, float(np.float32(0.1))]]], [[["none", [0]]]], [], [[]]])
    limit = np.float32(0.1)
    rows = torch.from_numpy(np.array([[0.0, limit], [1.0, np.nextafter(limit, np.float32(1))]], np.float32))
    assert rule(rows).tolist() == [[True, True, False, True], [False, False, False, True]]


@pytest.fixture(scope="module", params=["modern", "original"])
def decided(request):
    """A policy, its module and its outputs on real rows."""
    config = GAMES[request.param]
    policy = random_modern(6, config)
    seen = modern_sequence(2, 100)[0] if request.param == "modern" else real_sequence(10, 100)[0].reshape(100, 2, 5, -1)
    module = torch_module(policy)
    rows = seen.reshape(200, 5, -1)
    with torch.no_grad():
        made = module(torch.from_numpy(rows), *module.initial_state(200, 5), torch.zeros(200, 5))
    return policy, module, rows, made[:3]


def test_a_sample_makes_the_action_of_jax(decided):
    policy, module, _, heads = decided
    theirs = factored_of(policy.network, dict(zip(module.head_outputs, (h.numpy() for h in heads), strict=True)))
    for seed in range(3):
        raw_action = np.array(theirs.sample(jax.random.key(seed)))
        action = module.action_of(torch.from_numpy(raw_action)).numpy()
        expected = np.asarray(theirs.action(raw_action))
        assert action.shape[-1] == action_layout(policy.env_config).size
        assert np.allclose(action, expected, atol=1e-6)
        assert np.array_equal(np.sign(action), np.sign(expected))


def test_a_deterministic_choice_is_that_of_jax(decided):
    policy, module, rows, heads = decided
    theirs = factored_of(policy.network, dict(zip(module.head_outputs, (h.numpy() for h in heads), strict=True)))
    acted = module.act(torch.from_numpy(rows), deterministic=True)
    assert np.array_equal(acted.raw_action.numpy(), np.asarray(theirs.mode()))
    assert torch.equal(acted.action, module.action_of(acted.raw_action))


def test_nothing_illegal_is_drawn(decided):
    policy, module, rows, heads = decided
    acted = module.act(torch.from_numpy(rows), generator=torch.Generator().manual_seed(0))
    action_mask, raw_action = heads[2].numpy(), acted.raw_action.numpy()
    for head in policy.network.heads.table:
        may, drawn = action_mask[..., head.action_mask], raw_action[..., head.raw_action]
        if head.kind == "categorical":
            assert np.take_along_axis(may, drawn.astype(int), -1).all(), head.name
            assert len(np.unique(drawn)) > 1, head.name
        else:
            assert (drawn[~may] == 0).all() and (drawn[may] != 0).any(), head.name


def test_draws_have_the_probabilities_of_the_heads(decided):
    policy, module, _, heads = decided
    row = int((heads[2].float().sum(-1)).flatten().argmax())  # where most is legal
    one = [head.reshape(-1, head.shape[-1])[row].expand(20_000, -1) for head in heads]
    drawn = module.choose(one, False, torch.Generator().manual_seed(1))
    for head, (output, log_std, action_mask) in zip(
        policy.network.heads.table, module.parts(one).values(), strict=True
    ):
        x, output, action_mask = drawn[:, head.raw_action], output[0], action_mask[0]
        if head.kind == "gaussian":
            standard = ((x - output) / log_std.exp())[:, action_mask]
            assert standard.mean(0).abs().max() < 0.04 and (standard.std(0) - 1).abs().max() < 0.04
        elif head.kind == "bernoulli":
            assert torch.allclose(x.mean(0)[action_mask], torch.sigmoid(output)[action_mask], atol=0.02)
        else:
            share = torch.stack([(x[:, 0] == i).float().mean() for i in range(head.size)])
            expected = torch.softmax(torch.where(action_mask, output, -torch.inf), -1)
            assert torch.allclose(share, expected, atol=0.02), head.name


# -- A team ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    return torch_module(random_modern(7))


@pytest.fixture(scope="module")
def team():
    """A team at the start of a game, everybody alive."""
    return torch.from_numpy(modern_sequence(2, 1)[0][0, 0])


def test_a_mech_alone_does_what_it_does_in_its_team_and_only_its_value_misses_the_others(tiny, team):
    alone, together = tiny.act(team[1:2], deterministic=True), tiny.act(team, deterministic=True)
    assert torch.allclose(alone.action[0], together.action[1], atol=1e-6)
    assert torch.allclose(alone.log_prob[0], together.log_prob[1], atol=1e-4)
    assert torch.allclose(alone.state.h[0], together.state.h[1], atol=1e-6)
    assert abs(alone.value[0] - together.value[1]) > 1e-3


def test_what_the_dead_read_and_remember_is_nobodys_matter(tiny, team):
    dead, other = torch.clone(team), torch.clone(team)
    dead[2] = 0.0
    other[2] = torch.randn(1142, generator=torch.Generator().manual_seed(0))
    other[2, observation_layout(MODERN)["self/alive"].offset] = 0.0
    states = [tiny.initial_state(5), State(*(torch.full((5, 16), 0.1) for _ in range(2)))]
    states[1].h[[0, 1, 3, 4]] = states[1].c[[0, 1, 3, 4]] = 0.0
    a, b = (tiny.act(x, s, deterministic=True) for x, s in zip((dead, other), states, strict=True))
    living = [0, 1, 3, 4]
    assert torch.allclose(a.value[living], b.value[living], atol=1e-6)
    assert torch.allclose(a.action[living], b.action[living], atol=1e-6)


def test_more_rows_than_a_team_are_refused(tiny):
    with pytest.raises(ValueError, match=r"one team of at most 5 mechs, got 6; give many teams as \[arenas, mechs"):
        tiny.act(torch.zeros(6, 1142))
    with pytest.raises(ValueError, match=r"\[mechs, 1142\]"):
        tiny.act(torch.zeros(5, 1141))


def test_done_makes_a_row_forget_even_nan(tiny, team):
    old = State(torch.full((5, 16), 0.4), torch.full((5, 16), 0.3))
    old.c[3] = torch.nan
    done = torch.tensor([False, False, False, True, False])
    acted, fresh = tiny.act(team, old, done, deterministic=True), tiny.act(team, deterministic=True)
    assert torch.allclose(acted.action[3], fresh.action[3], atol=1e-6) and torch.isfinite(acted.value).all()
    assert not torch.allclose(acted.action[0], fresh.action[0], atol=1e-3)


# -- Files ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modern")
    policy = random_modern(8)
    write_torch(policy, folder / "policy.safetensors")
    return policy, folder


@pytest.fixture
def copy(written, tmp_path):
    shutil.copytree(written[1], tmp_path / "copy")
    return tmp_path / "copy" / "policy.safetensors"


def change_card(path, change, rehash=True):
    card = json.loads(path.with_suffix(".json").read_text())
    change(card)
    if rehash:
        card["hash"] = torch_policy.card_hash(card)
    path.with_suffix(".json").write_text(json.dumps(card))


def test_a_written_policy_comes_back_and_acts_the_same(written, team):
    policy, folder = written
    loaded = load_policy(folder)
    assert loaded.network == "modern" and loaded.card["dimensions"]["mechs"] == 5
    ours = torch_module(policy).act(team, generator=torch.Generator().manual_seed(3))
    theirs = loaded.act(team, generator=torch.Generator().manual_seed(3))
    assert torch.equal(ours.action, theirs.action) and torch.equal(ours.value, theirs.value)


def test_the_copied_file_checks_a_policy_where_there_is_no_jax(copy):
    block = "import sys; sys.modules.update(jax=None, echelon_jax=None, numpy=None); sys.path.insert(0, sys.argv[1]);"
    block += "import torch_policy; sys.exit(torch_policy.main([sys.argv[2]]))"
    command = [sys.executable, "-I", "-c", block, str(copy.parent), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120, check=False)
    assert done.returncode == 0 and "network modern" in done.stdout and "allowed 1e-05" in done.stdout, done.stderr


def test_a_card_of_format_1_is_read_and_finds_its_numbers_again(data, capsys):
    """The file was written by the version that had format 1."""
    stored = data / "policies" / "card_format1" / "policy.safetensors"
    assert json.loads(stored.with_suffix(".json").read_text())["format"] == 1
    assert torch_policy.main([str(stored)]) == 0
    assert "allowed 1e-05" in capsys.readouterr().out


def test_the_check_fails_where_a_rule_differs(copy, capsys):
    change_card(copy, lambda card: card["plan"]["mask_rules"].__setitem__(2, [[]]))
    assert torch_policy.main([str(copy)]) == 1
    assert "1.0e+00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "rehash", "message"),
    [
        (lambda c: c["plan"]["planes"].pop(), False, r"card .* has been changed"),
        (lambda c: c["plan"]["planes"].pop(), True, "lacks|has the unknown"),
        (lambda c: c["plan"].pop("mask_rules"), True, "describes no modern network: 'mask_rules'"),
        (lambda c: c.pop("plan"), True, "describes no modern network: .*plan"),
        (lambda c: c["plan"]["mask_rules"].append([[["soon", 3]]]), True, "condition must be any, none or at_most"),
        (lambda c: c["dimensions"].update(hidden=17), True, r"must be float32\[17"),
    ],
)
def test_a_tampered_card_is_refused(copy, change, rehash, message):
    change_card(copy, change, rehash)
    with pytest.raises(PolicyError, match=message):
        load_policy(copy)


def test_tampered_weights_are_refused(copy):
    data = bytearray(copy.read_bytes())
    data[-7] ^= 1
    copy.write_bytes(bytes(data))
    with pytest.raises(PolicyError, match="hash does not fit"):
        load_policy(copy)


def test_parameters_of_another_network_are_refused():
    policy, other = random_modern(9), random_modern(9, attention=False)
    with pytest.raises(ExportError, match="not those of the modern network: ask_layers_0/kernel"):
        modern_state_of(policy.network, other.params)


def test_the_original_format_refuses_the_modern_network(tmp_path):
    with pytest.raises(
        ExportError, match="holds only the original network, not 'modern': its loaders build the layers"
    ):
        write_original(random_modern(10, ENV), tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())


def test_an_unknown_network_is_refused():
    policy = random_modern(11)
    other = Policy(object(), *list(vars(policy).values())[1:])
    with pytest.raises(ExportError, match="no torch module exists"):
        torch_module(other)
