"""The memory of a run from shapes: what changes it and what does not, and the arenas that fit into a device."""

import dataclasses
import json
import types

import pytest

from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.main import main
from echelon_jax.cli.train import TrainCommand, TrainFlags
from echelon_jax.config import EnvConfig
from echelon_jax.runs import memory
from echelon_jax.runs.description import describe
from echelon_jax.training.config import TrainConfig

GAME = EnvConfig(size_x=28, size_y=28)
CONFIG = TrainConfig.smoke(rollout_steps=16)


@pytest.fixture(scope="module")
def whole():
    return memory.needs(CONFIG, GAME)


def test_the_sum_is_what_is_held_and_the_larger_of_update_and_decision(whole):
    assert whole.total == sum(whole.rows.values())
    assert whole.total == sum(whole.held.values()) + whole.rollout + max(whole.update, whole.decision)
    other = dataclasses.replace(whole, decision=whole.update + 1)
    assert other.total == whole.total + 1 and "decision" in other.rows


def test_parts_of_a_minibatch_and_recomputing_need_less_and_hold_the_same(whole):
    parts = memory.needs(dataclasses.replace(CONFIG, accumulate=2, remat=True), GAME)
    assert (parts.held, parts.rollout) == (whole.held, whole.rollout)
    assert parts.minibatch == whole.minibatch // 2
    assert parts.activations < whole.activations / 3


def test_two_devices_need_half_of_the_arenas_each(whole):
    each = memory.needs(dataclasses.replace(CONFIG, arenas=2 * CONFIG.arenas, devices=2), GAME)
    assert each == whole


def made_up(parameters=1000, each=100):
    """`needs` of a game whose arenas take `each` bytes."""
    return lambda config, env_config: types.SimpleNamespace(total=parameters + each * config.arenas)


@pytest.mark.parametrize(
    ("free", "devices", "most", "expected"),
    [(1000 + 6400, 1, None, 64), (1000 + 6399, 1, None, 56), (1000 + 6400, 2, None, 128), (10**9, 1, 1024, 1024)],
)
def test_as_many_arenas_as_fit_in_the_multiples_that_a_run_asks_for(monkeypatch, free, devices, most, expected):
    monkeypatch.setattr(memory, "needs", made_up())
    config = TrainConfig(minibatches=4, accumulate=2)
    arenas = memory.fitting_arenas(config, GAME, devices, free, most)
    assert arenas == expected
    dataclasses.replace(config, arenas=arenas, devices=devices).validate()


def test_a_memory_for_not_even_the_fewest_arenas_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(memory, "needs", made_up(each=2**20))
    with pytest.raises(ValueError, match=r"arenas must be a number where the memory is short: 8 arenas need 8 MiB"):
        memory.fitting_arenas(TrainConfig(minibatches=8), GAME, 1, 2**20)


def test_a_gpu_tells_its_limit_and_a_cpu_its_machines_memory(monkeypatch):
    def device(stats):
        return types.SimpleNamespace(memory_stats=lambda: stats)

    gpus = [device({"bytes_limit": 1000, "bytes_in_use": used}) for used in (100, 200)]
    assert memory.usable_bytes(gpus)[:2] == (680, None)  # 85 % of what the fuller one has left
    monkeypatch.setattr(memory, "available_bytes", lambda: 8000)
    assert memory.usable_bytes([device(None)] * 2)[:2] == (2000, memory.CPU_ARENAS // 2)


def test_the_arenas_that_fit_are_printed_and_neither_compiled_nor_written(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(memory, "fitting_arenas", lambda *rest: 48)
    assert main(["train", "--preset", "smoke", "--arenas", "auto", "--dry-run", "--total-steps", "15360"]) == 0
    shown = capsys.readouterr().out
    assert "48, which fit into" in shown and "10 in 10 calls" in shown  # 15,360 steps of 48 arenas x 32 decisions
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_on_with_the_arenas_that_it_has(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(describe(TrainConfig.smoke(arenas=24), GAME)))
    train = TrainFlags(arenas="auto")
    for preset in (None, "smoke"):
        command = TrainCommand(preset=preset, resume=True, run_dir=tmp_path, train=train)
        assert command.configurations()[0].arenas == 24
    assert TrainCommand(preset="smoke", run_dir=tmp_path / "new", train=train).configurations()[0].arenas == 2


def test_seeds_need_a_number_of_arenas():
    with pytest.raises(UsageError, match="arenas must be a number with seeds"):
        TrainCommand(preset="smoke", seeds=2, train=TrainFlags(arenas="auto")).run()


def test_another_word_for_the_arenas_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--preset", "smoke", "--arenas", "many", "--dry-run"])
    assert stop.value.code == 2 and "--arenas" in "".join(capsys.readouterr())
