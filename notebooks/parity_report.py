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
# # The parity report
#
# Is this the same game as the original? This notebook loads recorded states of the original, replays the recorded
# actions and draws for one decision, and compares every field with the next recorded state (docs/parity.md).
# `ECHELON_GOLDEN` names the folder of all recordings. Without it the notebook compares the small recordings that come
# with the project. Run time: one to two minutes on one core for the small ones, half of it compiling; ten times that for
# all.

# %%
import os
from pathlib import Path

SMALL = os.environ.get("ECHELON_NOTEBOOKS") == "small"

from echelon_jax.jax_setup import set_up_jax

set_up_jax()

import matplotlib.pyplot as plt
from rich.console import Console

from echelon_jax.parity.comparison import compare_all

here = Path.cwd()
project = next(candidate for candidate in (here, *here.parents) if (candidate / "tests" / "data" / "episodes").is_dir())
golden = Path(os.environ.get("ECHELON_GOLDEN", ""))
whole = not SMALL and (golden / "episodes").is_dir()
folder = golden if whole else project / "tests" / "data"

# %%
episodes = sorted((folder / "episodes").glob("*.npz"))
chosen = {"episodes": [p for p in episodes if not SMALL or p.stem == "lava_1"]}
if whole:
    chosen |= {name: sorted((folder / name).glob("*.npz")) for name in ("queries", "worlds")}
report = compare_all(chosen, 64 if whole else 32, print)
report.whole_set = whole

# %%
report.show(Console(width=100))

# %% [markdown]
# ## How close
#
# The left plot shows the largest difference of each float field that agrees within its tolerance. The right plot
# shows the share of rows that agree bit for bit. The original computes in float64, this library in float32.

# %%
data = report.as_dict()
fields = {name: count for name, count in data["episodes"]["fields"].items() if count["largest"] > 0}
names = sorted(fields, key=lambda name: fields[name]["largest"])
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 0.25 * len(names) + 1.5), sharey=True)
left.barh(names, [fields[name]["largest"] for name in names])
left.set(xscale="log", xlabel="largest difference")
right.barh(names, [fields[name]["exact"] / max(fields[name]["rows"], 1) for name in names])
right.set(xlim=(0, 1), xlabel="share of rows that agree bit for bit")
figure.tight_layout()

# %% [markdown]
# ## The result

# %%
assert data["ok"], data["failures"]
episodes = data["episodes"]
print(f"{episodes['mech_rows_agreeing_share']:.3%} of {episodes['mech_rows']} rows agree in every field")
