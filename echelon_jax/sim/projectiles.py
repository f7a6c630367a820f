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
from echelon_jax.rules.weapons import SMOKE, SUPPRESSING
from echelon_jax.sim.effects import count_hit
from echelon_jax.sim.explosions import Blast, Splash, explode, finish, in_reach, splash_round
from echelon_jax.sim.flight import Flight, Onward, Shots, all_shots, first_shots, fly, ranks
from echelon_jax.sim.geometry import direction_if_far, is_leg_hit, rear_multiplier, team_masks
from echelon_jax.sim.grid import damage_cells
from echelon_jax.sim.queues import at
from echelon_jax.sim.rules import SimRules, one_of
from echelon_jax.sim.slots import slots
from echelon_jax.sim.state import Projectiles, SimState, Smoke
from echelon_jax.sim.widths import LoopWidths

Pending = Bool[Array, "arenas slots"]


def _commit(
    config: EnvConfig,
    projectiles: Projectiles,
    flight: Flight,
    done: Bool[Array, "arenas selected"],
    in_slot_order: bool,
) -> tuple[Projectiles, Bool[Array, "arenas slots"]]:
    """Write the flights that are `done` back to their slots: moved on, or gone. Returns also which slots that were.

    Args:
        in_slot_order: the flights are those of all slots, in the order of the slots (`all_shots`). As many may stand in the
            order of their turns (`first_shots`), so their number does not say it.
    """
    gone = flight.ended | flight.intercepted | flight.impact
    p = projectiles

    def written(here: Array, i: int | slice, p: Projectiles) -> Projectiles:
        return p.replace(
            alive=p.alive & ~(here & gone[:, i]),
            position=jnp.where(here[..., None], flight.position[:, i], p.position),
            velocity=jnp.where(here[..., None], flight.velocity[:, i], p.velocity),
            age=jnp.where(here, flight.age[:, i], p.age),
            rolled=jnp.where(here, flight.rolled[:, i], p.rolled) if config.ams_one_roll else p.rolled,
        )

    if in_slot_order:
        return written(done, slice(None), p), done
    slot_number, touched = jnp.arange(p.alive.shape[1], dtype=jnp.int32), jnp.zeros(p.alive.shape, bool)
    for i in range(done.shape[1]):
        here = done[:, i, None] & (slot_number == flight.slot[:, i, None])
        p, touched = written(here, slice(i, i + 1), p), touched | here
    return p, touched


def _direct_hit(
    config: EnvConfig, rules: SimRules, state: SimState, event: Flight, hit: Bool[Array, " arenas"]
) -> tuple[SimState, Bool[Array, "arenas mechs"]]:
    """Effects of a direct hit on the struck mech, except its wreck. Returns the mechs it killed.

    Source: docs/spec/rules.md 6.7 step 2.
    """
    m, tally = state.mechs, state.tally
    n = m.alive.shape[1]
    victim, shooter, weapon = event.victim, event.shooter, event.weapon
    centre = at(m.position, victim)
    origin = centre - event.velocity
    multiplier = rear_multiplier(at(m.yaw, victim), centre[:, :2], origin[:, :2])
    damage = rules.damage[weapon] * multiplier
    leg = is_leg_hit(event.point[:, 2], centre[:, 2], rules.half[victim, 2])
    leg_damage = jnp.where(leg, damage, 0.0)  # before the paint bonus (Q18)
    damage = jnp.where(leg, k.LEG_HIT_BODY_MULTIPLIER * damage, damage)
    painter = at(m.last_painter, victim)
    _, same_pack = team_masks(config.num_packs)
    painted = (at(m.painted, victim) > 0) & (painter >= 0) & jnp.asarray(same_pack)[jnp.maximum(painter, 0), shooter]
    damage = damage + jnp.where(painted, k.PAINT_BONUS * damage, 0.0)
    shove = rules.stability_damage[weapon] * multiplier

    on_victim = hit[:, None] & (jnp.arange(n) == victim[:, None])
    by_shooter = hit[:, None] & (jnp.arange(n) == shooter[:, None])
    by_painter = (hit & painted & (painter != shooter))[:, None] & (jnp.arange(n) == painter[:, None])
    taken = jnp.where(on_victim, damage[:, None], 0.0)
    hp = m.hp - taken
    dead = on_victim & m.alive & (hp <= 0)
    killed = dead.any(-1)
    direction, far = direction_if_far(at(m.position, shooter) - centre)
    turned = on_victim & far[:, None]
    suppress = on_victim & one_of(weapon, SUPPRESSING)[:, None]
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
    tally = count_hit(tally, by_shooter, by_painter, damage, at(m.hp, victim), killed)
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


def _fly_on(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    pending: Pending,
    shots: Shots,
    widths: LoopWidths,
    cut_short: tuple[Bool[Array, "arenas selected"], Onward] | None = None,
) -> tuple[SimState, Pending, Flight, Bool[Array, " arenas"]]:
    """Move the given pending projectiles of each arena on, in their order, up to and including the first with an effect.

    Returns also that one, which is yet to have its effect, and the arenas that have one. A projectile whose walk is unfinished
    stays pending, and so do those behind it. With `cut_short` the projectiles are those of all slots, in slot order.
    """
    flight = fly(config, rules, state, shots, widths, cut_short)
    stops = flight.intercepted | flight.impact | flight.unfinished
    most = pending.shape[1]
    turn = jnp.where(stops, shots.rank, most)
    first = jnp.argmin(turn, -1).astype(jnp.int32)
    event = jax.tree.map(lambda leaf: at(leaf, first), flight)
    last = jnp.min(turn, -1)
    happens = (last < most) & ~event.unfinished
    done = shots.valid & (shots.rank <= (last - event.unfinished)[:, None])
    projectiles, touched = _commit(config, state.projectiles, flight, done, in_slot_order=cut_short is not None)
    return state.replace(projectiles=projectiles), pending & ~touched, event, happens


def _strike(
    config: EnvConfig, rules: SimRules, state: SimState, event: Flight, happens: Bool[Array, " arenas"]
) -> tuple[SimState, Blast, Bool[Array, "arenas mechs"]]:
    """One interception or impact per arena (docs/spec/rules.md 6.2 step 2, 6.7), in the order of the spec, up to its explosion.

    Returns also that explosion, and the mech that a direct hit killed, whose wreck is still to come.
    """
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
    centre = jnp.where(direct[:, None], at(m.position, event.victim), event.point)
    state = _open_cloud(config, rules, state, event.shooter, centre, impact & smoke)
    blast = Blast(
        active=impact & ~smoke & (rules.splash_radius[event.weapon] > 0),
        point=centre,
        weapon=event.weapon,
        shooter=event.shooter,
        spared=jnp.where(direct, event.victim, -1),
    )
    return state, blast, dead


def update_projectiles(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    rolls: Float32[Array, "arenas heavies rings packs"],
    widths: LoopWidths,
    wreck: Float32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """One projectile phase; `rolls` are the AMS draws, `wreck` the wreck rolls where they are known beforehand."""
    phase = _one_loop if widths.fixed_rounds else _nested_loops
    return phase(config, rules, state, rolls, widths, wreck)


def _nested_loops(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    rolls: Float32[Array, "arenas heavies rings packs"],
    widths: LoopWidths,
    wreck: Float32[Array, "arenas mechs"] | None,
) -> SimState:
    """The phase with a loop of its own for each explosion, which does nothing where there is none."""

    def more(carry: tuple[SimState, Pending]) -> Bool[Array, ""]:
        return carry[1].any()

    def one_round(carry: tuple[SimState, Pending]) -> tuple[SimState, Pending]:
        state, pending = carry
        shots = first_shots(config, state.projectiles, pending, rolls, min(widths.projectiles, pending.shape[1]))
        state, pending, event, happens = _fly_on(config, rules, state, pending, shots, widths)
        state, blast, dead = _strike(config, rules, state, event, happens)
        return explode(config, rules, state, blast, dead, widths, wreck), pending

    return jax.lax.while_loop(more, one_round, (state, state.projectiles.alive))[0]


def _one_loop(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    rolls: Float32[Array, "arenas heavies rings packs"],
    widths: LoopWidths,
    wreck: Float32[Array, "arenas mechs"] | None,
) -> SimState:
    """The phase as a single loop: an explosion that kills goes on in the next round, while its arena's projectiles wait.

    Every round serves every arena without a loop of its own. A round ends a projectile or an explosion, leaves a wreck, or
    takes a walk that is longer than `widths.walk_steps` (only after a skipped goal, Q9) further. So an arena needs at most
    one for each projectile and each mech, but for such walks.
    """
    arenas, n = state.mechs.alive.shape
    rank = ranks(state.projectiles.alive, state.projectiles.order)
    Carry = tuple[SimState, Pending, Blast, Splash, tuple[Array, Onward], Array]

    def more(carry: Carry) -> Bool[Array, ""]:
        return carry[-1].any()

    def one_round(carry: Carry) -> Carry:
        state, pending, blast, splash, cut_short, _ = carry
        free = ~(blast.active | splash.busy())
        shots = all_shots(config, state.projectiles, pending & free[:, None], rank, rolls)
        flown, left, event, happens = _fly_on(config, rules, state, pending, shots, widths, cut_short)
        state, new, killed = _strike(config, rules, flown, event, happens)

        def begun(old: Array, started: Array) -> Array:
            return jnp.where(free.reshape(-1, *(1,) * (old.ndim - 1)), started, old)

        blast = jax.tree.map(begun, blast, new)
        splash = jax.tree.map(begun, splash, Splash(dead=killed, pending=in_reach(rules, state, new)))
        state, splash = splash_round(config, rules, state, blast, splash, widths, wreck)
        done = ~splash.busy()
        state, waiting = finish(config, rules, state, blast, done, widths)
        again = event.unfinished[:, None] & (jnp.arange(left.shape[1]) == event.slot[:, None])
        blast = blast.replace(active=(blast.active & ~done) | waiting)
        unfinished = left.any(-1) | blast.active | splash.dead.any(-1)
        return state, left, blast, splash, (again, event.way), unfinished

    none, zero = jnp.zeros(arenas, bool), jnp.zeros(arenas, jnp.int32)
    quiet = Blast(active=none, point=jnp.zeros((arenas, 3), jnp.float32), weapon=zero, shooter=zero, spared=zero)
    idle = Splash(dead=jnp.zeros((arenas, n), bool), pending=jnp.zeros((arenas, n), bool))
    nowhere = Onward(cell=jnp.zeros((arenas, 3), jnp.int32), tau=jnp.zeros((arenas, 3), jnp.float32))
    alive = state.projectiles.alive
    start = (state, alive, quiet, idle, (jnp.zeros_like(alive), nowhere), alive.any(-1))
    return jax.lax.while_loop(more, one_round, start)[0]
