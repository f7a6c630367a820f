"""Games for the tests of the adaptors: a small real one, and a tiny made-up one that compiles in a second."""

from __future__ import annotations

from echelon_jax.compat.team import TeamGame, TeamParams
from tests.helpers.fake_env import FakeEnv, fake_params

# Twelve decisions on the smallest map with the original's rules, which compile fastest.
RULES = {"rules": "original", "size_x": 20, "size_y": 20, "size_z": 8, "max_episode_seconds": 3.0}
GAME = {"name": "5v5-28", "worlds": 2, **RULES}
STEPS = 12


def fake_game(death_rate: float = 0.0, decided_rate: float = 0.0, **fields: object) -> tuple[TeamGame, TeamParams]:
    """Both teams of the made-up game, or one team with `opponent=`; time is up after `fake_env.MAX_STEPS` decisions."""
    return TeamGame(FakeEnv(), **fields), TeamParams(fake_params(death_rate, decided_rate))
