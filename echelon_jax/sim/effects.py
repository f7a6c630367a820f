"""Effects of hits for the modern reward: damage clipped to what the target had left, and assisted kills (E21, E22)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.sim.geometry import team_masks
from echelon_jax.sim.ordered import ordered_sum
from echelon_jax.sim.queues import Rows
from echelon_jax.sim.state import Mechs, Tally


def count_hit(
    tally: Tally,
    by_shooter: Bool[Array, "arenas mechs"],
    by_painter: Bool[Array, "arenas mechs"],
    damage: Float32[Array, " arenas"],
    hp: Float32[Array, " arenas"],
    killed: Bool[Array, " arenas"],
) -> Tally:
    """Add at most one hit on an enemy per arena; nothing where the tally does not hold such counts.

    Args:
        by_shooter: the shooter of the hit, empty without one; by_painter: who painted its target for it.
        hp: what the target had before.
    """
    if tally.effective_damage is None or tally.kill_assists is None:
        return tally
    worth = jnp.minimum(damage, jnp.maximum(hp, 0.0))
    return tally.replace(
        effective_damage=tally.effective_damage + jnp.where(by_shooter, worth[:, None], 0.0),
        kill_assists=tally.kill_assists + (by_painter & killed[:, None]),
    )


def count_splash(
    num_packs: int,
    tally: Tally,
    mechs: Mechs,
    rows: Rows,
    shooter: Int32[Array, " blasts"],
    damage: Float32[Array, " blasts"],
    hit: Bool[Array, "blasts mechs"],
    dies: Bool[Array, "blasts mechs"],
) -> Tally:
    """Add what explosions did; nothing where the tally does not hold such counts.

    Args:
        mechs: before the explosions.
        rows: their arenas.
    """
    if tally.effective_damage is None or tally.friendly_effective_damage is None or tally.kill_assists is None:
        return tally
    n, take = mechs.alive.shape[1], rows.take
    enemies, same_pack = (jnp.asarray(t) for t in team_masks(num_packs))
    worth = jnp.minimum(damage[:, None], jnp.maximum(take(mechs.hp), 0.0))
    on_enemies = ordered_sum(jnp.where(hit & enemies[shooter], worth, 0.0))
    on_friends = ordered_sum(jnp.where(hit & ~enemies[shooter], worth, 0.0))
    painter = take(mechs.last_painter)
    assisted = dies & (take(mechs.painted) > 0) & (painter >= 0) & (painter != shooter[:, None])
    assisted = assisted & same_pack[shooter[:, None], jnp.maximum(painter, 0)]
    assists = (assisted[:, :, None] & (painter[:, :, None] == jnp.arange(n))).sum(1, dtype=jnp.int32)
    return tally.replace(
        effective_damage=rows.add(tally.effective_damage, shooter, on_enemies),
        friendly_effective_damage=rows.add(tally.friendly_effective_damage, shooter, on_friends),
        kill_assists=rows.put(tally.kill_assists, take(tally.kill_assists) + assists),
    )
