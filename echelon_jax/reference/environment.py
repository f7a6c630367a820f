"""The environment around the simulation: actions, scores, episode end, reset and step.

Source: docs/spec/environment.md 1, 3.1, 4, 5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.reference.interfaces import actions_of, observation_of, reward_of
from echelon_jax.reference.modern.observation import DEEDS
from echelon_jax.reference.noise import LiveNoise, Noise
from echelon_jax.reference.observation import SLOTS, Scene, occupancy_map, telemetry_map
from echelon_jax.reference.rewards import (
    COMPONENTS,
    Flags,
    Zone,
    count_events,
    count_transitions,
    new_statistics,
    status_flags,
    tonnage_in_zone,
    zone_tick,
)
from echelon_jax.reference.simulator import simulate
from echelon_jax.reference.state import Battle, Event, make_mechs
from echelon_jax.reference.world import VoxelWorld
from echelon_jax.rules.mechs import BLUE, RED, TEAM_NAMES
from echelon_jax.rules.rewards import ModernWeights, modern_weights


def action_size(config: EnvConfig) -> int:
    """Return the components of one mech's action: those of its interface, then the message."""
    return actions_of(config).size(config) + config.comm_dim


CLOSE_CALL = 1e-3  # scores or hit points nearer than this are equal when time is up


class Advance(NamedTuple):
    """The result of one decision step with the original's flags: a dead mech may be terminated and truncated (E32)."""

    observation: np.ndarray  # float32 [N, O]
    reward: np.ndarray  # float64 [N]
    components: np.ndarray  # float64 [N, 7], in the order of rewards.COMPONENTS
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]
    outcome: dict[str, Any] | None  # once an end was detected
    events: list[Event]


class Step(NamedTuple):
    """The result of a step for agents. `terminated` and `truncated` are never both true; `episode_over` is one flag per arena."""

    observation: np.ndarray  # float32 [N, O]
    reward: np.ndarray  # float64 [N]
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]
    episode_over: bool
    info: dict[str, Any]  # reward_components, events, statistics, zone_score, zone_control, in_zone, alive, outcome


def sanitise(actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Actions float32 [N, A]: not finite becomes 0, then clipped to [-1, 1]; and which rows were bad.

    Source: docs/spec/environment.md 1.2.
    """
    clean = np.array(actions, np.float32)  # a copy: the caller's array is left alone
    broken = ~np.isfinite(clean)
    clean[broken] = 0.0
    return np.asarray(np.clip(clean, -1.0, 1.0)), np.asarray(broken.any(axis=1))


class Arena:
    """One arena with everything that the environment carries between decision steps.

    Args:
        config: sizes, clock and switches.
        battle: the simulation's state, changed in place.
        zone: the capture zone.
        map_world: the voxels at reset; the maps in the observation are made from them and never refreshed (E4).
        weights: weights of the modern reward; None for its defaults.
    """

    def __init__(
        self, config: EnvConfig, battle: Battle, zone: Zone, map_world: VoxelWorld, weights: ModernWeights | None = None
    ) -> None:
        n = len(battle.mechs)
        self.config, self.battle, self.zone = config, battle, zone
        self.observation, self.actions, self.reward = observation_of(config), actions_of(config), reward_of(config)
        self.weights = modern_weights(config.num_packs, config.score_to_win) if weights is None else weights
        self.occupancy = occupancy_map(map_world, config.clearance_z)
        self.telemetry = telemetry_map(map_world)
        self.step_count = 0
        self.scores = [0.0, 0.0]
        self.messages = [[0.0] * config.comm_dim for _ in range(n)]
        self.sort_mode = [0] * n
        self.hostile_only = [False] * n
        self.contact_slots = [[-1] * SLOTS for _ in range(n)]
        self.flags_before: list[Flags] = [status_flags(mech) for mech in battle.mechs]
        self.shut_down = [False] * len(battle.mechs)  # which living mechs shut down in the last step
        self.statistics = new_statistics()
        self.memory = self.observation.first_memory(config)
        self.deeds: list[set[str]] = [set() for _ in range(n)]  # which of DEEDS each mech did in the last decision
        self.outcome: dict[str, Any] | None = None

    def scene(self) -> Scene:
        """The input of an observation pass."""
        return Scene(
            self.config,
            self.battle,
            self.zone,
            self.occupancy,
            self.telemetry,
            self.scores,
            self.messages,
            self.sort_mode,
            self.hostile_only,
        )

    def look(self) -> np.ndarray:
        """Compute the observations, remember the contact slots and count the non-finite ones."""
        rows, self.contact_slots, bad = self.observation.observe(self)
        for i in bad:
            self.statistics[f"bad_obs_{TEAM_NAMES[self.battle.mechs[i].team]}"] += 1
        return rows

    def advance(self, actions: np.ndarray, noise: Noise) -> Advance:
        """One decision step in the order of docs/spec/environment.md 3.1. Nothing stops steps after the end here."""
        config, battle, mechs = self.config, self.battle, self.battle.mechs
        self.step_count += 1  # 1
        clean, bad = sanitise(actions)  # 2
        for mech in mechs:
            if bad[mech.index]:
                self.statistics[f"bad_actions_{TEAM_NAMES[mech.team]}"] += 1
        scalars = clean.tolist()  # float32 values widened
        self.actions.decide(self, clean)  # 3, 4
        before = [self.zone.distance(mech) if mech.alive else None for mech in mechs]  # 5
        yaws = [mech.yaw for mech in mechs]
        events = simulate(battle, scalars, noise)  # 7
        done = [(event["shooter"], event["type"]) for event in events if event["type"] in DEEDS]
        self.deeds = [{kind for shooter, kind in done if shooter == mech.id} for mech in mechs]
        if self.memory is not None:
            self.memory.older(yaws, mechs)
        count_events(self.statistics, mechs, events)  # 8
        count_transitions(self.statistics, mechs, self.flags_before)  # 9
        flags = [status_flags(mech) for mech in mechs]
        old = self.flags_before
        self.shut_down = [m.alive and now[2] and not was[2] for m, now, was in zip(mechs, flags, old, strict=True)]
        self.flags_before = flags
        message = self.actions.size(config)
        for mech in mechs:  # 10: messages arrive one decision later
            heard = config.communication and mech.alive
            self.messages[mech.index] = scalars[mech.index][message:] if heard else [0.0] * config.comm_dim
        ticks = zone_tick(*tonnage_in_zone(mechs, self.zone))  # 11
        for team in (BLUE, RED):
            self.scores[team] += ticks[team] * config.decision_seconds
        terminated, truncated = self.episode_outcome()  # 13
        rows = self.reward.components(self, before, ticks, events)  # 12
        observation = self.look()  # 16
        components = np.array(rows, np.float64)
        reward = np.array([sum(row) for row in rows], np.float64)
        return Advance(observation, reward, components, terminated, truncated, self.outcome, events)

    def team_hp(self, team: int) -> float:
        """Sum of max(0, hp) over a team's living mechs."""
        return float(sum(max(0.0, mech.hp) for mech in self.battle.mechs if mech.alive and mech.team == team))

    @property
    def winner(self) -> str | None:
        """ "blue", "red" or "draw" once an end was detected."""
        return None if self.outcome is None else str(self.outcome["winner"])

    def episode_outcome(self) -> tuple[np.ndarray, np.ndarray]:
        """The original's flags, and the outcome record if the episode has ended; the first case decides.

        Source: docs/spec/environment.md 4.2.
        """
        mechs = self.battle.mechs
        terminated = np.array([not mech.alive for mech in mechs])
        truncated = np.zeros(len(mechs), bool)
        blue, red = self.scores
        living = [any(mech.alive for mech in mechs if mech.team == team) for team in (BLUE, RED)]
        if max(blue, red) >= self.config.score_to_win:
            reason, winner = "zone_control", "blue" if blue > red else "red"  # an exact tie goes to red (E33)
            if blue == red and self.config.tie_is_draw:
                winner = _higher(self.team_hp(BLUE), self.team_hp(RED)) or "draw"
            terminated[:] = True
        elif not all(living):
            reason, winner = "elimination", "blue" if living[BLUE] else "red" if living[RED] else "draw"
            terminated[:] = True
        elif self.step_count >= self.config.max_steps:
            reason, winner = "time_up", _higher(blue, red) or _higher(self.team_hp(BLUE), self.team_hp(RED)) or "draw"
            truncated[:] = True
        else:
            return terminated, truncated
        self.outcome = {
            "reason": reason,
            "winner": winner,
            "hp": {name: self.team_hp(team) for team, name in enumerate(TEAM_NAMES)},
            "zone_score": dict(zip(TEAM_NAMES, self.scores, strict=True)),
            "zone_score_to_win": self.config.score_to_win,
            "stats": dict(self.statistics),
        }
        return terminated, truncated


def _higher(blue: float, red: float) -> str | None:
    """The side that is ahead by more than the tolerance; None if neither is."""
    if abs(blue - red) <= CLOSE_CALL:
        return None
    return "blue" if blue > red else "red"


class ReferenceEnv:
    """The game as an environment of one arena, for reading and debugging; slow.

    Example:
        >>> import numpy as np
        >>> from echelon_jax.config import EnvConfig
        >>> env = ReferenceEnv(EnvConfig.original(size_x=30, size_y=30))
        >>> step = env.reset(seed=0)
        >>> step = env.step(np.zeros((env.config.num_mechs, action_size(env.config))))
        >>> step.observation.shape, step.episode_over
        ((10, 589), False)
    """

    def __init__(self, config: EnvConfig) -> None:
        self.config = config
        self._arena: Arena | None = None
        self._noise: Noise | None = None
        self._last: Step | None = None

    @property
    def arena(self) -> Arena:
        """The arena with its battle, mechs and world, to read or to change. It raises before the first reset."""
        if self._arena is None:
            raise RuntimeError("call reset(seed) before using the arena")
        return self._arena

    def reset(self, seed: int) -> Step:
        """Start the episode of a seed: the same seed and actions give the original's episode.

        Source: docs/spec/environment.md 5.

        Raises:
            ValueError: if seed is not a whole number from 0.
        """
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"seed must be a whole number from 0, got {seed!r}")
        from echelon_jax.worldgen.generate import generate_world  # only a reset needs the generator

        made = generate_world(self.config, int(seed))
        world = VoxelWorld(np.asarray(made.material), np.asarray(made.hp))
        battle = Battle(self.config, world, make_mechs(self.config.num_packs, made.position, made.yaw))
        x, y, radius = (float(v) for v in made.zone)
        zone = Zone(x, y, radius, self.config.zone_on_the_ground)
        return self.start(Arena(self.config, battle, zone, world), LiveNoise.from_seed(int(seed)))

    def start(self, arena: Arena, noise: Noise) -> Step:
        """Begin with an arena that was made by hand, with any source of draws."""
        self._arena, self._noise = arena, noise
        n = len(arena.battle.mechs)
        no = np.zeros(n, bool)
        info = self._info(np.zeros((n, len(COMPONENTS))), [])
        self._last = Step(arena.look(), np.zeros(n), no, no.copy(), False, info)
        return self._last

    def step(self, actions: np.ndarray) -> Step:
        """Make one decision step with actions [N, A] in [-1, 1]. A finished arena no longer changes.

        Raises:
            ValueError: if the actions have another shape.
            RuntimeError: before the first reset.
        """
        arena = self.arena
        assert self._last is not None and self._noise is not None
        expected = (len(arena.battle.mechs), action_size(self.config))
        if np.shape(actions) != expected:
            raise ValueError(f"actions must have shape {expected} (mechs, action size), got {np.shape(actions)}")
        if self._last.episode_over:
            return self._last._replace(
                reward=np.zeros_like(self._last.reward),
                info=self._info(np.zeros((expected[0], len(COMPONENTS))), []),
            )
        made = arena.advance(np.asarray(actions), self._noise)
        self._last = Step(
            made.observation,
            made.reward,
            made.terminated,
            made.truncated & ~made.terminated,  # the dead are terminated, the living truncated
            made.outcome is not None,
            self._info(made.components, made.events),
        )
        return self._last

    def _info(self, components: np.ndarray, events: list[Event]) -> dict[str, Any]:
        arena = self.arena
        ticks = zone_tick(*tonnage_in_zone(arena.battle.mechs, arena.zone))
        return {
            "reward_components": {name: components[:, i] for i, name in enumerate(COMPONENTS)},
            "events": events,
            "statistics": dict(arena.statistics),
            "alive": np.array([mech.alive for mech in arena.battle.mechs]),
            "in_zone": np.array([arena.zone.holds(mech) for mech in arena.battle.mechs]),
            "zone_score": dict(zip(TEAM_NAMES, arena.scores, strict=True)),
            "zone_control": ticks[BLUE] - ticks[RED],
            "outcome": arena.outcome,
        }
