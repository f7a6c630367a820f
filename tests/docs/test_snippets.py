"""The Python programs of the pages do what the pages say: each runs here or in the test that is named, or it says why not.

Nothing is compiled that takes long: a run is made up (`helpers/made_up_runs.py`), and policies act on a few rows.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.made_up_runs import make_up, run

import echelon_jax
from echelon_jax.config import EnvConfig

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = Path("runs") / "cpu-40-seed0"  # as the pages call it
ELSEWHERE = {
    "README.md 0": "tests/cli/test_product.py",
    "README.md 1": "tests/cli/test_product.py",
    **{f"docs/adaptors.md {number}": "tests/docs/test_adaptors_page.py" for number in range(6)},
    "docs/extending.md 0": "tests/rules/test_weapon_example.py",
    "docs/extending.md 1": "tests/env/test_own_observation.py",
    "docs/tutorials.md 0": "tests/docs/test_site.py",  # it is the first program of the README
}
NOT_RUN = {
    "docs/evaluation.md 0": "it plays 2,000 games; tests/evaluation/test_evaluation.py makes the same calls for a few",
    "docs/replays.md 0": "it goes on from rows of a rollout; tests/replay/test_replay_game.py makes the same calls",
}


def snippets() -> dict[str, str]:
    """Every Python program by its page and number there."""
    return {
        f"{page.relative_to(ROOT).as_posix()} {number}": text
        for page in PAGES
        for number, text in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL))
    }


SNIPPETS = snippets()
RUNNERS: dict[str, Callable[[dict[str, Any]], None]] = {}


def runs(page: str) -> Callable[[Callable[[dict[str, Any]], None]], Callable[[dict[str, Any]], None]]:
    """Mark what runs the programs of a page, in a folder of its own and with the names that the page has introduced."""

    def enter(runner: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        RUNNERS[page] = runner
        return runner

    return enter


def play(name: str, names: dict[str, Any], instead: dict[str, str] | None = None) -> None:
    """Run one program; `instead` replaces words of it, each of which must be there."""
    text = SNIPPETS[name]
    for old, new in (instead or {}).items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    exec(compile(text, name, "exec"), names)


def test_every_program_of_the_pages_is_run_or_says_why_not() -> None:
    here = {name for name in SNIPPETS if name.split(" ")[0] in RUNNERS}
    assert set(SNIPPETS) == here | set(ELSEWHERE) | set(NOT_RUN)
    assert not here & (set(ELSEWHERE) | set(NOT_RUN))
    for name, test in ELSEWHERE.items():
        page, text = name.split(" ")[0], (ROOT / test).read_text(encoding="utf-8")
        assert page.removeprefix("docs/") in text, (name, test)
    for reason in NOT_RUN.values():
        assert all((ROOT / test).is_file() for test in re.findall(r"tests/\S+\.py", reason))


@pytest.fixture
def made_up_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of one update under the name that the pages use, in the working directory."""
    monkeypatch.chdir(tmp_path)
    make_up(monkeypatch)
    run(tmp_path / RUN, updates=1)
    return tmp_path / RUN


@pytest.mark.parametrize("page", ["docs/opponents.md", "docs/rewards.md", "docs/selfplay.md", "docs/versions.md"])
def test_a_program_that_stands_alone_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    RUNNERS[page]({"monkeypatch": monkeypatch})


@pytest.mark.parametrize("page", ["docs/arena.md", "docs/reliability.md"])
def test_a_program_that_reads_a_run_runs(page: str, made_up_run: Path) -> None:
    RUNNERS[page]({"run_dir": made_up_run})


@pytest.mark.parametrize("page", ["docs/zoo.md", "docs/export.md"])
def test_a_program_that_reads_the_zoo_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RUNNERS[page]({"monkeypatch": monkeypatch})


@runs("docs/opponents.md")
def opponents(_: dict[str, Any]) -> None:
    """The outline of an opponent has the methods of the interface, with their arguments in order."""
    from echelon_jax.agents.base import Agent

    names = {"dataclasses": dataclasses, "EnvConfig": EnvConfig}
    play("docs/opponents.md 0", names)
    rusher: Any = names["Rusher"]
    assert isinstance(rusher(EnvConfig()), Agent)
    for method in ("init", "act", "reset_where"):
        ours, theirs = (inspect.signature(getattr(kind, method)).parameters for kind in (rusher, Agent))
        assert len(ours) == len(theirs), method
        assert [name for name in ours if name != "memory"] == [name for name in theirs if name != "agent_state"], method


@runs("docs/rewards.md")
def rewards(_: dict[str, Any]) -> None:
    """The term pays living mechs that fired nothing, and reads fields that there are."""
    from echelon_jax.sim.state import Mechs, Tally

    names: dict[str, Any] = {}
    play("docs/rewards.md 0", names)
    assert {"missile_launches", "kinetic_fires"} <= set(Tally.__dataclass_fields__)
    assert "alive" in Mechs.__dataclass_fields__
    alive = jnp.asarray([[True, True, False]])
    before = types.SimpleNamespace(sim=types.SimpleNamespace(mechs=types.SimpleNamespace(alive=alive)))
    tally = types.SimpleNamespace(missile_launches=jnp.asarray([[0, 1, 0]]), kinetic_fires=jnp.zeros((1, 3), int))
    assert names["hold_fire"](before, before, tally).tolist() == [[1.0, 0.0, 0.0]]


@runs("docs/selfplay.md")
def selfplay(_: dict[str, Any]) -> None:
    """A policy that is offered waits for the slot."""
    import flax.struct

    from echelon_jax.policies.normalize import empty_moments
    from echelon_jax.training.league.state import LeagueState, begin

    class State(flax.struct.PyTreeNode):
        league: LeagueState

    params, moments = {"kernel": jnp.ones(3)}, empty_moments(2)
    league = begin({"kernel": jnp.zeros(3)}, moments, slots=2, agents=1)
    policy = types.SimpleNamespace(params=params, observation_moments=moments)
    names: dict[str, Any] = {"state": State(league=league), "policy": policy}
    play("docs/selfplay.md 0", names)
    offered = names["state"].league
    assert int(offered.waiting_for) == 0 and offered.waiting.params["kernel"].tolist() == [1.0, 1.0, 1.0]


@runs("docs/versions.md")
def versions(given: dict[str, Any]) -> None:
    """The name is one of `make`, whose worlds are made elsewhere."""
    from echelon_jax.api import environment_config

    given["monkeypatch"].setattr(echelon_jax, "make", lambda name: (environment_config(name), None))
    names: dict[str, Any] = {}
    play("docs/versions.md 0", names)
    assert names["env"] == EnvConfig(size_x=40, size_y=40)


@runs("docs/arena.md")
def arena(given: dict[str, Any]) -> None:
    """A run joins a league, which gives its policy back."""
    shutil.rmtree(given["run_dir"])
    shutil.copytree(ROOT / "tests" / "data" / "checkpoints" / "format2", given["run_dir"])  # its policy fits its game
    names: dict[str, Any] = {}
    play("docs/arena.md 0", names)
    assert names["entry"].name == "mine"
    assert names["policy"].update == echelon_jax.load_policy(given["run_dir"]).update


@runs("docs/reliability.md")
def reliability(given: dict[str, Any]) -> None:
    """Plain orbax reads the policy of a checkpoint."""
    names: dict[str, Any] = {}
    place = {"/path/to/RUN": str(given["run_dir"]), "00000040": "00000001"}
    play("docs/reliability.md 0", names, place)
    assert names["params"] and set(names["moments"]) == {"mean", "var", "count"}


@runs("docs/zoo.md")
def zoo(_: dict[str, Any]) -> None:
    """The name is that of a policy."""
    names: dict[str, Any] = {"echelon_jax": echelon_jax}
    play("docs/zoo.md 0", names)
    assert names["policy"].update > 0


@runs("docs/export.md")
def export(given: dict[str, Any]) -> None:
    """Exported policies act in PyTorch and in ONNX, those of the modern and of the original network."""
    for package in ("torch", "safetensors", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'echelon-jax[torch,onnx]'")
    from helpers.export_policies import random_policy

    from echelon_jax.export.onnx_files import write_onnx
    from echelon_jax.export.torch_files import torch_module, write_torch

    champion = echelon_jax.load_policy("zoo:champion")
    wrote = write_torch(champion, Path("policy.safetensors"))
    given["monkeypatch"].syspath_prepend(str(wrote[0].absolute().parent))
    names: dict[str, Any] = {}
    play("docs/export.md 0", names)
    assert names["action"].shape[0] == 5 and bool((abs(names["action"]) <= 1).all())

    write_onnx(torch_module(champion), Path("policy.onnx"))
    names = {}
    play("docs/export.md 1", names)
    assert names["action"].shape[:2] == (1, 5) and names["h"].shape == (1, 5, names["lstm"])

    original = random_policy(hidden=8, lstm=8)
    write_onnx(torch_module(original), Path("original.onnx"))
    import onnxruntime

    session = onnxruntime.InferenceSession("original.onnx", providers=["CPUExecutionProvider"])
    size = session.get_inputs()[0].shape[-1]
    memory = np.zeros((5, 8), np.float32)  # the original network has one axis of rows
    inputs = {"observation": np.zeros((5, size), np.float32), "h": memory, "c": memory, "done": np.zeros(5, bool)}
    names |= {"session": session, "inputs": inputs, "np": np}
    play("docs/export.md 2", names)
    assert names["action"].shape == (5, 26) and (abs(names["action"]) <= 1).all()
