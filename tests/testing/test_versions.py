"""Versions: a name plays as it always did, and the page of versions says so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import echelon_jax
from echelon_jax.api import environment_config
from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants
from echelon_jax.testing import fingerprint
from echelon_jax.versions import VERSIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "versions.md"
SMALL = EnvConfig(size_x=28, size_y=28, size_z=8)


@pytest.mark.parametrize("name", VERSIONS)
def test_a_version_plays_as_it_always_did(name):
    found = fingerprint(environment_config(name))
    assert found == VERSIONS[name].fingerprint, (
        f"{name} plays differently. If that is meant, docs/versions.md says what to do; the new fingerprint is {found}"
    )


def test_the_page_lists_every_version_with_its_fingerprint():
    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(Echelon[\w-]+)` \|.*\| `([0-9a-f]{32})` \|", text, re.MULTILINE))
    assert rows == {name: version.fingerprint for name, version in VERSIONS.items()}


@pytest.fixture(scope="module")
def plain():
    return fingerprint(SMALL)


@pytest.mark.parametrize(
    "change",
    [
        {"dt": 0.06},
        {"observation_mode": "partial"},
        {"reward": "original"},
        {"fair_order": False},
    ],
)
def test_another_game_has_another_fingerprint(change, plain):
    assert fingerprint(dataclasses.replace(SMALL, **change)) != plain


def test_the_same_game_has_the_same_fingerprint_each_time(plain):
    assert fingerprint(SMALL) == plain


def test_one_number_of_the_rules_changes_the_fingerprint(plain, monkeypatch):
    monkeypatch.setattr(constants, "VENT_MULTIPLIER", 2.1)
    assert fingerprint(SMALL) != plain


def test_make_knows_the_versions_and_keeps_their_rules():
    assert environment_config("Echelon-v1") == EnvConfig(size_x=40, size_y=40)
    assert environment_config("Echelon-original") == EnvConfig.original(size_x=60, size_y=60)
    with pytest.raises(ValueError, match="rules must be revised for Echelon-v1, or left out, got 'original'"):
        echelon_jax.make("Echelon-v1", rules="original")
    with pytest.raises(ValueError, match="name must be one of Echelon-v1, Echelon-original, 5v5-28"):
        echelon_jax.make("Echelon-v2")
