"""Versions: a name plays as it always did, and the page of versions says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import echelon_jax
from echelon_jax.api import environment_config
from echelon_jax.testing import compare, fingerprint
from echelon_jax.testing.fingerprint import TOLERANCE
from echelon_jax.versions import VERSIONS
from tests.helpers.adaptors import GAME

PAGE = Path(__file__).resolve().parents[2] / "docs" / "versions.md"


@pytest.mark.parametrize("name", VERSIONS)
def test_a_version_plays_as_it_always_did(name):
    found = fingerprint(*echelon_jax.make(name, worlds=2))
    faults = compare(found, VERSIONS[name].fingerprint)
    assert faults == [], (
        f"{name} plays differently. If that is meant, give it a new number in echelon_jax/versions.py, and a row in "
        f"docs/versions.md: {found}"
    )


def test_the_page_lists_every_version_with_its_fingerprint():
    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(Echelon[\w-]+)` \|.*\| `([0-9a-f]{32})` \|", text, re.MULTILINE))
    assert rows == {name: version.fingerprint.exact for name, version in VERSIONS.items()}


def test_a_fingerprint_shows_a_changed_reward_observation_or_state_and_nothing_else():
    made = fingerprint(*echelon_jax.make(**GAME))
    near = made._replace(rewards=tuple(value + TOLERANCE / 3 for value in made.rewards))
    assert compare(near, made) == []
    assert len(made.rewards) == len(made.observations) == 10 and len(set(made.observations)) == 10
    for change, sentence in (
        (made._replace(exact="0" * 32), "tables, maps or whole numbers of the states have changed"),
        (made._replace(rewards=(*made.rewards[:-1], made.rewards[-1] + 1e-3)), "rewards have changed"),
        (made._replace(observations=made.observations[:-1]), "observations have changed"),
    ):
        [fault] = compare(change, made)
        assert fault.startswith(sentence)


def test_make_knows_the_versions_and_keeps_their_rules():
    config = environment_config("Echelon-v1")
    assert config == echelon_jax.EnvConfig(size_x=40, size_y=40)
    assert environment_config("Echelon-original") == echelon_jax.EnvConfig.original(size_x=60, size_y=60)
    with pytest.raises(ValueError, match="rules must be revised for Echelon-v1, or left out, got 'original'"):
        echelon_jax.make("Echelon-v1", rules="original")
    with pytest.raises(ValueError, match="name must be one of Echelon-v1, Echelon-original, 5v5-28"):
        echelon_jax.make("Echelon-v2")
