"""The skilled opponent: one function for all levels, for every mech of a batch of arenas (docs/opponents.md).

It reads the true state, as far as its level knows it. All noise is given. The strength of an arena is a number from 0
(trivial) to 4 (expert), so one compiled program plays every level, and different arenas may play different ones.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, Key

from echelon_jax.agents.base import AgentParams
from echelon_jax.agents.skill.jets import thrust
from echelon_jax.agents.skill.levels import STRONGEST, SkillParams, at_strength
from echelon_jax.agents.skill.scene import by_side, look, wrap
from echelon_jax.agents.skill.smoke import lay
from echelon_jax.agents.skill.steering import Gait, per_class, standing, steer
from echelon_jax.agents.skill.targets import DANGER, NONE, Aim, choose, of_target
from echelon_jax.agents.skill.weapons import of_class, pull
from echelon_jax.config import EnvConfig
from echelon_jax.draws import in_a_row
from echelon_jax.env.interfaces import actions_of
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.rules.mechs import SCOUT
from echelon_jax.sim.ewar import shutdown

AIM_MEMORY = 0.9  # of the error of a mech's heading, per decision
FORGOTTEN = 1 << 20  # decisions
ECM_SWITCH, ECM_HEAT = 0.25, 0.7  # component of a scout's secondary trigger; share of the heat cap


class SkillState(flax.struct.PyTreeNode):
    """The memory of the mechs and their teams, in the side layout [arenas, 2, team]."""

    strength: Float32[Array, " arenas"]  # 0 trivial to 4 expert
    begun: Bool[Array, " arenas"]  # whether the strength of this episode is drawn
    seen_x: Float32[Array, "arenas 2 team"]  # where the other side last saw the mech
    seen_y: Float32[Array, "arenas 2 team"]
    age: Int32[Array, "arenas 2 team"]  # decisions since then
    target: Int32[Array, "arenas 2 team"]  # number among the enemies, -1 for none
    wanted: Int32[Array, "arenas 2 team"]  # decisions for which another one has been wanted
    aim: Float32[Array, "arenas 2 team"]  # error of the heading, in deviations
    gait: Gait


class Noise(flax.struct.PyTreeNode):
    """The draws of a decision."""

    strength: Float32[Array, " arenas"]  # uniform, 0 to 1
    aim: Float32[Array, "arenas mechs"]  # standard normal
    fire: Float32[Array, "arenas mechs"]  # uniform
    sign: Float32[Array, "arenas mechs"]  # uniform


@dataclasses.dataclass(frozen=True)
class Skilled:
    """The skilled opponent; its parameters are a `SkillParams`, or an `AgentParams` for the strongest."""

    config: EnvConfig
    params_per_arena: ClassVar[bool] = True

    def init(self, params: EnvParams, state: EnvState) -> SkillState:
        """Return the memory of mechs at their positions in `state` that have not acted yet."""
        x, y = (by_side(state.sim.mechs.position[..., axis]) for axis in range(2))
        arenas = x.shape[0]
        return SkillState(
            strength=jnp.zeros(arenas, jnp.float32),
            begun=jnp.zeros(arenas, bool),
            seen_x=jnp.copy(x),
            seen_y=jnp.copy(y),
            age=jnp.full(x.shape, FORGOTTEN, jnp.int32),
            target=jnp.full(x.shape, NONE, jnp.int32),
            wanted=jnp.zeros(x.shape, jnp.int32),
            aim=jnp.zeros(x.shape, jnp.float32),
            gait=standing(x, y),
        )

    def reset_where(self, agent_state: SkillState, fresh_state: EnvState, mask: Bool[Array, " arenas"]) -> SkillState:
        """Return the memory, replaced by that of `init` in the arenas of `mask`."""
        fresh = self.init(None, fresh_state)  # type: ignore[arg-type]
        return jax.tree.map(
            lambda new, old: jnp.where(mask.reshape(-1, *(1,) * (old.ndim - 1)), new, old), fresh, agent_state
        )

    def act(
        self,
        params: EnvParams,
        agent_params: AgentParams,
        agent_state: SkillState,
        state: EnvState,
        keys: Key[Array, " arenas"],
    ) -> tuple[SkillState, Float32[Array, "arenas mechs actions"]]:
        """Return the memory after acting and the actions of all mechs; arena i draws from key i alone."""
        n = self.config.num_mechs

        def draw(key: Array) -> Noise:
            first, second = jax.random.split(key)
            uniform = in_a_row(jax.random.uniform, first, (2 * n + 1,))
            normal = in_a_row(jax.random.normal, second, (n,))
            return Noise(strength=uniform[0], aim=normal, fire=uniform[1 : n + 1], sign=uniform[n + 1 :])

        return self.act_with_noise(params, agent_params, agent_state, state, jax.vmap(draw)(keys))

    def act_with_noise(
        self, params: EnvParams, agent_params: AgentParams, agent_state: SkillState, state: EnvState, noise: Noise
    ) -> tuple[SkillState, Float32[Array, "arenas mechs actions"]]:
        """Do the same as `act` with given draws."""
        config, mechs = self.config, state.sim.mechs
        numbers = (
            agent_params
            if isinstance(agent_params, SkillParams)
            else SkillParams(agent_params.fire_probability, STRONGEST, STRONGEST)
        )
        low, high = (jnp.asarray(v, jnp.float32) for v in (numbers.lowest, numbers.highest))
        strength = jnp.where(agent_state.begun, agent_state.strength, low + (high - low) * noise.strength)
        skill = at_strength(strength)

        scene = look(config, params, state, agent_state.seen_x, agent_state.seen_y, agent_state.age, skill.memory)
        helpless = by_side(shutdown(params.rules, mechs) | (mechs.fallen > 0))
        max_hp = by_side(params.rules.max_hp[None])[0]
        danger = per_class(config, DANGER)
        aim = choose(skill, scene, Aim(agent_state.target, agent_state.wanted), max_hp, helpless, danger)
        gait = steer(
            config,
            params,
            state,
            skill,
            scene,
            aim.target,
            scene.alive & ~helpless,
            agent_state.gait,
            by_side(noise.sign),
        )

        # Heading: to the target, or else the way it goes.
        wander = AIM_MEMORY * agent_state.aim + (1.0 - AIM_MEMORY**2) ** 0.5 * by_side(noise.aim)
        off = skill.aim_error * wander
        ahead = jnp.where(gait.ux * gait.ux + gait.uy * gait.uy > 0, jnp.arctan2(gait.uy, gait.ux), scene.yaw)
        turn = jnp.where(aim.target >= 0, wrap(of_target(scene.error, aim.target) + off), wrap(ahead - scene.yaw))
        most = by_side(params.rules.max_yaw_rate[None]) * config.decision_seconds
        is_target = aim.target[..., None] == jnp.arange(config.team_size)
        held = by_side(noise.fire) > skill.fire * _across(numbers.fire_probability)
        triggers = pull(config, params, state, skill, scene, is_target, wrap(scene.error + off[..., None]), held)

        cos, sin = jnp.cos(scene.yaw), jnp.sin(scene.yaw)
        cap = by_side(params.rules.heat_cap[None])
        ecm = jnp.where(scene.heat < ECM_HEAT * cap, ECM_SWITCH, 0.0)
        scout = jnp.asarray(of_class(config, SCOUT))
        smokes, focus = lay(config, params, state, skill, scene, aim.target)
        base = [
            (gait.ux * cos + gait.uy * sin) * skill.throttle,
            (gait.uy * cos - gait.ux * sin) * skill.throttle,
            thrust(config, skill, scene, aim.target, gait.fights),
            jnp.clip(turn / most, -1.0, 1.0),
            triggers.primary.astype(jnp.float32),
            triggers.vent.astype(jnp.float32),
            jnp.where(scout, ecm, triggers.secondary.astype(jnp.float32)),
            triggers.tertiary.astype(jnp.float32),
            smokes.astype(jnp.float32),
        ]
        actions = self._action(state, jnp.stack(base, -1), focus)
        memory = SkillState(
            strength=strength,
            begun=jnp.ones_like(agent_state.begun),
            seen_x=scene.seen_x,
            seen_y=scene.seen_y,
            age=jnp.minimum(scene.age, FORGOTTEN),
            target=aim.target,
            wanted=aim.wanted,
            aim=wander,
            gait=gait,
        )
        return memory, jnp.where(mechs.alive[..., None], actions, 0.0)

    def _action(
        self, state: EnvState, base: Float32[Array, "arenas 2 team 9"], target: Int32[Array, "arenas 2 team"]
    ) -> Float32[Array, "arenas mechs actions"]:
        """The whole action of each mech, in the game's own layout."""
        config = self.config
        arenas, mechs = base.shape[0], config.num_mechs
        first = jnp.array([config.team_size, 0], jnp.int32)[:, None]
        index = jnp.where(target >= 0, target + first, NONE).reshape(arenas, mechs)
        shown = (state.contact_slots == index[..., None]) & (index >= 0)[..., None]
        control = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0, 1.0], jnp.float32), (arenas, mechs, 4))
        silent = jnp.zeros((arenas, mechs, config.comm_dim), jnp.float32)
        original = jnp.concatenate([base.reshape(arenas, mechs, 9), shown.astype(jnp.float32), control, silent], -1)
        return actions_of(config).from_original(config, original, index)


def _across(value: Array | float) -> Float32[Array, "*batch 1 1"]:
    """A scalar or one number per arena, to meet the side layout."""
    return jnp.asarray(value, jnp.float32)[..., None, None]
