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
# # Evaluate a policy in depth
#
# This notebook shows win rates with their intervals, weapons by range, positions of the mechs, the calibration of the
# critic, and one game from above. It reads the run of `quickstart`; set `ECHELON_NOTEBOOK_RUN` for another run. Run time:
# three minutes on two cores with 200 games against each of three opponents on 40x40 maps; the stored outputs were made at
# toy size (`ECHELON_NOTEBOOKS=small`).

# %%
import os
from pathlib import Path

SMALL = os.environ.get("ECHELON_NOTEBOOKS") == "small"
RUN = Path(os.environ.get("ECHELON_NOTEBOOK_RUN", "runs/notebook"))

from echelon_jax.jax_setup import set_up_jax

set_up_jax()

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

import echelon_jax
from echelon_jax.evaluation.recording import Recorder
from echelon_jax.runs.checkpoint import load_policy
from echelon_jax.runs.description import read_lines
from echelon_jax.viewing import pictures
from echelon_jax.viewing.topdown import write_gif

# %%
policy = load_policy(RUN)
record = Recorder(
    game=0, values=True
)  # keeps the frames of game 0 against the first opponent, and all values of the critic
opponents = ["scripted"] if SMALL else ["scripted", "scripted:0.3", "random"]
result = echelon_jax.evaluate(policy, opponents, games=4 if SMALL else 200, record=record)
against = result.against["scripted"]

# %% [markdown]
# ## Win rates
#
# The Wilson interval treats games as independent. The interval of the score treats maps as independent: the two games
# of a map, one from each side, share its terrain and count as one observation.

# %%
for name, s in result.against.items():
    print(
        f"{name:14} wins {s['win_rate']:4.0%} ({s['win_rate_low']:.0%} to {s['win_rate_high']:.0%}), "
        f"score {s['score']:.2f} ({s['score_low']:.2f} to {s['score_high']:.2f}), "
        f"as blue {s['win_rate_as_blue']:.0%}, as red {s['win_rate_as_red']:.0%}"
    )

# %% [markdown]
# ## Weapons, habits, positions
#
# A trigger pressed "in reach" has a living enemy in range and arc of the weapon. "Chances taken" is the share of such
# moments in which the trigger is pressed. The maps are turned so that the side's own spawn lies to the left.
# docs/evaluation.md defines every number.

# %%
pictures.evaluation_figure(result)
# %%
for name, numbers in against["behaviour"]["own"]["per_class"].items():
    parts = ", ".join(f"{part} {value:+.2f}" for part, value in numbers["reward_components"].items() if value)
    print(f"{name:7} damage {numbers['damage_per_game']:6.1f}, kills {numbers['kills_per_game']:.2f}, reward: {parts}")

# %% [markdown]
# ## Is the critic calibrated?
#
# The plot compares, for every decision of a living mech, the critic's value in units of reward with the discounted
# reward that followed. The critic learns returns divided by their running deviation, which the run's metrics hold.
# The points of a calibrated critic lie on the line. The reward that followed includes rewards after the mech's death,
# such as the game's result: every game is played to its end.

# %%
scale = read_lines(RUN)[-1]["return_deviation"]
value, followed = record.returns(policy.config.gamma)
value = value * scale
edges = np.unique(np.quantile(value, np.linspace(0, 1, 11)))
groups = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, len(edges) - 2)
middle = np.array([value[groups == g].mean() for g in range(len(edges) - 1)])
mean = np.array([followed[groups == g].mean() for g in range(len(edges) - 1)])
spread = np.array([followed[groups == g].std() for g in range(len(edges) - 1)])
figure, axis = plt.subplots(figsize=(5, 4))
axis.errorbar(middle, mean, spread, fmt="o", capsize=3, label="mean and deviation of a tenth of the decisions")
axis.plot(axis.get_xlim(), axis.get_xlim(), color="grey", lw=1, label="calibrated")
axis.set(xlabel="value", ylabel="discounted reward that followed")
axis.legend(fontsize=8)
print(
    f"correlation {np.corrcoef(value, followed)[0, 1]:.2f}, mean error {np.mean(value - followed):+.2f} over {len(value)} decisions"
)

# %% [markdown]
# ## One game from above

# %%
path = write_gif(RUN / "game0.gif", result.env_config, record.frames[::4] if SMALL else record.frames, scale=8)
Image(filename=str(path))
