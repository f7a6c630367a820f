"""The real games keep their interface: with and without automatic reset, in full and in partial mode."""

from __future__ import annotations

import pytest

import echelon_jax
from echelon_jax.testing import api_test
from tests.helpers.adaptors import GAME


@pytest.mark.slow
def test_the_original_game_passes_and_so_does_its_step_of_one_arena():
    api_test(*echelon_jax.make(**GAME))


@pytest.mark.extended
def test_the_revised_game_in_partial_mode_passes_without_automatic_reset():
    env, params = echelon_jax.make("5v5-28", worlds=2, size_z=8, observation_mode="partial", auto_reset=False)
    api_test(env, params, auto_reset=False, vmapped=False)
