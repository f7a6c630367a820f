"""The torch module of the `original` network: the JAX network's numbers; whole files or none.

Source: docs/spec/learner.md 2, B.2.
"""

import ast
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.export_policies import TINY, random_policy, real_sequence, tiny_sequence, wide
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'echelon-jax[torch]'")
pytest.importorskip("safetensors", reason="needs safetensors: pip install 'echelon-jax[torch]'")

import safetensors.torch

from echelon_jax.export import torch_policy
from echelon_jax.export.parity import differences, jax_steps, torch_steps
from echelon_jax.export.torch_files import torch_module, write_torch
from echelon_jax.export.torch_policy import OriginalPolicy, PolicyError, State, load_policy, log_prob, raw_action_of
from echelon_jax.export.weights import ExportError, clip_of, described, normaliser_of, state_of
from echelon_jax.policies.distributions import SquashedGaussian
from echelon_jax.runs.policy import Policy

torch.set_num_threads(1)


def double_module(policy):
    """The torch module with the float64 numbers of a policy, which the files do not hold."""
    state = state_of(policy.params)
    state |= normaliser_of(policy.observation_moments, policy.network.features, clip_of(policy))
    module = OriginalPolicy(**described(policy)).double()
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
    return module


# -- Parity ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 64])
def test_whole_episodes_agree_in_float32(rows):
    policy = random_policy(1)
    seen, done = real_sequence(rows)
    assert done[1:].any() and not done[1:].all(1).all()
    raw_action = np.random.default_rng(0).normal(size=(*done.shape, 26)).astype(np.float32)
    worst = differences(
        jax_steps(policy, seen, done, raw_action), torch_steps(torch_module(policy), seen, done, raw_action)
    )
    assert set(worst) == {"mean", "log_std", "value", "h", "c", "log_prob"}
    assert max(worst.values()) <= 1e-5, worst


@pytest.mark.parametrize("rows", [1, 64])
def test_whole_episodes_agree_in_float64(rows):
    seen, done = real_sequence(rows)
    seen = seen.astype(np.float64)
    raw_action = np.random.default_rng(0).normal(size=(*done.shape, 26))
    with jax.enable_x64(True):
        policy = wide(random_policy(2))
        expected = jax_steps(policy, seen, done, raw_action)
        module = double_module(policy)
    assert expected["log_prob"].dtype == np.float64
    worst = differences(expected, torch_steps(module, seen, done, raw_action))
    assert max(worst.values()) <= 1e-9, worst


@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**20), hidden=st.integers(1, 9), lstm=st.integers(1, 9), clip=st.sampled_from([0.0, 0.7]))
def test_random_networks_agree(seed, hidden, lstm, clip):
    policy = random_policy(seed, hidden, lstm, TINY, actions=5, observation_clip=clip)
    seen, done = tiny_sequence(3, 12, seed)
    raw_action = np.random.default_rng(seed).normal(size=(12, 3, 5)).astype(np.float32)
    worst = differences(
        jax_steps(policy, seen, done, raw_action), torch_steps(torch_module(policy), seen, done, raw_action)
    )
    assert max(worst.values()) <= 1e-5, worst


@pytest.mark.parametrize("gate", range(4))
def test_gates_have_the_order_of_torch(gate):
    """Only one gate reads anything; the biases of the four differ, so that no two gates could be exchanged."""
    policy = random_policy(3, 6, 5, TINY, actions=2)
    kernel = np.zeros_like(policy.params["lstm_kernel"])
    columns = slice(5 * gate, 5 * gate + 5)
    kernel[:, columns] = np.asarray(policy.params["lstm_kernel"])[:, columns]
    bias = np.repeat(np.float32([0.3, -0.7, 1.1, 0.2]), 5)
    params = {**policy.params, "lstm_kernel": jax.numpy.asarray(kernel), "lstm_bias": jax.numpy.asarray(bias)}
    policy = Policy(policy.network, params, *list(vars(policy).values())[2:])
    module = torch_module(policy)
    seen, _ = tiny_sequence(4, 9, gate)
    never = np.zeros(seen.shape[:2], bool)
    theirs = torch.nn.LSTM(6, 5)
    theirs.load_state_dict(module.lstm.state_dict())
    x = (torch.from_numpy(seen) - module.observation_shift) / module.observation_scale
    with torch.no_grad():
        expected = theirs(module.encoder(x))[0].numpy()
    assert np.ptp(expected) > 1e-3
    for heads in (jax_steps(policy, seen, never), torch_steps(module, seen, never)):
        assert np.allclose(heads["h"], expected, atol=1e-6)


def test_vectors_of_the_original():
    """B.2: tensor q of the state dictionary holds 0.1 sin(0.7 n + q)."""
    module = OriginalPolicy(589, 26)
    shapes = torch_policy.original_shapes(589, 26)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 227_637
    state = {
        name: torch.from_numpy((0.1 * np.sin(0.7 * np.arange(np.prod(shape)) + q)).astype(np.float32).reshape(shape))
        for q, (name, shape) in enumerate(shapes.items())
    }
    module.load_state_dict({**module.state_dict(), **state})
    action = np.tanh(0.1 * (np.arange(26) - 12)[None] + 0.2 * np.arange(2)[:, None]).astype(np.float32)
    u = raw_action_of(torch.from_numpy(action))
    expected = [
        (
            [-18.5393, -18.3186],
            [0.182695, 0.183036],
            [-0.018774, 0.061637, -0.050967],
            [-0.031521, 0.141765, -0.114085],
        ),
        ([-18.7422, -18.5097], [0.242268, 0.242984], [0.043196, 0.089512, -0.117015], [0.070463, 0.240209, -0.274135]),
        ([-18.7737, -18.3186], [0.251334, 0.183035], [0.082159, 0.104420, -0.166363], [0.133801, 0.294289, -0.402203]),
    ]
    means = [
        [-0.086843, 0.151002, -0.091343, -0.291706],
        [-0.090584, 0.214913, -0.095855, -0.355035],
        [-0.092511, 0.224106, -0.095115, -0.364324],
    ]
    h, c = module.initial_state(2)
    for t, (log_probs, values, h_row, c_row) in enumerate(expected):
        rows = np.sin(0.05 * np.arange(589)[None] + np.arange(2)[:, None]) * (1 + 0.1 * t)
        done = torch.tensor([0.0, float(t == 2)])
        with torch.no_grad():
            mean, log_std, value, h, c = module(torch.from_numpy(rows.astype(np.float32)), h, c, done)
        assert np.allclose(log_prob(mean, log_std, u).detach(), log_probs, atol=2e-4)
        assert np.allclose(value, values, atol=2e-6) and np.allclose(mean[0, :4], means[t], atol=2e-6)
        assert np.allclose(h[0, :3], h_row, atol=2e-6) and np.allclose(c[0, :3], c_row, atol=2e-6)
    assert np.allclose(h[1, :3], [-0.019076, 0.061378, -0.050807], atol=2e-6)
    assert np.allclose(c[1, :3], [-0.032054, 0.141002, -0.113613], atol=2e-6)
    gaussian = (0.5 + 0.5 * np.log(2 * np.pi) + log_std[0]).sum()
    reported = gaussian.item() + np.log(1 - action.astype(np.float64) ** 2 + 1e-6).sum(-1)
    assert np.allclose(reported, [24.1749, 23.1435], atol=1e-3)


# -- Acting ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    return torch_module(random_policy(4, 6, 5, TINY, actions=3))


def test_a_deterministic_action_is_the_squashed_mean(tiny):
    seen = torch.from_numpy(tiny_sequence(4, 1, 0)[0][0])
    acted = tiny.act(seen, deterministic=True)
    h, c = tiny.initial_state(4)
    assert torch.equal(acted.action, torch.tanh(tiny(seen, h, c, torch.zeros(4))[0]))


def test_samples_have_the_mean_and_spread_of_the_heads(tiny):
    seen = torch.from_numpy(np.repeat(tiny_sequence(1, 1, 0)[0][0], 20_000, 0))
    acted = tiny.act(seen, generator=torch.Generator().manual_seed(0))
    mean, log_std = tiny(seen[:1], *tiny.initial_state(1), torch.zeros(1))[:2]
    standard = ((acted.raw_action - mean) / log_std.exp()).detach()
    assert abs(standard.mean(0)).max() < 0.03 and abs(standard.std(0) - 1).max() < 0.03
    assert torch.equal(acted.action, torch.tanh(acted.raw_action))


def test_a_generator_makes_play_repeatable(tiny):
    seen = torch.from_numpy(tiny_sequence(4, 1, 0)[0][0])
    a, b, other = (tiny.act(seen, generator=torch.Generator().manual_seed(s)).action for s in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, other)


def test_done_makes_a_row_forget_even_nan_and_touches_no_other(tiny):
    seen = torch.from_numpy(tiny_sequence(2, 1, 0)[0][0])
    old = State(torch.full((2, 5), 0.4), torch.tensor([[0.3] * 5, [float("nan")] * 5]))
    acted = tiny.act(seen, old, torch.tensor([False, True]), deterministic=True)
    fresh, kept = tiny.act(seen, deterministic=True), tiny.act(seen, old, deterministic=True)
    assert torch.equal(acted.action[1], fresh.action[1]) and torch.equal(acted.action[0], kept.action[0])
    assert not torch.equal(acted.action[0], fresh.action[0])


def test_log_prob_is_that_of_jax_and_finite_far_out(tiny):
    u = np.array([[-60.0, 0.0, 30.0], [8.0, -9.0, 1e-3]], np.float32)
    mean, log_std = np.zeros_like(u), np.full_like(u, 0.5)
    ours = log_prob(*map(torch.from_numpy, (mean, log_std, u))).numpy()
    expected = np.asarray(SquashedGaussian(mean, log_std).action_log_prob(u))
    assert np.isfinite(ours).all() and np.allclose(ours, expected, rtol=1e-5, atol=1e-5)


def test_an_observation_of_another_size_is_refused(tiny):
    with pytest.raises(ValueError, match=r"\[mechs, 11\] or \[arenas, mechs, 11\], got \[2, 10\]"):
        tiny.act(torch.zeros(2, 10))


# -- Files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    policy = random_policy(5)
    write_torch(policy, folder / "policy.safetensors")
    return policy, folder


@pytest.fixture
def copy(written, tmp_path):
    shutil.copytree(written[1], tmp_path / "copy")
    return tmp_path / "copy" / "policy.safetensors"


def rewrite(path, change_tensors=None, change_card=None):
    """Change a file and make both hashes fit again."""
    tensors = safetensors.torch.load(path.read_bytes())
    card = json.loads(path.with_suffix(".json").read_text())
    if change_tensors:
        change_tensors(tensors)
        path.write_bytes(safetensors.torch.save(tensors))
        card["weights"] = hashlib.sha256(path.read_bytes()).hexdigest()
    if change_card:
        change_card(card)
    path.with_suffix(".json").write_text(json.dumps({**card, "hash": torch_policy.card_hash(card)}))


def test_a_written_policy_comes_back_as_it_is(written):
    policy, folder = written
    loaded, made = load_policy(folder), torch_module(policy)
    assert not loaded.training
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    assert load_policy(folder / "policy.safetensors", dtype=torch.float64).actor_logstd.dtype == torch.float64


def test_the_card_tells_what_the_policy_is(written):
    policy, folder = written
    card = torch_policy.read_card(folder / "policy.safetensors")
    assert card["network"] == "original"
    assert card["dimensions"] == {"observation": 589, "action": 26, "hidden": 128, "lstm": 128}
    assert card["env"]["size_x"] == policy.env_config.size_x and card["train"]["gamma"] == policy.config.gamma
    steps = 12 * policy.config.arenas * policy.config.rollout_steps
    assert card["steps"] == {"updates": 12, "env_steps": steps, "mech_steps": 5 * steps}
    assert card["provenance"]["extra"] == {"who": "a test"}
    for layout, size in (("observation_layout", 589), ("action_layout", 26)):
        assert [row["offset"] + row["size"] for row in card[layout]][-1] == size


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("place", [0, 700, -1])
def test_a_flipped_bit_is_refused(copy, place):
    flip(copy, place)
    with pytest.raises(PolicyError, match="hash does not fit"):
        load_policy(copy)


def test_a_truncated_file_is_refused(copy):
    copy.write_bytes(copy.read_bytes()[:-100])
    with pytest.raises(PolicyError, match="damaged"):
        load_policy(copy)


def test_a_changed_card_is_refused(copy):
    card = copy.with_suffix(".json")
    card.write_text(card.read_text().replace('"network": "original"', '"network": "0riginal"'))
    with pytest.raises(PolicyError, match=r"card .* has been changed"):
        load_policy(copy)


def test_a_renamed_file_without_its_card_is_refused(copy):
    moved = copy.rename(copy.with_name("other.safetensors"))
    with pytest.raises(PolicyError, match=r"other\.json is missing"):
        load_policy(moved)
    with pytest.raises(PolicyError, match="there is no policy"):
        load_policy(copy)


def test_weights_under_the_card_of_another_policy_are_refused(copy):
    write_torch(random_policy(6), copy.with_name("other.safetensors"))
    copy.with_name("other.safetensors").replace(copy)
    with pytest.raises(PolicyError, match="belongs to another card"):
        load_policy(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("critic.bias"), "lacks critic.bias"),
        (lambda t: t.update(extra=torch.zeros(1)), "unknown extra"),
        (lambda t: t.update({"critic.bias": torch.zeros(2)}), r"critic.bias .* float32\[1\]"),
        (lambda t: t.update({"critic.bias": torch.zeros(1).double()}), r"must be float32\[1\], got torch.float64"),
        (lambda t: t.update({"critic.bias": torch.full((1,), float("nan"))}), "not finite"),
    ],
)
def test_loading_is_strict(copy, change, message):
    rewrite(copy, change_tensors=change)
    with pytest.raises(PolicyError, match=message):
        load_policy(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(network="postmodern"), "network 'postmodern', this file knows original, modern"),
        (lambda c: c.update(network="modern"), "describes no modern network"),
        (lambda c: c.update(format=3), "format 3, this file reads 1 to 2"),
        (lambda c: c.update(kind="soup"), "not the card of a policy"),
    ],
)
def test_a_foreign_card_is_refused(copy, change, message):
    rewrite(copy, change_card=change)
    with pytest.raises(PolicyError, match=message):
        load_policy(copy)


def test_a_name_without_the_ending_is_refused(tmp_path):
    with pytest.raises(ExportError, match=r"must end in \.safetensors"):
        write_torch(random_policy(5, 4, 4, TINY), tmp_path / "policy.bin")


# -- One file ---------------------------------------------------------------------------------------------------------------


def test_the_module_imports_nothing_but_torch_and_safetensors():
    tree = ast.parse(Path(torch_policy.__file__).read_text())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"torch", "safetensors"}


def test_the_copied_file_checks_a_policy_as_a_script(copy):
    """It is run where neither this package nor JAX can be imported."""
    block = "import sys; sys.modules.update(jax=None, echelon_jax=None); sys.path.insert(0, sys.argv[1]);"
    block += "import torch_policy; sys.exit(torch_policy.main([sys.argv[2]]))"
    command = [sys.executable, "-I", "-c", block, str(copy.parent), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120, check=False)
    assert done.returncode == 0 and "allowed 1e-05" in done.stdout, done.stderr


def test_the_check_fails_where_the_numbers_differ(copy, capsys):
    rewrite(copy, change_card=lambda c: c["probe"]["value"].__setitem__(0, 3.0))
    assert torch_policy.main([str(copy)]) == 1
    copy.unlink()
    assert torch_policy.main([str(copy)]) == 2 and "there is no policy" in capsys.readouterr().err
