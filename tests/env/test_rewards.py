"""Zone, scores, rewards, end of the episode and statistics, without the simulation: worked rules and recorded episodes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax.config import EnvConfig
from echelon_jax.env.episode import (
    BLUE_WINS,
    DRAW,
    ELIMINATION,
    RED_WINS,
    RUNNING,
    TIME_UP,
    ZONE_CONTROL,
    add_score,
    episode_outcome,
    flags,
    tonnage_margin,
    zone_distance,
    zone_tick,
)
from echelon_jax.env.original.rewards import original_rewards, rewards
from echelon_jax.env.rewards import Transition
from echelon_jax.env.state import REASONS, STATISTICS, WINNERS
from echelon_jax.env.statistics import step_statistics
from echelon_jax.parity.recorded.golden import env_states, load_episode
from echelon_jax.sim.ewar import shutdown
from echelon_jax.sim.rules import sim_rules

CONFIG = EnvConfig.original(size_x=60, size_y=60)
ROWS = 64
SMALL = ["lava_1", "match_40_1", "no_comm", "time_up"]
# Event type, the field that names the mech it counts for, the tally it goes to.
COUNTED = [
    ("assist", "painter", "assists"),
    ("paint", "shooter", "paints"),
    ("laser_hit", "shooter", "laser_hits"),
    ("missile_launch", "shooter", "missile_launches"),
    ("kinetic_fire", "shooter", "kinetic_fires"),
    ("ams_intercept", "defender", "ams_intercepts"),
    ("kill", "shooter", "kills"),
]


@pytest.mark.parametrize(
    ("seconds", "dt", "substeps", "steps"),
    [(60, 0.05, 5, 240), (125, 0.05, 5, 500), (40, 0.1, 3, 134), (60, 0.05, 6, 200), (60, 0.1, 3, 200)],
)
def test_the_time_limit_in_steps_is_that_of_the_original(seconds, dt, substeps, steps):
    assert EnvConfig.original(max_episode_seconds=float(seconds), dt=dt, substeps=substeps).max_steps == steps


def test_a_contested_zone_pays_a_floor_and_the_margin():
    made = Scenes(CONFIG, 5)
    made.put(1, "blue_4", 30, 33)
    made.put(2, "blue_0", 28, 30)
    made.put(2, "blue_4", 30, 33)
    made.put(2, "red_1", 32.5, 29)
    made.put(3, "blue_1", 28, 30)
    made.put(3, "red_1", 32, 30)
    made.put(4, "blue_0", 35.0, 30.0)  # on the rim: outside
    made.put(4, "red_0", 30, 30, alive=False)
    made.put(4, "red_3", 30, 33, z=19.0)  # any altitude counts
    state = made.ready()
    zone = zone_tick(made.rules, state.sim.mechs, state.arena_map)
    assert np.allclose(zone.tick, [[0, 0], [1, 0], [0.484375, 0.25], [0.25, 0.25], [0, 1]])
    assert np.allclose(tonnage_margin(zone.tonnage), [0, 1, 0.3125, 0, -1])
    assert np.asarray(zone.contested).tolist() == [False, False, True, True, False]
    assert np.flatnonzero(zone.inside[4]).tolist() == [8]


def test_scores_add_up_as_in_float64():
    config = EnvConfig.original(size_x=60, size_y=60, dt=0.1, substeps=3)
    add = jax.jit(partial(add_score, config))
    score, carry, exact = jnp.zeros((1, 2)), jnp.zeros((1, 2)), np.zeros(2)
    ticks = np.random.default_rng(0).uniform(0, 1, (400, 2)).astype(np.float32)
    for tick in ticks:
        score, carry = add(score, carry, jnp.asarray(tick[None]))
        exact += tick.astype(np.float64) * (0.1 * 3)
    assert np.abs(np.asarray(score, np.float64)[0] + np.asarray(carry, np.float64)[0] - exact).max() < 1e-6


@pytest.mark.parametrize(("dt", "substeps", "steps"), [(0.05, 5, 120), (0.1, 3, 100), (0.05, 6, 100)])
def test_holding_the_zone_alone_wins_in_the_originals_step(dt, substeps, steps):
    config = EnvConfig.original(size_x=60, size_y=60, dt=dt, substeps=substeps)
    made = Scenes(config, 1)
    mechs = made.ready().sim.mechs
    add = jax.jit(partial(add_score, config))
    score, carry, count = jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.zeros(1, jnp.int32)
    for step in range(1, steps + 1):
        score, carry = add(score, carry, jnp.array([[1.0, 0.0]]))
        if step >= steps - 1:
            reason = int(episode_outcome(config, mechs, score, carry, count).reason[0])
            assert reason == (ZONE_CONTROL if step == steps else RUNNING)


def ended(score=(0.0, 0.0), step=10, dead=(), hp=None):
    """Outcome and flags of one arena."""
    made = Scenes(CONFIG, 1)
    for name in dead:
        made.change(0, name, alive=False)
    for name, value in (hp or {}).items():
        made.change(0, name, hp=value)
    mechs = made.ready().sim.mechs
    outcome = episode_outcome(CONFIG, mechs, jnp.array([score], jnp.float32), jnp.zeros((1, 2)), jnp.array([step]))
    terminated, truncated = flags(mechs.alive, outcome.reason)
    return int(outcome.reason[0]), int(outcome.winner[0]), np.asarray(terminated[0]), np.asarray(truncated[0])


BLUE, RED = [f"blue_{i}" for i in range(5)], [f"red_{i}" for i in range(5)]


@pytest.mark.parametrize(
    ("case", "reason", "winner"),
    [
        ({}, RUNNING, DRAW),
        ({"score": (30.0, 12.0)}, ZONE_CONTROL, BLUE_WINS),
        ({"score": (29.99, 30.0)}, ZONE_CONTROL, RED_WINS),
        ({"score": (30.0, 30.0)}, ZONE_CONTROL, RED_WINS),  # an exact tie at the target is red's
        ({"score": (29.99, 0.0)}, RUNNING, DRAW),
        ({"dead": BLUE}, ELIMINATION, RED_WINS),
        ({"dead": RED}, ELIMINATION, BLUE_WINS),
        ({"dead": BLUE + RED}, ELIMINATION, DRAW),
        ({"dead": BLUE, "score": (30.0, 0.0)}, ZONE_CONTROL, BLUE_WINS),  # the zone comes first
        ({"dead": BLUE, "step": 240}, ELIMINATION, RED_WINS),
        ({"step": 239}, RUNNING, DRAW),
        ({"step": 240}, TIME_UP, DRAW),
        ({"step": 240, "score": (3.0, 2.9)}, TIME_UP, BLUE_WINS),
        ({"step": 240, "score": (3.0, 3.0005), "hp": {"red_0": 10.0}}, TIME_UP, BLUE_WINS),
        ({"step": 240, "hp": {"blue_3": 79.0}}, TIME_UP, RED_WINS),
        ({"step": 240, "hp": {"blue_3": 79.9995}}, TIME_UP, DRAW),
    ],
)
def test_the_end_of_an_episode_and_its_winner(case, reason, winner):
    found = ended(**case)
    assert (REASONS[found[0]], WINNERS[found[1]]) == (REASONS[reason], WINNERS[winner])


def test_when_time_is_up_the_dead_are_terminated_and_the_living_truncated():
    _, _, terminated, truncated = ended(step=240, dead=["blue_2"])
    assert np.flatnonzero(terminated).tolist() == [2]
    assert np.array_equal(truncated, ~terminated)


def test_a_decided_game_terminates_everybody_and_a_running_one_only_the_dead():
    _, _, terminated, truncated = ended(score=(30.0, 0.0), step=240, dead=["red_1"])
    assert terminated.all() and not truncated.any()
    _, _, terminated, truncated = ended(dead=["red_1"])
    assert np.flatnonzero(terminated).tolist() == [6] and not truncated.any()


def tallies(episode, tally, ts):
    """The tallies of the steps to rows `ts`, counted from the recorded events."""
    index = {name: i for i, name in enumerate(episode.meta["ids"])}
    shape = (len(ts), episode.config.num_mechs)
    counts = {name: np.zeros(shape, np.int32) for _, _, name in COUNTED}
    damage, died = np.zeros(shape, np.float32), np.zeros(shape, bool)
    for b, t in enumerate(ts):
        for event in episode.events[t - 1]:
            for kind, who, name in COUNTED:
                if event["type"] == kind and event[who] in index:
                    counts[name][b, index[event[who]]] += 1
            if event["type"] in ("laser_hit", "projectile_hit"):
                damage[b, index[event["shooter"]]] += event["damage"]
            if event["type"] == "kill":
                died[b, index[event["target"]]] = True
    return tally.replace(dealt_damage=jnp.asarray(damage), died=jnp.asarray(died), **jax.tree.map(jnp.asarray, counts))


@pytest.mark.parametrize("name", SMALL)
def test_recorded_rewards_flags_and_statistics_are_reproduced(data, name):
    episode = load_episode(data / "episodes" / f"{name}.npz")
    config, rules, steps = episode.config, sim_rules(episode.config), episode.steps
    ts = (list(range(1, steps + 1)) + [steps] * ROWS)[:ROWS]  # one width for all files; the padding is cut off again
    before, after = env_states(episode, [t - 1 for t in ts]), env_states(episode, ts)
    mechs, tally = after.sim.mechs, tallies(episode, after.sim.tally, ts)
    zone = zone_tick(rules, mechs, after.arena_map)
    score, carry = add_score(config, before.score, before.score_carry, zone.tick)
    outcome = episode_outcome(config, mechs, score, carry, after.step_count)
    made = Transition(
        tally=tally,
        zone=zone,
        outcome=outcome,
        was_alive=before.sim.mechs.alive,
        alive=mechs.alive,
        distance_before=zone_distance(before.arena_map, before.sim.mechs.position),
        distance_after=zone_distance(after.arena_map, mechs.position),
        radius=after.arena_map.zone[:, 2],
        shut_down=jnp.zeros_like(mechs.alive),
    )
    earned = rewards(config, original_rewards(), made)
    terminated, truncated = flags(mechs.alive, outcome.reason)
    none = jnp.zeros_like(mechs.alive)
    counted = step_statistics(tally, before, mechs.fallen > 0, mechs.leg_hp <= 0, shutdown(rules, mechs), none, none)
    cut = jax.tree.map(
        lambda leaf: np.asarray(leaf)[:steps], (earned, score + carry, terminated, truncated, outcome, counted)
    )
    earned, total, terminated, truncated, outcome, counted = cut
    recorded = episode.data
    assert np.allclose(earned.total, recorded["rewards"], atol=1e-5, rtol=1e-6)
    theirs = recorded["reward_components"]  # without the pay for a shutdown, our last component
    assert np.allclose(earned.components[..., : theirs.shape[-1]], theirs, atol=1e-5, rtol=1e-6)
    assert not earned.components[..., theirs.shape[-1] :].any()
    assert np.allclose(total, recorded["zone_score"][1:], atol=1e-5)
    assert np.array_equal(terminated, recorded["terminated"])
    assert np.array_equal(truncated, recorded["truncated"] & ~recorded["terminated"])
    expected = episode.meta["outcome"]
    assert (outcome.reason[:-1] == RUNNING).all()
    assert REASONS[int(outcome.reason[-1])] == (expected["reason"] if expected else "running")
    if expected:
        assert WINNERS[int(outcome.winner[-1])] == expected["winner"]
    for i, statistic in enumerate(STATISTICS):
        for j, team in enumerate(("blue", "red")):
            assert counted.sum(0)[i, j] == pytest.approx(episode.meta["episode_stats"][f"{statistic}_{team}"], rel=1e-4)
