"""The reward "modern": a game's result first, everything else a small hint towards it (docs/rewards.md; E21 to E30).

With the step's length in seconds dt, per mech:

- approach: gamma Phi(s') - Phi(s), Phi = w (1 - distance to the zone's rim / map diagonal) for the living, 0 for the dead and
  once the game is over. A potential: over a game it adds up to -Phi(start) whatever is done, so it cannot be farmed.
- zone: w dt tick of the team / members in the zone, for each member. A team earns the same however many stand there.
- damage: w (hit points taken from enemies - hit points taken from the own side), never more than the target had left.
- kill: w (enemies killed - own side killed), to the killer, also if the killer is dead by then.
- assist: w per enemy killed while painted, to the painter, if of the killer's pack and not the killer.
- death: w, once, whatever the cause.
- shutdown: w, once for each time that a living mech's heat passes its cap and is still above it after the step. 0 by default.
- terminal: win, loss or draw in the step that ends the game, to every member of the team, the dead included.

How large a win must be. A team may take every hit point and life of the enemy once, so the one-off incomes of a mech are at most
O = damage hp(team) + (kill + assist) mechs(team); the zone pays a mech at most zone dt a step and, as the score ends the game,
at most Z = zone (W + dt) in all, W the score to win.

1. However early a game is won, it pays more than any game that is farmed dry and not won, a death on the way included:
   win + death - draw >= Z + O (`farming_limit`, `check_result`).
2. Putting off a certain win by k steps to stay in the zone gains at most zone dt (1 - gamma^k) / (1 - gamma) and costs
   win (1 - gamma^k): never worth it if win >= zone dt / (1 - gamma) (`perpetuity`, `check_result`).

Both leave the shaping out: from the same state it is the same in every continuation. Charges for hurting the own side are left
out too: they are chosen. Only the one-off incomes can pay for a delay, once each: a kill at hand may come before the win.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

from echelon_jax.config import EnvConfig
from echelon_jax.env.episode import DRAW
from echelon_jax.env.rewards import Rewards, Transition, enemy_kills
from echelon_jax.env.state import REWARD_COMPONENTS, ModernRewardWeights
from echelon_jax.rules.mechs import MECH_CLASSES, roster
from echelon_jax.rules.rewards import modern_weights
from echelon_jax.sim.ordered import ordered_sum, team_sums

# Weights are float32, so 1 - gamma is right to 6e-5 of itself at a gamma of 0.999. A bound that just holds must not fail by it.
ROUNDING = 1e-4


def modern_rewards(config: EnvConfig | None = None, gamma: float = 0.99) -> ModernRewardWeights:
    """The default weights for an arena of this size and length; `gamma` must be PPO's."""
    c = EnvConfig() if config is None else config
    numbers = modern_weights(c.num_packs, c.score_to_win, gamma)
    return ModernRewardWeights(**{name: jnp.float32(value) for name, value in numbers._asdict().items()})


def check_gamma(weights: ModernRewardWeights, gamma: float) -> None:
    """Refuse a shaping that is not discounted as the learner discounts: it would not be a potential.

    To be called where the trainer is put together, once, with the concrete weights and PPO's gamma, before anything is traced.

    Raises:
        ValueError: if the two differ.
    """
    found = float(weights.gamma)
    if not math.isclose(found, gamma, rel_tol=1e-6):
        raise ValueError(f"gamma of the reward weights must be that of PPO, {gamma}, got {found:.7g}")


def farming_limit(config: EnvConfig, weights: ModernRewardWeights) -> float:
    """Z + O of the module's text: more than one mech can collect in a game besides shaping and result."""
    classes = roster(config.num_packs).mech_class[: config.team_size]
    hp = sum(MECH_CLASSES[c].hp for c in classes)
    once = float(weights.damage) * hp + (float(weights.kill) + float(weights.assist)) * config.team_size
    return once + float(weights.zone) * (config.score_to_win + config.decision_seconds)


def perpetuity(config: EnvConfig, weights: ModernRewardWeights) -> float:
    """Discounted worth of having the zone for oneself for ever; infinite where gamma is 1."""
    gamma = float(weights.gamma)
    return float(weights.zone) * config.decision_seconds / (1.0 - gamma) if gamma < 1 else math.inf


def check_result(config: EnvConfig, weights: ModernRewardWeights) -> None:
    """Refuse a win so small that farming pays more (the two bounds of the module's text; the second for gamma below 1).

    Raises:
        ValueError: naming the bound that does not hold.
    """
    win, margin = float(weights.win), float(weights.win) + float(weights.death) - float(weights.draw)
    limit, forever = farming_limit(config, weights), perpetuity(config, weights)
    if margin < limit * (1.0 - ROUNDING):
        raise ValueError(
            f"win + death - draw must be at least {limit:.4g}, what can be farmed in a game, got {margin:.4g}"
        )
    if float(weights.gamma) < 1 and win < forever * (1.0 - ROUNDING):
        raise ValueError(f"win must be at least {forever:.4g}, what holding the zone for ever is worth, got {win:.4g}")


def potential(
    config: EnvConfig,
    weights: ModernRewardWeights,
    distance: Float32[Array, "arenas mechs"],
    radius: Float32[Array, " arenas"],
    counts: Bool[Array, "arenas mechs"],
) -> Float32[Array, "arenas mechs"]:
    """Phi of the module's text, from 0 to `approach`; `distance` from the zone's centre, 0 where `counts` is false."""
    outside = jnp.maximum(distance - radius[:, None], 0.0)
    return jnp.where(counts, weights.approach * (1.0 - outside / math.hypot(config.size_x, config.size_y)), 0.0)


def rewards(
    config: EnvConfig,
    weights: ModernRewardWeights,
    made: Transition,
) -> Rewards:
    """Rewards of one decision step, for the dead as well: late hits and the result of the game."""
    tally, zone, outcome, was_alive = made.tally, made.zone, made.outcome, made.was_alive
    if tally.effective_damage is None or tally.friendly_effective_damage is None or tally.kill_assists is None:
        raise ValueError(
            "tally must hold effective_damage, friendly_effective_damage and kill_assists: reward 'modern'"
        )
    over = outcome.reason > 0
    before = potential(config, weights, made.distance_before, made.radius, was_alive)
    after = potential(config, weights, made.distance_after, made.radius, made.alive & ~over[:, None])
    members = jnp.maximum(team_sums(zone.inside.astype(jnp.float32)), 1.0)
    share = jnp.repeat(config.decision_seconds * zone.tick / members, config.team_size, -1)
    won = outcome.winner[:, None] == jnp.arange(2)
    result = jnp.where(won, weights.win, weights.loss)
    result = jnp.where((outcome.winner == DRAW)[:, None], weights.draw, result)
    result = jnp.where(over[:, None], result, 0.0)
    parts = {
        "approach": jnp.where(was_alive, weights.gamma * after - before, 0.0),
        "zone": jnp.where(zone.inside, weights.zone * share, 0.0),
        "damage": weights.damage * (tally.effective_damage - tally.friendly_effective_damage),
        "kill": weights.kill * (enemy_kills(config, tally) - tally.friendly_kills),
        "assist": weights.assist * tally.kill_assists,
        "death": jnp.where(tally.died, weights.death, 0.0),
        "terminal": jnp.repeat(result, config.team_size, -1),
        "shutdown": jnp.where(made.shut_down, weights.shutdown, 0.0),
    }
    components = jnp.stack([parts[name].astype(jnp.float32) for name in REWARD_COMPONENTS], -1)
    return Rewards(ordered_sum(components), components)
