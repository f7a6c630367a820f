"""The behaviour of finished games as named numbers, on the host (docs/evaluation.md)."""

from __future__ import annotations

from typing import Any

import flax.struct
import numpy as np
from jaxtyping import Array

from echelon_jax.config import EnvConfig
from echelon_jax.env.reward_terms import reward_part_names
from echelon_jax.evaluation.behaviour import EVENTS, BehaviourSums
from echelon_jax.rules.mechs import CLASS_NAMES, roster
from echelon_jax.rules.weapons import (
    BALLISTIC,
    SMOKE,
    WEAPON_NAMES,
)

_E = {name: i for i, name in enumerate(EVENTS)}


class Behaviour(flax.struct.PyTreeNode):
    """Behaviour of finished games, one row each, numpy, with player A first on the axis of sides and mechs in roster order."""

    events: np.ndarray  # [games, 2, team, events]
    components: np.ndarray  # [games, 2, team, components]
    fired: np.ndarray  # [games, 2, team, weapons]
    fired_in_reach: np.ndarray
    pulls: np.ndarray
    chances: np.ndarray
    taken: np.ndarray
    by_range: np.ndarray  # [games, 2, weapons, bins]
    positions: np.ndarray  # [games, 2, rows, columns]
    first_zone: np.ndarray  # [games, 2]


def behaviour_of(sums: BehaviourSums) -> Behaviour:
    """Return the sums of paired games (A is blue in even arenas) as rows with A first."""

    def own_first(x: Array, per_mech: bool) -> np.ndarray:
        rows = np.asarray(x)
        if per_mech:
            rows = rows.reshape(rows.shape[0], 2, -1, *rows.shape[2:])
        rows = rows.copy()
        rows[1::2] = rows[1::2, ::-1]
        return rows

    per_side = {name: own_first(getattr(sums, name), False) for name in ("by_range", "positions", "first_zone")}
    per_mech = ("events", "components", "fired", "fired_in_reach", "pulls", "chances", "taken")
    return Behaviour(**per_side, **{name: own_first(getattr(sums, name), True) for name in per_mech})


def _rate(a: Any, b: Any) -> float | None:
    return float(a) / float(b) if float(b) > 0 else None


def _class_numbers(config: EnvConfig, b: Behaviour, side: int, which: int, limit: np.ndarray) -> dict[str, Any]:
    team = np.flatnonzero(roster(config.num_packs).mech_class[: config.team_size] == which)
    events = b.events[:, side, team].sum(0).sum(0)
    mechs = len(b.events) * len(team)
    lived = events[_E["decisions"]]
    out: dict[str, Any] = {
        f"{name}_per_game": float(events[_E[name]]) / mechs
        for name in (
            "reward",
            "damage",
            "damage_taken",
            "friendly_damage",
            "kills",
            "deaths",
            "assists",
            "projectile_hits",
            "shutdowns",
            "knockdowns",
            "legged",
        )
    }
    out["alive"] = _rate(lived, (limit * len(team)).sum())
    out["in_zone"] = _rate(events[_E["in_zone"]], lived)
    out["zone_distance"] = _rate(events[_E["zone_distance"]], lived)
    out["heat"] = _rate(events[_E["heat"]], lived)
    out["over_cap"] = _rate(events[_E["over_cap"]], lived)
    parts = b.components[:, side, team].sum((0, 1)) / mechs
    out["reward_components"] = {name: float(parts[i]) for i, name in enumerate(reward_part_names(config))}
    return out


def summarize_behaviour(config: EnvConfig, behaviour: Behaviour, length: np.ndarray) -> dict[str, Any]:
    """Return named numbers of both players, "own" and "other", which docs/evaluation.md explains; None where data are missing.

    Args:
        behaviour: sums of the games.
        length: [games], the decisions of each game.
    """
    out: dict[str, Any] = {}
    b, games = behaviour, len(length)
    for side, whose in enumerate(("own", "other")):
        total = b.events[:, side].sum((0, 1))
        lived = total[_E["decisions"]]
        weapons = {}
        for w, name in enumerate(WEAPON_NAMES):
            pulls, chances, taken = (x[:, side, :, w].sum() for x in (b.pulls, b.chances, b.taken))
            shots_by_range = b.by_range[:, side, w].sum(0)
            fired, in_reach = (x[:, side, :, w].sum() for x in (b.fired, b.fired_in_reach))
            weapons[name] = {
                "shots_per_game": float(fired) / games,
                "shots_in_reach": _rate(in_reach, fired),
                "pulls_in_reach": _rate(taken, pulls),
                "chances_taken": _rate(taken, chances),
                "by_range": [float(x) / games for x in shots_by_range],
            }
        aimed = [w for w in range(len(WEAPON_NAMES)) if w != SMOKE]
        guns = list(BALLISTIC)  # these spend heat and cooldown without a target as well
        reached = b.first_zone[:, side]
        out[whose] = {
            "weapons": weapons,
            "gun_shots_in_reach": _rate(b.fired_in_reach[:, side][..., guns].sum(), b.fired[:, side][..., guns].sum()),
            "pulls_in_reach": _rate(b.taken[:, side][..., aimed].sum(), b.pulls[:, side][..., aimed].sum()),
            "chances_taken": _rate(b.taken[:, side][..., aimed].sum(), b.chances[:, side][..., aimed].sum()),
            "heat": {
                "mean": _rate(total[_E["heat"]], lived),
                "over_cap": _rate(total[_E["over_cap"]], lived),
                "shutdowns_per_game": float(total[_E["shutdowns"]]) / games,
                "vents_when_hot": _rate(total[_E["vents_hot"]], total[_E["hot"]]),
                "vents_when_cool": _rate(
                    total[_E["vents"]] - total[_E["vents_hot"]], lived - total[_E["hot"]] - total[_E["over_cap"]]
                ),
                "vented_before_shutdown": _rate(total[_E["vented_before"]], total[_E["shutdowns"]]),
            },
            "zone": {
                "in_zone": _rate(total[_E["in_zone"]], lived),
                "distance": _rate(total[_E["zone_distance"]], lived),
                "reached": float((reached >= 0).mean()),
                "first_seconds": float(reached[reached >= 0].mean() * config.decision_seconds)
                if (reached >= 0).any()
                else None,
            },
            "per_class": {
                name: _class_numbers(config, b, side, c, length)
                for c, name in enumerate(CLASS_NAMES)
                if c in roster(config.num_packs).mech_class
            },
        }
    return out
