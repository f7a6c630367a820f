"""The firing phase: living mechs fire one by one, each seeing what the earlier ones did (docs/spec/rules.md 5, 9.3).

Mechs fire in roster order, the same mech in every arena at a time. Under fair_order each arena has a drawn order of its own.
Positions do not change in this phase, so distances, bearings and lines of sight are computed for all pairs
beforehand; a scan then goes through the mechs. Only a wreck can change a view, so after a kill the clear views of
that arena are tested again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.weapons import BALLISTIC, HITSCAN, MISSILE, PAINTER, SMOKE, WEAPONS, Timer
from echelon_jax.sim.effects import count_hit
from echelon_jax.sim.ewar import quality, shutdown, strength
from echelon_jax.sim.geometry import direction_if_far, is_leg_hit, rear_multiplier, team_masks
from echelon_jax.sim.launch import launch, launched, packed
from echelon_jax.sim.queues import at
from echelon_jax.sim.rays import pair_sight
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Commands, Mechs, SimState, Tally
from echelon_jax.sim.turns import NO_WEAPON, drawn_rows, triggers_pressed, turns
from echelon_jax.sim.views import (
    TIMER_FIELDS,
    Geometry,
    bury_and_look_again,
    bury_target,
    geometry_of,
    smoke_free,
    views_of,
    wanted_views,
)
from echelon_jax.sim.widths import LoopWidths

# Timers that hitscan weapons run on.
_HITSCAN_TIMERS = tuple(timer for timer in Timer if any(WEAPONS[w].timer is timer for w in HITSCAN))


def _nearest(
    config: EnvConfig,
    candidate: Bool[Array, "arenas mechs"],
    distance: Float32[Array, "arenas mechs"],
    rank: Int32[Array, "arenas mechs"],
    focus: Int32[Array, " arenas"],
) -> tuple[Bool[Array, " arenas"], Int32[Array, " arenas"]]:
    """Nearest-candidate rule (docs/spec/rules.md 5.4): the closest; exact ties go to the focus, then to grid order.

    Under honour_focus a focus among the candidates is nearer than any other (Q2).
    """
    n = candidate.shape[1]
    is_focus = jnp.arange(n) == focus[:, None]
    if config.honour_focus:
        distance = jnp.where(is_focus, -1.0, distance)
    turn = jnp.where(is_focus, -1, rank)
    keys = jnp.where(candidate, distance, jnp.inf), jnp.where(candidate, turn, n)
    number = jnp.broadcast_to(jnp.arange(n, dtype=jnp.int32), candidate.shape)

    def nearer(one: tuple[Array, Array, Array], other: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        take = (other[0] < one[0]) | ((other[0] == one[0]) & (other[1] < one[1]))
        return tuple(jnp.where(take, b, a) for a, b in zip(one, other, strict=True))  # type: ignore[return-value]

    start = jnp.float32(jnp.inf), jnp.int32(n), jnp.int32(0)
    closest, _, nearest = jax.lax.reduce((*keys, number), start, nearer, (1,))
    return closest < jnp.inf, nearest


def _sensor_quality(
    rules: SimRules,
    mechs: Mechs,
    enemy: Bool[Array, "#arenas mechs"],
    me: Bool[Array, "#arenas mechs"],
    distance: Array,
) -> Float32[Array, " arenas"]:
    """Sensor quality of one viewer (docs/spec/rules.md 5.12) from the sources that are alive and powered right now."""
    felt = jnp.where(mechs.alive & ~shutdown(rules, mechs), strength(distance), 0.0)
    jam = jnp.max(jnp.where(enemy & mechs.ecm_on, felt, 0.0), -1)
    eccm = jnp.max(jnp.where(~enemy & ~me & mechs.eccm_on, felt, 0.0), -1)
    return quality(jam, eccm)


def fire(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    commands: Commands,
    heights: Float32[Array, "arenas mechs hitscan"],
    widths: LoopWidths,
    order: Int32[Array, "arenas mechs"] | None = None,
    wreck: Float32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """One firing phase.

    Args:
        heights: hit-height draws by shooter and hitscan weapon.
        order: of firing, under fair_order.
        wreck: the wreck rolls where they are known beforehand.
    """
    geometry = geometry_of(state.mechs)
    fires = triggers_pressed(config, commands)
    wanted = wanted_views(config, rules, state.mechs, fires, geometry)

    table = turns(config.num_packs)
    hitscan_trigger, height = fires[HITSCAN[0]][:, table.mech], heights[:, table.mech, 0]
    for column, weapon in enumerate(HITSCAN[1:], 1):
        here = jnp.asarray(table.hitscan == weapon)
        hitscan_trigger = jnp.where(here, fires[weapon][:, table.mech], hitscan_trigger)
        height = jnp.where(here, heights[:, table.mech, column], height)
    kinetic_fires = fires[BALLISTIC[0]]
    for weapon in BALLISTIC[1:]:
        kinetic_fires = kinetic_fires | fires[weapon]
    timers = np.array([_HITSCAN_TIMERS.index(WEAPONS[max(w, HITSCAN[0])].timer) for w in table.hitscan], np.int32)
    turn_inputs = {
        "mech": jnp.asarray(table.mech),
        "hitscan": jnp.asarray(np.maximum(table.hitscan, HITSCAN[0])),
        "hitscan_timer": jnp.asarray(timers),
        "armed": jnp.asarray(table.hitscan != NO_WEAPON),
        "begins_turn": jnp.asarray(table.begins_turn),
        "ends_turn": jnp.asarray(table.ends_turn),
        "kinetic": jnp.asarray(np.maximum(table.kinetic, 0)),
        "hitscan_trigger": hitscan_trigger.T,
        "height": height.T,
        "missile_trigger": fires[MISSILE][:, table.mech].T,
        "smoke_trigger": fires[SMOKE][:, table.mech].T,
        "painter_trigger": fires[PAINTER][:, table.mech].T,
        "kinetic_trigger": kinetic_fires[:, table.mech].T,
    }

    turn_rank = None
    if order is not None:
        row, turn_rank, last = drawn_rows(table, order)
        turn_inputs = {
            name: column[row].T if column.ndim == 1 else jnp.take_along_axis(column, row.T, axis=0)
            for name, column in turn_inputs.items()
        }

    position = state.mechs.position

    def turn_with_all_views(carry: tuple, turn: dict[str, Array]) -> tuple[tuple, Array]:
        """All views were looked at beforehand; after a kill those of its arena are looked at again."""
        mechs, tally, grid, view, gate = carry
        sees = _column(view, turn["mech"])
        mechs, tally, target, killed, gate = _hitscan(config, rules, mechs, tally, geometry, sees, gate, turn)
        dead = killed[:, None] & (jnp.arange(config.num_mechs) == target[:, None])
        grid, view = bury_and_look_again(config, rules, grid, mechs, view, dead, widths, wreck)
        sees = _column(view, turn["mech"])
        mechs, tally, fired = _other_weapons(config, rules, mechs, tally, geometry, sees, turn)
        return (mechs, tally, grid, view, gate), fired

    def turn_that_looks(carry: tuple, turn: dict[str, Array]) -> tuple[tuple, Array]:
        """Each turn looks for its mech after the shot, and for the shot of the next turn: wrecks need no second look."""
        mechs, tally, grid, sees, gate = carry
        mechs, tally, target, killed, gate = _hitscan(config, rules, mechs, tally, geometry, sees, gate, turn)
        grid = bury_target(config, rules, grid, mechs, target, killed, wreck)
        viewers = jnp.stack([turn["mech"], turn["next"]], -1).reshape(-1, 2)
        sees = views_of(config, grid.opaque, position, wanted, viewers, rules.reach, widths)
        mechs, tally, fired = _other_weapons(config, rules, mechs, tally, geometry, sees[:, 0], turn)
        return (mechs, tally, grid, sees[:, 1], gate), fired

    gate = jnp.zeros(state.tick.shape, bool)
    opaque = state.grid.opaque
    if widths.fixed_rounds:
        one_turn = turn_that_looks
        wanted = smoke_free(position, state.smoke, wanted)
        turn_inputs["next"] = jnp.roll(turn_inputs["mech"], -1, axis=0)
        first = turn_inputs["mech"][0].reshape(-1, 1)
        view = views_of(config, opaque, position, wanted, first, rules.reach, widths)[:, 0]
    else:
        one_turn = turn_with_all_views
        view = pair_sight(config, opaque, position, wanted, state.smoke, widths=widths)
    (mechs, tally, grid, _, _), fired = jax.lax.scan(
        one_turn,
        (state.mechs, state.tally, state.grid, view, gate),
        turn_inputs,
        unroll=min(len(table.mech), widths.fire_unroll),
    )
    # The rows that end a mech's turn, one per mech in roster order.
    if order is None:
        ends = np.flatnonzero(table.ends_turn)
        by_mech = fired[ends].T
    else:
        arena = jnp.arange(order.shape[0], dtype=jnp.int32)[:, None]
        by_mech = fired[last, arena]
    return launch(
        config, rules, state.replace(mechs=mechs, tally=tally, grid=grid), launched(mechs, by_mech), turn_rank
    )


def _column(array: Array, mech: Int32[Array, ""] | Int32[Array, " arenas"]) -> Array:
    """The values of one mech: the same mech in every arena, or one of each arena's own."""
    if mech.ndim == 0:
        return jax.lax.dynamic_index_in_dim(array, mech, axis=1, keepdims=False)
    return at(array, mech)


def _across(value: Array) -> Array:
    """A number of the turn, one or one per arena, as [1 or arenas, 1]: to be compared with values of all mechs."""
    return value.reshape(-1, 1)


def _hitscan(
    config: EnvConfig,
    rules: SimRules,
    mechs: Mechs,
    tally: Tally,
    geometry: Geometry,
    sees: Bool[Array, "arenas mechs"],
    gate: Bool[Array, " arenas"],
    turn: dict[str, Array],
) -> tuple[Mechs, Tally, Int32[Array, " arenas"], Bool[Array, " arenas"], Bool[Array, " arenas"]]:
    """A shot of one mech with a hitscan weapon (docs/spec/rules.md 5.7).

    Returns also its target, whether it killed that, and whether the shooter was able to fire when its turn began.
    """
    n = config.num_mechs
    i, weapon = turn["mech"], turn["hitscan"]
    enemies, same_pack = (jnp.asarray(t) for t in team_masks(config.num_packs))
    me = jnp.arange(n) == _across(i)
    # Shutdown is tested once before the laser, not again before the flamer (Q16).
    able = _column(mechs.alive, i) & (_column(mechs.heat, i) <= rules.heat_cap[i])
    gate = jnp.where(turn["begins_turn"], able, gate)
    timers = {
        TIMER_FIELDS[timer]: turn["hitscan_timer"] == turn_rank for turn_rank, timer in enumerate(_HITSCAN_TIMERS)
    }
    cooldown = _column(mechs.laser_cooldown, i)
    for field, runs_on in timers.items():
        if field != "laser_cooldown":
            cooldown = jnp.where(runs_on, _column(getattr(mechs, field), i), cooldown)
    distance, bearing = _column(geometry.distance, i), _column(geometry.bearing, i)
    candidate = (
        enemies[i].reshape(-1, n)
        & mechs.alive
        & (distance <= _across(rules.range[weapon]))
        & (bearing >= _across(rules.arc_cosine[weapon]))
        & sees
    )
    found, target = _nearest(config, candidate, distance, geometry.rank, _column(mechs.focus, i))
    shoots = turn["armed"] & turn["hitscan_trigger"] & gate & (cooldown <= 0) & found

    on_target = shoots[:, None] & (jnp.arange(n) == target[:, None])
    by_me = shoots[:, None] & me
    centre, own = at(mechs.position, target), _column(mechs.position, i)
    damage = rules.damage[weapon] * rear_multiplier(at(mechs.yaw, target), centre[:, :2], own[:, :2])
    painter = at(mechs.last_painter, target)
    bonus = (at(mechs.painted, target) > 0) & (painter >= 0) & same_pack[i, jnp.maximum(painter, 0)]
    damage = damage + jnp.where(bonus, k.PAINT_BONUS * damage, 0.0)
    half_z = rules.half[target, 2]
    hit_z = centre[:, 2] + 0.5 * (-half_z + 2.0 * half_z * turn["height"])
    leg = is_leg_hit(hit_z, centre[:, 2], half_z)
    leg_damage = jnp.where(leg, damage, 0.0)
    damage = jnp.where(leg, k.LEG_HIT_BODY_MULTIPLIER * damage, damage)

    had = at(mechs.hp, target)
    hp = mechs.hp - jnp.where(on_target, damage[:, None], 0.0)
    killed = shoots & (had - damage <= 0)  # a target is alive
    dead = on_target & killed[:, None]
    heat = mechs.heat + jnp.where(by_me, _across(rules.weapon_heat[weapon]), 0.0)
    heat = heat + jnp.where(on_target, _across(rules.heat_transfer[weapon]), 0.0)
    direction, far = direction_if_far(own - centre)
    turned = on_target & far[:, None]
    assist = (shoots & bonus & (painter != i))[:, None] & (jnp.arange(n) == painter[:, None])
    mechs = mechs.replace(
        hp=hp,
        leg_hp=mechs.leg_hp - jnp.where(on_target, leg_damage[:, None], 0.0),
        heat=heat,
        alive=mechs.alive & ~dead,
        **{
            field: jnp.where(by_me & _across(runs_on), _across(rules.cooldown[weapon]), getattr(mechs, field))
            for field, runs_on in timers.items()
        },
    )
    tally = tally.replace(
        took_damage=tally.took_damage + jnp.where(on_target, damage[:, None], 0.0),
        dealt_damage=tally.dealt_damage + jnp.where(by_me, damage[:, None], 0.0),
        kills=tally.kills + (by_me & killed[:, None]),
        died=tally.died | dead,
        was_hit=tally.was_hit | on_target,
        damage_direction=jnp.where(turned[..., None], direction[:, None], tally.damage_direction),
        has_damage_direction=tally.has_damage_direction | turned,
        assists=tally.assists + assist,
        laser_hits=tally.laser_hits + by_me,
    )
    tally = count_hit(tally, by_me, assist, damage, had, killed)
    return mechs, tally, target, killed, gate


def _other_weapons(
    config: EnvConfig,
    rules: SimRules,
    mechs: Mechs,
    tally: Tally,
    geometry: Geometry,
    sees: Bool[Array, "arenas mechs"],
    turn: dict[str, Array],
) -> tuple[Mechs, Tally, Int32[Array, " arenas"]]:
    """Missile, kinetic weapon, painter and smoke of one mech, in this order; each re-tests shutdown.

    Returns also what it fired, packed.

    Source: docs/spec/rules.md 5.8 to 5.11, 9.3.
    """
    n = config.num_mechs
    i, ends_turn, kinetic = turn["mech"], turn["ends_turn"], turn["kinetic"]
    enemies, same_pack = (jnp.asarray(t)[i].reshape(-1, n) for t in team_masks(config.num_packs))
    me = jnp.arange(n) == _across(i)
    distance, bearing = _column(geometry.distance, i), _column(geometry.bearing, i)
    focus = _column(mechs.focus, i)
    target_alive = enemies & mechs.alive
    is_focus = jnp.arange(n) == focus[:, None]
    heat, cap, alive = _column(mechs.heat, i), rules.heat_cap[i], _column(mechs.alive, i) & ends_turn
    tube = _column(mechs.tube_cooldown, i)
    painted, last_painter = mechs.painted, mechs.last_painter

    # Missile (5.8): a paint lock of the own pack, or an onboard lock by sight.
    q = _sensor_quality(rules, mechs, enemies, me, distance)
    paint_lock = (
        (painted > 0)
        & (last_painter >= 0)
        & jnp.take_along_axis(same_pack, jnp.maximum(last_painter, 0), axis=1)
        & (distance <= rules.range[MISSILE])
        & (q >= k.PAINT_LOCK_QUALITY)[:, None]
    )
    lock = paint_lock | ((distance <= k.ONBOARD_LOCK_RANGE) & sees)
    candidate = target_alive & (bearing >= rules.arc_cosine[MISSILE]) & lock
    found, missile_target = _nearest(config, candidate, distance, geometry.rank, focus)
    missile = turn["missile_trigger"] & alive & (heat <= cap) & (tube <= 0) & found
    heat = heat + jnp.where(missile, rules.weapon_heat[MISSILE], 0.0)
    tube = jnp.where(missile, rules.cooldown[MISSILE], tube)

    # Kinetic (5.9): always fires; aims within a narrow cone, wider for the focus.
    kinetic_cooldown = _column(mechs.kinetic_cooldown, i)
    upright = _column(mechs.fallen, i) <= 0
    shoots = turn["kinetic_trigger"] & alive & (heat <= cap) & upright & (kinetic_cooldown <= 0)
    reach = rules.range[kinetic]
    on_focus = target_alive & is_focus & (distance <= _across(reach)) & (bearing > float(np.cos(k.KINETIC_FOCUS_CONE)))
    focused = on_focus.any(-1)
    limit = jnp.where(focused, jnp.min(jnp.where(on_focus, distance, jnp.inf), -1), reach)
    others = target_alive & ~is_focus & (distance < limit[:, None]) & (bearing > float(np.cos(k.KINETIC_CONE)))
    if config.honour_focus:
        others = others & ~focused[:, None]
    other_found, other = _nearest(config, others, distance, geometry.rank, jnp.full_like(focus, -1))
    aimed = focused | other_found
    aim = jnp.where(other_found, other, jnp.maximum(focus, 0))
    heat = heat + jnp.where(shoots, rules.weapon_heat[kinetic], 0.0)
    kinetic_cooldown = jnp.where(shoots, rules.cooldown[kinetic], kinetic_cooldown)

    # Painter (5.10).
    painter_cooldown = _column(mechs.painter_cooldown, i)
    candidate = target_alive & (distance <= rules.range[PAINTER]) & (bearing >= rules.arc_cosine[PAINTER]) & sees
    found, paint_target = _nearest(config, candidate, distance, geometry.rank, focus)
    paints = turn["painter_trigger"] & alive & (heat <= cap) & (painter_cooldown <= 0) & found
    heat = heat + jnp.where(paints, rules.weapon_heat[PAINTER], 0.0)
    painter_cooldown = jnp.where(paints, rules.cooldown[PAINTER], painter_cooldown)
    marked = paints[:, None] & (jnp.arange(n) == paint_target[:, None])

    # Smoke (5.11): towards a focus in range, else straight ahead; shares the tube.
    smokes = turn["smoke_trigger"] & alive & (heat <= cap) & (tube <= 0)
    aims = (focus >= 0) & (is_focus & mechs.alive & (distance <= rules.range[SMOKE])).any(-1)
    heat = heat + jnp.where(smokes, rules.weapon_heat[SMOKE], 0.0)
    tube = jnp.where(smokes, rules.cooldown[SMOKE], tube)

    def put(array: Array, value: Array, when: Array) -> Array:
        return jnp.where(me & when[:, None], value[:, None], array)

    any_shot = missile | shoots | paints | smokes
    mechs = mechs.replace(
        heat=put(mechs.heat, heat, any_shot),
        tube_cooldown=put(mechs.tube_cooldown, tube, missile | smokes),
        tube_was_smoke=put(mechs.tube_was_smoke, smokes, missile | smokes),
        kinetic_cooldown=put(mechs.kinetic_cooldown, kinetic_cooldown, shoots),
        painter_cooldown=put(mechs.painter_cooldown, painter_cooldown, paints),
        painted=jnp.where(marked, rules.paint_substeps, painted),
        last_painter=jnp.where(marked, _across(i), last_painter),
    )
    tally = tally.replace(
        paints=tally.paints + (me & paints[:, None]),
        missile_launches=tally.missile_launches + (me & missile[:, None]),
        kinetic_fires=tally.kinetic_fires + (me & shoots[:, None]),
        smoke_launches=tally.smoke_launches + (me & smokes[:, None]),
    )
    fired = packed(
        (missile, shoots, aimed, smokes, aims), (missile_target, jnp.broadcast_to(aim, missile_target.shape))
    )
    return mechs, tally, fired
