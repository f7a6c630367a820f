"""Weights & Biases: what a run tells it, with a module in its place that remembers."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from echelon_jax.cli.main import main
from echelon_jax.config import EnvConfig
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.description import describe
from echelon_jax.runs.sinks import JsonLines
from echelon_jax.runs.weights_and_biases import Options, WeightsAndBiases
from echelon_jax.training.config import TrainConfig


class Artifact:
    """Remembers what was put into it."""

    def __init__(self, name: str, type: str) -> None:
        self.name, self.type, self.places = name, type, list[str]()
        self.add_dir = self.add_file = self.places.append


@pytest.fixture
def fake_wandb(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that remembers what it is told, and as the real one returns the active run unless a new one is asked for."""
    module = types.ModuleType("wandb")
    module.told, module.run, module.Error = [], None, type("Error", (Exception,), {})

    def init(**kwargs: object) -> types.SimpleNamespace:
        module.told.append(kwargs)
        if module.run is not None and kwargs.get("reinit") != "create_new":
            return module.run
        run = types.SimpleNamespace(rows=[], finished=False, artifacts=[])
        run.log_artifact = run.artifacts.append
        run.log = lambda values, step: (run.rows.append(values), module.told.append((step, values)))
        run.finish = lambda: (setattr(run, "finished", True), module.told.append("finished"))
        if kwargs.get("reinit") != "create_new":
            module.run = run
        return run

    module.init, module.Artifact = init, Artifact
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_every_seed_has_a_run_of_its_own_and_the_callers_is_left_alone(
    fake_wandb: types.ModuleType, tmp_path: Path
) -> None:
    mine = fake_wandb.init(project="my own")
    sinks = {}
    for seed in range(3):
        (tmp_path / f"seed{seed}").mkdir()
        sinks[seed] = WeightsAndBiases("mechs", tmp_path / f"seed{seed}", {"seed": seed})
    lines = {seed: [{"update": update, "seed": seed} for update in (1, 2, 3)] for seed in sinks}
    for rows in zip(*lines.values(), strict=True):  # side by side, as seeds train
        for seed, line in enumerate(rows):
            JsonLines(tmp_path / f"seed{seed}").write(line)
            sinks[seed].write(line)
    for seed, sink in sinks.items():
        sink.close()
        written = (tmp_path / f"seed{seed}" / "metrics.jsonl").read_text().splitlines()
        assert sink.run.rows == [json.loads(line) for line in written] == lines[seed]
    assert fake_wandb.run is mine and mine.rows == [] and not mine.finished
    assert len({told["id"] for told in fake_wandb.told if isinstance(told, dict) and "id" in told}) == 3


def test_a_missing_login_is_one_sentence(fake_wandb: types.ModuleType, tmp_path: Path) -> None:
    def refuse(**kwargs: object) -> None:
        raise fake_wandb.Error("No API key configured.\nUse `wandb login`")

    fake_wandb.init = refuse
    with pytest.raises(CheckpointError, match=r"cannot be used: No API key configured\.$"):
        WeightsAndBiases("mechs", tmp_path, {})


def test_a_run_in_the_working_directory_has_its_name(
    fake_wandb: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    WeightsAndBiases("mechs", Path("."), {})
    assert fake_wandb.told[0]["name"] == tmp_path.name


def test_weights_and_biases_gets_configuration_and_lines(fake_wandb: types.ModuleType, tmp_path: Path) -> None:
    description = describe(TrainConfig.smoke(), EnvConfig())
    for _ in range(2):  # a resumed run goes on under the same identity
        sink = WeightsAndBiases("mechs", tmp_path, description)
        sink.write({"update": 7, "win_rate": 0.5, "draw_rate": None})
        sink.close()
    begun, logged, finished, again = fake_wandb.told[:4]
    assert (begun["project"], begun["config"], begun["name"]) == ("mechs", description, tmp_path.name)
    assert logged == (7, {"update": 7, "win_rate": 0.5})
    assert finished == "finished"
    assert again["id"] == begun["id"]


def test_a_missing_weights_and_biases_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(CheckpointError, match=r"pip install 'echelon-jax\[wandb\]'"):
        WeightsAndBiases("mechs", tmp_path, {})


def test_group_tags_and_offline_are_told(fake_wandb: types.ModuleType, tmp_path: Path) -> None:
    WeightsAndBiases("mechs", tmp_path, {}, Options("seeds", ("long", "modern"), offline=True))
    [told] = fake_wandb.told
    assert (told["group"], told["tags"], told["mode"], told["resume"]) == ("seeds", ["long", "modern"], "offline", None)
    WeightsAndBiases("mechs", tmp_path, {})
    told = fake_wandb.told[1]
    assert (told["group"], told["tags"], told["mode"], told["resume"]) == (None, None, None, "allow")


def test_checkpoints_and_replays_are_sent_when_the_run_ends(fake_wandb: types.ModuleType, tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "00000002").mkdir(parents=True)
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "game3.echelon").write_bytes(b"")
    sink = WeightsAndBiases("mechs", tmp_path, {}, Options(artifacts=True))
    assert sink.run.artifacts == []
    sink.close()
    sent = {artifact.type: (artifact.name, artifact.places) for artifact in sink.run.artifacts}
    assert sent == {
        "model": (f"checkpoints-{sink.identity}", [str(tmp_path / "checkpoints")]),
        "replay": (f"replay-game3-{sink.identity}", [str(tmp_path / "report" / "game3.echelon")]),
    }
    quiet = WeightsAndBiases("mechs", tmp_path, {})
    quiet.close()
    assert quiet.run.artifacts == [] and quiet.run.finished


def test_an_artifact_that_is_not_taken_is_one_sentence_and_the_run_is_finished(
    fake_wandb: types.ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "checkpoints").mkdir()
    sink = WeightsAndBiases("mechs", tmp_path, {}, Options(artifacts=True))

    def refuse(artifact: Artifact) -> None:
        raise fake_wandb.Error("quota\nexceeded")

    sink.run.log_artifact = refuse
    with pytest.raises(CheckpointError, match=r"took no artifact: quota$"):
        sink.close()
    assert sink.run.finished


@pytest.mark.parametrize("flags", [["--wandb-group", "a"], ["--wandb-tags", "a"], ["--wandb-offline"]])
def test_options_without_a_project_are_one_sentence(capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert main(["train", "--preset", "smoke", *flags]) == 2
    assert "wandb must name a project" in capsys.readouterr().err
