"""The reward "modern", mech by mech (differences.md; docs/rewards.md has the rule in words and worked examples)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from echelon_jax.config import EnvConfig
from echelon_jax.reference.rewards import Zone
from echelon_jax.reference.state import Mech
from echelon_jax.rules.mechs import TEAM_NAMES
from echelon_jax.rules.rewards import ModernWeights


def potential(config: EnvConfig, weights: ModernWeights, zone: Zone, distance: float) -> float:
    """Phi of a living mech in a running game: `approach` in the zone, less by the way to its rim over the map's diagonal."""
    way = max(0.0, distance - zone.radius)
    return weights.approach * (1.0 - way / math.hypot(config.size_x, config.size_y))


def modern_components(
    config: EnvConfig,
    weights: ModernWeights,
    mechs: Sequence[Mech],
    zone: Zone,
    distance_before: Sequence[float | None],
    ticks: tuple[float, float],
    winner: str | None,
    shut_down: Sequence[bool],
) -> list[list[float]]:
    """Per mech the components, in the order of rewards.COMPONENTS, dead mechs too.

    Args:
        mechs: after the simulation.
        distance_before: distance from the zone's centre before the simulation; None for the mechs that were dead.
        ticks: of this step, blue and red.
        winner: "blue", "red" or "draw" if the game ended with this step.
        shut_down: whether each mech shut down in this step, lives and is still off.
    """
    rows = []
    for mech in mechs:
        before = distance_before[mech.index]
        shaping = 0.0
        if before is not None:
            shaping = -potential(config, weights, zone, before)
            if mech.alive and winner is None:
                shaping += weights.gamma * potential(config, weights, zone, zone.distance(mech))
        held = 0.0
        if zone.holds(mech):
            members = sum(zone.holds(other) for other in mechs if other.team == mech.team)
            held = weights.zone * config.decision_seconds * ticks[mech.team] / members
        result = 0.0
        if winner == "draw":
            result = weights.draw
        elif winner is not None:
            result = weights.win if winner == TEAM_NAMES[mech.team] else weights.loss
        own = 0 if config.own_team_counts_against else mech.friendly_kills  # what `kills` counts of the own side
        rows.append(
            [
                shaping,
                held,
                weights.damage * (mech.effective_damage - mech.friendly_effective_damage),
                weights.kill * (mech.kills - own - mech.friendly_kills),
                weights.assist * mech.kill_assists,
                weights.death * mech.died,
                result,
                weights.shutdown * shut_down[mech.index],
            ]
        )
    return rows
