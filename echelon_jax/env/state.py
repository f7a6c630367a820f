"""State, parameters and results of the environment layer (docs/spec/environment.md 3.1, 4, 5)."""

from __future__ import annotations

import flax.struct
from jaxtyping import Array, Bool, Float32, Int16, Int32, UInt8, UInt32

from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import SimState

STATISTICS = (
    "kills",
    "assists",
    "paints",
    "laser_hits",
    "missile_launches",
    "kinetic_fires",
    "ams_intercepts",
    "damage",
    "knockdowns",
    "legged",
    "shutdowns",
    "bad_actions",
    "bad_obs",
)
REWARD_COMPONENTS = ("approach", "zone", "damage", "kill", "assist", "death", "terminal", "shutdown")
REASONS = ("running", "zone_control", "elimination", "time_up")
WINNERS = ("blue", "red", "draw")


class ArenaMap(flax.struct.PyTreeNode):
    """The fixed facts of the world an arena plays in, copied at reset and never refreshed.

    Source: docs/spec/environment.md 2.8, 2.9.
    """

    zone: Float32[Array, "arenas 3"]  # centre x, centre y, radius
    occupancy: UInt8[Array, "arenas columns"]  # 1 where the local map reads blocked
    telemetry: UInt8[Array, "arenas 256"]
    seed: Int32[Array, " arenas"]  # of the generated world


class ObservationMemory(flax.struct.PyTreeNode):
    """What the modern observation carries over: each mech's last turn, and in partial mode where it last saw the others."""

    turn: Float32[Array, "arenas mechs"]  # radians to the left during the last decision
    age: Int32[Array, "arenas mechs mechs"] | None  # decisions since the viewer saw the other, -1 never; partial mode
    last_seen: Float32[Array, "arenas mechs mechs 3"] | None  # where that was; partial mode


class EnvState(flax.struct.PyTreeNode):
    """Everything an arena carries from one decision step to the next."""

    sim: SimState
    arena_map: ArenaMap
    messages: Float32[Array, "arenas mechs comm"]
    sort_mode: Int32[Array, "arenas mechs"]
    hostile_only: Bool[Array, "arenas mechs"]
    contact_slots: Int32[Array, "arenas mechs 5"]  # mech index shown in each slot of the last observation, -1 empty
    score: Float32[Array, "arenas 2"]  # zone seconds of blue and red
    score_carry: Float32[Array, "arenas 2"]  # what float32 addition has lost so far (compensated sum)
    step_count: Int32[Array, " arenas"]
    was_fallen: Bool[Array, "arenas mechs"]  # at the previous decision boundary
    was_legged: Bool[Array, "arenas mechs"]
    was_shutdown: Bool[Array, "arenas mechs"]
    statistics: Float32[Array, "arenas 13 2"]  # STATISTICS x (blue, red), since the episode began
    episode_over: Bool[Array, " arenas"]
    reason: Int32[Array, " arenas"]  # index into REASONS
    winner: Int32[Array, " arenas"]  # index into WINNERS; meaningful once episode_over
    memory: ObservationMemory | None = None  # only with the modern observation

    def _repr_html_(self) -> str:
        """A picture and tables in a notebook."""
        from echelon_jax.env.html import state_html

        return state_html(self)


class Bank(flax.struct.PyTreeNode):
    """Worlds on the device; a reset copies one row. `observation` and `contact_slots` are what a reset to it shows."""

    material: UInt8[Array, "worlds voxels"]
    hp: Int16[Array, "worlds voxels"]
    collides: UInt32[Array, "worlds columns"]
    opaque: UInt32[Array, "worlds columns"]
    occupancy: UInt8[Array, "worlds columns"]
    telemetry: UInt8[Array, "worlds 256"]
    zone: Float32[Array, "worlds 3"]
    position: Float32[Array, "worlds mechs 3"]
    yaw: Float32[Array, "worlds mechs"]
    seed: Int32[Array, " worlds"]
    observation: Float32[Array, "worlds mechs obs"]
    contact_slots: Int32[Array, "worlds mechs 5"]
    known: Bool[Array, "worlds mechs mechs"] | None = None  # who sees whom at first; modern observation in partial mode


class RewardWeights(flax.struct.PyTreeNode):
    """The original's reward weights (docs/spec/environment.md 3.3) as traced numbers."""

    approach: Float32[Array, ""]
    zone: Float32[Array, ""]
    damage: Float32[Array, ""]
    kill: Float32[Array, ""]
    assist: Float32[Array, ""]
    death: Float32[Array, ""]
    contested_multiplier: Float32[Array, ""]


class ModernRewardWeights(flax.struct.PyTreeNode):
    """Weights of the reward "modern" as traced numbers; what they multiply is in `rewards_modern`."""

    approach: Float32[Array, ""]
    gamma: Float32[Array, ""]  # must equal PPO's: `rewards_modern.check_gamma`
    zone: Float32[Array, ""]
    damage: Float32[Array, ""]
    kill: Float32[Array, ""]
    assist: Float32[Array, ""]
    death: Float32[Array, ""]
    win: Float32[Array, ""]
    loss: Float32[Array, ""]
    draw: Float32[Array, ""]
    shutdown: Float32[Array, ""]


class EnvParams(flax.struct.PyTreeNode):
    """What may change without a recompile: rule numbers, reward weights, the worlds."""

    rules: SimRules
    rewards: RewardWeights | ModernRewardWeights  # of the kind that config.reward names
    bank: Bank
    term_weights: Float32[Array, " terms"] | None = None  # of config.reward_terms, in order; None where there are none


class Info(flax.struct.PyTreeNode):
    """What a decision step reports besides observation, reward and flags."""

    reward_components: Float32[Array, "arenas mechs 8"]  # REWARD_COMPONENTS
    alive: Bool[Array, "arenas mechs"]  # after the step
    in_zone: Bool[Array, "arenas mechs"]
    zone_control: Float32[Array, " arenas"]  # tick of blue minus tick of red
    score: Float32[Array, "arenas 2"]
    team_hp: Float32[Array, "arenas 2"]
    statistics: Float32[Array, "arenas 13 2"]  # of the episode so far, this step included
    step_count: Int32[Array, " arenas"]
    reason: Int32[Array, " arenas"]
    winner: Int32[Array, " arenas"]
    lost_shots: Int32[Array, " arenas"]
    lost_clouds: Int32[Array, " arenas"]
    term_rewards: Float32[Array, "arenas mechs terms"] | None = None  # of config.reward_terms, weights included


class Step(flax.struct.PyTreeNode):
    """The result of one decision step of a batch of arenas."""

    observation: Float32[Array, "arenas mechs obs"]  # after an AutoReset: the new episode's where episode_over
    reward: Float32[Array, "arenas mechs"]
    terminated: Bool[Array, "arenas mechs"]
    truncated: Bool[Array, "arenas mechs"]  # never together with terminated
    episode_over: Bool[Array, " arenas"]
    final_observation: Float32[Array, "arenas mechs obs"]  # of the state the step ended in, before any reset
    info: Info
