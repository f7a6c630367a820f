"""The revised rules of the environment layer: each fails when its switch is inverted, in JAX and in the plain reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.episode import (
    BLUE_WINS,
    DRAW,
    RED_WINS,
    Outcome,
    episode_outcome,
    zone_distance,
    zone_presence,
    zone_tick,
)
from echelon_jax.env.original.rewards import original_rewards, rewards
from echelon_jax.env.rewards import Transition
from echelon_jax.env.state import REWARD_COMPONENTS
from echelon_jax.reference.environment import ReferenceEnv
from echelon_jax.worldgen.bank import generate_worlds

CONFIG = EnvConfig.original(size_x=40, size_y=40)
HEAVY, SCOUT, ENEMY = 0, 4, 6
DAMAGE, KILL = REWARD_COMPONENTS.index("damage"), REWARD_COMPONENTS.index("kill")


@pytest.fixture(scope="module")
def start():
    """Rules and the start of an episode, three arenas in the same world."""
    env = Echelon(CONFIG)
    params = env.params(env.make_bank(generate_worlds(CONFIG, [3])))
    state, _ = env.reset_batch(jax.random.split(jax.random.key(0), 3), params)
    return params.rules, state


def in_the_zone(state, mech, above=0.0):
    """The mechs of the state with one of them moved into the zone, its feet `above` the ground."""
    mechs = state.sim.mechs
    x, y = state.arena_map.zone[:, 0], state.arena_map.zone[:, 1]
    z = mechs.position[:, mech, 2] + above
    return mechs.replace(position=mechs.position.at[:, mech].set(jnp.stack([x, y, z], -1)))


@pytest.mark.parametrize(("above", "holds"), [(0.0, True), (2.9, True), (3.1, False)])
def test_a_mech_holds_the_zone_from_near_its_ground_only(start, above, holds):
    rules, state = start
    mechs = in_the_zone(state, SCOUT, above)
    assert zone_presence(rules, mechs, state.arena_map, grounded=False)[0][:, SCOUT].all()
    assert (zone_presence(rules, mechs, state.arena_map, grounded=True)[0][:, SCOUT] == holds).all()


def test_a_shut_down_mech_does_not_hold_the_zone_where_it_must_be_powered(start):
    rules, state = start
    mechs = in_the_zone(state, HEAVY)
    mechs = mechs.replace(heat=mechs.heat.at[:, HEAVY].set(rules.heat_cap[HEAVY] + 1))
    assert zone_tick(rules, mechs, state.arena_map, grounded=False).tick[0].tolist() == [1.0, 0.0]
    assert zone_tick(rules, mechs, state.arena_map, grounded=True).tick[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("hurt", "winner"), [(ENEMY, BLUE_WINS), (HEAVY, RED_WINS), (None, DRAW)])
def test_an_equal_score_at_the_target_is_decided_by_hit_points_then_a_draw(start, hurt, winner):
    _, state = start
    mechs = state.sim.mechs
    if hurt is not None:
        mechs = mechs.replace(hp=mechs.hp.at[:, hurt].add(-10.0))
    score = jnp.full((3, 2), CONFIG.score_to_win)
    count = jnp.full(3, 5, jnp.int32)
    revised = EnvConfig.original(size_x=40, size_y=40, tie_is_draw=True)
    assert (episode_outcome(CONFIG, mechs, score, jnp.zeros((3, 2)), count).winner == RED_WINS).all()
    assert (episode_outcome(revised, mechs, score, jnp.zeros((3, 2)), count).winner == winner).all()


def test_a_higher_score_at_the_target_wins_under_both_rules(start):
    _, state = start
    score = jnp.asarray([[30.5, 30.25]] * 3)
    for tie_is_draw in (False, True):
        config = EnvConfig.original(size_x=40, size_y=40, tie_is_draw=tie_is_draw)
        outcome = episode_outcome(config, state.sim.mechs, score, jnp.zeros((3, 2)), jnp.full(3, 5, jnp.int32))
        assert (outcome.winner == BLUE_WINS).all()


def test_hurting_ones_own_side_is_charged(start):
    rules, state = start
    tally = state.sim.tally
    # 25 damage and a kill on the own side. The simulation leaves them out of dealt damage and kills where the switch is on.
    tally = tally.replace(
        friendly_damage=tally.friendly_damage.at[:, HEAVY].set(25.0),
        friendly_kills=tally.friendly_kills.at[:, HEAVY].set(1),
    )
    paid = tally.replace(dealt_damage=tally.dealt_damage.at[:, HEAVY].set(25.0), kills=tally.kills.at[:, HEAVY].set(1))
    alive, distance = state.sim.mechs.alive, zone_distance(state.arena_map, state.sim.mechs.position)
    zone = zone_tick(rules, state.sim.mechs, state.arena_map)
    revised = EnvConfig.original(size_x=40, size_y=40, own_team_counts_against=True)
    for config, counts, sign in ((CONFIG, paid, 1), (revised, tally, -1)):
        running = Outcome(jnp.zeros(len(alive), jnp.int32), jnp.zeros(len(alive), jnp.int32))
        radius = state.arena_map.zone[:, 2]
        made = Transition(counts, zone, running, alive, alive, distance, distance, radius, ~alive)
        got = rewards(config, original_rewards(), made).components
        np.testing.assert_allclose(got[:, HEAVY, DAMAGE], sign * 1.25, rtol=1e-6)
        np.testing.assert_allclose(got[:, HEAVY, KILL], sign * 10.0)


@pytest.mark.parametrize("grounded", [False, True])
def test_the_reference_lets_a_hovering_scout_hold_the_zone_only_under_the_original_rule(grounded):
    env = ReferenceEnv(EnvConfig.original(size_x=40, size_y=40, zone_on_the_ground=grounded))
    env.reset(3)
    arena = env.arena
    scout = arena.battle.mechs[SCOUT]
    scout.pos = np.array([arena.zone.x, arena.zone.y, 12.0], np.float32)
    assert arena.zone.holds(scout) is not grounded
    scout.pos = np.array([arena.zone.x, arena.zone.y, 0.9], np.float32)
    assert arena.zone.holds(scout)
    scout.heat = scout.spec.heat_cap + 1
    assert arena.zone.holds(scout) is not grounded


@pytest.mark.parametrize(("tie_is_draw", "winner"), [(False, "red"), (True, "draw")])
def test_the_reference_calls_an_equal_score_at_the_target(tie_is_draw, winner):
    env = ReferenceEnv(EnvConfig.original(size_x=40, size_y=40, tie_is_draw=tie_is_draw))
    env.reset(3)
    env.arena.scores[:] = [30.0, 30.0]
    env.arena.episode_outcome()
    assert env.arena.outcome["winner"] == winner
