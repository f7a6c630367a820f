"""The firing phase: living mechs fire one by one, each seeing what the earlier ones did (docs/spec/rules.md 5, 9.3).

Mechs fire in roster order, the same mech in every arena at a time. Under fair_order each arena has a drawn order of its own.
Positions do not change in this phase, so distances, bearings and lines of sight are computed for all pairs
beforehand; a scan then goes through the mechs. Only a wreck can change a view, so after a kill the clear views of
that arena are tested again.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.rules import constants as k
from echelon_jax.rules.weapons import AUTOCANNON, FLAMER, GAUSS, LASER, MISSILE, PAINTER, SMOKE
from echelon_jax.sim.effects import count_hit
from echelon_jax.sim.geometry import direction_if_far, grid_rank, is_leg_hit, rear_multiplier, team_masks
from echelon_jax.sim.launch import Launch, launch
from echelon_jax.sim.queues import compact
from echelon_jax.sim.rays import pair_sight
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Commands, Grid, Mechs, SimState, Tally
from echelon_jax.sim.turns import NO_WEAPON, drawn_rows, pulled, turns
from echelon_jax.sim.wrecks import WRECKS_PER_ROUND, next_wrecks, place_wrecks


class _Geometry(flax.struct.PyTreeNode):
    """Pairwise facts that hold for the whole phase, shooter first."""

    distance: Float32[Array, "arenas mechs mechs"]
    bearing: Float32[Array, "arenas mechs mechs"]  # cosine of the yaw error (docs/spec/rules.md 5.4)
    rank: Int32[Array, "arenas mechs"]  # place in grid order


def _geometry(mechs: Mechs) -> _Geometry:
    p = mechs.position
    dx, dy, dz = (p[:, None, :, axis] - p[:, :, None, axis] for axis in range(3))
    flat2 = dx * dx + dy * dy
    flat = jnp.sqrt(flat2)
    along = jnp.cos(mechs.yaw)[:, :, None] * dx + jnp.sin(mechs.yaw)[:, :, None] * dy
    bearing = jnp.where(flat <= 1e-6, 1.0, along / jnp.maximum(flat, 1e-6))
    return _Geometry(jnp.sqrt(flat2 + dz * dz), bearing, grid_rank(p, mechs.stamp))


def _wanted_views(
    config: EnvConfig, rules: SimRules, mechs: Mechs, fires: dict[int, Array], geometry: _Geometry
) -> Bool[Array, "arenas mechs mechs"]:
    """Pairs whose line of sight this phase may ask for: trigger pulled, weapon ready, target in range and arc."""
    enemies, _ = team_masks(config.num_packs)
    ready = {
        LASER: mechs.laser_cooldown,
        FLAMER: mechs.kinetic_cooldown,
        PAINTER: mechs.painter_cooldown,
        MISSILE: mechs.tube_cooldown,
    }
    wanted = jnp.zeros(geometry.distance.shape, bool)
    for weapon, cooldown in ready.items():
        reach = k.ONBOARD_LOCK_RANGE if weapon == MISSILE else rules.range[weapon]
        shooter = fires[weapon] & (cooldown <= 0)
        wanted = wanted | (
            shooter[:, :, None] & (geometry.distance <= reach) & (geometry.bearing >= rules.arc_cosine[weapon])
        )
    able = mechs.alive & (mechs.heat <= rules.heat_cap)
    return wanted & able[:, :, None] & mechs.alive[:, None, :] & jnp.asarray(enemies)


def _bury_and_look_again(
    config: EnvConfig,
    rules: SimRules,
    grid: Grid,
    mechs: Mechs,
    view: Bool[Array, "arenas mechs mechs"],
    dead: Bool[Array, "arenas mechs"],
    draws: Float32[Array, "arenas mechs"] | None,
) -> tuple[Grid, Bool[Array, "arenas mechs mechs"]]:
    """Place the wrecks of the dead and re-test the clear views of their arenas; nothing is done where nobody died."""
    arenas = dead.shape[0]
    chunk = min(arenas, WRECKS_PER_ROUND)

    def more(carry: tuple[Grid, Array, Array]) -> Bool[Array, ""]:
        return carry[2].any()

    def one_round(carry: tuple[Grid, Array, Array]) -> tuple[Grid, Array, Array]:
        grid, view, left = carry
        queue, _ = compact(left.any(-1), chunk)
        mech, wanted, others = next_wrecks(left, mechs.alive, queue)
        grid = place_wrecks(config, rules, grid, mechs, others, queue, mech, wanted, draws)
        safe = jnp.minimum(queue, arenas - 1)
        again = view[safe] & wanted[:, None, None]
        clear = pair_sight(config, grid.opaque, mechs.position[safe], again, arena=safe, chunk=64)
        return grid, view.at[queue].set(clear, mode="drop"), left.at[queue, mech].set(False, mode="drop")

    grid, view, _ = jax.lax.while_loop(more, one_round, (grid, view, dead))
    return grid, view


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
    closest = jnp.min(jnp.where(candidate, distance, jnp.inf), -1)
    tied = candidate & (distance == closest[:, None])
    turn = jnp.where(is_focus, -1, rank)
    return candidate.any(-1), jnp.argmin(jnp.where(tied, turn, n), -1).astype(jnp.int32)


def _sensor_quality(
    rules: SimRules,
    mechs: Mechs,
    enemy: Bool[Array, "#arenas mechs"],
    me: Bool[Array, "#arenas mechs"],
    distance: Array,
) -> Float32[Array, " arenas"]:
    """Sensor quality of one viewer (docs/spec/rules.md 5.12) from the sources that are alive and powered right now."""
    strength = jnp.where(
        mechs.alive & (mechs.heat <= rules.heat_cap) & (distance <= k.EWAR_RADIUS),
        jnp.maximum(0.0, 1.0 - distance / k.EWAR_RADIUS),
        0.0,
    )
    jam = jnp.max(jnp.where(enemy & mechs.ecm_on, strength, 0.0), -1)
    eccm = jnp.max(jnp.where(~enemy & ~me & mechs.eccm_on, strength, 0.0), -1)
    return jnp.clip(1.0 - k.ECM_WEIGHT * jam + k.ECCM_WEIGHT * eccm, k.SENSOR_QUALITY_MIN, k.SENSOR_QUALITY_MAX)


def fire(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    commands: Commands,
    heights: Float32[Array, "arenas mechs 2"],
    order: Int32[Array, "arenas mechs"] | None = None,
    wreck: Float32[Array, "arenas mechs"] | None = None,
) -> SimState:
    """One firing phase.

    Args:
        heights: hit-height draws of laser and flamer by shooter.
        order, wreck: the order of firing and the wreck rolls under fair_order.
    """
    geometry = _geometry(state.mechs)
    fires = pulled(config, commands)
    wanted = _wanted_views(config, rules, state.mechs, fires, geometry)
    view = pair_sight(config, state.grid.opaque, state.mechs.position, wanted, state.smoke)

    table = turns(config.num_packs)
    hitscan_trigger = jnp.where(
        jnp.asarray(table.hitscan == FLAMER), fires[FLAMER][:, table.mech], fires[LASER][:, table.mech]
    )
    height = jnp.where(jnp.asarray(table.hitscan == FLAMER), heights[:, table.mech, 1], heights[:, table.mech, 0])
    kinetic_fires = fires[GAUSS] | fires[AUTOCANNON]
    turn_inputs = {
        "mech": jnp.asarray(table.mech),
        "flamer": jnp.asarray(table.hitscan == FLAMER),
        "armed": jnp.asarray(table.hitscan != NO_WEAPON),
        "rest": jnp.asarray(table.rest),
        "kinetic": jnp.asarray(np.maximum(table.kinetic, 0)),
        "hitscan_trigger": hitscan_trigger.T,
        "height": height.T,
        "missile_trigger": fires[MISSILE][:, table.mech].T,
        "smoke_trigger": fires[SMOKE][:, table.mech].T,
        "painter_trigger": fires[PAINTER][:, table.mech].T,
        "kinetic_trigger": kinetic_fires[:, table.mech].T,
    }

    place = None
    if order is not None:
        row, place, last = drawn_rows(table, order)
        turn_inputs = {
            name: column[row].T if column.ndim == 1 else jnp.take_along_axis(column, row.T, axis=0)
            for name, column in turn_inputs.items()
        }

    def one_turn(carry: tuple, turn: dict[str, Array]) -> tuple[tuple, Launch]:
        mechs, tally, grid, view, gate = carry
        mechs, tally, dead, gate = _hitscan(config, rules, mechs, tally, geometry, view, gate, turn)
        grid, view = _bury_and_look_again(config, rules, grid, mechs, view, dead, wreck)
        mechs, tally, launched = _other_weapons(config, rules, mechs, tally, geometry, view, turn)
        return (mechs, tally, grid, view, gate), launched

    gate = jnp.zeros(state.tick.shape, bool)
    (mechs, tally, grid, _, _), launched = jax.lax.scan(
        one_turn, (state.mechs, state.tally, state.grid, view, gate), turn_inputs
    )
    # The rows that end a mech's turn, one per mech in roster order.
    if order is None:
        ends = np.flatnonzero(table.rest)
        by_mech = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[ends], 0, 1), launched)
    else:
        arena = jnp.arange(order.shape[0], dtype=jnp.int32)[:, None]
        by_mech = jax.tree.map(lambda leaf: leaf[last, arena], launched)
    return launch(config, rules, state.replace(mechs=mechs, tally=tally, grid=grid), by_mech, place)


def _column(array: Array, mech: Int32[Array, ""] | Int32[Array, " arenas"]) -> Array:
    """The values of one mech: the same mech in every arena, or one of each arena's own."""
    if mech.ndim == 0:
        return jax.lax.dynamic_index_in_dim(array, mech, axis=1, keepdims=False)
    return array[jnp.arange(array.shape[0], dtype=jnp.int32), mech]


def _across(value: Array) -> Array:
    """A number of the turn, one or one per arena, as [1 or arenas, 1]: to be compared with values of all mechs."""
    return value.reshape(-1, 1)


def _hitscan(
    config: EnvConfig,
    rules: SimRules,
    mechs: Mechs,
    tally: Tally,
    geometry: _Geometry,
    view: Bool[Array, "arenas mechs mechs"],
    gate: Bool[Array, " arenas"],
    turn: dict[str, Array],
) -> tuple[Mechs, Tally, Bool[Array, "arenas mechs"], Bool[Array, " arenas"]]:
    """A laser or flamer shot of one mech (docs/spec/rules.md 5.7).

    Returns also the mechs it killed, and whether the shooter was able to fire when its turn began.
    """
    n = config.num_mechs
    i, flamer = turn["mech"], turn["flamer"]
    enemies, same_pack = (jnp.asarray(t) for t in team_masks(config.num_packs))
    me = jnp.arange(n) == _across(i)
    # Shutdown is tested once before the laser, not again before the flamer (Q16).
    gate = jnp.where(flamer, gate, _column(mechs.alive, i) & (_column(mechs.heat, i) <= rules.heat_cap[i]))
    weapon = jnp.where(flamer, FLAMER, LASER)
    cooldown = jnp.where(flamer, _column(mechs.kinetic_cooldown, i), _column(mechs.laser_cooldown, i))
    distance, bearing = _column(geometry.distance, i), _column(geometry.bearing, i)
    candidate = (
        enemies[i].reshape(-1, n)
        & mechs.alive
        & (distance <= _across(rules.range[weapon]))
        & (bearing >= _across(rules.arc_cosine[weapon]))
        & _column(view, i)
    )
    found, target = _nearest(config, candidate, distance, geometry.rank, _column(mechs.focus, i))
    shoots = turn["armed"] & turn["hitscan_trigger"] & gate & (cooldown <= 0) & found

    on_target = shoots[:, None] & (jnp.arange(n) == target[:, None])
    by_me = shoots[:, None] & me
    row = jnp.arange(target.shape[0], dtype=jnp.int32)
    centre, own = mechs.position[row, target], _column(mechs.position, i)
    damage = rules.damage[weapon] * rear_multiplier(mechs.yaw[row, target], centre[:, :2], own[:, :2])
    painter = mechs.last_painter[row, target]
    bonus = (mechs.painted[row, target] > 0) & (painter >= 0) & same_pack[i, jnp.maximum(painter, 0)]
    damage = damage + jnp.where(bonus, k.PAINT_BONUS * damage, 0.0)
    half_z = rules.half[target, 2]
    hit_z = centre[:, 2] + 0.5 * (-half_z + 2.0 * half_z * turn["height"])
    leg = is_leg_hit(hit_z, centre[:, 2], half_z)
    leg_damage = jnp.where(leg, damage, 0.0)
    damage = jnp.where(leg, k.LEG_HIT_BODY_MULTIPLIER * damage, damage)

    had = mechs.hp[row, target]
    hp = mechs.hp - jnp.where(on_target, damage[:, None], 0.0)
    dead = on_target & mechs.alive & (hp <= 0)
    transfer = jnp.where(flamer, k.FLAMER_HEAT_TRANSFER, k.LASER_HEAT_TRANSFER)
    heat = mechs.heat + jnp.where(by_me, _across(rules.weapon_heat[weapon]), 0.0)
    heat = heat + jnp.where(on_target, _across(transfer), 0.0)
    direction, far = direction_if_far(own - centre)
    turned = on_target & far[:, None]
    assist = (shoots & bonus & (painter != i))[:, None] & (jnp.arange(n) == painter[:, None])
    mechs = mechs.replace(
        hp=hp,
        leg_hp=mechs.leg_hp - jnp.where(on_target, leg_damage[:, None], 0.0),
        heat=heat,
        alive=mechs.alive & ~dead,
        laser_cooldown=jnp.where(by_me & ~_across(flamer), rules.cooldown[LASER], mechs.laser_cooldown),
        kinetic_cooldown=jnp.where(by_me & _across(flamer), rules.cooldown[FLAMER], mechs.kinetic_cooldown),
    )
    tally = tally.replace(
        took_damage=tally.took_damage + jnp.where(on_target, damage[:, None], 0.0),
        dealt_damage=tally.dealt_damage + jnp.where(by_me, damage[:, None], 0.0),
        kills=tally.kills + (by_me & dead.any(-1)[:, None]),
        died=tally.died | dead,
        was_hit=tally.was_hit | on_target,
        damage_direction=jnp.where(turned[..., None], direction[:, None], tally.damage_direction),
        has_damage_direction=tally.has_damage_direction | turned,
        assists=tally.assists + assist,
        laser_hits=tally.laser_hits + by_me,
    )
    tally = count_hit(tally, by_me, assist, damage, had, dead.any(-1))
    return mechs, tally, dead, gate


def _other_weapons(
    config: EnvConfig,
    rules: SimRules,
    mechs: Mechs,
    tally: Tally,
    geometry: _Geometry,
    view: Bool[Array, "arenas mechs mechs"],
    turn: dict[str, Array],
) -> tuple[Mechs, Tally, Launch]:
    """Missile, kinetic weapon, painter and smoke of one mech, in this order; each re-tests shutdown.

    Source: docs/spec/rules.md 5.8 to 5.11, 9.3.
    """
    n = config.num_mechs
    i, rest, kinetic = turn["mech"], turn["rest"], turn["kinetic"]
    enemies, same_pack = (jnp.asarray(t)[i].reshape(-1, n) for t in team_masks(config.num_packs))
    me = jnp.arange(n) == _across(i)
    row = jnp.arange(mechs.alive.shape[0], dtype=jnp.int32)
    distance, bearing, sees = _column(geometry.distance, i), _column(geometry.bearing, i), _column(view, i)
    own, yaw, focus = _column(mechs.position, i), _column(mechs.yaw, i), _column(mechs.focus, i)
    facing = jnp.stack([jnp.cos(yaw), jnp.sin(yaw), jnp.zeros_like(yaw)], -1)
    target_alive = enemies & mechs.alive
    is_focus = jnp.arange(n) == focus[:, None]
    heat, cap, alive = _column(mechs.heat, i), rules.heat_cap[i], _column(mechs.alive, i) & rest
    tube = _column(mechs.tube_cooldown, i)
    painted, last_painter = mechs.painted, mechs.last_painter

    # Missile (5.8): a paint lock of the own pack, or an onboard lock by sight.
    quality = _sensor_quality(rules, mechs, enemies, me, distance)
    paint_lock = (
        (painted > 0)
        & (last_painter >= 0)
        & jnp.take_along_axis(same_pack, jnp.maximum(last_painter, 0), axis=1)
        & (distance <= rules.range[MISSILE])
        & (quality >= k.PAINT_LOCK_QUALITY)[:, None]
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
    launched = Launch(
        missile=missile,
        missile_target=missile_target,
        missile_offset=mechs.position[row, missile_target] - own,
        kinetic=shoots,
        kinetic_offset=mechs.position[row, aim] - own,
        kinetic_aimed=aimed,
        smoke=smokes,
        smoke_offset=mechs.position[row, jnp.maximum(focus, 0)] - own,
        smoke_aimed=aims,
        facing=facing,
    )
    return mechs, tally, launched
