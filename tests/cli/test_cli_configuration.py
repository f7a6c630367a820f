"""Configuration: every field documented and reachable, saved and read back exactly, whole plans without compiling."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from echelon_jax.cli.common import GameFlags
from echelon_jax.cli.configuration import page, read_configuration
from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.main import main
from echelon_jax.cli.plan import known_rate
from echelon_jax.cli.train import TrainCommand, TrainFlags
from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.shapes import abstract_bank
from echelon_jax.fields import help_texts
from echelon_jax.jax_setup import machine_key
from echelon_jax.runs.description import describe
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.curriculum import REWARD_WEIGHTS
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.worldgen.bank import generate_worlds

ROOT = Path(__file__).resolve().parents[2]


def saved(folder: Path, config: TrainConfig, env_config: EnvConfig, **changes: object) -> Path:
    described = describe(config, env_config)
    for section in ("train", "env"):
        described[section] |= {k.removeprefix(f"{section}_"): v for k, v in changes.items() if k.startswith(section)}
    (folder / "config.json").write_text(json.dumps(described))
    return folder / "config.json"


def test_every_field_of_both_configurations_has_its_own_text() -> None:
    for kind in (TrainConfig, EnvConfig):
        assert all(help_texts(kind).values())


def test_every_field_of_both_configurations_is_a_described_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    short = {"num_packs": "packs", "observation_mode": "mode"}
    for kind in (TrainConfig, EnvConfig):
        for field in dataclasses.fields(kind):
            assert f"--{short.get(field.name, field.name).replace('_', '-')} " in shown, field.name


def test_the_page_of_the_configuration_is_up_to_date() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == page(), "run: python -m echelon_jax.cli.configuration > docs/configuration.md"


def test_a_saved_configuration_is_reloaded_exactly(tmp_path: Path) -> None:
    config = TrainConfig.smoke(gamma=0.97, reward_win=12.0)
    env_config = EnvConfig(size_x=32, size_y=36, fair_zone=False, reward="modern")
    command = TrainCommand(config=saved(tmp_path, config, env_config))
    assert command.configurations() == (config, env_config)
    assert TrainCommand(config=tmp_path).configurations() == (config, env_config)  # the run itself will do


def test_a_field_that_a_run_did_not_have_yet_means_what_was_done_then(tmp_path: Path) -> None:
    described = describe(TrainConfig.smoke(after_death=0.5), EnvConfig())
    del described["train"]["after_death"], described["env"]["fair_zone"]
    (tmp_path / "config.json").write_text(json.dumps(described))
    config, env_config = TrainCommand(config=tmp_path).configurations()
    assert (config.after_death, env_config.fair_zone) == (0.0, False)


def test_a_file_written_by_hand_may_hold_a_few_fields(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({"train": {"gamma": 0.97}, "env": {"size_x": 32}}))
    config, env_config = TrainCommand(config=tmp_path / "mine.json").configurations()
    assert (config, env_config) == (TrainConfig(gamma=0.97), EnvConfig(size_x=32))


def test_flags_beside_a_saved_configuration_override_it(tmp_path: Path) -> None:
    file = saved(tmp_path, TrainConfig.smoke(gamma=0.97), EnvConfig(size_x=32, size_y=36))
    command = TrainCommand(config=file, train=TrainFlags(gamma=0.9), game=GameFlags(size=40))
    config, env_config = command.configurations()
    assert (config, env_config) == (TrainConfig.smoke(gamma=0.9), EnvConfig(size_x=40, size_y=40))


def test_a_rule_set_beside_a_saved_configuration_sets_all_that_it_sets(tmp_path: Path) -> None:
    file = saved(tmp_path, TrainConfig.smoke(), EnvConfig(size_x=32, size_y=36))
    assert GameFlags(rules="original").config(40, read_configuration(file)[1]) == EnvConfig.original(
        size_x=32, size_y=36
    )


@pytest.mark.parametrize("change", [{"train_gama": 0.9}, {"env_gravity": 1.0}])
def test_an_unknown_key_is_refused_by_name(tmp_path: Path, change: dict[str, float]) -> None:
    file = saved(tmp_path, TrainConfig.smoke(), EnvConfig(), **change)
    [name] = change
    with pytest.raises(UsageError, match=name.replace("_", ".")):
        read_configuration(file)


def test_an_unknown_section_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"train": {}, "env": {}, "trian": {}}))
    with pytest.raises(UsageError, match="trian"):
        read_configuration(tmp_path)


@pytest.mark.parametrize(("text", "what"), [("{", "not JSON"), ("[]", "sections"), ('{"env": {}}', "sections")])
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=what):
        read_configuration(tmp_path / "config.json")


def test_a_preset_beside_a_saved_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        TrainCommand(config=tmp_path, preset="cpu").configurations()


def test_a_run_is_resumed_with_its_own_configuration(tmp_path: Path) -> None:
    config, env_config = TrainConfig.smoke(gamma=0.97), EnvConfig(size_x=32, size_y=36)
    saved(tmp_path, config, env_config)
    command = TrainCommand(resume=True, run_dir=tmp_path, train=TrainFlags(updates=8))
    assert command.configurations() == (dataclasses.replace(config, updates=8), env_config)


def test_a_reward_weight_of_the_configuration_is_what_the_game_pays() -> None:
    env_config = EnvConfig.revised(reward="modern")
    usual = reward_weights(TrainConfig(), env_config)
    changed = reward_weights(TrainConfig(reward_kill=0.125, reward_win=11.0), env_config)
    assert (float(changed.kill), float(changed.win)) == (0.125, 11.0)
    assert changed.replace(kill=usual.kill, win=usual.win) == usual


def test_a_weight_that_the_reward_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="reward_win"):
        reward_weights(TrainConfig(reward_win=1.0), EnvConfig.original())
    with pytest.raises(ValueError, match="win"):  # farming would pay more
        reward_weights(TrainConfig(reward_win=1.0), EnvConfig.revised(reward="modern"))


@pytest.mark.parametrize("name", REWARD_WEIGHTS)
def test_a_reward_weight_out_of_range_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"reward_{name}"):
        TrainConfig(**{f"reward_{name}": float("inf")}).validate()


def test_a_dry_run_prints_the_plan_and_neither_compiles_nor_writes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["train", "--preset", "smoke", "--dry-run", "--updates", "6"]) == 0
    shown = capsys.readouterr().out
    for part in ("6 in 6 calls", "parameters", "memory: rollout", "memory: worlds", "not known", "28x28x20"):
        assert part in shown
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_its_plan_as_json_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--preset", "smoke", "--dry-run", "--updates", "6", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    config = TrainConfig.smoke(updates=6)
    assert (plan["updates"], plan["env_steps"]) == (6, 6 * config.decisions_per_update)
    assert plan["memory"]["rollout"] > 0 and plan["shapes"]["observation"][0] == config.arenas


def test_the_planned_bank_has_the_shapes_of_a_real_one() -> None:
    config = EnvConfig(size_x=28, size_y=28)
    real = Echelon(config).make_bank(generate_worlds(config, range(2)))
    planned = abstract_bank(config, 2)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), real) == jax.tree.map(lambda x: (x.shape, x.dtype), planned)
    partial = abstract_bank(EnvConfig(size_x=28, size_y=28, observation_mode="partial"), 2)
    assert partial.known.shape == (2, 10, 10)  # in partial mode a bank also knows who sees whom at first


def test_the_rate_is_that_of_a_run_of_the_same_game_and_sizes(tmp_path: Path) -> None:
    config, env_config = TrainConfig.smoke(), EnvConfig(size_x=28, size_y=28)
    for name, made, rate in (("same", config, 100.0), ("wider", TrainConfig.smoke(hidden=64), 50.0)):
        (tmp_path / name).mkdir()
        saved(tmp_path / name, made, env_config)
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps({"env_steps_per_second": rate}) + "\n")
    assert known_rate(config, env_config, tmp_path) == (100.0, tmp_path / "same")
    assert known_rate(config, EnvConfig(size_x=40, size_y=40), tmp_path) is None


def test_compiled_programs_are_cached_by_default_under_the_machines_name(tmp_path: Path) -> None:
    program = (
        "import echelon_jax.cli.main\n"
        "from echelon_jax.cli.common import set_up_jax\n"
        "set_up_jax(1)\n"
        "import jax\n"
        "print(jax.config.jax_compilation_cache_dir)\n"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"XDG_CACHE_HOME": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=clean, timeout=120, cwd=ROOT, check=True
    )
    assert told.stdout.strip() == str(tmp_path / "echelon-jax" / "xla" / machine_key())


def test_a_run_that_starts_from_a_policy_has_no_teacher_unless_it_names_one() -> None:
    policy = Path("zoo:champion")
    fresh, _ = TrainCommand(preset="cpu").configurations()
    later, _ = TrainCommand(preset="cpu", start_from=policy).configurations()
    asked, _ = TrainCommand(preset="cpu", start_from=policy, train=TrainFlags(teacher="scripted:hard")).configurations()
    assert (fresh.teacher, later.teacher, asked.teacher) == (TrainConfig.cpu().teacher, "", "scripted:hard")
    assert fresh.teacher
