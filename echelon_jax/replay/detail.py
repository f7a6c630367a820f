"""The detail of one decision, substep by substep: the effect of every shot, mech by mech and projectile by projectile.

The phases are those of the simulator. They are called for one shooter, or one projectile, at a time, in the order in which the
simulator serves them. So the difference between before and after shows who did what. Many decisions run side by side: each is
one row of the batch, started from its own recorded state.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32, Key, UInt8

from echelon_jax import compiling
from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import sanitise
from echelon_jax.env.interfaces import action_layout, actions_of
from echelon_jax.env.state import EnvState
from echelon_jax.rules.weapons import MISSILE
from echelon_jax.sim.firing import fire
from echelon_jax.sim.flight import first_shots, fly
from echelon_jax.sim.movement import move
from echelon_jax.sim.noise import Noise, sample_noise
from echelon_jax.sim.projectiles import update_projectiles
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Commands, SimState
from echelon_jax.sim.step import empty_tally
from echelon_jax.sim.upkeep import foot_material, upkeep
from echelon_jax.sim.widths import LoopWidths, cpu_widths


class Effect(flax.struct.PyTreeNode):
    """The changes of the mechs by one shooter's turn or one projectile's update."""

    hp_lost: Float32[Array, "arenas mechs"]
    stability_lost: Float32[Array, "arenas mechs"]
    heat_gained: Float32[Array, "arenas mechs"]
    leg_hp_lost: Float32[Array, "arenas mechs"]
    died: Bool[Array, "arenas mechs"]
    painted: Bool[Array, "arenas mechs"]  # newly painted, or painted again
    assists: Int32[Array, "arenas mechs"]


class ShooterTurn(flax.struct.PyTreeNode):
    """One mech's turn in the firing phase."""

    mech: Int32[Array, " arenas"]
    beams: Int32[Array, " arenas"]  # laser and flamer hits
    laser: Bool[Array, " arenas"]  # one of them was the laser
    missile: Bool[Array, " arenas"]
    missile_target: Int32[Array, " arenas"]  # -1 without a missile in flight
    kinetic: Bool[Array, " arenas"]
    smoke: Bool[Array, " arenas"]
    effect: Effect


class ShotUpdate(flax.struct.PyTreeNode):
    """One projectile's update; rows that are not `valid` hold nothing."""

    valid: Bool[Array, " arenas"]
    slot: Int32[Array, " arenas"]
    weapon: Int32[Array, " arenas"]
    ended: Bool[Array, " arenas"]
    intercepted: Bool[Array, " arenas"]
    impact: Bool[Array, " arenas"]
    direct: Bool[Array, " arenas"]
    struck: Bool[Array, " arenas"]
    defender: Int32[Array, " arenas"]
    victim: Int32[Array, " arenas"]
    start: Float32[Array, "arenas 3"]
    point: Float32[Array, "arenas 3"]
    exploded: Bool[Array, " arenas"]
    centre: Float32[Array, "arenas 3"]  # of its explosion or cloud
    effect: Effect


class SubstepDetail(flax.struct.PyTreeNode):
    """One substep of every row."""

    hazard: Int32[Array, "arenas mechs"]  # material under the feet, -1 unless upkeep killed the mech
    shots: ShotUpdate  # leading axis: place in the processing order
    turns: ShooterTurn  # leading axis: place in the firing order
    alive: Bool[Array, "arenas mechs"]  # everything from here on: at the end of the substep
    position: Float32[Array, "arenas mechs 3"]
    yaw: Float32[Array, "arenas mechs"]
    fallen: Bool[Array, "arenas mechs"]
    legged: Bool[Array, "arenas mechs"]
    shutdown: Bool[Array, "arenas mechs"]
    launched: Bool[Array, "arenas slots"]  # in this substep
    shot_alive: Bool[Array, "arenas slots"]
    shot_weapon: Int32[Array, "arenas slots"]
    shot_target: Int32[Array, "arenas slots"]
    shot_position: Float32[Array, "arenas slots 3"]
    smoke_life: Int32[Array, "arenas clouds"]
    smoke_position: Float32[Array, "arenas clouds 3"]
    material: UInt8[Array, "arenas voxels"]


def _effect(rules: SimRules, before: SimState, after: SimState) -> Effect:
    a, b = before.mechs, after.mechs
    full = b.painted == rules.paint_substeps
    return Effect(
        hp_lost=after.tally.took_damage - before.tally.took_damage,
        stability_lost=a.stability - b.stability,
        heat_gained=b.heat - a.heat,
        leg_hp_lost=a.leg_hp - b.leg_hp,
        died=a.alive & ~b.alive,
        painted=full & ((a.painted != b.painted) | (a.last_painter != b.last_painter)),
        assists=after.tally.assists - before.tally.assists,
    )


def _shots_one_by_one(
    config: EnvConfig, rules: SimRules, state: SimState, draws: Noise, widths: LoopWidths
) -> tuple[SimState, ShotUpdate]:
    """The projectile phase, one projectile of every row at a time; as many rounds as the fullest row has projectiles."""
    count = state.projectiles.alive.shape[1]
    numbers = jnp.arange(count, dtype=jnp.int32)

    def one(state: SimState, pending: Array) -> tuple[SimState, Array, ShotUpdate]:
        shots = first_shots(config, state.projectiles, pending, draws.ams, 1)
        slot, valid = shots.slot, shots.valid
        only = valid & (numbers == slot)
        all_shots = state.projectiles
        alone = state.replace(projectiles=all_shots.replace(alive=all_shots.alive & only))
        flight = jax.tree.map(lambda x: x[:, 0], fly(config, rules, alone, shots, widths))
        start = jnp.take_along_axis(all_shots.position, slot[..., None], 1)[:, 0]
        after = update_projectiles(config, rules, alone, draws.ams, widths, draws.wreck)
        alive = jnp.where(only, after.projectiles.alive, all_shots.alive)
        after = after.replace(projectiles=after.projectiles.replace(alive=alive))
        ok = valid[:, 0]
        update = ShotUpdate(
            valid=ok,
            slot=slot[:, 0],
            weapon=flight.weapon,
            ended=ok & flight.ended,
            intercepted=ok & flight.intercepted,
            impact=ok & flight.impact,
            direct=ok & flight.impact & flight.direct,
            struck=ok & flight.struck,
            defender=flight.defender,
            victim=flight.victim,
            start=start,
            point=flight.point,
            exploded=(after.tally.explosions - state.tally.explosions).sum(-1) > 0,
            centre=jnp.where(
                flight.direct[:, None],
                jnp.take_along_axis(state.mechs.position, flight.victim[:, None, None], 1)[:, 0],
                flight.point,
            ),
            effect=_effect(rules, state, after),
        )
        return after, pending & ~only, update

    def more(carry: tuple[SimState, Array, Array, ShotUpdate]) -> Bool[Array, ""]:
        return carry[1].any()

    def next_round(carry: tuple[SimState, Array, Array, ShotUpdate]) -> tuple[SimState, Array, Array, ShotUpdate]:
        state, pending, done, updates = carry
        state, pending, update = one(state, pending)
        updates = jax.tree.map(lambda all_rounds, row: all_rounds.at[done].set(row), updates, update)
        return state, pending, done + 1, updates

    shapes = jax.eval_shape(one, state, state.projectiles.alive)[2]
    nothing = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), shapes)
    start = (state, state.projectiles.alive, jnp.int32(0), nothing)
    state, _, _, updates = jax.lax.while_loop(more, next_round, start)
    return state, updates


def _turns_one_by_one(
    config: EnvConfig, rules: SimRules, state: SimState, commands: Commands, draws: Noise, widths: LoopWidths
) -> tuple[SimState, ShooterTurn]:
    """The firing phase, one mech of every row at a time, in the order of firing."""
    arenas, n = state.mechs.alive.shape
    order = draws.fire_order if draws.fire_order is not None else jnp.broadcast_to(jnp.arange(n), (arenas, n))

    def one(state: SimState, mech: Int32[Array, " arenas"]) -> tuple[SimState, ShooterTurn]:
        mine = jnp.arange(n) == mech[:, None]
        triggers = {name: getattr(commands, name) & mine for name in ("primary", "secondary", "tertiary", "special")}
        after = fire(
            config, rules, state, commands.replace(**triggers), draws.hit_height, widths, draws.fire_order, draws.wreck
        )

        def mine_only(x: Array) -> Array:
            return jnp.take_along_axis(x, mech[:, None], 1)[:, 0]

        def counted(name: str) -> Int32[Array, " arenas"]:
            return mine_only(getattr(after.tally, name) - getattr(state.tally, name))

        new = after.projectiles.alive & ~state.projectiles.alive & (after.projectiles.weapon == MISSILE)
        turn = ShooterTurn(
            mech=mech,
            beams=counted("laser_hits"),
            laser=mine_only(after.mechs.laser_cooldown > state.mechs.laser_cooldown),
            missile=counted("missile_launches") > 0,
            missile_target=jnp.max(jnp.where(new, after.projectiles.target, -1), -1),
            kinetic=counted("kinetic_fires") > 0,
            smoke=counted("smoke_launches") > 0,
            effect=_effect(rules, state, after),
        )
        return after, turn

    return jax.lax.scan(one, state, order.T.astype(jnp.int32))


def detail_with_noise(
    config: EnvConfig,
    rules: SimRules,
    states: EnvState,
    actions: Float32[Array, "arenas mechs actions"],
    noise: Noise,
) -> tuple[SimState, SubstepDetail]:
    """Return the simulation states after one decision of every row, and its detail with the substep as leading axis."""
    clean, _ = sanitise(config, action_layout(config), actions)
    decision = actions_of(config).decide(config, states, clean)
    # Widths change the speed and not the result; one projectile at a time needs no wider round.
    widths = dataclasses.replace(cpu_widths(states.sim.tick.shape[0]), projectiles=1)
    state = states.sim.replace(
        mechs=decision.mechs.replace(alive=states.sim.mechs.alive),
        tally=empty_tally(config, states.sim.tick.shape[0]),
    )

    def substep(state: SimState, draws: Noise) -> tuple[SimState, SubstepDetail]:
        smoke = state.smoke.replace(life=jnp.maximum(state.smoke.life - 1, 0))
        state = state.replace(tick=state.tick + 1, smoke=smoke)
        foot, alive = foot_material(config, rules, state.grid, state.mechs), state.mechs.alive
        state = upkeep(config, rules, state, decision.commands, widths, draws.wreck)
        hazard = jnp.where(alive & ~state.mechs.alive, foot, -1)
        state, shots = _shots_one_by_one(config, rules, state, draws, widths)
        flying = state.projectiles.alive
        state, turns = _turns_one_by_one(config, rules, state, decision.commands, draws, widths)
        state = move(config, rules, state, decision.commands, draws.move_order, widths)
        m, p = state.mechs, state.projectiles
        return state, SubstepDetail(
            hazard=hazard,
            shots=shots,
            turns=turns,
            alive=m.alive,
            position=m.position,
            yaw=m.yaw,
            fallen=m.fallen > 0,
            legged=m.leg_hp <= 0,
            shutdown=m.heat > rules.heat_cap,
            launched=p.alive & ~flying,
            shot_alive=p.alive,
            shot_weapon=p.weapon,
            shot_target=p.target,
            shot_position=p.position,
            smoke_life=state.smoke.life,
            smoke_position=state.smoke.position,
            material=state.grid.material,
        )

    draws = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), noise)
    return jax.lax.scan(substep, state, draws)


@lru_cache(maxsize=8)
def make_detail(config: EnvConfig) -> Any:
    """Return `detail_with_noise` compiled as (rules, states, actions, keys), its noise drawn from each row's key."""

    def detail(
        rules: SimRules, states: EnvState, actions: Float32[Array, "arenas mechs actions"], keys: Key[Array, " arenas"]
    ) -> tuple[SimState, SubstepDetail]:
        return detail_with_noise(config, rules, states, actions, sample_noise(config, keys))

    return jax.jit(detail, compiler_options=compiling.for_short_runs())
