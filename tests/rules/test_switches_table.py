"""Every switch is on by default, off in the original, and has a test of its own that docs/differences.md names."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from echelon_jax.config import INTERFACE_FIELDS, SWITCHES, EnvConfig

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "differences.md"
ROW = re.compile(r"^\| `(\w+)` \| ((?:`[\w/]+\.py::\w+`(?:, )?)+) \|$", re.MULTILINE)


def test_the_default_game_has_every_switch_on_and_the_original_none():
    assert all(getattr(EnvConfig(), name) is True for name in SWITCHES)
    assert all(getattr(EnvConfig.original(), name) is False for name in SWITCHES)
    assert {getattr(EnvConfig(), name) for name in INTERFACE_FIELDS} == {"modern"}
    assert {getattr(EnvConfig.original(), name) for name in INTERFACE_FIELDS} == {"original"}
    assert EnvConfig.revised(size_x=60) == EnvConfig(size_x=60)


def test_the_switches_are_the_fields_that_the_two_games_differ_in():
    fields = {f.name for f in dataclasses.fields(EnvConfig)}
    differ = {name for name in fields if getattr(EnvConfig(), name) != getattr(EnvConfig.original(), name)}
    assert differ == {*SWITCHES, *INTERFACE_FIELDS, "comm_dim"}


@pytest.mark.parametrize("switch", SWITCHES)
def test_the_page_names_a_test_for_the_switch_that_exists(switch):
    named = [
        test
        for name, tests in ROW.findall(PAGE.read_text())
        for test in re.findall(r"`(.*?)`", tests)
        if name == switch
    ]
    assert named
    for test in named:
        file, function = test.split("::")
        tree = ast.parse((TESTS / file).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test


def test_the_page_describes_every_switch_once():
    described = re.findall(r"^\| `(\w+)` \| (?!`\w+/test_)", PAGE.read_text(), re.MULTILINE)
    assert [name for name in described if name in SWITCHES] == list(SWITCHES)
