"""The events of a replay against those that the original wrote down, and against the simulator's own tallies."""

import itertools

import jax
import numpy as np
import pytest

from echelon_jax.env.trace import small_state
from echelon_jax.parity.recorded.golden import actions_at, env_states, load_episode, noise_for
from echelon_jax.replay.detail import detail_with_noise
from echelon_jax.replay.events import EventCollector, hit_flags, split_beams
from echelon_jax.replay.model import EVENTS, HAZARD, LEG, PAINTED, REAR
from echelon_jax.replay.original import ORIGINAL_EVENTS
from echelon_jax.rules.weapons import WEAPON_NAMES
from echelon_jax.sim.rules import sim_rules

WIDTH = 64
OURS = {ours: theirs for theirs, (ours, _, _) in ORIGINAL_EVENTS.items()} | {"splash": "projectile_hit"}


def told(event, ids):
    """One of the original's events as (type, a, b, weapon, flags)."""
    kind, a, b = ORIGINAL_EVENTS[event["type"]]
    index = {name: i for i, name in enumerate(ids)} | {"lava": HAZARD, "debris": HAZARD}
    if kind == "hit" and "is_leg_hit" not in event:
        kind = "splash"
    flags = sum(
        bit for name, bit in (("is_crit", REAR), ("is_leg_hit", LEG), ("is_painted", PAINTED)) if event.get(name)
    )
    weapon = event.get("weapon") if kind in ("beam", "hit", "splash", "missile", "kinetic", "smoke") else None
    return (
        kind,
        index.get(event.get(a), -1),
        index.get(event.get(b), -1),
        weapon,
        flags if kind in ("beam", "hit") else 0,
    )


def ours(event):
    """One of ours likewise; the original has no assist target, and no kind of ours that it lacks."""
    _, kind, weapon, a, b, flags, _, _ = event
    name = EVENTS[kind]
    shot = name in ("beam", "hit", "splash", "missile", "kinetic", "smoke")
    if name == "cloud":
        a = -1
    return (
        name,
        int(a),
        -1 if name == "assist" else int(b),
        WEAPON_NAMES[weapon] if shot else None,
        flags if name in ("beam", "hit") else 0,
    )


def collectors(episode):
    """A collector per recorded decision, each looked at from the original's own state before it."""
    config, rules = episode.config, sim_rules(episode.config)
    look = jax.jit(lambda states, actions, noise: detail_with_noise(config, rules, states, actions, noise))
    rows = list(range(episode.steps))
    padded = [*rows, *[rows[-1]] * (WIDTH - len(rows))]
    states = env_states(episode, padded)
    _, detail = jax.device_get(look(states, actions_at(episode, padded), noise_for(episode, padded)))
    for row in rows:
        collector = EventCollector(config)
        before = jax.device_get(small_state(states, row))
        collector.take(0, before, np.asarray(states.sim.grid.material[row]), detail, row)
        yield collector


@pytest.mark.parametrize("name", ["match_40_1", "lava_1"])
def test_events_are_those_that_the_original_wrote_down(data, name):
    episode = load_episode(data / "episodes" / f"{name}.npz")
    compared = 0
    for t, collector in enumerate(collectors(episode)):
        mine = [event for event in collector.events if EVENTS[event[1]] in OURS]
        theirs = episode.events[t]
        assert [ours(e) for e in mine] == [told(e, episode.meta["ids"]) for e in theirs], f"decision {t}"
        for event, other in zip(mine, theirs, strict=True):
            if "pos" in other:
                assert np.allclose(event[7], other["pos"], atol=2e-3), (t, other)
            wanted = other.get("radius", other.get("damage"))
            if wanted is not None and other["type"] != "assist":
                assert event[6] == pytest.approx(wanted, abs=2e-3), (t, other)
        compared += len(theirs)
    assert compared > 40


def test_every_way_a_hit_can_count_is_told_from_its_damage():
    for base in (4.0, 8.0, 14.0, 40.0, 50.0):
        for rear, leg, painted in itertools.product((0, 1), repeat=3):
            damage = np.float32(base * (1.5 if rear else 1) * (0.5 if leg else 1) * (1.1 if painted else 1))
            assert hit_flags(float(damage), base) == rear * REAR | leg * LEG | painted * PAINTED


def test_a_laser_and_a_flamer_on_one_mech_are_told_apart_from_their_sum():
    for rear, painted, leg_laser, leg_flamer in itertools.product((0, 1), repeat=4):
        both = (1.5 if rear else 1) * (1.1 if painted else 1)
        laser, flamer = 14 * both * (0.5 if leg_laser else 1), 4 * both * (0.5 if leg_flamer else 1)
        (first, flags), (second, other) = split_beams(float(np.float32(laser + flamer)), 14.0, 4.0)
        assert (first, second) == (pytest.approx(laser), pytest.approx(flamer))
        assert flags == rear * REAR | painted * PAINTED | leg_laser * LEG
        assert other == rear * REAR | painted * PAINTED | leg_flamer * LEG
