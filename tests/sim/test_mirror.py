"""Swapping the teams and mirroring the map mirrors one decision: under a fair order nothing favours a side or a direction.

Places are odd multiples of 1/64, so that mirroring (y becomes size_y - y) is exact and nothing starts on an edge of a cell.
"""

from functools import cache

import jax
import numpy as np
import pytest

from echelon_jax.env.state import REWARD_COMPONENTS
from echelon_jax.parity.exchange import row_of, stack
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.parity.fuzzing.fuzz import WIDTH, compile_step, default_params
from echelon_jax.parity.fuzzing.shapes import shapes
from echelon_jax.rules.mechs import MECH_CLASSES, roster
from echelon_jax.sim.slots import slots

CONFIG = shapes()["revised_rules partial 2"]  # one of the fuzz's shapes of the first turn: it compiles once
SEEDS = range(700, 700 + 4 * WIDTH)
N, HALF = CONFIG.num_mechs, CONFIG.team_size
SWAP = np.roll(np.arange(N), HALF)  # a mech's counterpart
Y = 1


@cache
def _places():
    """The slots of shots and of clouds whose places a mirrored state takes, slot by slot."""
    table = slots(CONFIG)
    shots = np.zeros(table.count, int)
    for mech in range(N):
        shots[table.mech == mech] = np.flatnonzero(table.mech == SWAP[mech])
    clouds = (SWAP[:, None] * table.clouds + np.arange(table.clouds)).reshape(-1)
    return shots, clouds


def who(index):
    """Mech numbers (-1 none) as seen from the other side."""
    return np.where(index >= 0, SWAP[np.maximum(index, 0)], -1).astype(index.dtype)


def across(vectors):
    """Directions [..., 3] mirrored."""
    return (vectors * np.array([1, -1, 1], vectors.dtype)).astype(vectors.dtype)


def over(points):
    """Points [..., 3] mirrored."""
    mirrored = points.copy()
    mirrored[..., Y] = CONFIG.size_y - points[..., Y]
    return mirrored


def swapped_mechs(mechs):
    m = jax.tree.map(lambda leaf: leaf[SWAP], mechs)
    return m.replace(
        position=over(m.position),
        velocity=across(m.velocity),
        yaw=-m.yaw,
        last_painter=who(m.last_painter),
        focus=who(m.focus),
    )


def swapped_grid(grid):
    cells = (-1, CONFIG.size_y, CONFIG.size_x)

    def turned(leaf):
        return np.ascontiguousarray(leaf.reshape(cells)[:, ::-1]).reshape(-1)

    return jax.tree.map(turned, grid)


def mirrored_state(state):
    """An arena with teams swapped and the map mirrored; the maps of the original's observation stay as they are."""
    shots_from, clouds_from = _places()
    sim = state.sim
    shots = jax.tree.map(lambda leaf: leaf[shots_from], sim.projectiles)
    tally = jax.tree.map(lambda leaf: leaf[SWAP], sim.tally)
    smoke = jax.tree.map(lambda leaf: leaf[clouds_from], sim.smoke)
    everyone = {
        name: getattr(state, name)[SWAP]
        for name in ("messages", "sort_mode", "hostile_only", "was_fallen", "was_legged", "was_shutdown")
    }
    return state.replace(
        **everyone,
        sim=sim.replace(
            mechs=swapped_mechs(sim.mechs),
            tally=tally.replace(damage_direction=across(tally.damage_direction)),
            projectiles=shots.replace(
                position=over(shots.position), velocity=across(shots.velocity), target=who(shots.target)
            ),
            smoke=smoke.replace(position=over(smoke.position)),
            grid=swapped_grid(sim.grid),
        ),
        arena_map=state.arena_map.replace(zone=over(state.arena_map.zone[[0, 1, 2]])),
        contact_slots=who(state.contact_slots[SWAP]),
        score=state.score[::-1].copy(),
        score_carry=state.score_carry[::-1].copy(),
        statistics=state.statistics[:, ::-1].copy(),
        winner=np.where(state.reason > 0, np.array([1, 0, 2])[state.winner], state.winner).astype(state.winner.dtype),
    )


def mirrored(case):
    """The case seen in the mirror."""
    heavies = len(slots(CONFIG).heavy)
    noise = case.noise
    actions = case.actions[SWAP].copy()
    actions[:, [1, 3]] *= -1  # strafe and turn
    return case.replace(
        state=mirrored_state(case.state),
        actions=actions,
        noise=noise.replace(
            ams=np.roll(noise.ams, heavies // 2, 1),
            hit_height=noise.hit_height[:, SWAP],
            move_order=who(noise.move_order),
            fire_order=who(noise.fire_order),
            wreck=noise.wreck[:, SWAP],
        ),
    )


def on_the_lattice(case):
    """The case with mechs, shots, clouds and zone at odd multiples of 1/64."""
    half = np.array([MECH_CLASSES[c].size for c in roster(CONFIG.num_packs).mech_class]) / 2
    size = np.array([CONFIG.size_x, CONFIG.size_y, np.inf])

    def odd(points):
        return (2 * np.floor(points.astype(np.float64) * 32) + 1) / 64

    sim = case.state.sim
    low = np.array([1 / 64, 1 / 64, 0])
    position = np.clip(odd(sim.mechs.position), odd(half) + low, size - odd(half) - low)
    position[:, 2] = sim.mechs.position[:, 2]
    zone = case.state.arena_map.zone
    return case.replace(
        state=case.state.replace(
            sim=sim.replace(
                mechs=sim.mechs.replace(position=position.astype(np.float32)),
                projectiles=sim.projectiles.replace(position=odd(sim.projectiles.position).astype(np.float32)),
                smoke=sim.smoke.replace(position=odd(sim.smoke.position).astype(np.float32)),
            ),
            arena_map=case.state.arena_map.replace(zone=odd(zone).astype(np.float32)),
        )
    )


@pytest.fixture(scope="module")
def both():
    """Result of each case, and of its mirror image: (case, state after, step, mirrored state after, mirrored step)."""
    step, params = compile_step(CONFIG), default_params(CONFIG)
    rows = []
    for start in range(SEEDS.start, SEEDS.stop, WIDTH):
        cases = [on_the_lattice(make_case(CONFIG, seed)) for seed in range(start, start + WIDTH)]
        made = []
        for some in (cases, [mirrored(case) for case in cases]):
            full = stack(some)
            made.append(jax.device_get(step(params, full.state, full.actions, full.noise)))
        (state, result), (other, reflection) = made
        rows += [
            (case, row_of(state, b), row_of(result, b), row_of(other, b), row_of(reflection, b))
            for b, case in enumerate(cases)
        ]
    return rows


def unlike(expected, found):
    """Leaves that differ: integers at all, floats by more than 1e-4."""
    names = []
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(found), strict=True):
        floats = np.issubdtype(a.dtype, np.floating)
        if not (np.allclose(a, b, rtol=0, atol=1e-4) if floats else np.array_equal(a, b)):
            names.append(jax.tree_util.keystr(path))
    return names


def test_mirroring_twice_changes_nothing():
    case = on_the_lattice(make_case(CONFIG, SEEDS[0]))
    again = mirrored(mirrored(case))
    for a, b in zip(jax.tree.leaves(case), jax.tree.leaves(again), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def test_a_decision_is_mirrored_with_the_map_and_the_teams(both):
    """State and shots, voxels, statistics and end; what the observation shows has its own tests."""
    wrong = {}
    for seed, (_, state, _, other, _) in zip(SEEDS, both, strict=True):
        names = unlike(mirrored_state(state).replace(contact_slots=other.contact_slots), other)
        if names:
            wrong[seed] = names
    assert wrong == {}


def test_rewards_are_mirrored_with_the_map_and_the_teams(both):
    for _, _, step, _, reflection in both:
        np.testing.assert_allclose(reflection.reward, step.reward[SWAP], rtol=0, atol=1e-4)
        np.testing.assert_allclose(
            reflection.info.reward_components, step.info.reward_components[SWAP], rtol=0, atol=1e-4
        )
        np.testing.assert_array_equal(reflection.terminated, step.terminated[SWAP])
    paid = sum(np.abs(step.info.reward_components).sum(0) for _, _, step, _, _ in both)
    assert (paid[[REWARD_COMPONENTS.index(name) for name in ("approach", "zone", "damage", "kill", "death")]] > 0).all()


def test_the_mirrored_decisions_hold_fights(both):
    tallies = [state.sim.tally for _, state, _, _, _ in both]
    for name in ("laser_hits", "projectile_hits", "explosions", "kinetic_fires", "died", "paints"):
        assert sum(getattr(tally, name).sum() for tally in tallies) > 0, name
