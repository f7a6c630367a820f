"""Behaviour of mechs, counted during evaluation games only: weapons and reach, heat, zone, positions (docs/evaluation.md).

The device adds up one `BehaviourSums` per game; behaviour_numbers.py turns many of them into named numbers on the host.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import sanitise
from echelon_jax.env.episode import zone_distance
from echelon_jax.env.interfaces import actions_of
from echelon_jax.env.reward_terms import reward_part_names, reward_parts
from echelon_jax.env.state import EnvParams, EnvState, Step
from echelon_jax.rules.mechs import roster
from echelon_jax.rules.weapons import (
    BALLISTIC,
    HITSCAN,
    MISSILE,
    PAINTER,
    SMOKE,
    TRIGGERS,
    WEAPON_NAMES,
    WEAPONS,
    barrel_of,
    carried_by,
)
from echelon_jax.sim.ewar import shutdown
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.state import Mechs
from echelon_jax.sim.turns import triggers_pressed
from echelon_jax.sim.views import TIMER_FIELDS

RANGE_EDGES = (4.0, 8.0, 12.0, 20.0, 35.0)  # voxels between the bins of distances
MAP_CELLS = 24  # cells along an edge of the position map
HOT = 0.75  # of the heat cap, from where venting is counted as foresight
VENT_MEMORY = 4  # decisions within which venting counts as "before" a shutdown
LONG_AGO = 1 << 20
# Per mech and decision; what is not a count of decisions is named as what it sums.
EVENTS = (
    "decisions",  # alive at the decision
    "reward",
    "damage",
    "damage_taken",
    "friendly_damage",
    "kills",
    "deaths",
    "assists",
    "projectile_hits",
    "in_zone",
    "zone_distance",  # voxels outside the zone's rim
    "heat",  # share of the cap
    "over_cap",  # decisions begun shut down
    "hot",  # begun at HOT or more and not shut down
    "vents_hot",  # of these, with the vent pulled
    "vents",
    "shutdowns",
    "vented_before",  # shutdowns with the vent pulled in one of the VENT_MEMORY decisions before
    "knockdowns",
    "legged",
)


class BehaviourSums(flax.struct.PyTreeNode):
    """Sums over each game so far."""

    events: Float32[Array, "arenas mechs events"]  # EVENTS
    components: Float32[Array, "arenas mechs components"]  # in the order of reward_part_names
    fired: Float32[Array, "arenas mechs weapons"]  # shots
    fired_in_reach: Float32[Array, "arenas mechs weapons"]  # of these, an enemy in reach at either end of the decision
    pulls: Float32[Array, "arenas mechs weapons"]  # decisions with the trigger pulled and the weapon able to fire
    chances: Float32[Array, "arenas mechs weapons"]  # decisions able to fire with a living enemy in range and arc
    taken: Float32[Array, "arenas mechs weapons"]  # both
    by_range: Float32[Array, "arenas sides weapons bins"]  # shots by distance of the nearest enemy in the weapon's arc
    positions: Float32[
        Array, "arenas sides rows columns"
    ]  # decisions by position around the zone, own spawn to the left
    heading: Float32[Array, "arenas sides 2"]  # unit vector from the side's spawn to the zone
    since_vent: Int32[Array, "arenas mechs"]  # decisions
    first_zone: Int32[Array, "arenas sides"]  # decision after which the side first stood in the zone, -1 never


class Sight(flax.struct.PyTreeNode):
    """Where the enemies of each mech are, by weapon, when a decision is made."""

    reach: Bool[Array, "arenas mechs weapons"]  # a living enemy in range and arc
    target: Int32[Array, "arenas mechs weapons"]  # the nearest enemy in the arc, else the nearest
    distance: Float32[Array, "arenas mechs weapons"]  # to it, infinite if no enemy lives


def window(config: EnvConfig) -> float:
    """Half the edge in voxels of the square around the zone in which positions are counted. Mechs outside count at its rim."""
    return 0.75 * max(config.size_x, config.size_y)


def no_behaviour(config: EnvConfig, state: EnvState) -> BehaviourSums:
    """Return the sums of games that have just begun."""
    arenas, n = state.sim.mechs.alive.shape
    weapons, sides = len(WEAPON_NAMES), 2
    spawn = state.sim.mechs.position[..., :2].reshape(arenas, sides, n // sides, 2).mean(2)
    way = state.arena_map.zone[:, None, :2] - spawn
    length = jnp.linalg.norm(way, axis=-1, keepdims=True)

    def zeros(*shape: int) -> Array:
        return jnp.zeros((arenas, *shape), jnp.float32)

    return BehaviourSums(
        events=zeros(n, len(EVENTS)),
        components=zeros(n, len(reward_part_names(config))),
        fired=zeros(n, weapons),
        fired_in_reach=zeros(n, weapons),
        pulls=zeros(n, weapons),
        chances=zeros(n, weapons),
        taken=zeros(n, weapons),
        by_range=zeros(sides, weapons, len(RANGE_EDGES) + 1),
        positions=zeros(sides, MAP_CELLS, MAP_CELLS),
        heading=jnp.where(length > 1e-3, way / jnp.maximum(length, 1e-3), jnp.array([1.0, 0.0])),
        since_vent=jnp.full((arenas, n), LONG_AGO, jnp.int32),
        first_zone=jnp.full((arenas, sides), -1, jnp.int32),
    )


def look_around(config: EnvConfig, rules: SimRules, mechs: Mechs) -> Sight:
    """Return which enemies each weapon could reach. Walls, smoke and locks are not considered."""
    team = roster(config.num_packs).team
    enemy = jnp.asarray(team[:, None] != team[None, :])
    offset = mechs.position[:, None, :, :] - mechs.position[:, :, None, :]  # [arenas, shooter, target, 3]
    distance = jnp.sqrt((offset**2).sum(-1))
    flat = jnp.sqrt((offset[..., :2] ** 2).sum(-1))
    along = jnp.cos(mechs.yaw)[:, :, None] * offset[..., 0] + jnp.sin(mechs.yaw)[:, :, None] * offset[..., 1]
    bearing = jnp.where(flat > 1e-6, along / jnp.maximum(flat, 1e-6), 1.0)
    living = enemy & mechs.alive[:, None, :]
    in_arc = living[:, :, None, :] & (bearing[:, :, None, :] >= rules.arc_cosine[:, None])
    reach = in_arc & (distance[:, :, None, :] <= rules.range[:, None])
    far = jnp.where(living, distance, jnp.inf)[:, :, None, :]
    # Enemies outside of the arc come after all that are inside.
    order = jnp.where(in_arc, far, far + 1e6)
    target = jnp.argmin(order, -1).astype(jnp.int32)
    nearest = jnp.take_along_axis(jnp.broadcast_to(far, order.shape), target[..., None], -1)[..., 0]
    return Sight(reach.any(-1), target, nearest)


def _cooldown(weapon: int) -> float:
    return WEAPONS[weapon].cooldown


def shots(config: EnvConfig, before: Mechs, after: EnvState) -> Float32[Array, "arenas mechs weapons"]:
    """Return the shots of a decision by weapon, from the tally of its kind.

    The tally counts all hitscan weapons of a mech together. The one that cools down fastest gets what the others leave; each of
    those has fired once if its timer was set anew.
    """
    tally, who = after.sim.tally, roster(config.num_packs).mech_class
    by_weapon = {MISSILE: tally.missile_launches, SMOKE: tally.smoke_launches, PAINTER: tally.paints}
    for weapon in BALLISTIC:
        carries = jnp.asarray(np.array([barrel_of(int(c)) == weapon for c in who]))
        by_weapon[weapon] = jnp.where(carries, tally.kinetic_fires, 0)
    left = tally.laser_hits
    for weapon in sorted(HITSCAN, key=lambda w: -WEAPONS[w].cooldown):
        mine = [carried_by(int(c), HITSCAN) for c in who]
        carries = jnp.asarray(np.array([weapon in weapons for weapons in mine]))
        fastest = jnp.asarray(np.array([weapon == min(w, key=_cooldown, default=None) for w in mine]))
        field = TIMER_FIELDS[WEAPONS[weapon].timer]
        cooled = jnp.maximum(getattr(before, field) - config.substeps, 0)
        once = ((getattr(after.sim.mechs, field) > cooled) & (left > 0)).astype(jnp.int32)
        by_weapon[weapon] = jnp.where(carries, jnp.where(fastest, left, once), 0)
        left = left - by_weapon[weapon]
    return jnp.stack([by_weapon[w].astype(jnp.float32) for w in range(len(WEAPON_NAMES))], -1)


def _carried(config: EnvConfig) -> np.ndarray:
    """bool [mechs, weapons]: whether a mech carries a weapon."""
    who = roster(config.num_packs).mech_class
    return np.stack([np.isin(who, list(TRIGGERS[w])) for w in range(len(WEAPON_NAMES))], -1)


def _ready(config: EnvConfig, mechs: Mechs) -> Bool[Array, "arenas mechs weapons"]:
    """Weapons that are or become ready during the decision."""
    return jnp.stack([getattr(mechs, TIMER_FIELDS[w.timer]) < config.substeps for w in WEAPONS], -1)


def _positions(
    config: EnvConfig, sums: BehaviourSums, state: EnvState, alive: Bool[Array, "arenas mechs"]
) -> Float32[Array, "arenas sides rows columns"]:
    """Living mechs by cell of a square around the zone, turned so that the own spawn lies to the left."""
    arenas, n = alive.shape
    offset = state.sim.mechs.position[..., :2] - state.arena_map.zone[:, None, :2]
    offset = offset.reshape(arenas, 2, n // 2, 2)
    along, across = sums.heading[:, :, None, 0], sums.heading[:, :, None, 1]
    turned = (
        offset[..., 0] * along + offset[..., 1] * across,
        offset[..., 1] * along - offset[..., 0] * across,
    )
    half = window(config)
    column, row = (
        jax.nn.one_hot(jnp.clip(((x / half + 1) / 2 * MAP_CELLS).astype(jnp.int32), 0, MAP_CELLS - 1), MAP_CELLS)
        for x in turned
    )
    return jnp.einsum("asmr,asmc,asm->asrc", row, column, alive.reshape(arenas, 2, n // 2).astype(jnp.float32))


def count_behaviour(
    config: EnvConfig,
    env_params: EnvParams,
    sums: BehaviourSums,
    before: EnvState,
    actions: Float32[Array, "arenas mechs actions"],
    after: EnvState,
    step: Step,
) -> tuple[BehaviourSums, Sight, Float32[Array, "arenas mechs weapons"]]:
    """Return the sums with one decision, its sight and its shots added. Games that were over add nothing."""
    rules, was, now, tally = env_params.rules, before.sim.mechs, after.sim.mechs, after.sim.tally
    running = ~before.episode_over[:, None]
    alive = was.alive & running
    off, hot_after = shutdown(rules, was), shutdown(rules, now)
    sight = look_around(config, rules, was)
    fired = jnp.where(running[..., None], shots(config, was, after), 0.0)
    within = sight.reach | look_around(config, rules, now).reach
    chosen = actions_of(config)
    clean, _ = sanitise(config, chosen.layout(config), actions)
    commands = chosen.decide(config, before, clean).commands
    pulls = jnp.stack([triggers_pressed(config, commands)[w] for w in range(len(WEAPON_NAMES))], -1)
    able = (alive & ~off)[..., None] & _ready(config, was) & jnp.asarray(_carried(config))

    share = was.heat / rules.heat_cap
    vents = commands.vent & alive
    since = jnp.where(vents, 0, jnp.minimum(sums.since_vent + 1, LONG_AGO))
    shuts = alive & hot_after & ~before.was_shutdown
    hot = alive & ~off & (share >= HOT)
    outside = jnp.maximum(zone_distance(after.arena_map, now.position) - after.arena_map.zone[:, None, 2], 0.0)
    lives = now.alive & running
    in_zone = step.info.in_zone & lives
    values = {
        "decisions": alive,
        "reward": step.reward,
        "damage": jnp.where(running, tally.dealt_damage, 0.0),
        "damage_taken": jnp.where(running, tally.took_damage, 0.0),
        "friendly_damage": jnp.where(running, tally.friendly_damage, 0.0),
        "kills": jnp.where(running, tally.kills, 0),
        "deaths": alive & ~now.alive,
        "assists": jnp.where(running, tally.assists, 0),
        "projectile_hits": jnp.where(running, tally.projectile_hits, 0),
        "in_zone": in_zone,
        "zone_distance": jnp.where(alive, outside, 0.0),
        "heat": jnp.where(alive, share, 0.0),
        "over_cap": alive & off,
        "hot": hot,
        "vents_hot": hot & vents,
        "vents": vents,
        "shutdowns": shuts,
        "vented_before": shuts & (since < VENT_MEMORY),
        "knockdowns": alive & (now.fallen > 0) & ~before.was_fallen,
        "legged": alive & (now.leg_hp <= 0) & ~before.was_legged,
    }
    events = jnp.stack([values[name].astype(jnp.float32) for name in EVENTS], -1)

    arenas, n = alive.shape
    bins = jnp.searchsorted(jnp.asarray(RANGE_EDGES), sight.distance, side="right")
    spread = jax.nn.one_hot(bins, len(RANGE_EDGES) + 1) * jnp.where(jnp.isfinite(sight.distance), fired, 0.0)[..., None]
    sides = spread.reshape(arenas, 2, n // 2, *spread.shape[2:]).sum(2)
    stood = in_zone.reshape(arenas, 2, n // 2).any(-1)
    first = jnp.where((sums.first_zone < 0) & stood, after.step_count[:, None], sums.first_zone)
    counted = sums.replace(
        events=sums.events + events,
        components=sums.components + reward_parts(step.info),
        fired=sums.fired + fired,
        fired_in_reach=sums.fired_in_reach + jnp.where(within, fired, 0.0),
        pulls=sums.pulls + (able & pulls),
        chances=sums.chances + (able & sight.reach),
        taken=sums.taken + (able & pulls & sight.reach),
        by_range=sums.by_range + sides,
        positions=sums.positions + _positions(config, sums, after, lives),
        since_vent=since,
        first_zone=first,
    )
    return counted, sight, fired
