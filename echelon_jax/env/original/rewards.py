"""The original's rewards and their components (docs/spec/environment.md 3.3)."""

from __future__ import annotations

import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.env.rewards import Rewards, Transition
from echelon_jax.env.state import REWARD_COMPONENTS, RewardWeights
from echelon_jax.sim.ordered import ordered_sum, team_sums

CROWD_FACTOR = 0.5  # the approach reward halves with every team mate in the zone


def original_rewards() -> RewardWeights:
    """The original's weights."""
    return RewardWeights(
        approach=jnp.float32(1.5),
        zone=jnp.float32(3.0),
        damage=jnp.float32(0.05),
        kill=jnp.float32(10.0),
        assist=jnp.float32(5.0),
        death=jnp.float32(-1.0),
        contested_multiplier=jnp.float32(2.0),
    )


def rewards(
    config: EnvConfig,
    weights: RewardWeights,
    made: Transition,
) -> Rewards:
    """Rewards of one decision step, for the living and for those who died in it; the dead of earlier steps get zeros.

    With the switch own_team_counts_against damage and kills on one's own side are charged instead of paid.
    """
    tally, zone, was_alive, alive = made.tally, made.zone, made.was_alive, made.alive
    half = config.team_size
    n_team = team_sums(zone.inside.astype(jnp.float32))
    crowd = jnp.repeat(jnp.power(jnp.float32(CROWD_FACTOR), n_team), half, -1)
    tick = jnp.repeat(zone.tick, half, -1)
    receives = alive | tally.died
    damage, kills = tally.dealt_damage, tally.kills
    if config.own_team_counts_against:
        damage, kills = damage - tally.friendly_damage, kills - tally.friendly_kills
    multiplier = jnp.where(zone.inside & zone.contested[:, None], weights.contested_multiplier, 1.0)
    approached = was_alive & alive & ~zone.inside
    nearer = (made.distance_before - made.distance_after) / max(config.size_x, config.size_y)
    parts = {
        "approach": jnp.where(approached, weights.approach * nearer * crowd, 0.0),
        "zone": jnp.where(zone.inside, weights.zone * tick, 0.0),
        "damage": jnp.where(receives, weights.damage * multiplier * damage, 0.0),
        "kill": jnp.where(receives, weights.kill * multiplier * kills, 0.0),
        "assist": jnp.where(receives, weights.assist * multiplier * tally.assists, 0.0),
        "death": jnp.where(tally.died, weights.death, 0.0),
        "terminal": jnp.zeros_like(made.distance_after),
        "shutdown": jnp.zeros_like(made.distance_after),
    }
    components = jnp.stack([parts[name] for name in REWARD_COMPONENTS], -1)
    return Rewards(ordered_sum(components), components)
