"""The original's checkpoint file (docs/spec/learner.md 2.2, 2.5, 3): what we write, what we read, what we refuse."""

import copy
import json
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.export_policies import random_policy, real_sequence

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'echelon-jax[torch]'")
pytest.importorskip("safetensors", reason="needs safetensors: pip install 'echelon-jax[torch]'")

from echelon_jax.cli.main import main
from echelon_jax.config import EnvConfig
from echelon_jax.export.original import (
    NEARLY_DETERMINISTIC,
    env_config_of,
    import_original,
    original_checkpoint,
    original_env,
    write_original,
)
from echelon_jax.export.parity import differences, jax_steps, torch_steps
from echelon_jax.export.torch_policy import block_tensors, fingerprint, load_policy
from echelon_jax.export.weights import ExportError, fold
from echelon_jax.runs.policy import Policy

torch.set_num_threads(1)

# The tables of docs/spec/learner.md 2.2, 3.
MODEL_STATE = {
    "actor_logstd": (26,),
    "encoder.0.weight": (128, 589),
    "encoder.0.bias": (128,),
    "encoder.2.weight": (128, 128),
    "encoder.2.bias": (128,),
    "lstm.weight_ih_l0": (512, 128),
    "lstm.weight_hh_l0": (512, 128),
    "lstm.bias_ih_l0": (512,),
    "lstm.bias_hh_l0": (512,),
    "actor_mean.weight": (26, 128),
    "actor_mean.bias": (26,),
    "critic.weight": (1, 128),
    "critic.bias": (1,),
}
ENV_CFG = {
    "world": {
        "size_x": 60,
        "size_y": 50,
        "size_z": 20,
        "voxel_size_m": 1.0,
        "obstacle_fill": 0.06,
        "ensure_connectivity": True,
        "connectivity_clearance_z": 4,
        "connectivity_obstacle_inflate_radius": 1,
        "connectivity_wall_cost": 80.0,
        "connectivity_penalty_radius": 3,
        "connectivity_penalty_cost": 20.0,
        "connectivity_carve_width": 5,
    },
    "num_packs": 2,
    "dt_sim": 0.05,
    "decision_repeat": 5,
    "max_episode_seconds": 90.0,
    "observation_mode": "partial",
    "comm_dim": 8,
    "enable_target_selection": True,
    "enable_ewar": False,
    "enable_obs_control": True,
    "enable_comm": True,
    "nav_mode": "off",
    "record_replay": False,
    "seed": None,
}


class OriginalNetworkInTorch(torch.nn.Module):
    """The layers of docs/spec/learner.md 2.1 with torch's own LSTM: an independent reading of the table."""

    def __init__(self):
        super().__init__()
        self.actor_logstd = torch.nn.Parameter(torch.zeros(26))
        self.encoder = torch.nn.Sequential(
            torch.nn.Linear(589, 128), torch.nn.Tanh(), torch.nn.Linear(128, 128), torch.nn.Tanh()
        )
        self.lstm = torch.nn.LSTM(128, 128)
        self.actor_mean = torch.nn.Linear(128, 26)
        self.critic = torch.nn.Linear(128, 1)

    @torch.no_grad()
    def heads(self, seen, done):
        h, c = (torch.zeros(1, seen.shape[1], 128) for _ in range(2))
        rows = []
        for now, over in zip(torch.from_numpy(seen), torch.from_numpy(done.astype(np.float32))):
            keep = (1.0 - over)[None, :, None]
            y, (h, c) = self.lstm(self.encoder(now)[None], (h * keep, c * keep))
            mean = self.actor_mean(y[0])
            rows.append((mean, self.actor_logstd.expand_as(mean), self.critic(y[0])[:, 0], h[0], c[0]))
        names = ("mean", "log_std", "value", "h", "c")
        return {name: np.stack([row[i].detach().numpy() for row in rows]) for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def policy():
    return random_policy(10)


@pytest.fixture(scope="module")
def written(policy, tmp_path_factory):
    return write_original(policy, tmp_path_factory.mktemp("original") / "candidate.pt")


def load(path):
    return torch.load(path, weights_only=True)


def made_by_the_original(change=None, **entries):
    """A checkpoint as the original's trainer writes it, at its initialisation, but with two real bias vectors."""
    torch.manual_seed(3)
    network = OriginalNetworkInTorch()
    network.actor_logstd.data.uniform_(-1.0, 0.5)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-4, eps=1e-5)
    found = {
        "model_state": network.state_dict(),
        "env_cfg": copy.deepcopy(ENV_CFG),
        "obs_dim": 589,
        "action_dim": 26,
        "optimizer_state": optimizer.state_dict(),
        "return_rms": {"mean": 0.5, "var": 2.0, "count": 100.0},
        "update": 40,
        "global_step": 81_920,
        "episodes": 7,
        "args": {"lr": 3e-4, "out": "runs/x", "resume": None},
        **entries,
    }
    if change:
        change(found)
    return network, found


def stored(found, path):
    torch.save(found, path)
    return path


# -- Out ----------------------------------------------------------------------------------------------------------------


def test_the_state_dictionary_is_the_table(written):
    state = load(written)["model_state"]
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == MODEL_STATE
    assert list(state) == list(MODEL_STATE)
    for tensor in state.values():
        assert tensor.dtype == torch.float32 and tensor.is_contiguous() and tensor.device.type == "cpu"


def test_every_key_of_the_original_is_there_with_its_type(written, policy):
    found = load(written)
    steps = 12 * policy.config.arenas * policy.config.rollout_steps
    expected = {"obs_dim": 589, "action_dim": 26, "update": 12, "global_step": steps, "episodes": 0, "args": {}}
    for key, value in expected.items():
        assert found[key] == value and type(found[key]) is type(value), key
    assert found["return_rms"] == {"mean": 0.0, "var": 1.0, "count": 1e-8}


def test_only_tensors_and_plain_types_are_stored(written):
    plain = (str, int, float, bool, type(None))

    def check(value):
        if isinstance(value, dict):
            assert all(type(key) in (str, int) for key in value)
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            for part in value:
                check(part)
        else:
            assert type(value) in plain or type(value) is torch.Tensor, type(value)

    check(load(written))


def test_env_cfg_has_every_field_of_the_original():
    config = EnvConfig.original(
        size_x=60, size_y=50, num_packs=2, max_episode_seconds=90.0, observation_mode="partial", ewar=False
    )
    ours = original_env(config)
    assert ours == ENV_CFG and list(ours) == list(ENV_CFG)
    assert {k: type(v) for k, v in ours.items()} == {k: type(v) for k, v in ENV_CFG.items()}
    assert env_config_of(ours, "x") == (config, [])


def test_the_original_network_loads_it_strictly_and_plays_the_same(written, policy):
    """The normaliser is folded: this network reads raw observations."""
    network = OriginalNetworkInTorch()
    network.load_state_dict(load(written)["model_state"], strict=True)
    seen, done = real_sequence(10)
    worst = differences(jax_steps(policy, seen, done), network.heads(seen, done))
    assert max(worst.values()) <= 1e-5, worst


def test_the_one_file_module_reads_it_too(written, policy):
    seen, done = real_sequence(10)
    worst = differences(jax_steps(policy, seen, done), torch_steps(load_policy(written), seen, done))
    assert max(worst.values()) <= 1e-5, worst


def test_the_optimizer_state_lets_training_go_on(written, policy):
    network = OriginalNetworkInTorch()
    optimizer = torch.optim.Adam(network.parameters(), lr=1.0)
    optimizer.load_state_dict(load(written)["optimizer_state"])
    assert optimizer.param_groups[0]["lr"] == policy.config.learning_rate and optimizer.param_groups[0]["eps"] == 1e-5
    network.critic(torch.ones(1, 128)).sum().backward()
    before = network.critic.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(before, network.critic.weight)


def test_folding_is_exact():
    rng = np.random.default_rng(0)
    weight, bias, x = rng.normal(size=(7, 11)), rng.normal(size=7), rng.normal(size=(5, 11))
    shift, scale = rng.normal(size=11), rng.uniform(0.1, 3.0, 11)
    folded, moved = fold(weight, bias, shift, scale)
    assert np.allclose(x @ folded.T + moved, (x - shift) / scale @ weight.T + bias, rtol=0, atol=1e-12)


def test_a_spread_can_be_asked_for_and_is_recorded(policy, tmp_path):
    path = write_original(policy, tmp_path / "sharp.pt", NEARLY_DETERMINISTIC)
    found = load(path)
    assert (found["model_state"]["actor_logstd"] == -20.0).all() and found["echelon_jax"]["log_std"] == -20.0
    module, seen = load_policy(path), torch.from_numpy(real_sequence(10, 1)[0][0])
    a, b = (module.act(seen).action for _ in range(2))
    assert (a - b).abs().max() < 1e-7
    back = import_original(path).policy.params
    assert np.array_equal(back["log_std"], np.clip(policy.params["log_std"], -5, 1))


def test_rules_that_the_original_lacks_come_back_and_interfaces_that_it_lacks_are_refused(policy, tmp_path):
    config = EnvConfig.original(fair_order=True, reward="modern")
    revised = Policy(*[*list(vars(policy).values())[:4], config, 1, {}])
    assert import_original(write_original(revised, tmp_path / "a.pt")).policy.env_config == config
    for name in ("observation", "actions"):
        other = Policy(*[*list(vars(policy).values())[:4], EnvConfig.original(**{name: "modern"}), 1, {}])
        with pytest.raises(ExportError, match=f"knows only its own {name}"):
            original_checkpoint(other)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: random_policy(0, hidden=32), "hidden = 128 only, this one has 32"),
        (lambda: random_policy(0, lstm=64), "lstm = 128 only, this one has 64"),
        (lambda: random_policy(0, observation_clip=5.0), "clipped .* does not fold"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(made, message):
    with pytest.raises(ExportError, match=message):
        original_checkpoint(made())


def test_another_network_is_refused(policy):
    other = Policy(object(), *list(vars(policy).values())[1:])
    with pytest.raises(ExportError, match="holds only the original network"):
        original_checkpoint(other)


# -- In -----------------------------------------------------------------------------------------------------------------


def test_our_own_export_comes_back_bit_for_bit(written, policy):
    back, notes = import_original(written)
    assert notes == ()
    stored_params = {**policy.params, "log_std": jnp.clip(policy.params["log_std"], -5, 1)}
    for a, b in zip(jax.tree.leaves((stored_params, policy.observation_moments)), _leaves(back)):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    assert back.network == policy.network
    assert (back.config, back.env_config, back.update) == (policy.config, policy.env_config, policy.update)


def _leaves(policy):
    return jax.tree.leaves((policy.params, policy.observation_moments))


def test_a_checkpoint_of_the_original_plays_the_same_in_jax(tmp_path):
    network, found = made_by_the_original()
    imported, notes = import_original(stored(found, tmp_path / "ckpt_00040.pt"))
    assert notes == () and imported.update == 40
    assert imported.env_config.size_y == 50 and imported.env_config.observation_mode == "partial"
    assert imported.env_config.ewar is False and imported.config.normalize_observations is False
    seen, done = real_sequence(10)
    worst = differences(network.heads(seen, done), jax_steps(imported, seen, done))
    assert max(worst.values()) <= 1e-5, worst
    assert jax.tree.map(jnp.shape, imported.params) == jax.tree.map(
        jnp.shape, jax.eval_shape(imported.network.init, jax.random.key(0))
    )


def test_import_and_export_give_the_original_its_numbers_back(tmp_path):
    """All but the two bias vectors, of which only the sum matters."""
    _, found = made_by_the_original()
    imported, _ = import_original(stored(found, tmp_path / "a.pt"))
    ours, theirs = original_checkpoint(imported)["model_state"], found["model_state"]
    for name, tensor in theirs.items():
        if "lstm.bias" not in name:
            assert torch.equal(ours[name], tensor), name
    total = theirs["lstm.bias_ih_l0"] + theirs["lstm.bias_hh_l0"]
    assert torch.equal(ours["lstm.bias_ih_l0"], total) and not ours["lstm.bias_hh_l0"].any()


def test_the_smallest_file_that_the_original_accepts_is_read(tmp_path):
    _, found = made_by_the_original()
    small = {key: found[key] for key in ("model_state", "env_cfg")}
    small["model_state"] = OrderedDict(reversed(found["model_state"].items()))
    small["env_cfg"] = {"world": {}}
    imported = import_original(stored(small, tmp_path / "a.pt")).policy
    assert (imported.env_config.size_x, imported.env_config.num_packs, imported.update) == (20, 1, 0)


def test_what_cannot_be_taken_over_is_said(tmp_path):
    def change(found):
        found["env_cfg"]["nav_mode"] = "assist"
        found["env_cfg"]["seed"] = 5
        found["model_state"]["actor_logstd"][:2] = torch.tensor([2.9, -20.0])

    imported, notes = import_original(stored(made_by_the_original(change)[1], tmp_path / "a.pt"))
    assert len(notes) == 2 and "nav_mode = 'assist'" in notes[0] and "2 components of actor_logstd" in notes[1]
    assert imported.params["log_std"][:2].tolist() == [1.0, -5.0]


def test_the_command_import_says_in_json_how_the_file_differs_from_the_run_and_makes_one_that_can_be_resumed(
    tmp_path, capsys
):
    """The `cpu` preset changes a weight that the original's reward lacks; a run of that game is made without it."""
    path, run = stored(made_by_the_original()[1], tmp_path / "a.pt"), tmp_path / "run"
    wide = import_original(path).policy.config
    sizes = ["--hidden", str(wide.hidden), "--lstm", str(wide.lstm), "--normalize-observations", "False"]
    assert main(["import", str(path), "--run-dir", str(run), "--size", "24", *sizes, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["run_dir"] == str(run) and any("size_x" in note for note in told["notes"])
    assert json.loads((run / "config.json").read_text())["train"]["curriculum"] == ""


def refinger(found, group, name, change):
    """Change a tensor of our block, or remove it, and make the fingerprint fit again."""
    block = found["echelon_jax"]
    if change is None:
        del block[group][name]
    else:
        block[group][name] = block[group][name] + change
    block["fingerprint"] = fingerprint({**found["model_state"], **block_tensors(block)})


def damage(found, name, tensor):
    found["model_state"][name] = tensor


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.pop("model_state"), "model_state missing"),
        (lambda f: f.pop("env_cfg"), "env_cfg missing"),
        (lambda f: f["model_state"].pop("critic.bias"), "lacks critic.bias"),
        (lambda f: f["model_state"].pop("encoder.0.weight"), "lacks the matrix encoder.0.weight"),
        (lambda f: damage(f, "more", torch.zeros(1)), "has the unknown more"),
        (lambda f: damage(f, "critic.bias", torch.zeros(3)), r"critic.bias .* must be float32\[1\]"),
        (lambda f: damage(f, "critic.bias", torch.zeros(1).double()), "got torch.float64"),
        (lambda f: damage(f, "critic.bias", torch.full((1,), np.inf)), "not finite"),
        (lambda f: damage(f, "critic.bias", 1.0), "got float"),
        (lambda f: f.update(obs_dim=588), "obs_dim .* is 588"),
        (lambda f: f.update(env_cfg={}), "has no world"),
        (lambda f: f["env_cfg"].update(comm_dim=4), "observations of 569 and actions of 22"),
        (lambda f: f["env_cfg"].update(gravity=1), "unknown field 'gravity'"),
        (lambda f: f["env_cfg"].update(num_packs=99), "does not have: num_packs must be"),
    ],
)
def test_a_wrong_file_is_refused(change, message, tmp_path):
    with pytest.raises(ExportError, match=message):
        import_original(stored(made_by_the_original(change)[1], tmp_path / "a.pt"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f["model_state"]["critic.bias"].add_(1e-3), "fingerprint does not fit"),
        (lambda f: f["echelon_jax"]["unfolded"]["encoder.0.weight"].mul_(1.0001), "fingerprint does not fit"),
        (lambda f: refinger(f, "unfolded", "encoder.0.weight", 0.1), "does not belong to its weights"),
        (lambda f: refinger(f, "moments", "mean", 1.0), "does not belong to its weights"),
        (lambda f: refinger(f, "moments", "var", None), "damaged or of another version"),
        (lambda f: f["echelon_jax"]["train"].update(soup=1), "damaged or of another version"),
    ],
)
def test_a_changed_export_of_ours_is_refused(written, change, message, tmp_path):
    found = load(written)
    change(found)
    with pytest.raises(ExportError, match=message):
        import_original(stored(found, tmp_path / "a.pt"))


def test_a_damaged_file_is_refused(written, tmp_path):
    data, path = written.read_bytes(), tmp_path / "a.pt"
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    for damaged in (data[:-200], data[: len(data) // 2], bytes(flipped), b"", b"hello", b"PK\x03\x04"):
        path.write_bytes(damaged)
        with pytest.raises(ExportError, match=r"a\.pt is (damaged|no torch checkpoint)"):
            import_original(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ExportError, match="there is no checkpoint"):
        import_original(tmp_path / "none.pt")


class Hostile:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code was run')",))


def test_a_file_that_would_run_code_is_refused(tmp_path):
    with pytest.raises(ExportError, match="more than tensors and plain types"):
        import_original(stored({"model_state": Hostile(), "env_cfg": {}}, tmp_path / "a.pt"))


def test_a_name_without_the_ending_is_refused(policy, tmp_path):
    with pytest.raises(ExportError, match=r"must end in \.pt"):
        write_original(policy, tmp_path / "policy.pth")
