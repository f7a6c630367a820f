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
# # Quickstart: train, evaluate, watch, export
#
# Two teams of five mechs fight for a zone. A recurrent policy learns against the scripted opponent. Then it plays
# evaluation games on maps that training never saw, one of them is shown, and the policy is exported. Run time: seven to
# ten minutes on two cores, nearly all of it training.
#
# `ECHELON_NOTEBOOKS=small` runs everything at toy size, as the tests do, in about a minute with a warm compilation
# cache. That shows that the cells work, but nothing about learning. The outputs that are stored with the notebook were
# made so.

# %%
import os
from pathlib import Path

SMALL = os.environ.get("ECHELON_NOTEBOOKS") == "small"
RUN = Path(os.environ.get("ECHELON_NOTEBOOK_RUN", "runs/notebook"))

from echelon_jax.jax_setup import set_up_jax

set_up_jax()  # with a persistent cache, so that a second run compiles nothing

import jax
import matplotlib.pyplot as plt
from IPython.display import Image
from rich.console import Console

import echelon_jax
from echelon_jax import EnvConfig
from echelon_jax.evaluation.recording import Recorder
from echelon_jax.evaluation.tables import behaviour_table, games_table
from echelon_jax.evaluation.validation import Validator
from echelon_jax.runs.description import read_lines
from echelon_jax.runs.runner import Runner
from echelon_jax.training.config import TrainConfig
from echelon_jax.viewing.topdown import draw_frame

# %% [markdown]
# ## The game and the learner
#
# `EnvConfig()` is the revised game with its modern observation, actions and reward; `EnvConfig.original()` is the
# original to the letter. A preset fills the training configuration, and every field can be overridden
# (docs/configuration.md).

# %%
game = EnvConfig(size_x=28, size_y=28) if SMALL else EnvConfig(size_x=40, size_y=40)
config = TrainConfig.smoke(updates=3) if SMALL else TrainConfig.cpu()
print(f"{config.updates} updates of {config.decisions_per_update} decisions of {2 * game.team_size} mechs each")

# %% [markdown]
# ## Train
#
# Rollout, opponent, resets, advantages and gradient steps are one compiled program. The host gets one small transfer
# per call. The run directory holds configuration, metrics, TensorBoard files and checkpoints. If the run was
# interrupted, this cell continues it. Every few updates the validator plays games on maps of their own; they choose the
# checkpoint that is kept as the best.

# %%
state = Runner(RUN, config, game, resume=(RUN / "checkpoints").is_dir(), validator=Validator).train()
# %% [markdown]
# ## What happened
#
# `metrics.jsonl` holds one line per call; docs/metrics.md says what each name means. A game lasts up to 240
# decisions, so no game may end in the first calls, and the rates are missing there.

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
# The policy plays both sides of every map. The intervals show how much of a difference may be luck.

# %%
games = 4 if SMALL else 100
record = Recorder(game=0)  # keeps game 0 against the first opponent
opponents = "scripted" if SMALL else ["scripted", "scripted:0.3", "random"]
result = echelon_jax.evaluate(RUN, opponents, games=games, record=record)
console = Console(width=80)
console.print(games_table(f"{RUN} after update {result.update}", result.against))
console.print(behaviour_table(result.against))

# %% [markdown]
# ## Watch
#
# The middle of that game from above. `echelon watch --blue runs/notebook` plays another one and opens it in the browser,
# in three dimensions; `echelon evaluate runs/notebook --out report --replay 0` does that with this game.

# %%
image = draw_frame(game, record.frames[len(record.frames) // 2], scale=10)
picture = RUN / "game0.png"
image.save(picture)
Image(filename=str(picture))

# %% [markdown]
# ## Export
#
# The policy of a checkpoint is a tree of named arrays, which orbax restores without this package
# (docs/reliability.md). `echelon export runs/notebook --format torch` and `--format onnx` write it for other programs
# (docs/export.md). With this package, `load_policy` makes it act.

# %%
policy = echelon_jax.load_policy(RUN)
numbers = sum(leaf.size for leaf in jax.tree.leaves(policy.params))
print(f"{numbers:,} parameters after update {policy.update}")
