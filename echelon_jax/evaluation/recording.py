"""Records of evaluation games: the frames of one watched game, and the critic's value at every decision."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.state import EnvState
from echelon_jax.env.trace import Trace
from echelon_jax.evaluation.behaviour import Sight
from echelon_jax.rules.materials import AIR


class Frame(flax.struct.PyTreeNode):
    """The state of one arena after a decision, as far as a picture needs it."""

    step: Int32[Array, ""]
    over: Bool[Array, ""]  # the game had ended before this decision
    score: Float32[Array, " 2"]  # zone seconds of blue and red
    zone: Float32[Array, " 3"]  # centre x, centre y, radius
    height: Int32[Array, " columns"]  # voxels up to the highest that is not air
    material: Int32[Array, " columns"]  # of that voxel, AIR where there is none
    position: Float32[Array, "mechs 3"]
    yaw: Float32[Array, " mechs"]
    hp: Float32[Array, " mechs"]
    heat: Float32[Array, " mechs"]  # share of the cap
    alive: Bool[Array, " mechs"]
    fallen: Bool[Array, " mechs"]
    fired: Float32[Array, "mechs weapons"]
    target: Int32[Array, "mechs weapons"]  # nearest enemy in the arc at the decision
    shot_alive: Bool[Array, " slots"]
    shot_weapon: Int32[Array, " slots"]
    shot_position: Float32[Array, "slots 3"]
    smoke_life: Int32[Array, " clouds"]  # substeps left
    smoke_position: Float32[Array, "clouds 3"]


def frame_of(
    config: EnvConfig,
    heat_cap: Float32[Array, " mechs"],
    before: EnvState,
    after: EnvState,
    sight: Sight,
    fired: Float32[Array, "arenas mechs weapons"],
    arena: Int32[Array, ""],
) -> Frame:
    """Return the frame of one arena of a batch."""

    def row(x: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(x, arena, 0, keepdims=False)

    sim = after.sim
    grid = row(sim.grid.material).reshape(config.size_z, -1)
    levels = jnp.arange(1, config.size_z + 1, dtype=jnp.int32)[:, None]
    height = jnp.where(grid != AIR, levels, 0).max(0)
    top = jnp.take_along_axis(grid, jnp.maximum(height - 1, 0)[None], 0)[0]
    mechs, shots = sim.mechs, sim.projectiles
    return Frame(
        step=row(after.step_count),
        over=row(before.episode_over),
        score=row(after.score + after.score_carry),
        zone=row(after.arena_map.zone),
        height=height,
        material=top.astype(jnp.int32),
        position=row(mechs.position),
        yaw=row(mechs.yaw),
        hp=row(mechs.hp),
        heat=row(mechs.heat) / heat_cap,
        alive=row(mechs.alive),
        fallen=row(mechs.fallen) > 0,
        fired=row(fired),
        target=row(sight.target),
        shot_alive=row(shots.alive),
        shot_weapon=row(shots.weapon),
        shot_position=row(shots.position),
        smoke_life=row(sim.smoke.life),
        smoke_position=row(sim.smoke.position),
    )


class Expected(flax.struct.PyTreeNode):
    """Player A's value at a decision, in the critic's units, and the reward that followed; zeros for a player without a critic."""

    value: Float32[Array, "arenas team"]
    reward: Float32[Array, "arenas team"]  # of the decision
    alive: Bool[Array, "arenas team"]  # at the decision, in a running game


@dataclasses.dataclass
class Recorder:
    """Collects records while games are played; hand it to `evaluation.play` or `matches.evaluate`.

    Attributes:
        game: number of the game to watch, None for none; games 2k and 2k + 1 are played on map k.
        values: whether to keep the critic's value at every decision of every game.
    """

    game: int | None = None
    values: bool = False
    frames: list[Frame] = dataclasses.field(default_factory=list)
    _traces: list[Trace] = dataclasses.field(default_factory=list)
    _expected: list[list[Expected]] = dataclasses.field(default_factory=list)

    def begin_round(self) -> None:
        """Note that the next calls play other games."""
        self._expected.append([])

    def take(self, frames: Frame, trace: Trace, expected: Expected, watched: bool) -> None:
        """Take the records of some steps (leading axis: steps); `watched` says whether the frames show the wanted game."""
        if watched:
            host = jax.tree.map(np.asarray, frames)
            steps = int((~host.over).sum())
            self.frames += [jax.tree.map(lambda x, i=i: x[i], host) for i in range(steps)]
            self._traces.append(jax.tree.map(np.asarray, trace))
        if self.values:
            self._expected[-1].append(jax.tree.map(np.asarray, expected))

    def trace(self) -> Trace:
        """Return the decisions of the watched game, stacked, from which `replay.build.make_replay` makes a replay.

        Raises:
            ValueError: no game was watched.
        """
        if not self._traces:
            raise ValueError("game must be the number of a game that was played, to make a replay of it")
        whole: Trace = jax.tree.map(lambda *x: np.concatenate(x), *self._traces)
        return jax.tree.map(lambda x: x[: int(whole.running.sum())], whole)

    def returns(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """Return (value, discounted reward that followed), one row per decision of a living mech of player A.

        Raises:
            ValueError: no values were recorded.
        """
        if not any(self._expected):
            raise ValueError("values must be true when the games are played, to compare them with what came")
        said, came = [], []
        for calls in self._expected:
            whole: Any = jax.tree.map(lambda *x: np.concatenate(x), *calls)
            to_come = np.zeros_like(whole.reward)
            running = np.zeros_like(whole.reward[0])
            for t in reversed(range(len(to_come))):
                running = whole.reward[t] + gamma * running
                to_come[t] = running
            said.append(whole.value[whole.alive])
            came.append(to_come[whole.alive])
        return np.concatenate(said), np.concatenate(came)
