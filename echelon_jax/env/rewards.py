"""The common part of all rewards: their input and their result."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.episode import Outcome, Zone
from echelon_jax.sim.state import Tally


class Transition(NamedTuple):
    """The input of a reward: one decision step.

    Attributes:
        tally: what happened to and through every mech during the step.
        zone: presence and score ticks after the step.
        outcome: whether and how the game ended with this step.
        was_alive, alive: which mechs lived before and after the step.
        distance_before, distance_after: distance from the zone's centre before and after the step, in voxels.
        radius: radius of the zone, in voxels.
        shut_down: which living mechs shut down in the step and are still off after it.
    """

    tally: Tally
    zone: Zone
    outcome: Outcome
    was_alive: Bool[Array, "arenas mechs"]
    alive: Bool[Array, "arenas mechs"]
    distance_before: Float32[Array, "arenas mechs"]
    distance_after: Float32[Array, "arenas mechs"]
    radius: Float32[Array, " arenas"]
    shut_down: Bool[Array, "arenas mechs"]


class Rewards(NamedTuple):
    """Reward per mech and its components in the order of REWARD_COMPONENTS."""

    total: Float32[Array, "arenas mechs"]
    components: Float32[Array, "arenas mechs components"]


def enemy_kills(config: EnvConfig, tally: Tally) -> Int32[Array, "arenas mechs"]:
    """Kills of enemies only. `kills` counts kills of the own side too, unless own_team_counts_against is on."""
    return tally.kills if config.own_team_counts_against else tally.kills - tally.friendly_kills
