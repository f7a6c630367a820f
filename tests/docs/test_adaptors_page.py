"""The programs of docs/adaptors.md run, on small games that compile fast; options are checked as the real ones are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from echelon_jax.api import environment_config
from echelon_jax.evaluation.players import AgentPlayer
from tests.helpers.adaptors import RULES, fake_game
from tests.helpers.fake_env import CountingAgent

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "adaptors.md").read_text(), re.MULTILINE | re.DOTALL)
ABOUT = [re.search(r"compat\.(\w+)|echelon_jax\.(testing)", block) for block in BLOCKS]
NAMES = [match[1] or match[2] for match in ABOUT if match]


def small_game(name, *, opponent="scripted", side="blue", discrete=False, auto_reset=True, **options):
    """The made-up game in place of `make_team_game`."""
    environment_config(name, **options)
    player = None if opponent is None else AgentPlayer(CountingAgent())
    return fake_game(opponent=player, discrete=discrete, auto_reset=auto_reset)


def small_engine(name, engine="jax", **options):
    """The reference on the smallest map in place of `make_engine`."""
    from echelon_jax.compat.engines import ReferenceEngine

    environment_config(name, **options)
    return ReferenceEngine(environment_config("5v5-28", **RULES))


def test_every_program_is_about_an_adaptor_or_the_checks():
    assert NAMES == ["pettingzoo", "gymnasium", "jaxmarl", "gymnax", "dm_env", "testing"] and len(BLOCKS) == len(NAMES)


@pytest.mark.parametrize("name", NAMES[:-1])
def test_the_program_runs(name, monkeypatch):
    module = pytest.importorskip(f"echelon_jax.compat.{name}")
    for home in {module, __import__("echelon_jax.compat.gymnasium", fromlist=["make_team_game"])}:
        if hasattr(home, "make_team_game"):
            monkeypatch.setattr(home, "make_team_game", small_game)
    if name == "pettingzoo":
        monkeypatch.setattr(module, "make_engine", small_engine)
    exec(compile(BLOCKS[NAMES.index(name)], f"docs/adaptors.md, {name}", "exec"), {})


def test_the_program_with_the_checks_calls_them(monkeypatch):
    import echelon_jax.testing

    calls = []
    monkeypatch.setattr(
        echelon_jax, "make", lambda name, worlds, **options: (environment_config(name, **options), worlds)
    )
    monkeypatch.setattr(echelon_jax.testing, "api_test", lambda env, params: calls.append(env.fair_zone))
    exec(compile(BLOCKS[-1], "docs/adaptors.md, testing", "exec"), {})
    assert calls == [False]
