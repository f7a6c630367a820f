"""The metrics of training: sums that the device gathers, and named numbers that the host makes of them.

The device only adds up. Every mean, rate and share is a quotient of two sums, so windows of any length combine exactly, and
episodes or mechs that do not count dilute nothing (T25). A quotient without data is None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.env.reward_terms import reward_parts
from echelon_jax.env.state import REASONS, REWARD_COMPONENTS, STATISTICS, Step
from echelon_jax.rules.mechs import CLASS_NAMES, PACK_CLASSES, TEAM_NAMES
from echelon_jax.training.guard import Report
from echelon_jax.training.league import state as league
from echelon_jax.training.ppo import UpdateMetrics
from echelon_jax.training.sides import learner_first, learner_rows

# Fields of UpdateMetrics of which no mean is told: for the guard, told by part, and for runs/ratio_log.py.
NOT_MEANS = ("bad_gradient", "part_grad_norm", "worst")


class RolloutSums(flax.struct.PyTreeNode):
    """Sums over a rollout. Sums over ended episodes cover the whole episode, from its first step on."""

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
    components: Float32[Array, " components"]  # REWARD_COMPONENTS, then the terms of config.reward_terms
    deaths: Float32[Array, ""]  # of learner mechs
    sides: Float32[Array, "2 3"]  # ended episodes by the learner's side (blue, red): all, won, drawn
    class_decisions: Float32[Array, " classes"]  # as `decisions`, by mech class
    class_survived: Float32[Array, " classes"]
    class_in_zone: Float32[Array, " classes"]
    class_components: Float32[Array, "classes components"]
    class_deaths: Float32[Array, " classes"]
    league: league.LeagueSums | None = None  # with an opponent of several members


class Metrics(flax.struct.PyTreeNode):
    """All metrics of one update; scalars and small vectors only."""

    rollout: RolloutSums
    update: UpdateMetrics
    fire_probability: Float32[Array, ""]  # read from the parameters the opponent acted with
    value_mean: Float32[Array, ""]  # of the critic, reward units, living mechs
    return_deviation: Float32[Array, ""]  # unit of the critic
    guard: Report | None = None
    dead_units: dict[str, Float32[Array, ""]] = dataclasses.field(default_factory=dict)  # share, by layer


def no_sums(terms: int = 0, members: int = 0) -> RolloutSums:
    """Return sums over nothing.

    Args:
        terms: number of reward terms of the user's own.
        members: number of members of the opponent, 0 for one that has none.
    """
    parts = len(REWARD_COMPONENTS) + terms
    shapes: dict[str, tuple[int, ...]] = {
        "reasons": (len(REASONS),),
        "zone_seconds": (2,),
        "statistics": (len(STATISTICS), 2),
        "components": (parts,),
        "sides": (2, 3),
        "class_components": (len(CLASS_NAMES), parts),
    }
    shapes |= {f"class_{name}": (len(CLASS_NAMES),) for name in ("decisions", "survived", "in_zone", "deaths")}
    fields = [name for name in RolloutSums.__dataclass_fields__ if name != "league"]
    sums = {name: jnp.zeros(shapes.get(name, ()), jnp.float32) for name in fields}
    return RolloutSums(**sums, league=league.no_sums(members) if members else None)


def add_step(
    sums: RolloutSums,
    step: Step,
    alive: Bool[Array, "arenas team"],
    actors_return: Float32[Array, " arenas"],
    member: Int32[Array, " arenas"] | None = None,
) -> RolloutSums:
    """Add one step; `alive` at the decision, `actors_return` the episode returns with this step's rewards, `member` who played."""
    info, over = step.info, step.episode_over
    lives = learner_rows(info.alive)
    # Winner 0 is blue, 1 red, 2 a draw; the learner is red in odd arenas.
    side = jnp.arange(over.shape[0], dtype=jnp.int32) % 2
    reward = jnp.where(alive, learner_rows(step.reward), 0.0)
    components = jnp.where(alive[..., None], learner_rows(reward_parts(info)), 0.0)
    in_zone, died = lives & learner_rows(info.in_zone), alive & ~lives

    def ended(x: Array) -> Array:
        return jnp.where(over.reshape(-1, *(1,) * (x.ndim - 1)), x, 0).astype(jnp.float32).sum(0)

    of_class = jnp.asarray(_class_rows(alive.shape[1]))

    def by_class(x: Array) -> Array:
        return jnp.einsum("m...,mc->c...", x.astype(jnp.float32).sum(0), of_class)

    results = jnp.stack([jnp.ones_like(over), info.winner == side, info.winner == 2], -1)  # [arenas, 3]
    by_side = jnp.stack([ended(results & (side == s)[:, None]) for s in range(2)])
    new = RolloutSums(
        episodes=ended(jnp.ones_like(side)),
        wins=ended(info.winner == side),
        losses=ended(info.winner == 1 - side),
        draws=ended(info.winner == 2),
        reasons=ended(info.reason[:, None] == jnp.arange(sums.reasons.shape[0])),
        length=ended(info.step_count),
        episode_return=ended(actors_return),
        zone_seconds=ended(learner_first(info.score)),
        statistics=ended(learner_first(info.statistics)),
        lost_shots=ended(info.lost_shots),
        lost_clouds=ended(info.lost_clouds),
        decisions=alive.sum(dtype=jnp.float32),
        in_zone=in_zone.sum(dtype=jnp.float32),
        survived=lives.sum(dtype=jnp.float32),
        reward=reward.sum(),
        components=components.sum((0, 1)),
        deaths=died.sum(dtype=jnp.float32),
        sides=by_side,
        class_decisions=by_class(alive),
        class_survived=by_class(lives),
        class_in_zone=by_class(in_zone),
        class_components=by_class(components),
        class_deaths=by_class(died),
        league=None
        if sums.league is None or member is None
        else league.count_results(
            league.no_sums(sums.league.playing.shape[0]), member, over, info.winner == side, info.winner == 2
        ),
    )
    return jax.tree.map(jnp.add, sums, new)


def _class_rows(team_size: int) -> np.ndarray:
    """[team, classes] 1 where a mech of a team is of a class."""
    return np.eye(len(CLASS_NAMES), dtype=np.float32)[np.resize(PACK_CLASSES, team_size)]


def _quotient(a: float, b: float) -> float | None:
    return float(a) / float(b) if b > 0 else None


def summarize(
    calls: Sequence[Metrics],
    team_size: int,
    heads: Sequence[str] | None = None,
    opponent: str | None = None,
    terms: Sequence[str] = (),
    members: Sequence[str] = (),
) -> dict[str, float | None]:
    """Return the named numbers of a window of calls (fields stacked over updates), None where there are no data.

    docs/metrics.md explains each number. Shares run from 0 to 1. "per_episode" numbers count whole teams; returns and
    "per_decision" numbers are those of one mech.

    Args:
        heads: names of the network's action heads; without them they are numbered.
        opponent: name of the opponent, for the win rate against it.
        terms: names of the reward terms of the user's own, in order.
        members: names of the opponent's members, for the numbers of each.
    """
    parts = (*REWARD_COMPONENTS, *terms)
    if not calls:
        raise ValueError("calls must hold the metrics of at least one call, got none")
    stacked = [jax.tree.map(lambda x: np.asarray(x, np.float64), m) for m in calls]
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
    for i, name in enumerate(TEAM_NAMES):
        out[f"win_rate/as_{name}"] = _quotient(total.sides[i, 1], total.sides[i, 0])
    if opponent is not None:
        out[f"win_rate/against_{opponent}"] = out["win_rate"]
    for name, row in zip(members, total.league.results if members else (), strict=True):
        out[f"win_rate/against_{name}"] = _quotient(row[1], row[0])
        out[f"episodes/against_{name}"] = float(row[0])
    for i, name in enumerate(CLASS_NAMES):
        lived = total.class_decisions[i]
        out[f"class/{name}/reward_per_decision"] = _quotient(total.class_components[i].sum(), lived)
        for j, part in enumerate(parts):
            out[f"class/{name}/reward_per_decision/{part}"] = _quotient(total.class_components[i, j], lived)
        out[f"class/{name}/in_zone"] = _quotient(total.class_in_zone[i], total.class_survived[i])
        out[f"class/{name}/deaths_per_episode"] = _quotient(total.class_deaths[i], total.episodes)
    for i, name in enumerate(REASONS[1:], start=1):
        out[f"ended_by/{name}"] = _quotient(total.reasons[i], total.episodes)
    for i, name in enumerate(parts):
        out[f"reward_per_decision/{name}"] = _quotient(total.components[i], total.decisions)
    for i, name in enumerate(STATISTICS):
        for side, label in enumerate(("learner", "opponent")):
            out[f"per_episode/{name}_{label}"] = _quotient(total.statistics[i, side], total.episodes)
    done = np.concatenate([1.0 - m.update.stopped.ravel() for m in stacked])
    for name in UpdateMetrics.__dataclass_fields__:
        if name in NOT_MEANS or getattr(stacked[0].update, name) is None:
            continue
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
    by_part = [m.update.part_grad_norm for m in stacked if m.update.part_grad_norm is not None]
    for i, part in enumerate(by_part[0].names if by_part else ()):
        rows = np.concatenate([each.norms[..., i].ravel() for each in by_part])
        out[f"update/grad_norm/{part}"] = float((rows * done).sum() / max(done.sum(), 1.0))
    for layer, share in stacked[-1].dead_units.items():
        out[f"update/dead_units/{layer}"] = float(np.ravel(share)[-1])
    for name in ("fire_probability", "value_mean", "return_deviation"):
        out[name] = float(np.ravel(getattr(stacked[-1], name))[-1])
    return out
