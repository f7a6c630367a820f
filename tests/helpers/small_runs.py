"""The small training run on the fake environment that several test files share."""

from echelon_jax.training.config import TrainConfig
from helpers.fake_env import fake_params

TRAIN = TrainConfig(
    arenas=16,
    rollout_steps=16,
    updates=80,
    updates_per_call=4,
    epochs=4,
    minibatches=2,
    learning_rate=3e-3,
    network="original",
    hidden=16,
    lstm=16,
    opponent="random",
    fire_start=0.2,
    fire_end=0.8,
    fire_ramp=6,
)
PARAMS = fake_params(death_rate=0.02, decided_rate=0.02)
