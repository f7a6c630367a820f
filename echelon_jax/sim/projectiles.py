"""The projectile phase: every shot in flight in list order, each seeing what the earlier ones did.

Source: docs/spec/rules.md 6, 9.4, S2.

The phase runs in rounds. A round evaluates the next few pending projectiles of every arena together against the current state.
Those before the first one with an effect (an impact or an interception) fly on, and that effect is applied. The others are
evaluated again in the next round.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.weapons import AUTOCANNON, SMOKE
from echelon_jax.sim.effects import count_hit
from echelon_jax.sim.explosions import Blast, explode
from echelon_jax.sim.flight import Flight, earliest, fly
from echelon_jax.sim.geometry import direction_if_far, is_leg_hit, rear_multiplier, team_masks
from echelon_jax.sim.grid import damage_cells
from echelon_jax.sim.queues import first_true
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.slots import slots
from echelon_jax.sim.state import Projectiles, SimState, Smoke

SELECTED = 4  # projectiles of an arena evaluated in one round


def _commit(
    config: EnvConfig, projectiles: Projectiles, flight: Flight, done: Bool[Array, "arenas selected"]
) -> Projectiles:
    """Write the flights that are `done` back to their slots: moved on, or gone."""
    gone = flight.ended | flight.intercepted | flight.impact
    alive, position, velocity, age = projectiles.alive, projectiles.position, projectiles.velocity, projectiles.age
    rolled = projectiles.rolled
    slot_number = jnp.arange(alive.shape[1], dtype=jnp.int32)
    for i in range(flight.slot.shape[1]):
        here = done[:, i, None] & (slot_number == flight.slot[:, i, None])
        alive = alive & ~(here & gone[:, i, None])
        position = jnp.where(here[..., None], flight.position[:, i, None], position)
        velocity = jnp.where(here[..., None], flight.velocity[:, i, None], velocity)
        age = jnp.where(here, flight.age[:, i, None], age)
        if config.ams_one_roll:
            rolled = jnp.where(here, flight.rolled[:, i, None], rolled)
    return projectiles.replace(alive=alive, position=position, velocity=velocity, age=age, rolled=rolled)


def _direct_hit(
    config: EnvConfig, rules: SimRules, state: SimState, event: Flight, hit: Bool[Array, " arenas"]
) -> tuple[SimState, Bool[Array, "arenas mechs"]]:
    """Effects of a direct hit on the struck mech, except its wreck. Returns the mechs it killed.

    Source: docs/spec/rules.md 6.7 step 2.
    """
    m, tally = state.mechs, state.tally
    arenas, n = m.alive.shape
    row = jnp.arange(arenas, dtype=jnp.int32)
    victim, shooter, weapon = event.victim, event.shooter, event.weapon
    centre = m.position[row, victim]
    origin = centre - event.velocity
    multiplier = rear_multiplier(m.yaw[row, victim], centre[:, :2], origin[:, :2])
    damage = rules.damage[weapon] * multiplier
    leg = is_leg_hit(event.point[:, 2], centre[:, 2], rules.half[victim, 2])
    leg_damage = jnp.where(leg, damage, 0.0)  # before the paint bonus (Q18)
    damage = jnp.where(leg, k.LEG_HIT_BODY_MULTIPLIER * damage, damage)
    painter = m.last_painter[row, victim]
    _, same_pack = team_masks(config.num_packs)
    painted = (m.painted[row, victim] > 0) & (painter >= 0) & jnp.asarray(same_pack)[jnp.maximum(painter, 0), shooter]
    damage = damage + jnp.where(painted, k.PAINT_BONUS * damage, 0.0)
    shove = rules.stability_damage[weapon] * multiplier

    on_victim = hit[:, None] & (jnp.arange(n) == victim[:, None])
    by_shooter = hit[:, None] & (jnp.arange(n) == shooter[:, None])
    by_painter = (hit & painted & (painter != shooter))[:, None] & (jnp.arange(n) == painter[:, None])
    taken = jnp.where(on_victim, damage[:, None], 0.0)
    hp = m.hp - taken
    dead = on_victim & m.alive & (hp <= 0)
    killed = dead.any(-1)
    direction, far = direction_if_far(m.position[row, shooter] - centre)
    turned = on_victim & far[:, None]
    suppress = on_victim & (weapon == AUTOCANNON)[:, None]
    mechs = m.replace(
        hp=hp,
        leg_hp=m.leg_hp - jnp.where(on_victim, leg_damage[:, None], 0.0),
        stability=jnp.where(on_victim, jnp.maximum(0.0, m.stability - shove[:, None]), m.stability),
        suppressed=jnp.where(suppress, jnp.maximum(m.suppressed, rules.suppression_substeps), m.suppressed),
        alive=m.alive & ~dead,
    )
    tally = tally.replace(
        took_damage=tally.took_damage + taken,
        dealt_damage=tally.dealt_damage + jnp.where(by_shooter, damage[:, None], 0.0),
        kills=tally.kills + (by_shooter & killed[:, None]),
        died=tally.died | dead,
        was_hit=tally.was_hit | on_victim,
        damage_direction=jnp.where(turned[..., None], direction[:, None], tally.damage_direction),
        has_damage_direction=tally.has_damage_direction | turned,
        assists=tally.assists + by_painter,
        projectile_hits=tally.projectile_hits + by_shooter,
    )
    tally = count_hit(tally, by_shooter, by_painter, damage, m.hp[row, victim], killed)
    return state.replace(mechs=mechs, tally=tally), dead


def _open_cloud(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    shooter: Int32[Array, " arenas"],
    centre: Float32[Array, "arenas 3"],
    opens: Bool[Array, " arenas"],
) -> SimState:
    """A new smoke cloud in a free slot of its shooter; without one the oldest cloud goes, counted."""
    per_mech = slots(config).clouds
    clouds = state.smoke.life.shape[1]
    own = jnp.arange(clouds) // per_mech == shooter[:, None]
    life = jnp.where(own, state.smoke.life, jnp.iinfo(jnp.int32).max)
    slot = jnp.argmin(life, -1).astype(jnp.int32)
    replaced = opens & (jnp.min(life, -1) > 0)
    here = opens[:, None] & (jnp.arange(clouds) == slot[:, None])
    return state.replace(
        smoke=Smoke(
            position=jnp.where(here[..., None], centre[:, None], state.smoke.position),
            life=jnp.where(here, rules.cloud_substeps, state.smoke.life),
        ),
        lost_clouds=state.lost_clouds + replaced,
    )


def _apply(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    event: Flight,
    happens: Bool[Array, " arenas"],
    wreck: Float32[Array, "arenas mechs"] | None,
) -> SimState:
    """One interception or impact per arena in that order (docs/spec/rules.md 6.2 step 2, 6.7)."""
    m, tally = state.mechs, state.tally
    arenas, n = m.alive.shape
    row = jnp.arange(arenas, dtype=jnp.int32)
    by_defender = (happens & event.intercepted)[:, None] & (jnp.arange(n) == event.defender[:, None])
    state = state.replace(
        mechs=m.replace(ams_cooldown=jnp.where(by_defender, rules.ams_substeps, m.ams_cooldown)),
        tally=tally.replace(ams_intercepts=tally.ams_intercepts + by_defender),
    )
    impact = happens & event.impact
    grid = damage_cells(config, state.grid, row, event.cell, rules.damage[event.weapon], impact & event.struck)
    state = state.replace(grid=grid)
    direct, smoke = impact & event.direct, event.weapon == SMOKE
    hit = direct & ~smoke if config.smoke_opens else direct  # a shell opens at a mech, and that is all (Q19)
    state, dead = _direct_hit(config, rules, state, event, hit)
    centre = jnp.where(direct[:, None], m.position[row, event.victim], event.point)
    state = _open_cloud(config, rules, state, event.shooter, centre, impact & smoke)
    blast = Blast(
        active=impact & ~smoke & (rules.splash_radius[event.weapon] > 0),
        point=centre,
        weapon=event.weapon,
        shooter=event.shooter,
        spared=jnp.where(direct, event.victim, -1),
    )
    return explode(config, rules, state, blast, dead, wreck)


def update_projectiles(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    rolls: Float32[Array, "arenas heavies rings packs"],
    wreck: Float32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """One projectile phase; `rolls` are the AMS draws, `wreck` the wreck rolls under fair_order."""
    selected = min(SELECTED, state.projectiles.alive.shape[1])

    def more(carry: tuple[SimState, Bool[Array, "arenas slots"]]) -> Bool[Array, ""]:
        return carry[1].any()

    def one_round(
        carry: tuple[SimState, Bool[Array, "arenas slots"]],
    ) -> tuple[SimState, Bool[Array, "arenas slots"]]:
        state, pending = carry
        slot, valid = earliest(pending, state.projectiles.order, selected)
        flight = fly(config, rules, state, slot, valid, rolls)
        happens, first = first_true(flight.intercepted | flight.impact)
        last = jnp.where(happens, first, selected)
        done = valid & (jnp.arange(selected) <= last[:, None])
        state = state.replace(projectiles=_commit(config, state.projectiles, flight, done))
        for i in range(selected):
            pending = pending & ~(done[:, i, None] & (jnp.arange(pending.shape[1]) == slot[:, i, None]))
        row = jnp.arange(slot.shape[0], dtype=jnp.int32)
        event = jax.tree.map(lambda leaf: leaf[row, first], flight)
        return _apply(config, rules, state, event, happens, wreck), pending

    return jax.lax.while_loop(more, one_round, (state, state.projectiles.alive))[0]
