"""A small run with a league on the fake environment, compiled once for all tests of a process."""

from __future__ import annotations

from functools import cache

from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import Train, make_train
from helpers.fake_env import FakeEnv, fake_params
from helpers.small_runs import TRAIN

SLOTS = 2
NAMES = ("helpers.fake_env:CountingAgent", "random")
CONFIGURED = TrainConfig(
    **{
        **TRAIN.__dict__,
        "opponent": "league",
        "league_slots": SLOTS,
        "league_agents": " ".join(NAMES),
        "league_every": 4,
        "epochs": 1,
        "minibatches": 1,
    }
).validate()
PARAMS = fake_params(death_rate=0.02, decided_rate=0.1)


@cache
def trainer() -> Train:
    """The compiled trainer."""
    return make_train(FakeEnv(), CONFIGURED)
