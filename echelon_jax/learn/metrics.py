"""What training reports: sums gathered on the device, turned into named numbers on the host.

The device only adds up; every mean, rate and share is a quotient of two sums, so that windows of any length combine exactly
and nothing is diluted by episodes or mechs that did not count (T25). A quotient without data is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from echelon_jax.env.state import REASONS, REWARD_COMPONENTS, STATISTICS
from echelon_jax.learn.ppo import UpdateMetrics


class RolloutSums(flax.struct.PyTreeNode):
    """Sums over a rollout. "Ended" sums run over the episodes that ended in it, from their first step on."""

    episodes: Float32[Array, ""]
    wins: Float32[Array, ""]  # of the learner
    losses: Float32[Array, ""]
    draws: Float32[Array, ""]
    reasons: Float32[Array, " reasons"]  # ended episodes by reason, in the order of REASONS
    length: Float32[Array, ""]  # decisions of ended episodes
    episode_return: Float32[Array, ""]  # of ended episodes, summed over the learner's mechs
    zone_seconds: Float32[Array, " 2"]  # at the end of ended episodes: learner, opponent
    statistics: Float32[Array, "statistics 2"]  # of ended episodes, STATISTICS x (learner, opponent)
    lost_shots: Float32[Array, ""]  # overflow of the simulator's slots, both sides, ended episodes
    lost_clouds: Float32[Array, ""]
    decisions: Float32[Array, ""]  # of living learner mechs
    in_zone: Float32[Array, ""]  # decisions after which a living learner mech stood in the zone
    survived: Float32[Array, ""]  # decisions after which a learner mech lived
    reward: Float32[Array, ""]
    components: Float32[Array, " components"]  # REWARD_COMPONENTS
    deaths: Float32[Array, ""]  # of learner mechs


class Metrics(flax.struct.PyTreeNode):
    """Everything about one update; scalars and small vectors only."""

    rollout: RolloutSums
    update: UpdateMetrics
    fire_probability: Float32[Array, ""]  # read from the parameters the opponent acted with
    value_mean: Float32[Array, ""]  # of the critic, reward units, living mechs
    return_deviation: Float32[Array, ""]  # unit of the critic


def no_sums() -> RolloutSums:
    """Return sums over nothing."""
    shapes: dict[str, tuple[int, ...]] = {
        "reasons": (len(REASONS),),
        "zone_seconds": (2,),
        "statistics": (len(STATISTICS), 2),
        "components": (len(REWARD_COMPONENTS),),
    }
    fields = RolloutSums.__dataclass_fields__
    return RolloutSums(**{name: jnp.zeros(shapes.get(name, ()), jnp.float32) for name in fields})


def _quotient(a: float, b: float) -> float | None:
    return float(a) / float(b) if b > 0 else None


def summarize(
    launches: Sequence[Metrics], team_size: int, heads: Sequence[str] | None = None
) -> dict[str, float | None]:
    """Return the named numbers of a window of launches (fields stacked over updates), None where there are no data.

    `heads` names the action heads of the network; without it they are numbered.

    Shares are 0 to 1, "per_episode" counts are of whole teams, returns and "per_decision" numbers of one mech.
    """
    if not launches:
        raise ValueError("launches must hold the metrics of at least one launch, got none")
    stacked = [jax.tree.map(lambda x: np.asarray(x, np.float64), m) for m in launches]
    total: Any = jax.tree.map(lambda *x: sum(part.sum(0) for part in x), *[m.rollout for m in stacked])
    out: dict[str, float | None] = {
        "episodes": float(total.episodes),
        "win_rate": _quotient(total.wins, total.episodes),
        "loss_rate": _quotient(total.losses, total.episodes),
        "draw_rate": _quotient(total.draws, total.episodes),
        "episode_length": _quotient(total.length, total.episodes),
        "return_per_mech": _quotient(total.episode_return, total.episodes * team_size),
        "zone_share": _quotient(total.zone_seconds[0], total.zone_seconds.sum()),
        "in_zone": _quotient(total.in_zone, total.survived),
        "reward_per_decision": _quotient(total.reward, total.decisions),
        "deaths_per_episode": _quotient(total.deaths, total.episodes),
        "lost_shots_per_episode": _quotient(total.lost_shots, total.episodes),
        "lost_clouds_per_episode": _quotient(total.lost_clouds, total.episodes),
    }
    for i, name in enumerate(REASONS[1:], start=1):
        out[f"ended_by/{name}"] = _quotient(total.reasons[i], total.episodes)
    for i, name in enumerate(REWARD_COMPONENTS):
        out[f"reward_per_decision/{name}"] = _quotient(total.components[i], total.decisions)
    for i, name in enumerate(STATISTICS):
        for side, label in enumerate(("learner", "opponent")):
            out[f"per_episode/{name}_{label}"] = _quotient(total.statistics[i, side], total.episodes)
    done = np.concatenate([1.0 - m.update.stopped.ravel() for m in stacked])
    for name in UpdateMetrics.__dataclass_fields__:
        rows = np.concatenate([getattr(m.update, name).reshape(m.update.stopped.size, -1) for m in stacked])
        if name == "stopped":
            out["update/stopped"] = float(rows.mean())
            continue
        # Gradient steps that were left out have nothing to report.
        means = (rows * done[:, None]).sum(0) / max(done.sum(), 1.0)
        if not name.startswith("head_"):
            out[f"update/{name}"] = float(means[0])
            continue
        for i, mean in enumerate(means):
            out[f"update/{name}/{i if heads is None else heads[i]}"] = float(mean)
    for name in ("fire_probability", "value_mean", "return_deviation"):
        out[name] = float(np.ravel(getattr(stacked[-1], name))[-1])
    return out
