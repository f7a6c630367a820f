# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train a policy in five minutes
#
# Two teams of five mechs fight for a zone. A recurrent policy learns against the scripted opponent, on two cores in about five
# minutes; then it plays evaluation games on maps that training never saw. Open this file as a notebook with jupytext.
#
# `ECHELON_NOTEBOOKS=small` runs everything at toy size, as the tests do: it shows that the cells work, not what is learnt.

# %%
import os
from pathlib import Path

SMALL = os.environ.get("ECHELON_NOTEBOOKS") == "small"
RUN = Path(os.environ.get("ECHELON_NOTEBOOK_RUN", "runs/notebook"))

from echelon_jax.cli.common import set_up_jax

set_up_jax()  # a persistent cache: the second time nothing compiles

import matplotlib.pyplot as plt
from rich.console import Console

import echelon_jax
from echelon_jax import EnvConfig
from echelon_jax.cli.common import behaviour_table, games_table
from echelon_jax.runs.description import read_lines
from echelon_jax.runs.runner import Runner
from echelon_jax.training.config import TrainConfig

# %% [markdown]
# ## The game and the learner
#
# `EnvConfig()` is the revised game with its modern observation, actions and reward; `EnvConfig.original()` is the original to the
# letter. A preset fills the training configuration, and every field can be overridden (docs/configuration.md).

# %%
game = EnvConfig(size_x=28, size_y=28) if SMALL else EnvConfig(size_x=40, size_y=40)
config = TrainConfig.smoke(updates=3) if SMALL else TrainConfig.cpu()
print(f"{config.updates} updates of {config.decisions_per_update} decisions of {2 * game.team_size} mechs each")

# %% [markdown]
# ## Train
#
# Rollout, opponent, resets, advantages and gradient steps are one compiled program; the host gets one small transfer per launch.
# The run directory holds configuration, metrics, TensorBoard files and checkpoints; a run that was cut off goes on here.

# %%
Runner(RUN, config, game, resume=(RUN / "checkpoints").is_dir()).train()
# %% [markdown]
# ## What happened
#
# One line per launch is in `metrics.jsonl`; docs/metrics.md says what each name means. A game lasts up to 240 decisions, so the
# first launches may end none: there the rates are missing.

# %%
lines = read_lines(RUN)
shown = {
    "return_per_mech": "return of a mech",
    "win_rate": "win rate",
    "in_zone": "share of decisions in the zone",
    "update/explained_variance": "explained variance of the critic",
}
figure, axes = plt.subplots(1, len(shown), figsize=(4 * len(shown), 3))
for axis, (name, title) in zip(axes, shown.items(), strict=True):
    points = [(line["env_steps"], line[name]) for line in lines if line[name] is not None]
    axis.plot(*zip(*points, strict=True) if points else ([], []), marker=".")
    axis.set(title=title, xlabel="environment steps")
figure.tight_layout()

# %% [markdown]
# ## Play
#
# Both sides of every map. The intervals tell how much of a difference is luck.

# %%
games = 4 if SMALL else 100
result = echelon_jax.evaluate(RUN, "scripted" if SMALL else ["scripted:0.3", "scripted", "random"], games=games)
console = Console(width=140)
console.print(games_table(f"{RUN} after update {result.update}", result.against))
console.print(behaviour_table(result.against))
