"""Checkpoints of earlier formats are read as what they were; newer and unknown ones are refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from echelon_jax.cli.main import main
from echelon_jax.config import SWITCHES, EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.runs import checkpoint, migrations, tree_files
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.training import vector
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train
from echelon_jax.worldgen.bank import generate_worlds


@pytest.fixture(scope="module")
def first(data: Path) -> Path:
    """A run of format 1: two updates of two arenas on the smallest map, written before format 2 existed."""
    return data / "checkpoints" / "format1"


def test_every_older_format_has_a_run_to_test_with(data: Path) -> None:
    assert sorted(migrations.STEPS) == list(range(1, migrations.FORMAT))
    for number in migrations.STEPS:
        manifest = json.loads((checkpoint.find(data / "checkpoints" / f"format{number}") / "manifest.json").read_text())
        assert manifest["format"] == number


def test_a_manifest_of_format_1_is_read(first: Path) -> None:
    manifest = checkpoint.read_manifest(first)
    assert (manifest.update, manifest.was_format) == (2, 1)
    assert (manifest.run, manifest.bank, manifest.score) == (None, None, None)
    assert manifest.env_config == EnvConfig.original(size_x=20, size_y=20, size_z=8)
    assert (manifest.config.network, manifest.config.target_kl, manifest.config.guard) == ("original", 0.0, False)


# What a leaf is called now, and what it was called in the format before.
NEWER_NAMES = {
    1: ((".optimizer[1].", ".optimizer[1][0]."),),
    2: (
        (".env_state.arena_map.", ".env_state.place."),
        (".env_state.memory.last_seen", ".env_state.recall.place"),
        (".env_state.memory.", ".env_state.recall."),
        (".runner_state.", ".actors."),
    ),
    3: (
        (".sim.mechs.insertion_index", ".sim.mechs.stamp"),
        (".sim.mechs.loudness", ".sim.mechs.noise"),
        (".sim.next_insertion_index", ".sim.next_stamp"),
    ),
    4: (),  # it joined the optimiser's moments
}
NEW_LEAVES = {1: ".guard", 2: ".nothing", 3: ".nothing", 4: ".nothing"}


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_run_of_an_older_format_is_restored_bit_for_bit(data: Path, number: int) -> None:
    run = data / "checkpoints" / f"format{number}"
    manifest = checkpoint.read_manifest(run)
    env = Echelon(manifest.env_config)
    trainer = make_train(AutoReset(env), manifest.config)
    env_params = env.params(env.make_bank(generate_worlds(manifest.env_config, range(2))))
    template = jax.eval_shape(trainer.init, jax.random.key(0), env_params)

    def fresh():  # type: ignore[no-untyped-def]
        return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template.replace(key=jax.random.key_data(KEY)))

    state = checkpoint.restore(run, template, manifest.config, manifest.env_config, fresh)
    clip, adam = state.optimizer
    mu, nu = (vector.parted(moments, state.params) for moments in (adam.mu, adam.nu))
    state = state.replace(optimizer=(clip, adam._replace(mu=mu, nu=nu)))
    recorded = json.loads((run / "leaves.json").read_text())  # of the state that was saved, by the path it had then
    found = {}
    for name, leaf in tree_files.to_flat(state).items():
        was = name
        for since in range(migrations.FORMAT - 1, number - 1, -1):
            for now, before in NEWER_NAMES[since]:
                was = was.replace(now, before)
        if not name.startswith(NEW_LEAVES[number]):
            found[was] = hashlib.sha256(leaf.tobytes()).hexdigest()[:16]
    gone = {name for name in recorded if name not in found}
    assert {name: recorded[name] for name in found} == found
    assert len(gone) == (1 if number == 1 else 0)  # format 1 counted its schedule's updates; the update number does now


def test_a_policy_of_format_2_plays_the_revised_game(data: Path) -> None:
    policy = checkpoint.load_policy(data / "checkpoints" / "format2")
    assert policy.env_config.observation == "modern" and policy.env_config.observation_mode == "partial"
    assert policy.config.updates_per_call == 1 and policy.config.return_ema_decay == 0.9


KEY = jax.random.key(0)


def test_a_policy_of_format_1_plays(first: Path) -> None:
    policy = checkpoint.load_policy(first)
    assert policy.update == 2 and all(np.isfinite(x).all() for x in jax.tree.leaves(policy.params))


@pytest.mark.slow
def test_a_run_of_format_1_goes_on(first: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(first, tmp_path / "run"))
    assert main(["train", "--resume", "--run-dir", str(run), "--eval-games", "0"]) == 0
    manifest = checkpoint.read_manifest(run)
    assert (
        manifest.update == 3
        and json.loads((manifest.path / "manifest.json").read_text())["format"] == migrations.FORMAT
    )


def old_fields(kind: type, always: frozenset[str]) -> dict[str, object]:
    return {f.name: f.default for f in dataclasses.fields(kind) if f.name in always}


def test_a_game_saved_before_the_revised_rules_existed_is_the_original() -> None:
    fields = old_fields(EnvConfig, migrations._ALWAYS_ENV)
    assert not set(SWITCHES) & set(fields)
    assert migrations.env_config(fields) == EnvConfig.original(**fields)


def test_a_training_field_that_did_not_exist_means_what_was_done_then() -> None:
    fields = {**old_fields(TrainConfig, migrations._ALWAYS_TRAIN), "network": "original"}
    config = migrations.train_config(fields)
    assert all(getattr(config, name) == value for name, value in migrations.BEFORE.items())


@pytest.mark.parametrize("read", [migrations.train_config, migrations.env_config])
def test_an_unknown_field_is_named(read) -> None:  # type: ignore[no-untyped-def]
    known = TrainConfig() if read is migrations.train_config else EnvConfig()
    with pytest.raises(ValueError, match="unknown fields warp_speed"):
        read({**dataclasses.asdict(known), "warp_speed": 9})


@pytest.mark.parametrize(("read", "field"), [(migrations.train_config, "gamma"), (migrations.env_config, "dt")])
def test_a_field_that_was_always_there_must_be_there(read, field: str) -> None:  # type: ignore[no-untyped-def]
    known = dataclasses.asdict(TrainConfig() if read is migrations.train_config else EnvConfig())
    del known[field]
    with pytest.raises(ValueError, match=f"missing fields {field}"):
        read(known)


@pytest.mark.parametrize("number", [0, migrations.FORMAT + 1, 99, True, "2", None])
def test_a_newer_or_unknown_format_is_refused_by_number(first: Path, tmp_path: Path, number: object) -> None:
    copy = Path(shutil.copytree(checkpoint.find(first), tmp_path / "copy"))
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "format": number}))
    with pytest.raises(CheckpointError, match=f"checkpoint format {number!r}.*this version reads 1 to"):
        checkpoint.read_manifest(copy)


def test_leaves_are_asked_for_by_the_path_they_had() -> None:
    assert migrations.old_path(1)("['optimizer'][1].mu['x']") == "['optimizer'][1][0].mu['x']"
    assert migrations.old_path(migrations.FORMAT)("['optimizer'][1].mu['x']") == "['optimizer'][1].mu['x']"
    assert migrations.may_lack(1)("['guard'].streak") and not migrations.may_lack(1)("['key']")
    assert not migrations.may_lack(migrations.FORMAT)("['guard'].streak")


def test_trees_are_joined_in_the_order_of_the_parameters_and_a_missing_part_is_named() -> None:
    tree = "['optimizer'][1]"
    flat = {f"{tree}.{name}['{leaf}']": np.full(2, i) for name in ("mu", "nu") for i, leaf in enumerate("ba")}
    join = migrations.join_trees(4, ["['a']", "['b']"])
    assert join(flat)[f"{tree}.mu"].tolist() == [1, 1, 0, 0]
    del flat[f"{tree}.nu['b']"]
    with pytest.raises(tree_files.TreeError, match=r"does not hold \['optimizer'\]\[1\]\.nu\['b'\]"):
        join(flat)


def test_a_leaf_that_is_missing_or_unknown_is_named(tmp_path: Path) -> None:
    tree_files.write(tmp_path / "tree", tree_files.to_flat({"a": np.ones(2), "b": np.ones(3)}))
    a, c = np.ones(2), np.zeros(1, np.float32)
    with pytest.raises(tree_files.TreeError, match=r"holds \['b'\], which this version does not know"):
        tree_files.read(tmp_path / "tree", {"a": a})
    with pytest.raises(tree_files.TreeError, match=r"does not hold \['c'\]"):
        tree_files.read(tmp_path / "tree", {"a": a, "b": np.ones(3), "c": c})
    loaded, lacked = tree_files.read(
        tmp_path / "tree", {"c": c}, lambda name: "c" in name, lambda name: True, fresh=lambda: {"c": c + 5}
    )
    assert lacked == ["['c']"] and float(loaded["c"][0]) == 5.0
