"""The objective and the end of an episode: zone, scores, flags, reason and winner.

Source: docs/spec/environment.md 3.2 and 4.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.state import REASONS, WINNERS, ArenaMap
from echelon_jax.sim.ewar import shutdown
from echelon_jax.sim.ordered import team_sums
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Mechs

RUNNING, ZONE_CONTROL, ELIMINATION, TIME_UP = range(len(REASONS))
BLUE_WINS, RED_WINS, DRAW = range(len(WINNERS))
CONTESTED_FLOOR = 0.25
TIE_MARGIN = 1e-3
GROUND_REACH = 3.0  # voxels between the zone's ground and the feet of a mech that holds it, where that is required
# Scores are kept to about 1e-7 zone seconds. The original's repeated float64 addition lands on either side of the target
# by 1e-13; this much is forgiven so that a target reached by whole ticks is reached in the same step.
SCORE_SLACK = 1e-6


class Zone(NamedTuple):
    """Who holds the capture zone: presence per mech, tonnage and score tick per team."""

    inside: Bool[Array, "arenas mechs"]
    tonnage: Float32[Array, "arenas 2"]
    tick: Float32[Array, "arenas 2"]
    contested: Bool[Array, " arenas"]


class Outcome(NamedTuple):
    """Why an episode ended (`REASONS`, 0 while it runs) and for whom (`WINNERS`)."""

    reason: Int32[Array, " arenas"]
    winner: Int32[Array, " arenas"]


def zone_distance(arena_map: ArenaMap, position: Float32[Array, "arenas mechs 3"]) -> Float32[Array, "arenas mechs"]:
    """Horizontal distance of each mech from the centre of the zone."""
    dx = position[..., 0] - arena_map.zone[:, None, 0]
    dy = position[..., 1] - arena_map.zone[:, None, 1]
    return jnp.sqrt(dx * dx + dy * dy)


def zone_presence(
    rules: SimRules, mechs: Mechs, arena_map: ArenaMap, grounded: bool = False
) -> tuple[Bool[Array, "arenas mechs"], Float32[Array, "arenas 2"]]:
    """Living mechs strictly inside the zone's circle, and their tonnage per team.

    At any altitude and in any condition, unless `grounded` (the switch zone_on_the_ground): then a mech must not be shut down, and
    its feet must be within GROUND_REACH of the zone's ground.
    """
    inside = mechs.alive & (zone_distance(arena_map, mechs.position) < arena_map.zone[:, None, 2])
    if grounded:
        feet = mechs.position[..., 2] - rules.half[:, 2]
        inside = inside & ~shutdown(rules, mechs) & (feet <= GROUND_REACH)
    return inside, team_sums(jnp.where(inside, rules.tonnage, 0.0))


def tonnage_margin(tonnage: Float32[Array, "arenas 2"]) -> Float32[Array, " arenas"]:
    """(blue - red) / (blue + red), 0 in an empty zone."""
    blue, red = tonnage[:, 0], tonnage[:, 1]
    total = blue + red
    return (blue - red) / jnp.where(total > 0, total, 1.0)


def zone_tick(rules: SimRules, mechs: Mechs, arena_map: ArenaMap, grounded: bool = False) -> Zone:
    """Score ticks of this step: 1 for a team alone, else 0.25 + 0.75 of its margin; `grounded` as in `zone_presence`.

    Source: docs/spec/environment.md 3.2.
    """
    inside, tonnage = zone_presence(rules, mechs, arena_map, grounded)
    blue, red = tonnage[:, 0], tonnage[:, 1]
    contested = (blue > 0) & (red > 0)
    margin = tonnage_margin(tonnage)
    shared = CONTESTED_FLOOR + (1.0 - CONTESTED_FLOOR) * jnp.maximum(jnp.stack([margin, -margin], -1), 0.0)
    tick = jnp.where(contested[:, None], shared, (tonnage > 0).astype(jnp.float32))
    return Zone(inside, tonnage, tick, contested)


def add_score(
    config: EnvConfig,
    score: Float32[Array, "arenas 2"],
    carry: Float32[Array, "arenas 2"],
    tick: Float32[Array, "arenas 2"],
) -> tuple[Float32[Array, "arenas 2"], Float32[Array, "arenas 2"]]:
    """Scores after this step as a compensated sum: score + carry is the exact score to about 1e-7 zone seconds."""
    seconds = np.float32(config.decision_seconds)
    rest = np.float32(config.decision_seconds - float(seconds))
    gain = tick * seconds + (carry + tick * rest)
    total = score + gain
    return total, gain - (total - score)


def team_hp(mechs: Mechs) -> Float32[Array, "arenas 2"]:
    """Hit points of the living, per team."""
    return team_sums(jnp.where(mechs.alive, jnp.maximum(mechs.hp, 0.0), 0.0))


def episode_outcome(
    config: EnvConfig,
    mechs: Mechs,
    score: Float32[Array, "arenas 2"],
    carry: Float32[Array, "arenas 2"],
    step_count: Int32[Array, " arenas"],
) -> Outcome:
    """Whether the episode ends: zone win, then elimination, then time (docs/spec/environment.md 4.2).

    A score tie at the target is red's (E33); with the switch tie_is_draw the team's hit points decide, then it is a draw.
    """
    half = config.team_size
    target = config.score_to_win
    ahead = (score[:, 0] - score[:, 1]) + (carry[:, 0] - carry[:, 1])
    reached = ((score - target) + carry >= -SCORE_SLACK).any(-1)
    blue_alive, red_alive = mechs.alive[:, :half].any(-1), mechs.alive[:, half:].any(-1)
    gone = ~blue_alive | ~red_alive
    last_standing = jnp.where(blue_alive, BLUE_WINS, jnp.where(red_alive, RED_WINS, DRAW))

    hp = team_hp(mechs)
    spare = hp[:, 0] - hp[:, 1]
    by_hp = jnp.where(spare > TIE_MARGIN, BLUE_WINS, jnp.where(spare < -TIE_MARGIN, RED_WINS, DRAW))
    tie = by_hp if config.tie_is_draw else RED_WINS
    zone_winner = jnp.where(ahead > 0, BLUE_WINS, jnp.where(ahead < 0, RED_WINS, tie))
    on_time = jnp.where(ahead > TIE_MARGIN, BLUE_WINS, jnp.where(ahead < -TIE_MARGIN, RED_WINS, by_hp))

    late = step_count >= config.max_steps
    reason = jnp.where(reached, ZONE_CONTROL, jnp.where(gone, ELIMINATION, jnp.where(late, TIME_UP, RUNNING)))
    winner = jnp.where(reached, zone_winner, jnp.where(gone, last_standing, jnp.where(late, on_time, DRAW)))
    return Outcome(reason.astype(jnp.int32), winner.astype(jnp.int32))


def flags(
    alive: Bool[Array, "arenas mechs"], reason: Int32[Array, " arenas"]
) -> tuple[Bool[Array, "arenas mechs"], Bool[Array, "arenas mechs"]]:
    """Terminated and truncated, never both: the dead and everybody in a decided game; the living when time is up."""
    decided = (reason == ZONE_CONTROL) | (reason == ELIMINATION)
    return ~alive | decided[:, None], alive & (reason == TIME_UP)[:, None]
