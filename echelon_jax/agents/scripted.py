"""The original's scripted opponent for every mech of a batch of arenas (docs/spec/arena.md 1.1 to 1.4).

It sees the whole state. It aims at the nearest living enemy, drives to the zone, keeps a distance, fires every weapon that
reaches, and reverses and strafes when it has not moved for a while. The order is that of docs/spec/arena.md 1.2.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.agents.base import AgentParams
from echelon_jax.agents.sight import target_sight
from echelon_jax.config import EnvConfig
from echelon_jax.draws import in_a_row
from echelon_jax.env.interfaces import actions_of
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.rules import constants as k
from echelon_jax.rules.mechs import HEAVY, SCOUT, roster
from echelon_jax.rules.timers import decrements
from echelon_jax.rules.weapons import BALLISTIC, MISSILE, PRIMARY, SECONDARY, SEEKING, TERTIARY, WEAPONS, Kind
from echelon_jax.sim.ordered import team_sums

NORMAL, REVERSE, STRAFE = range(3)  # phases of the manoeuvre that frees a stuck mech

DESIRED_RANGE = 5.5
STUCK_DISTANCE, STUCK_DECISIONS = 0.2, 10
MANOEUVRE_SECONDS = 1.0
COHESION_SPREAD, COHESION_ENEMY = 15.0, 20.0  # distance to the team's centre, and to the target
YAW_GAIN = 3.0 / math.pi
BACK_OFF = -0.3
OFF_AXIS_STRAFE = 0.25
ZONE_THROTTLE = 0.5
VENT_HEAT = 0.75  # of the cap
ECM_HEAT_LIMIT = 0.7
ECM_SWITCH, ECCM_SWITCH = 0.25, 0.75
NARROW, WIDE, BROADSIDE = math.radians(30.0), math.radians(60.0), math.radians(90.0)


class ScriptedParams(AgentParams):
    """Numbers of the heuristic; scalars, or one per arena."""

    desired_range: Float32[Array, "*batch"] | float = DESIRED_RANGE  # voxels at which it backs off
    approach_speed_scale: Float32[Array, "*batch"] | float = 1.0  # throttle outside the zone


class ScriptedState(flax.struct.PyTreeNode):
    """The memory of each mech."""

    last_position: Float32[Array, "arenas mechs 3"]
    stuck: Int32[Array, "arenas mechs"]  # decisions without progress
    phase: Int32[Array, "arenas mechs"]  # NORMAL, REVERSE or STRAFE
    timer: Int32[Array, "arenas mechs"]  # decisions left of the phase
    sign: Float32[Array, "arenas mechs"]  # direction of the strafe


def _per_arena(value: Array | float) -> Float32[Array, "*batch 1"]:
    """A scalar or one number per arena, shaped to meet [arenas, mechs]."""
    return jnp.asarray(value, jnp.float32)[..., None]


@dataclasses.dataclass(frozen=True)
class Scripted:
    """The heuristic opponent; its parameters are a `ScriptedParams`, or an `AgentParams` for the usual distances."""

    config: EnvConfig
    params_per_arena: ClassVar[bool] = True

    def init(self, params: EnvParams, state: EnvState) -> ScriptedState:
        """Return the memory of mechs at their positions in `state` that have not acted yet."""
        shape = state.sim.mechs.alive.shape
        return ScriptedState(
            last_position=jnp.copy(state.sim.mechs.position),
            stuck=jnp.zeros(shape, jnp.int32),
            phase=jnp.zeros(shape, jnp.int32),
            timer=jnp.zeros(shape, jnp.int32),
            sign=jnp.ones(shape, jnp.float32),
        )

    def reset_where(
        self, agent_state: ScriptedState, fresh_state: EnvState, mask: Bool[Array, " arenas"]
    ) -> ScriptedState:
        """Return the memory, replaced by that of `init` in the arenas of `mask`."""
        return ScriptedState(
            last_position=jnp.where(mask[:, None, None], fresh_state.sim.mechs.position, agent_state.last_position),
            stuck=jnp.where(mask[:, None], 0, agent_state.stuck),
            phase=jnp.where(mask[:, None], NORMAL, agent_state.phase),
            timer=jnp.where(mask[:, None], 0, agent_state.timer),
            sign=jnp.where(mask[:, None], 1.0, agent_state.sign),
        )

    def act(
        self,
        params: EnvParams,
        agent_params: AgentParams,
        agent_state: ScriptedState,
        state: EnvState,
        keys: Key[Array, " arenas"],
    ) -> tuple[ScriptedState, Float32[Array, "arenas mechs actions"]]:
        """Return the memory after acting and the actions of all mechs; arena i draws from key i alone."""
        shape = (2, self.config.num_mechs)
        draws = jax.vmap(lambda key: in_a_row(jax.random.uniform, key, shape))(keys)
        return self.act_with_noise(params, agent_params, agent_state, state, draws[:, 0], draws[:, 1])

    def act_with_noise(
        self,
        params: EnvParams,
        agent_params: AgentParams,
        agent_state: ScriptedState,
        state: EnvState,
        sign_draw: Float32[Array, "arenas mechs"],
        fire_draw: Float32[Array, "arenas mechs"],
    ) -> tuple[ScriptedState, Float32[Array, "arenas mechs actions"]]:
        """Do the same as `act` with given draws: strafe to + iff `sign_draw` > 0.5, hold fire iff `fire_draw` > probability."""
        numbers = (
            agent_params if isinstance(agent_params, ScriptedParams) else ScriptedParams(agent_params.fire_probability)
        )
        alive = state.sim.mechs.alive
        memory, in_manoeuvre = self._manoeuvre(agent_state, state, sign_draw)
        memory, freeing = self._stuck_test(agent_state, memory, in_manoeuvre, state)
        held = fire_draw > _per_arena(numbers.fire_probability)
        normal = alive & ~in_manoeuvre & ~freeing
        base, preference, acts = self._decide(params, numbers, state, normal, held)

        forward = jnp.where(in_manoeuvre & (memory.phase == REVERSE), -1.0, 0.0)
        strafe = jnp.where(in_manoeuvre & (memory.phase == STRAFE), memory.sign, 0.0)
        zero = jnp.zeros_like(forward)
        idle = jnp.stack([forward, strafe, *[zero] * 7], -1)
        on = acts.astype(jnp.float32)
        actions = jnp.concatenate(
            [
                jnp.where(acts[..., None], base, idle),
                preference * on[..., None],
                jnp.stack([on, zero, zero, on], -1),
                jnp.zeros((*alive.shape, self.config.comm_dim), jnp.float32),
            ],
            -1,
        )
        target, _ = self._nearest_enemy(state)
        actions = actions_of(self.config).from_original(self.config, actions, jnp.where(acts, target, -1))
        memory = jax.tree.map(
            lambda new, old: jnp.where(alive.reshape(alive.shape + (1,) * (new.ndim - 2)), new, old),
            memory,
            agent_state,
        )
        return memory, jnp.where(alive[..., None], actions, 0.0)

    # ---- Steps 2 and 3: the manoeuvre, and the test that starts one ----

    def _manoeuvre(
        self, memory: ScriptedState, state: EnvState, sign_draw: Float32[Array, "arenas mechs"]
    ) -> tuple[ScriptedState, Bool[Array, "arenas mechs"]]:
        """Memory one decision further on in the manoeuvre, and who was in one."""
        going = memory.phase != NORMAL
        timer = memory.timer - going.astype(jnp.int32)
        ended = going & (timer <= 0)
        turns = ended & (memory.phase == REVERSE)
        phase = jnp.where(ended, jnp.where(turns, STRAFE, NORMAL), memory.phase)
        timer = jnp.where(turns, self._manoeuvre_decisions, timer)
        sign = jnp.where(turns, jnp.where(sign_draw > 0.5, 1.0, -1.0), memory.sign)
        return ScriptedState(state.sim.mechs.position, jnp.where(going, 0, memory.stuck), phase, timer, sign), going

    def _stuck_test(
        self, before: ScriptedState, memory: ScriptedState, in_manoeuvre: Bool[Array, "arenas mechs"], state: EnvState
    ) -> tuple[ScriptedState, Bool[Array, "arenas mechs"]]:
        """Memory with progress counted, and who starts to free itself in this decision."""
        dx, dy, dz = (state.sim.mechs.position[..., a] - before.last_position[..., a] for a in range(3))
        still = jnp.sqrt(dx * dx + dy * dy + dz * dz) < STUCK_DISTANCE
        stuck = jnp.where(still, before.stuck + 1, jnp.maximum(before.stuck - 1, 0))
        freeing = ~in_manoeuvre & (stuck > STUCK_DECISIONS)
        return (
            memory.replace(  # type: ignore[attr-defined]
                stuck=jnp.where(in_manoeuvre | freeing, 0, stuck),
                phase=jnp.where(freeing, REVERSE, memory.phase),
                timer=jnp.where(freeing, self._manoeuvre_decisions, memory.timer),
            ),
            freeing,
        )

    @property
    def _manoeuvre_decisions(self) -> int:
        return decrements(MANOEUVRE_SECONDS, self.config.decision_seconds)

    # ---- Steps 4 to 12: the normal decision ----

    def _decide(
        self,
        params: EnvParams,
        numbers: ScriptedParams,
        state: EnvState,
        normal: Bool[Array, "arenas mechs"],
        held: Bool[Array, "arenas mechs"],
    ) -> tuple[Float32[Array, "arenas mechs 9"], Float32[Array, "arenas mechs 5"], Bool[Array, "arenas mechs"]]:
        """The nine base components, the target preferences, and for whom they stand (those with an enemy left)."""
        r = roster(self.config.num_packs)
        is_scout, is_heavy = (jnp.asarray(r.mech_class == c) for c in (SCOUT, HEAVY))
        mechs, rules = state.sim.mechs, params.rules
        target, d = self._nearest_enemy(state)
        acts = normal & jnp.isfinite(d)
        tx, ty = (_pick(mechs.position[..., a], target) for a in range(2))
        dx, dy = tx - mechs.position[..., 0], ty - mechs.position[..., 1]
        error = jnp.mod(jnp.arctan2(dy, dx) - mechs.yaw + math.pi, 2.0 * math.pi) - math.pi

        forward, strafe = self._throttle(numbers, state, is_heavy, d)
        vent = mechs.heat > VENT_HEAT * rules.heat_cap
        locked = self._locked(state, target)
        primary, secondary, tertiary = self._weapons(
            params, state, target, d, jnp.abs(error), locked, acts & ~vent & ~held
        )
        ewar = jnp.where(mechs.heat < ECM_HEAT_LIMIT * rules.heat_cap, ECM_SWITCH, ECCM_SWITCH)
        zero = jnp.zeros_like(d)
        base = jnp.stack(
            [
                forward,
                strafe,
                zero,
                jnp.clip(error * YAW_GAIN, -1.0, 1.0),
                primary.astype(jnp.float32),
                vent.astype(jnp.float32),
                jnp.where(is_scout, ewar, secondary.astype(jnp.float32)),
                tertiary.astype(jnp.float32),
                zero,
            ],
            -1,
        )
        match = state.contact_slots == target[..., None]
        first = match & (jnp.cumsum(match, -1) == 1)
        return base, first.astype(jnp.float32), acts

    def _nearest_enemy(self, state: EnvState) -> tuple[Int32[Array, "arenas mechs"], Float32[Array, "arenas mechs"]]:
        """Index of each mech's nearest living enemy, the first on ties, and its distance (inf: none)."""
        n = self.config.team_size
        arenas = state.sim.mechs.alive.shape[0]

        def sides(values: Array) -> Array:
            return values.reshape(arenas, 2, n)

        squared = jnp.zeros((arenas, 2, n, n), jnp.float32)
        for axis in range(3):
            p = sides(state.sim.mechs.position[..., axis])
            delta = p[:, ::-1, None, :] - p[:, :, :, None]
            squared = squared + delta * delta
        distance = jnp.where(sides(state.sim.mechs.alive)[:, ::-1, None, :], jnp.sqrt(squared), jnp.inf)
        enemy = jnp.argmin(distance, -1).astype(jnp.int32) + jnp.array([n, 0], jnp.int32)[:, None]
        return enemy.reshape(arenas, 2 * n), distance.min(-1).reshape(arenas, 2 * n)

    def _throttle(
        self,
        numbers: ScriptedParams,
        state: EnvState,
        is_heavy: Bool[Array, " mechs"],
        d: Float32[Array, "arenas mechs"],
    ) -> tuple[Float32[Array, "arenas mechs"], Float32[Array, "arenas mechs"]]:
        """Forward and strafe towards the zone, or half way back to the team's centre (steps 5 and 7)."""
        mechs, zone = state.sim.mechs, state.arena_map.zone
        x, y, z = (mechs.position[..., a] for a in range(3))
        radius = zone[:, None, 2]
        gx, gy = zone[:, None, 0] - x, zone[:, None, 1] - y
        to_zone = jnp.sqrt(gx * gx + gy * gy)
        living = mechs.alive.astype(jnp.float32)
        count = jnp.repeat(team_sums(living), self.config.team_size, -1)
        mx, my, mz = (
            jnp.repeat(team_sums(v * living), self.config.team_size, -1) / jnp.maximum(count, 1.0) - v
            for v in (x, y, z)
        )
        apart = (count > 1) & (jnp.sqrt(mx * mx + my * my + mz * mz) > COHESION_SPREAD)
        gather = apart & (to_zone < 2.0 * radius) & (d > COHESION_ENEMY)
        gx, gy = jnp.where(gather, 0.5 * (mx + gx), gx), jnp.where(gather, 0.5 * (my + gy), gy)
        length = jnp.sqrt(gx * gx + gy * gy)
        scale = jnp.where(length > 1e-6, 1.0 / jnp.maximum(length, 1e-6), 1.0)
        ux, uy = gx * scale, gy * scale
        cos, sin = jnp.cos(mechs.yaw), jnp.sin(mechs.yaw)
        forward = jnp.clip(ux * cos + uy * sin, -1.0, 1.0)
        strafe = jnp.clip(uy * cos - ux * sin, -1.0, 1.0)
        in_zone = (radius > 0) & (to_zone <= radius)
        close = (d < _per_arena(numbers.desired_range)) & ~(is_heavy & in_zone)
        speed = jnp.where(in_zone, ZONE_THROTTLE, _per_arena(numbers.approach_speed_scale))
        return jnp.where(close, BACK_OFF, forward) * speed, strafe * jnp.where(close, 1.0, OFF_AXIS_STRAFE) * speed

    def _locked(self, state: EnvState, target: Int32[Array, "arenas mechs"]) -> Bool[Array, "arenas mechs"]:
        """Whether the target is painted by the mech's own pack."""
        r = roster(self.config.num_packs)
        # A mech's pack among all packs of the arena, and the painter's pack for every mech that is painted.
        pack = jnp.asarray(r.team * self.config.num_packs + r.pack)
        mechs = state.sim.mechs
        painter = jnp.where((mechs.painted > 0) & (mechs.last_painter >= 0), pack[mechs.last_painter], -1)
        return _pick(painter, target) == pack

    def _weapons(
        self,
        params: EnvParams,
        state: EnvState,
        target: Int32[Array, "arenas mechs"],
        d: Float32[Array, "arenas mechs"],
        error: Float32[Array, "arenas mechs"],
        locked: Bool[Array, "arenas mechs"],
        may_fire: Bool[Array, "arenas mechs"],
    ) -> tuple[Bool[Array, "arenas mechs"], Bool[Array, "arenas mechs"], Bool[Array, "arenas mechs"]]:
        """Primary, secondary and tertiary triggers (step 9); sight is asked only where it decides one."""
        nobody = jnp.zeros(d.shape, bool)
        # Who wants to fire by trigger: with sight of the target, and without.
        with_sight = dict.fromkeys((PRIMARY, SECONDARY, TERTIARY), nobody)
        without = dict(with_sight)

        def add(wants: dict[int, Array], weapon: int, when: Bool[Array, "arenas mechs"]) -> None:
            mech_class: np.ndarray = roster(self.config.num_packs).mech_class
            for carrier, trigger in WEAPONS[weapon].triggers.items():
                if trigger in wants:
                    wants[trigger] = wants[trigger] | (jnp.asarray(mech_class == carrier) & when)

        def reaches(weapon: int, cone: float) -> Bool[Array, "arenas mechs"]:
            return may_fire & (d <= params.rules.range[weapon]) & (error <= cone)

        for weapon in SEEKING:
            add(with_sight, weapon, reaches(weapon, NARROW if WEAPONS[weapon].kind is Kind.PAINTER else WIDE))
        for weapon in BALLISTIC:
            add(without, weapon, reaches(weapon, NARROW))
        add(without, MISSILE, reaches(MISSILE, BROADSIDE) & locked)
        add(with_sight, MISSILE, may_fire & (d <= k.ONBOARD_LOCK_RANGE) & (error <= BROADSIDE) & ~locked)
        asked = nobody
        for trigger, wants in with_sight.items():
            asked = asked | (wants & ~without[trigger])
        seen = target_sight(self.config, state.sim.grid.opaque, state.sim.mechs.position, target, asked)
        primary, secondary, tertiary = (without[t] | (with_sight[t] & seen) for t in (PRIMARY, SECONDARY, TERTIARY))
        return primary, secondary, tertiary


def _pick(values: Array, index: Int32[Array, "arenas mechs"]) -> Array:
    """values[arena, index[arena, mech]] for every mech."""
    return jnp.take_along_axis(values, index, -1)
