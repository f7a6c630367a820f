"""One decision step of the plain reference as a recording, so that what compares with recordings compares with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.parity.exchange import FLOATS, TIMERS, SlotNoise, to_reference
from echelon_jax.parity.fuzzing.cases import Case
from echelon_jax.parity.recorded.golden import Episode
from echelon_jax.reference.environment import Advance, Arena
from echelon_jax.rules.mechs import roster


def _snapshot(arena: Arena) -> dict[str, Any]:
    """The fields of an arena under their recorded names."""
    battle = arena.battle
    mechs = battle.mechs
    names = (*FLOATS, *TIMERS, "took_damage", "dealt_damage", "kills", "died", "was_hit", "alive", "ecm_on", "eccm_on")
    shot = {name: np.array([getattr(mech, name) for mech in mechs]) for name in names}
    shot["pos"] = np.array([mech.pos for mech in mechs], np.float32)
    shot["vel"] = np.array([mech.vel for mech in mechs], np.float32)
    shot["has_damage_dir"] = np.array([mech.last_damage_dir is not None for mech in mechs])
    shot["last_damage_dir"] = np.array([mech.last_damage_dir or (0.0, 0.0, 0.0) for mech in mechs], np.float32)
    for name in ("last_painter", "focus_target"):
        shot[name] = np.array([-1 if getattr(mech, name) is None else getattr(mech, name) for mech in mechs])
    shot["grid_rank"] = np.array([battle.grid.rank(mech.index) for mech in mechs])
    shot["contact_slots"] = np.array(arena.contact_slots)
    shot["contact_sort_mode"] = np.array(arena.sort_mode)
    shot["contact_hostile_only"] = np.array(arena.hostile_only)
    shot["comm_last"] = np.array(arena.messages).reshape(len(mechs), -1)
    shot["zone_score"], shot["tick"] = np.array(arena.scores), np.array(battle.tick)
    return shot


def _shot_rows(arena: Arena, t: int) -> list[list[float]]:
    return [
        [t, -1, s.shooter, -1 if s.target is None else s.target, s.weapon, *s.pos, *s.vel, s.age]
        for s in arena.battle.projectiles
    ]


@dataclasses.dataclass
class Expected:
    """What the reference makes of some cases: a recording whose rows 2 b and 2 b + 1 are case b before and after its step."""

    episode: Episode
    arenas: list[Arena]

    @property
    def rows(self) -> list[int]:
        """The rows before the steps."""
        return list(range(0, 2 * len(self.arenas), 2))


def play_reference(config: EnvConfig, cases: Sequence[Case]) -> Expected:
    """One decision step of every case in the plain reference."""
    rows: list[dict[str, Any]] = []
    arenas: list[Arena] = []
    made: list[Advance] = []
    events: list[list[dict[str, Any]]] = []
    shots: list[list[float]] = []
    clouds: list[list[float]] = []
    smoke: list[np.ndarray] = []
    ids = list(roster(config.num_packs).ids)
    for b, case in enumerate(cases):
        loaded = to_reference(config, case.state)
        arena, before = loaded.arena, _snapshot(loaded.arena)
        step = arena.advance(case.actions, SlotNoise(config, case.noise, loaded))
        rows += [before, _snapshot(arena)]
        arenas.append(arena)
        made.append(step)
        events += [step.events, []]
        shots += _shot_rows(arena, 2 * b + 1)
        clouds += [[2 * b + 1, *cloud.pos, cloud.radius, cloud.life] for cloud in arena.battle.clouds]
        smoke += [np.array([mech.tube_was_smoke for mech in arena.battle.mechs])] * 2

    data = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    results = {
        "actions": [case.actions for case in cases],
        "rewards": [step.reward for step in made],
        "reward_components": [step.components for step in made],
        "terminated": [step.terminated for step in made],
        "truncated": [step.truncated for step in made],
    }
    data.update({name: np.repeat(np.stack(values), 2, 0) for name, values in results.items()})
    data["obs"] = np.repeat(np.stack([step.observation for step in made]), 2, 0)
    data["projectiles"] = np.array(shots, np.float64).reshape(-1, 12)
    data["smoke"] = np.array(clouds, np.float64).reshape(-1, 6)
    episode = Episode("fuzz", config, data, {"ids": ids, "outcome": None}, events)
    worlds = [arena.battle.world for arena in arenas]
    material = np.stack([world.material.reshape(-1) for world in worlds])
    hp = np.stack([world.hp.reshape(-1) for world in worlds])
    episode.__dict__["grids"] = (np.repeat(material, 2, 0), np.repeat(hp, 2, 0))
    episode.__dict__["tube_smoke"] = np.array(smoke)
    return Expected(episode, arenas)
