"""Every field of a stepped batch against the recorded next rows (golden README).

Integers, booleans, indices, timers and voxels must be equal. Observations and rewards must agree to 1e-4, other floats to
1e-3. A field has one value per mech or one per arena. The interface differs on purpose in one thing: mechs that were dead when
time ran out are terminated only, so the recorded `truncated` counts only for mechs that are not terminated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from echelon_jax.env.state import REASONS, REWARD_COMPONENTS, STATISTICS, WINNERS, EnvState, Step
from echelon_jax.parity.recorded import golden
from echelon_jax.parity.recorded.golden import Episode, counters
from echelon_jax.rules import constants as k
from echelon_jax.rules.materials import COLLIDES, OPAQUE
from echelon_jax.rules.mechs import MECH_CLASSES, TEAM_NAMES, roster
from echelon_jax.sim.slots import slots

OBSERVATION_TOLERANCE = 1e-4  # observations and rewards
FLOAT_TOLERANCE = 1e-3
# Which mech each event is booked to, by the tally that counts it.
EVENT_TALLIES = {
    "assists": ("assist", "painter"),
    "paints": ("paint", "shooter"),
    "laser_hits": ("laser_hit", "shooter"),
    "missile_launches": ("missile_launch", "shooter"),
    "kinetic_fires": ("kinetic_fire", "shooter"),
    "smoke_launches": ("smoke_launch", "shooter"),
    "projectile_hits": ("projectile_hit", "shooter"),
    "explosions": ("explosion", "shooter"),
    "ams_intercepts": ("ams_intercept", "defender"),
}
_TIMERS = {
    "fallen_time": "fallen",
    "suppressed_time": "suppressed",
    "ams_cooldown": "ams_cooldown",
    "laser_cooldown": "laser_cooldown",
    "missile_cooldown": "tube_cooldown",
    "kinetic_cooldown": "kinetic_cooldown",
    "painter_cooldown": "painter_cooldown",
    # Counts of a timer that a scenario started off the grid of substeps agree as well: both count the same decrements.
    "painted_remaining": "painted",
}


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The agreement of one field, per arena or per arena and mech.

    Attributes:
        equal: equal to the last bit (floats after rounding the record to float32).
        close: equal, or within the field's tolerance.
        largest: the largest difference of each value; 0 for fields that are not floats.
    """

    equal: np.ndarray
    close: np.ndarray
    largest: np.ndarray

    @property
    def per_mech(self) -> bool:
        """Whether there is one value per mech, and not one per arena."""
        return self.equal.ndim == 2


def _every(values: np.ndarray, axes: int) -> np.ndarray:
    """Whether all values beyond the first `axes` axes are true."""
    return np.asarray(values.reshape(*values.shape[:axes], -1).all(-1))


def same(actual: Any, recorded: np.ndarray, axes: int) -> Agreement:
    """Agreement of integers, booleans or indices."""
    equal = _every(np.asarray(actual) == np.asarray(recorded), axes)
    return Agreement(equal, equal, np.zeros(equal.shape))


def near(actual: Any, recorded: np.ndarray, axes: int, tolerance: float = FLOAT_TOLERANCE) -> Agreement:
    """Agreement of floats; NaN never agrees."""
    difference = np.abs(np.asarray(actual, np.float64) - np.asarray(recorded, np.float64))
    equal = np.asarray(actual) == np.asarray(recorded).astype(np.float32)
    return Agreement(
        _every(equal, axes),
        _every(difference <= tolerance, axes),
        difference.reshape(*difference.shape[:axes], -1).max(-1, initial=0.0),
    )


def compare(episode: Episode, ts: Sequence[int], state: EnvState, step: Step) -> dict[str, Agreement]:
    """Agreement of every field of `state` and `step` (numpy leaves, stepped from rows `ts`) with rows ts + 1."""
    before = np.asarray(ts)
    fields = {
        **_mech_fields(episode, before, state),
        **_tally_fields(episode, before, state),
        **_control_fields(episode, before, state),
        **_step_fields(episode, before, step),
        **_arena_fields(episode, before, state),
        **_shot_fields(episode, before, state),
    }
    return {**fields, "dead_mechs": _dead(episode, before, fields)}


def _dead(episode: Episode, before: np.ndarray, fields: dict[str, Agreement]) -> Agreement:
    """Per arena: everything agrees for the mechs that were dead before the step."""
    dead = ~episode.data["alive"][before]
    parts = [f for f in fields.values() if f.per_mech]
    equal = np.all([f.equal | ~dead for f in parts], (0, 2))
    close = np.all([f.close | ~dead for f in parts], (0, 2))
    return Agreement(equal, close, np.max([np.where(dead, f.largest, 0.0) for f in parts], (0, 2)))


def _mech_fields(episode: Episode, before: np.ndarray, state: EnvState) -> dict[str, Agreement]:
    data, after, dt = episode.data, before + 1, episode.config.dt
    mechs, tally = state.sim.mechs, state.sim.tally
    fields = {
        "pos": near(mechs.position, data["pos"][after], 2),
        "vel": near(mechs.velocity, data["vel"][after], 2),
        "yaw": near(mechs.yaw, data["yaw"][after], 2),
        "hp": near(mechs.hp, data["hp"][after], 2),
        "leg_hp": near(mechs.leg_hp, data["leg_hp"][after], 2),
        "heat": near(mechs.heat, data["heat"][after], 2),
        "stability": near(mechs.stability, data["stability"][after], 2),
        "noise_level": near(mechs.loudness, data["noise_level"][after], 2),
        "took_damage": near(tally.took_damage, data["took_damage"][after], 2),
        "dealt_damage": near(tally.dealt_damage, data["dealt_damage"][after], 2),
        "last_damage_dir": near(
            np.where(np.asarray(tally.has_damage_direction)[..., None], tally.damage_direction, 0.0),
            np.where(data["has_damage_dir"][after][..., None], data["last_damage_dir"][after], 0.0),
            2,
        ),
    }
    for name, ours in (("kills", tally.kills), ("died", tally.died), ("was_hit", tally.was_hit)):
        fields[name] = same(ours, data[name][after], 2)
    for name, ours in (("alive", mechs.alive), ("ecm_on", mechs.ecm_on), ("eccm_on", mechs.eccm_on)):
        fields[name] = same(ours, data[name][after], 2)
    fields["has_damage_dir"] = same(tally.has_damage_direction, data["has_damage_dir"][after], 2)
    fields["last_painter"] = same(mechs.last_painter, data["last_painter"][after], 2)
    fields["focus_target"] = same(mechs.focus, data["focus_target"][after], 2)
    for name, counter in _TIMERS.items():
        fields[name] = same(getattr(mechs, counter), counters(data[name][after], dt), 2)
    running = np.asarray(mechs.tube_cooldown) > 0
    fields["tube_was_smoke"] = same(np.asarray(mechs.tube_was_smoke) & running, episode.tube_smoke[after] & running, 2)
    fields["grid_rank"] = _grid_rank(episode, after, state)
    return fields


def _grid_rank(episode: Episode, after: np.ndarray, state: EnvState) -> Agreement:
    """Rank of each living mech among the living of its 10 x 10 cell, by insertion index; -1 for the dead."""
    mechs = state.sim.mechs
    cell = np.trunc(np.asarray(mechs.position)[..., :2] / k.GRID_CELL).astype(int)
    index, alive = np.asarray(mechs.insertion_index), np.asarray(mechs.alive)
    together = (cell[:, :, None] == cell[:, None, :]).all(-1) & alive[:, None, :]
    rank = (together & (index[:, None, :] < index[:, :, None])).sum(-1)
    return same(np.where(alive, rank, -1), episode.data["grid_rank"][after], 2)


def _tally_fields(episode: Episode, before: np.ndarray, state: EnvState) -> dict[str, Agreement]:
    """Counts of events per mech."""
    index = {name: i for i, name in enumerate(episode.meta["ids"])}
    fields = {}
    for name, (kind, role) in EVENT_TALLIES.items():
        count = np.zeros((len(before), episode.config.num_mechs), int)
        for b, t in enumerate(before):
            for event in episode.events[t]:
                if event["type"] == kind:
                    count[b, index[event[role]]] += 1
        fields[f"events.{name}"] = same(getattr(state.sim.tally, name), count, 2)
    return fields


def _control_fields(episode: Episode, before: np.ndarray, state: EnvState) -> dict[str, Agreement]:
    data, after = episode.data, before + 1
    fields = {
        "contact_slots": same(state.contact_slots, data["contact_slots"][after], 2),
        "contact_sort_mode": same(state.sort_mode, data["contact_sort_mode"][after], 2),
        "contact_hostile_only": same(state.hostile_only, data["contact_hostile_only"][after], 2),
    }
    if "comm_last" in data:
        fields["comm_last"] = near(state.messages, data["comm_last"][after], 2, OBSERVATION_TOLERANCE)
    return fields


def _step_fields(episode: Episode, before: np.ndarray, step: Step) -> dict[str, Agreement]:
    data = episode.data
    over = data["terminated"][before].all(-1) | data["truncated"][before].any(-1)
    components = np.asarray(step.info.reward_components)
    fields = {
        "obs": near(step.observation, data["obs"][before + 1], 2, OBSERVATION_TOLERANCE),
        "rewards": near(step.reward, data["rewards"][before], 2, OBSERVATION_TOLERANCE),
        "terminated": same(step.terminated, data["terminated"][before], 2),
        "truncated": same(step.truncated, data["truncated"][before] & ~data["terminated"][before], 2),
        "episode_over": same(step.episode_over, over, 1),
    }
    paid = data["reward_components"]  # the original has no pay for a shutdown, the last of our components
    for i, name in enumerate(REWARD_COMPONENTS[: paid.shape[-1]]):
        recorded = paid[before][..., i]
        fields[f"reward.{name}"] = near(components[..., i], recorded, 2, OBSERVATION_TOLERANCE)
    outcome = episode.meta["outcome"] or {"reason": REASONS[0], "winner": WINNERS[0]}
    reason = np.where(over, REASONS.index(outcome["reason"]), 0)
    winner = np.where(over, WINNERS.index(outcome["winner"]), np.asarray(step.info.winner))
    return {**fields, "reason": same(step.info.reason, reason, 1), "winner": same(step.info.winner, winner, 1)}


def _arena_fields(episode: Episode, before: np.ndarray, state: EnvState) -> dict[str, Agreement]:
    data, after, grid = episode.data, before + 1, state.sim.grid
    material, hp = (recorded[after] for recorded in episode.grids)
    zero = np.zeros(len(before), int)
    return {
        "voxels": same(grid.material, material, 1),
        "voxel_hp": same(grid.hp, hp, 1),
        "collides": same(grid.collides, golden.column_words(material, COLLIDES, episode.config), 1),
        "opaque": same(grid.opaque, golden.column_words(material, OPAQUE, episode.config), 1),
        "zone_score": near(state.score, data["zone_score"][after], 1),
        "tick": same(state.sim.tick, data["tick"][after], 1),
        "step_count": same(state.step_count, after, 1),
        "lost_shots": same(state.sim.lost_shots, zero, 1),
        "lost_clouds": same(state.sim.lost_clouds, zero, 1),
        "statistics": near(state.statistics, recorded_statistics(episode, before), 1),
    }


def recorded_statistics(episode: Episode, before: np.ndarray) -> np.ndarray:
    """[rows, 13, 2] what one decision step adds to the counters (docs/spec/environment.md 4.5), recounted."""
    config, data = episode.config, episode.data
    half, side = config.team_size, {name: i for i, name in enumerate(TEAM_NAMES)}
    heat_cap = np.array([MECH_CLASSES[c].heat_cap for c in roster(config.num_packs).mech_class])
    result = np.zeros((len(before), len(STATISTICS), len(TEAM_NAMES)))
    row = {name: i for i, name in enumerate(STATISTICS)}
    credit = {kind: (name, role) for name, (kind, role) in EVENT_TALLIES.items() if name in row}
    credit["kill"] = ("kills", "shooter")
    for b, t in enumerate(before):
        for event in episode.events[t]:
            name, role = credit.get(event["type"], ("", "shooter"))
            team = side.get(event.get(role, "").rsplit("_", 1)[0])
            if team is None:
                continue  # lava and debris are on no side
            if name:
                result[b, row[name], team] += 1
            if event["type"] in ("laser_hit", "projectile_hit"):
                result[b, row["damage"], team] += event["damage"]
        changes = {
            "knockdowns": data["fallen_time"][t : t + 2] > 0,
            "legged": data["leg_hp"][t : t + 2] <= 0,
            "shutdowns": data["heat"][t : t + 2] > heat_cap,
        }
        for name, (was, now) in changes.items():
            result[b, row[name]] = (now & ~was).reshape(2, half).sum(-1)
        bad = ~np.isfinite(data["actions"][t]).all(-1)
        result[b, row["bad_actions"]] = bad.reshape(2, half).sum(-1)
    return result


def _shot_fields(episode: Episode, before: np.ndarray, state: EnvState) -> dict[str, Agreement]:
    """Shots in processing order and clouds in any order, per arena."""
    shots, clouds = [], []
    for b, t in enumerate(before + 1):
        shots.append(_shots_agree(episode, int(t), state, b))
        clouds.append(_clouds_agree(episode, int(t), state, b))
    return {
        "projectiles": Agreement(*(np.array(part) for part in zip(*shots, strict=True))),
        "smoke": Agreement(*(np.array(part) for part in zip(*clouds, strict=True))),
    }


def _shots_agree(episode: Episode, t: int, state: EnvState, b: int) -> tuple[bool, bool, float]:
    rows, shots = golden.shots_at(episode, t), state.sim.projectiles
    alive = np.flatnonzero(np.asarray(shots.alive)[b])
    here = alive[np.argsort(np.asarray(shots.order)[b][alive], kind="stable")]
    ages = np.round(rows[:, golden.SHOT_AGE] / episode.config.dt)
    names = np.stack([rows[:, golden.SHOT_SHOOTER], rows[:, golden.SHOT_TARGET], rows[:, golden.SHOT_WEAPON], ages], -1)
    ours = np.stack(
        [slots(episode.config).mech[here], *(np.asarray(x)[b][here] for x in (shots.target, shots.weapon, shots.age))],
        -1,
    )
    if ours.shape != names.shape or (ours != names).any():
        return False, False, 0.0
    flight = np.concatenate([np.asarray(shots.position)[b][here], np.asarray(shots.velocity)[b][here]], -1)
    recorded = rows[:, golden.SHOT_POSITION : golden.SHOT_POSITION + 6]
    largest = float(np.abs(flight - recorded).max(initial=0.0))
    return bool((flight == recorded.astype(np.float32)).all()), largest <= FLOAT_TOLERANCE, largest


def _clouds_agree(episode: Episode, t: int, state: EnvState, b: int) -> tuple[bool, bool, float]:
    rows = golden.clouds_at(episode, t)
    life = counters(rows[:, golden.CLOUD_LIFE], episode.config.dt)
    ours = [int(i) for i in np.flatnonzero(np.asarray(state.sim.smoke.life)[b] > 0)]
    if len(ours) != len(rows):
        return False, False, 0.0
    largest = 0.0
    for row, left in zip(rows, life, strict=True):
        centre = row[golden.CLOUD_POSITION : golden.CLOUD_POSITION + 3]
        match = [i for i in ours if np.asarray(state.sim.smoke.life)[b, i] == left]
        gaps = [float(np.abs(np.asarray(state.sim.smoke.position)[b, i] - centre).max()) for i in match]
        if not gaps or min(gaps) > FLOAT_TOLERANCE:
            return False, False, min(gaps, default=0.0)
        ours.remove(match[int(np.argmin(gaps))])
        largest = max(largest, min(gaps))
    return largest < 1e-6, True, largest
