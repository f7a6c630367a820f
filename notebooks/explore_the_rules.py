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
# # Explore the rules
#
# One mech drives and heats up, two mechs fight a duel, and a picture shows what a mech can see. All of it runs in the
# plain numpy reference (`echelon_jax/reference`), which handles one mech at a time and follows the words of
# docs/spec. Only the last cells use the compiled environment. Run time: half a minute on one core, most of it
# compiling.

# %%
import dataclasses

from echelon_jax.jax_setup import set_up_jax

set_up_jax()

import jax
import matplotlib.pyplot as plt
import numpy as np

import echelon_jax
from echelon_jax import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.reference.noise import LiveNoise
from echelon_jax.reference.simulator import simulate
from echelon_jax.reference.state import Battle, make_mechs
from echelon_jax.reference.world import VoxelWorld
from echelon_jax.rules.materials import AIR, DIRT
from echelon_jax.rules.mechs import MECH_CLASSES, roster
from echelon_jax.worldgen.generate import generate_world

config = EnvConfig.original(size_x=28, size_y=28)
layout = action_layout(config)
for kind in MECH_CLASSES:
    print(f"{kind.name:7} {kind.hp:5.0f} hit points, {kind.max_speed:4.1f} voxels/s, heat cap {kind.heat_cap:4.0f}")


# %%
def bare_battle(**places: tuple[float, float, float]) -> Battle:
    """A battle on a flat map with the mechs of `places` (x, y, yaw), by their names; all others are dead."""
    who = roster(config.num_packs)
    material = np.zeros((config.size_z, config.size_y, config.size_x), np.uint8)
    material[0] = DIRT
    spots = [places.get(name, (2.0, 2.0, 0.0)) for name in who.ids]
    heights = [MECH_CLASSES[kind].size[2] / 2 for kind in who.mech_class]
    mechs = make_mechs(
        config.num_packs,
        [(x, y, z) for (x, y, _), z in zip(spots, heights, strict=True)],
        [yaw for _, _, yaw in spots],
    )
    mechs = [dataclasses.replace(mech, alive=mech.id in places) for mech in mechs]
    return Battle(config, VoxelWorld(material, np.zeros(material.shape)), mechs)


def play(battle: Battle, decisions: int, **pressed: dict[str, float]) -> list[dict[str, tuple[float, ...]]]:
    """Play so many decisions, with the components that each mech presses; a row per decision of what the mechs are."""
    noise, rows = LiveNoise.from_seed(0), []
    for _ in range(decisions):
        actions = [[0.0] * layout.size for _ in battle.mechs]
        for mech in battle.mechs:
            for component, value in pressed.get(mech.id, {}).items():
                actions[mech.index][layout[component].offset] = value
        simulate(battle, actions, noise)
        rows.append({mech.id: (*mech.pos, mech.heat, mech.hp, float(mech.shutdown)) for mech in battle.mechs})
    return rows


def curve(rows: list[dict[str, tuple[float, ...]]], mech: str, field: int) -> list[float]:
    """One number of a mech over the decisions: 0 to 2 its position, 3 heat, 4 hit points, 5 shut down."""
    return [row[mech][field] for row in rows]


# %% [markdown]
# ## One mech
#
# A medium mech drives ahead and holds the trigger of its autocannon, which fires without a target. Every shot heats it.
# Over its cap it shuts down: it neither steers nor fires until it has cooled. With the vent open it cools faster.

# %%
pressed = {"forward": 1.0, "yaw_rate": 0.6, "tertiary": 1.0}
hot = play(bare_battle(blue_1=(8.0, 8.0, 0.0)), 60, blue_1=pressed)
cool = play(bare_battle(blue_1=(8.0, 8.0, 0.0)), 60, blue_1=pressed | {"vent": 1.0})
seconds = config.decision_seconds * np.arange(1, 61)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
left.plot(seconds, curve(hot, "blue_1", 3), label="vent shut")
left.plot(seconds, curve(cool, "blue_1", 3), label="vent open")
left.axhline(MECH_CLASSES[2].heat_cap, color="grey", ls=":", label="cap")
left.set(xlabel="seconds", ylabel="heat")
left.legend(fontsize=8)
right.plot(curve(hot, "blue_1", 0), curve(hot, "blue_1", 1), marker=".", ms=3)
right.set(xlabel="x, voxels", ylabel="y, voxels", aspect="equal", title="its way, a dot per decision")
figure.tight_layout()

# %% [markdown]
# ## One duel
#
# A heavy and a medium mech face each other and hold all triggers. Lasers hit at once; gauss and autocannon shots fly.

# %%
everything = {"primary": 1.0, "secondary": 1.0, "tertiary": 1.0}
duel = play(bare_battle(blue_0=(8.0, 14.0, 0.0), red_1=(16.0, 14.0, np.pi)), 80, blue_0=everything, red_1=everything)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), sharex=True)
for mech, name in (("blue_0", "heavy"), ("red_1", "medium")):
    left.plot(config.decision_seconds * np.arange(1, 81), np.maximum(curve(duel, mech, 4), 0), label=name)
    right.plot(config.decision_seconds * np.arange(1, 81), curve(duel, mech, 3), label=name)
left.set(xlabel="seconds", ylabel="hit points")
right.set(xlabel="seconds", ylabel="heat")
left.legend(fontsize=8)
figure.tight_layout()

# %% [markdown]
# ## Line of sight
#
# A generated map from above. Shaded columns are those in which nothing could be seen, one and a half voxels above the
# ground, from the cross.

# %%
wide = EnvConfig.original(size_x=40, size_y=40)
made = generate_world(wide, 7)
world = VoxelWorld(np.asarray(made.material), np.asarray(made.hp))
eye = (20.5, 20.5, 1.5)
seen = [[world.terrain_los(eye, (x + 0.5, y + 0.5, eye[2])) for x in range(40)] for y in range(40)]
height = np.where(world.material != AIR, np.arange(1, wide.size_z + 1)[:, None, None], 0).max(0)
figure, axis = plt.subplots(figsize=(4.5, 4))
picture = axis.imshow(height, origin="lower", cmap="cividis")
axis.imshow(np.where(seen, np.nan, 1.0), origin="lower", cmap="Greys", vmin=0, vmax=1, alpha=0.75)
axis.plot(eye[0] - 0.5, eye[1] - 0.5, "x", color="tab:red")
figure.colorbar(picture, label="height, voxels")
print(f"{np.mean(seen):.0%} of the columns can be seen")

# %% [markdown]
# ## The compiled environment
#
# A state shows itself in a notebook: the arenas in a table, the first one from above.

# %%
env, params = echelon_jax.make("5v5-28", rules="original", worlds=2)
state, step = env.reset_batch(jax.random.split(jax.random.key(0), 2), params)
state
