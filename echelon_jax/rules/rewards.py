"""Default weights of the modern reward, scaled so that games of any size or length pay alike."""

from __future__ import annotations

from typing import NamedTuple

ZONE_PAY = 3.0  # of a team that holds the zone alone until it wins
TEAM_DAMAGE_WEIGHT = 0.0025  # per hit point, one pack a team
TEAM_KILL_WEIGHT = 0.5
TEAM_ASSIST_WEIGHT = 0.25


class ModernWeights(NamedTuple):
    """Weights of the modern reward; docs/rewards.md says what each one multiplies."""

    approach: float  # highest value of the potential
    gamma: float  # discount of the shaping, PPO's own
    zone: float  # per second of a full tick, shared by the members
    damage: float  # per hit point taken from an enemy, charged on the own side
    kill: float
    assist: float
    death: float
    win: float
    loss: float
    draw: float
    shutdown: float


def modern_weights(num_packs: int = 1, score_to_win: float = 30.0, gamma: float = 0.99) -> ModernWeights:
    """The defaults for teams of `num_packs` packs that need `score_to_win` zone seconds.

    The zone pays `ZONE_PAY` over a whole game, and all the enemies together are worth the same in a game of any size.
    """
    return ModernWeights(
        approach=1.0,
        gamma=gamma,
        zone=ZONE_PAY / score_to_win,
        damage=TEAM_DAMAGE_WEIGHT / num_packs,
        kill=TEAM_KILL_WEIGHT / num_packs,
        assist=TEAM_ASSIST_WEIGHT / num_packs,
        death=-0.5,
        win=10.0,
        loss=-10.0,
        draw=0.0,
        shutdown=0.0,
    )
