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
# # A league
#
# A league keeps policies and scripted opponents with their results and ratings in one folder (docs/arena.md). This
# notebook adds two checkpoints of one run and two scripted opponents, lets every pair play, and shows who beats whom.
# Run time: two minutes on two cores with 40 games a pair on 28x28 maps, half of it compiling. It reads the run of
# `quickstart`; set `ECHELON_NOTEBOOK_RUN` for another one.

# %%
import os
import tempfile
from pathlib import Path

SMALL = os.environ.get("ECHELON_NOTEBOOKS") == "small"
RUN = Path(os.environ.get("ECHELON_NOTEBOOK_RUN", "runs/notebook"))

from echelon_jax.jax_setup import set_up_jax

set_up_jax()

import matplotlib.pyplot as plt

from echelon_jax.arena.games import crosstable, pairing_of, play_pairs
from echelon_jax.arena.league import League
from echelon_jax.arena.schedule import round_robin
from echelon_jax.runs.checkpoint import saved_updates
from echelon_jax.runs.kept import at_update

# %% [markdown]
# ## Who plays
#
# Weights are copied into the league when they are added and never change, so a rating always belongs to the weights
# that earned it. An anchor keeps its rating and holds the scale.

# %%
folder = tempfile.TemporaryDirectory()
league = League.create(Path(folder.name) / "league")
first, *_, last = saved_updates(RUN)
league.add(at_update(RUN, last), name=f"update {last}")
if not SMALL:
    league.add(at_update(RUN, first), name=f"update {first}")
league.add("scripted", name="scripted", role="anchor", rating=1500)
league.add("random", name="random")
for entry in league.read().entries:
    print(f"{entry.name:12} {entry.kind:7} {entry.role:10} {entry.rating:.0f} +- {entry.deviation:.0f}")

# %% [markdown]
# ## A rating period
#
# Every pair plays on the same maps, both sides of each. All games of a period are rated together (Glicko-2).

# %%
entries = league.read().entries
by_name = {entry.name: entry for entry in entries}
contests = play_pairs(league, round_robin(entries), games=4 if SMALL else 40, seed=0)
period = league.record([pairing_of(by_name[one.a], by_name[one.b], one.games) for one in contests])
for one in contests:
    s = one.summary
    print(f"{one.a:12} against {one.b:12} won {s['wins']}, drawn {s['draws']}, lost {s['losses']}")

# %%
ranked = sorted(period.data.entries, key=lambda entry: entry.rating)
scores = crosstable(period.data.results, [entry.id for entry in ranked[::-1]])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
names = [entry.name for entry in ranked]
left.errorbar([e.rating for e in ranked], names, xerr=[1.96 * e.deviation for e in ranked], fmt="o", capsize=3)
left.set(xlabel="rating, 95 % interval")
picture = right.imshow(scores, vmin=0, vmax=1, cmap="RdBu")
right.set(xticks=range(len(names)), xticklabels=names[::-1], yticks=range(len(names)), yticklabels=names[::-1])
right.set_title("score of the row against the column")
figure.colorbar(picture)
figure.tight_layout()
folder.cleanup()
