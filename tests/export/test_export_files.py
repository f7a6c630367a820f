"""ONNX, torch.export, the export and import commands, and play in the reference environment."""

import dataclasses
import os
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.export_policies import (
    ENV,
    TINY,
    modern_sequence,
    random_modern,
    random_policy,
    real_sequence,
    tiny_sequence,
)
from helpers.fake_env import CONFIG, CountingAgent, FakeEnv, fake_params

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'echelon-jax[torch]'")
pytest.importorskip("safetensors", reason="needs safetensors: pip install 'echelon-jax[torch]'")

from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.export import ExportCommand
from echelon_jax.config import EnvConfig
from echelon_jax.export.behaviour import Record, agree, follow, play_reference, torch_player
from echelon_jax.export.onnx_files import INPUTS, Deterministic, onnx_network, outputs_of, traced, write_onnx
from echelon_jax.export.original import import_original, write_original
from echelon_jax.export.parity import (
    TOLERANCE,
    differences,
    head_names,
    jax_steps,
    numpy_steps,
    random_games,
    torch_steps,
)
from echelon_jax.export.start_run import check_fits, start_run
from echelon_jax.export.torch_files import torch_module
from echelon_jax.export.torch_policy import load_policy
from echelon_jax.export.weights import ExportError
from echelon_jax.reference.environment import ReferenceEnv
from echelon_jax.runs import checkpoint
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train

torch.set_num_threads(1)
SMALL = EnvConfig.original(size_x=24, size_y=24, max_episode_seconds=8.0)


# -- ONNX and torch.export ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'echelon-jax[onnx]'")
    policy = random_policy(20)
    return policy, write_onnx(torch_module(policy), tmp_path_factory.mktemp("onnx") / "policy.onnx")


@pytest.mark.parametrize("rows", [1, 64])
def test_onnx_plays_whole_episodes_the_same(onnx_file, rows):
    policy, path = onnx_file
    seen, done = real_sequence(rows)
    worst = differences(jax_steps(policy, seen, done), numpy_steps(onnx_network(path), policy, seen, done))
    assert set(worst) == set(head_names(policy)) and max(worst.values()) <= TOLERANCE, worst


def test_onnx_carries_the_card(onnx_file):
    import onnx

    path = onnx_file[1]
    entries = {p.key: p.value for p in onnx.load(path).metadata_props}
    assert '"network": "original"' in entries["echelon policy"]
    assert [i.name for i in onnx.load(path).graph.input] == list(INPUTS)


def test_a_damaged_onnx_file_is_refused(onnx_file, tmp_path):
    path = tmp_path / "policy.onnx"
    with pytest.raises(ExportError, match="there is no ONNX file"):
        onnx_network(path)
    for data in (b"hello", onnx_file[1].read_bytes()[:-1000]):
        path.write_bytes(data)
        with pytest.raises(ExportError, match="damaged or no ONNX file"):
            onnx_network(path)


def test_torch_export_keeps_the_numbers_for_any_number_of_rows():
    module = torch_module(random_policy(21, 6, 5, TINY, actions=3))
    program = traced(module).module()
    for rows in (1, 7):
        seen, done = (torch.from_numpy(x[0]) for x in tiny_sequence(rows, 1, rows))
        h, c = torch.randn(rows, 5), torch.randn(rows, 5)
        for ours, theirs in zip(module(seen, h, c, done), program(seen, h, c, done)):
            assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.fixture(scope="module")
def modern_onnx(tmp_path_factory):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'echelon-jax[onnx]'")
    module = torch_module(random_modern(25))
    return module, write_onnx(module, tmp_path_factory.mktemp("modern_onnx") / "policy.onnx")


@pytest.mark.parametrize(("teams", "mechs"), [(1, 1), (13, 5)])
def test_onnx_of_the_modern_network_plays_whole_episodes_the_same(modern_onnx, teams, mechs):
    """Actions of the likeliest choices, masks, outputs, values and memory; the module is compared with JAX elsewhere."""
    module, path = modern_onnx
    seen, done, _ = modern_sequence(teams, mechs=mechs)
    run, whole, names = onnx_network(path), Deterministic(module), outputs_of(module)
    h = c = np.zeros((teams, mechs, 16), np.float32)
    for t in range(len(seen)):
        with torch.no_grad():
            expected = whole(*map(torch.from_numpy, (seen[t], h, c, done[t])))
        got = run(seen[t], h, c, done[t])
        for name, ours, theirs in zip(names, expected, got, strict=True):
            assert ours.numpy().dtype == theirs.dtype and np.allclose(ours, theirs, atol=1e-5), (t, name)
        *_, h, c = got
    assert np.abs(h).max() > 0.1


def test_torch_export_of_the_modern_network_keeps_the_numbers():
    module = torch_module(random_modern(26, class_networks=True))
    program, whole = traced(module).module(), Deterministic(module)
    for teams, mechs in ((1, 1), (3, 5)):
        seen, done, _ = (torch.from_numpy(x[0]) for x in modern_sequence(teams, 1, mechs))
        state = module.initial_state(teams, mechs)
        for ours, theirs in zip(whole(seen, *state, done), program(seen, *state, done), strict=True):
            assert torch.allclose(ours.float(), theirs.float(), atol=1e-5)


# -- Play in the reference environment --------------------------------------------------------------------------------------


def in_small(policy):
    return checkpoint.Policy(policy.network, policy.params, policy.observation_moments, policy.config, SMALL, 0, {})


def test_whole_episodes_of_the_reference_are_played_the_same():
    policy = in_small(random_policy(22))
    played = follow(policy, torch_module(policy), [0, 1])
    for episode in played:
        assert episode.outcome is not None and 8 <= episode.steps <= SMALL.max_steps
        assert max(episode.worst.values()) <= TOLERANCE, episode.worst


@pytest.mark.slow
def test_twenty_whole_episodes_are_played_the_same():
    policy = random_policy(23)
    for episode in follow(policy, torch_module(policy), range(20)):
        assert episode.outcome is not None and max(episode.worst.values()) <= TOLERANCE, episode.worst


def test_the_modern_network_plays_the_original_game_the_same():
    policy = in_small(random_modern(27, ENV))
    [episode] = follow(policy, torch_module(policy), [0])
    assert episode.outcome is not None and {"output", "action_mask", "value"} < set(episode.worst)
    assert max(episode.worst.values()) <= TOLERANCE, episode.worst


def test_a_policy_that_differs_is_noticed():
    policy = in_small(random_policy(22))
    module = torch_module(policy)
    with torch.no_grad():
        module.critic.bias += 1e-3
    assert follow(policy, module, [0])[0].worst["value"] > 5e-4


def test_a_player_of_the_reference_plays_both_sides_of_every_map():
    config = EnvConfig.original(size_x=24, size_y=24, max_episode_seconds=2.0)
    policy = random_policy(22)
    seen = []

    def player(number):
        decide = torch_player(torch_module(policy))(number)
        return lambda observation: seen.append((number, observation)) or decide(observation)

    record = play_reference(config, player, [5])
    assert record.games == 2 and {number for number, _ in seen} == {0, 1}
    start = ReferenceEnv(config).reset(5).observation
    for number, rows in ((0, slice(0, 5)), (1, slice(5, 10))):
        assert np.array_equal(next(o for n, o in seen if n == number), start[rows])


def test_agreement_follows_the_interval_of_the_difference():
    assert agree(Record(100, 0, 100), Record(110, 0, 90)) and agree(Record(0, 0, 200), Record(2, 0, 198))
    assert not agree(Record(100, 0, 100), Record(130, 0, 70)) and not agree(Record(70, 0, 130), Record(100, 0, 100))


@pytest.mark.slow
def test_the_win_rate_in_the_reference_is_that_in_jax():
    """Needs a trained policy: set ECHELON_RUN to a run directory (and ECHELON_GAMES to an even number; 200 by default)."""
    if "ECHELON_RUN" not in os.environ:
        pytest.skip("ECHELON_RUN names no run directory")
    from echelon_jax.export.behaviour import Behaviour

    run = Path(os.environ["ECHELON_RUN"])
    assert Behaviour(run, games=int(os.environ.get("ECHELON_GAMES", "200")), follow=2).run() == 0


def test_random_games_tell_where_episodes_begin():
    play = random_games(EnvConfig.original(size_x=24, size_y=24, max_episode_seconds=2.0), 10)
    assert play.observation.shape == (10, 10, 589) and play.alive.all()
    assert play.done.all(1).tolist() == [True, *[False] * 7, True, False]


# -- The commands -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run as training leaves it, of the small fake environment, with numbers far from their start."""
    config = TrainConfig(network="original", arenas=2, rollout_steps=2, minibatches=1, updates=1, bank_size=1)
    trainer = make_train(FakeEnv(), config, CountingAgent())

    def blank(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        return jnp.zeros(leaf.shape, leaf.dtype)

    state = jax.tree.map(blank, jax.eval_shape(trainer.init, jax.random.key(0), fake_params()))
    policy = random_policy(30, features=trainer.features, actions=18)
    state = state.replace(params=policy.params, observation_moments=policy.observation_moments, update=jnp.int32(7))
    run_dir = tmp_path_factory.mktemp("run")
    checkpoint.save(run_dir, state, config, CONFIG)
    return run_dir


@pytest.mark.parametrize(("name", "ending"), [("torch", "safetensors"), ("original", "pt")])
def test_export_writes_a_file_and_shows_its_parity(run_dir, name, ending, capsys):
    assert ExportCommand(run_dir, format=name, check_steps=4).run() == 0
    out = capsys.readouterr().out
    assert re.search(r"value +\d\.\de-\d\d", out) and "within 1e-05" in out
    path = run_dir / "export" / f"policy.{ending}"
    assert f"wrote {path}" in out
    policy, (seen, done) = checkpoint.load_policy(run_dir), real_sequence(2, 5)
    seen = seen[..., :549]
    worst = differences(jax_steps(policy, seen, done), torch_steps(load_policy(path), seen, done))
    assert max(worst.values()) <= TOLERANCE
    if name == "original":
        assert import_original(path).policy.update == 7


def test_a_policy_of_the_zoo_is_exported_by_its_name_and_is_within_the_tolerance(tmp_path, monkeypatch, capsys):
    """A trained policy: its largest logits are thirty times those of a fresh one."""
    monkeypatch.chdir(tmp_path)
    assert ExportCommand(Path("zoo:champion"), check_steps=60).run() == 0
    assert "within 1e-05" in capsys.readouterr().out
    assert load_policy(tmp_path / "runs" / "zoo-champion" / "export" / "policy.safetensors").network == "modern"
    with pytest.raises(UsageError, match="a policy of the zoo must be one of"):
        ExportCommand(Path("zoo:nobody")).run()


def test_a_difference_counts_beside_the_largest_number_of_its_row():
    row = {"target": np.array([[30.0, 0.5]], np.float32), "value": np.array([30.0, 0.5], np.float32)}
    off = {"target": np.array([[30.0, 0.53]], np.float32), "value": np.array([30.0, 0.53], np.float32)}
    found = differences(row, off)
    assert found["target"] == pytest.approx(0.001, rel=1e-3) and found["value"] == pytest.approx(0.03, rel=1e-3)


def test_export_of_onnx_shows_its_parity(run_dir, tmp_path, onnx_file, capsys):
    assert ExportCommand(run_dir, format="onnx", out=tmp_path / "p.onnx", check_steps=3).run() == 0
    assert "within 1e-05" in capsys.readouterr().out


def test_export_fails_where_the_file_plays_differently(run_dir, tmp_path, monkeypatch, capsys):
    import echelon_jax.export.torch_policy as module

    def other(path):
        policy = load_policy(path)
        with torch.no_grad():
            policy.actor_mean.bias += 1e-3
        return policy

    monkeypatch.setattr(module, "load_policy", other)
    assert ExportCommand(run_dir, out=tmp_path / "p.safetensors", check_steps=2).run() == 1
    assert "NOT within" in capsys.readouterr().out


def modern_run(run_dir, env_config, policy):
    """A checkpoint of a modern policy, as training leaves it."""
    trainer = make_train(FakeEnv(env_config), dataclasses.replace(policy.config, **SHORT), CountingAgent())

    def blank(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        return jnp.zeros(leaf.shape, leaf.dtype)

    state = jax.tree.map(blank, jax.eval_shape(trainer.init, jax.random.key(0), fake_params()))
    state = state.replace(params=policy.params, observation_moments=policy.observation_moments, update=jnp.int32(3))
    checkpoint.save(run_dir, state, trainer.config, env_config)
    return run_dir


SHORT = {"arenas": 2, "rollout_steps": 2, "minibatches": 1, "updates": 1, "bank_size": 1}


@pytest.fixture(scope="module")
def modern_dir(tmp_path_factory):
    return modern_run(tmp_path_factory.mktemp("modern_run"), CONFIG, random_modern(34, CONFIG))


def test_export_of_the_modern_network_shows_the_parity_of_every_head(modern_dir, capsys):
    assert ExportCommand(modern_dir, check_steps=3).run() == 0
    out = capsys.readouterr().out
    for name in ("throttle", "throttle log_std", "trigger", "target", "ewar", "sort", "value", "action_mask", "h", "c"):
        assert re.search(rf"\n  {name} +\d\.\de[+-]\d\d", out), name
    assert "within 1e-05" in out
    assert load_policy(modern_dir / "export").network == "modern"


def test_the_original_format_refuses_the_modern_network_with_a_reason(modern_dir):
    with pytest.raises(UsageError, match="holds only the original network, not 'modern': its loaders build the layers"):
        ExportCommand(modern_dir, format="original").run()
    assert not (modern_dir / "export" / "policy.pt").exists()


@pytest.mark.slow
def test_export_of_the_modern_network_as_onnx_shows_its_parity(modern_dir, capsys):
    assert ExportCommand(modern_dir, format="onnx", check_steps=3).run() == 0
    assert "within 1e-05" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"format": "tarot"}, "format must be one of torch, original, onnx, got 'tarot'"),
        ({"log_std": -20.0}, "log-std is for --format original"),
        ({"check_steps": 0}, "check-steps must be a whole number from 1"),
        ({"run_path": Path("/nowhere")}, "no run, checkpoint or file at /nowhere"),
        ({"out": Path("x.pt")}, "must end in .safetensors"),
    ],
)
def test_wrong_flags_of_export_are_one_sentence(run_dir, flags, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        ExportCommand(**{"run_path": run_dir, **flags}).run()


def test_export_refuses_what_the_format_cannot_hold(tmp_path):
    policy = random_policy(31, hidden=16, lstm=16)
    with pytest.raises(ExportError, match="hidden = 128 only"):
        write_original(policy, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"network": "modern"}, "policy's network is 'original', the run is configured for network = 'modern'"),
        ({"hidden": 64}, "policy has hidden = 128, the run is configured for hidden = 64"),
        ({"normalize_observations": False}, "normalize_observations must be true"),
        ({"observation_clip": 3.0}, "observation_clip = 0.0"),
    ],
)
def test_a_run_that_does_not_fit_the_policy_is_refused(flags, message):
    with pytest.raises(ExportError, match=message):
        check_fits(random_policy(32), TrainConfig(**{"network": "original", **flags}), EnvConfig.original())


@pytest.mark.slow
def test_training_goes_on_from_an_imported_file(tmp_path):
    policy = random_policy(33, normalise=False)
    imported, _ = import_original(write_original(policy, tmp_path / "a.pt"))
    env_config = EnvConfig.original(size_x=20, size_y=20)
    config = TrainConfig(
        network="original",
        arenas=2,
        rollout_steps=4,
        minibatches=1,
        epochs=1,
        updates=1,
        bank_size=2,
        normalize_observations=False,
    )
    start_run(imported, tmp_path / "run", config, env_config)
    begun = checkpoint.load_policy(tmp_path / "run")
    assert begun.update == 0
    for name, leaf in imported.params.items():
        assert np.array_equal(begun.params[name], leaf), name
    with pytest.raises(checkpoint.CheckpointError, match="already holds a run"):
        start_run(imported, tmp_path / "run", config, env_config)
    from echelon_jax.runs.runner import Runner

    state = Runner(tmp_path / "run", config, env_config, resume=True).train()
    assert int(state.update) == 1
    assert not np.array_equal(state.params["mean_kernel"], imported.params["mean_kernel"])
