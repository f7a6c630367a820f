"""The 26 counters of an episode: 13 kinds of event per team (docs/spec/environment.md 4.5)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

from echelon_jax.env.state import STATISTICS, EnvState
from echelon_jax.sim.ordered import team_sums
from echelon_jax.sim.state import Tally


def step_statistics(
    tally: Tally,
    before: EnvState,
    fallen: Bool[Array, "arenas mechs"],
    legged: Bool[Array, "arenas mechs"],
    shutdown: Bool[Array, "arenas mechs"],
    bad_actions: Bool[Array, "arenas mechs"],
    bad_observations: Bool[Array, "arenas mechs"],
) -> Float32[Array, "arenas 13 2"]:
    """What one decision step adds to the counters, dead mechs included.

    Args:
        tally: event counts of the step, by the mech that caused them.
        before: the state at the previous decision boundary; a fall, a lost leg or a shutdown counts if it is new since.
    """
    per_mech = {
        "kills": tally.kills,
        "assists": tally.assists,
        "paints": tally.paints,
        "laser_hits": tally.laser_hits,
        "missile_launches": tally.missile_launches,
        "kinetic_fires": tally.kinetic_fires,
        "ams_intercepts": tally.ams_intercepts,
        "damage": tally.dealt_damage,
        "knockdowns": fallen & ~before.was_fallen,
        "legged": legged & ~before.was_legged,
        "shutdowns": shutdown & ~before.was_shutdown,
        "bad_actions": bad_actions,
        "bad_obs": bad_observations,
    }
    return team_sums(jnp.stack([per_mech[name].astype(jnp.float32) for name in STATISTICS], 1))
