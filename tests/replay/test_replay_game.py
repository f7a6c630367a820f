"""A recorded game: simulated again to the bit, its events add up to the simulator's own counts, recording changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.state import REASONS
from echelon_jax.env.trace import trace_of
from echelon_jax.evaluation.matches import opponent_player
from echelon_jax.replay.build import CLOSE, Origin, game_params, games_of, make_replay
from echelon_jax.replay.checks import ReplayError
from echelon_jax.replay.file import from_bytes, to_bytes
from echelon_jax.replay.games import play_game
from echelon_jax.replay.model import ALIVE, EVENT, TRACK_UNIT, Replay
from echelon_jax.replay.verify import verify

CONFIG = EnvConfig(size_x=32, size_y=32, max_episode_seconds=15.0)
SEED = 11


@pytest.fixture(scope="module")
def trace():
    player = opponent_player("scripted", CONFIG)
    return play_game(CONFIG, game_params(CONFIG, SEED), player, player, SEED, observe=False)


@pytest.fixture(scope="module")
def replay(trace):
    return make_replay(CONFIG, trace, Origin("scripted", "scripted"))


def copied(replay, **arrays):
    return Replay(dict(replay.header), {**replay.arrays, **arrays})


def test_seed_and_actions_give_the_recorded_states_to_the_bit(replay):
    verdict = verify(from_bytes(to_bytes(replay)))
    assert verdict.exact, verdict
    assert verdict.decisions == replay.decisions > 20


def test_a_changed_action_is_found_where_it_first_matters(replay):
    actions = replay["actions"].copy()
    actions[7, :, 0] = -actions[7, :, 0] + 0.5
    verdict = verify(copied(replay, actions=actions))
    assert verdict.first == 8
    assert "position" in verdict.what


def test_a_changed_state_is_found_in_its_frame(replay):
    heat, digest = replay["heat"].copy(), replay["digest"].copy()
    heat[5, 2] += 1.0
    digest[5] = 0
    verdict = verify(copied(replay, heat=heat, digest=digest))
    assert (verdict.first, verdict.what, verdict.largest) == (5, ("heat",), 1.0)


def test_a_replay_without_actions_cannot_be_verified(replay):
    less = copied(replay)
    del less.arrays["actions"]
    with pytest.raises(ReplayError, match="no actions"):
        verify(less)


def test_a_file_that_names_code_to_run_is_not_simulated(replay):
    header = {**replay.header, "game": {**replay.header["game"], "reward": "os:system"}}
    with pytest.raises(ReplayError, match="reward must be one of original, modern"):
        verify(Replay(header, replay.arrays))


def test_frames_are_the_states_of_the_batch(trace, replay):
    mechs = trace.before.mechs
    for name in ("position", "yaw", "hp", "heat", "stability"):
        assert np.array_equal(replay[name][:-1], getattr(mechs, name)), name
    assert np.array_equal((replay["flags"][:-1] & ALIVE) > 0, mechs.alive)
    assert (replay.header["corrected_decisions"], replay.header["largest_deviation"]) == (0, 0.0)


def counted(replay, kind, who, decision):
    """Events of a kind within a decision, by mech."""
    first, last = decision * CONFIG.substeps, (decision + 1) * CONFIG.substeps
    here = (replay["event_kind"] == EVENT[kind]) & (replay["event_time"] > first) & (replay["event_time"] <= last)
    mechs = replay["event_a" if who == "a" else "event_b"][here]
    return np.bincount(mechs[mechs >= 0], minlength=CONFIG.num_mechs)


def test_events_add_up_to_the_simulators_own_counts_in_every_decision(trace, replay):
    """Tallies of a decision stand in the state after it, which is the one before the next."""
    for d in range(replay.decisions - 1):
        tally = jax.tree.map(lambda x: x[d + 1], trace.before.tally)  # noqa: B023
        for kinds, name, who in (
            (("beam",), "laser_hits", "a"),
            (("missile",), "missile_launches", "a"),
            (("kinetic",), "kinetic_fires", "a"),
            (("smoke",), "smoke_launches", "a"),
            (("paint",), "paints", "a"),
            (("hit", "splash"), "projectile_hits", "a"),
            (("explosion",), "explosions", "a"),
            (("intercept",), "ams_intercepts", "a"),
            (("assist",), "assists", "a"),
            (("kill",), "died", "b"),
        ):
            found = sum(counted(replay, kind, who, d) for kind in kinds)
            assert np.array_equal(found, getattr(tally, name).astype(int)), (d, name)


def test_damage_of_the_events_is_the_damage_dealt(trace, replay):
    hurts = np.isin(replay["event_kind"], [EVENT[k] for k in ("beam", "hit", "splash")])
    shooters = replay["event_a"][hurts]
    dealt = np.bincount(shooters, replay["event_amount"][hurts], minlength=CONFIG.num_mechs)
    lost = replay["hp"][0] - replay["hp"][-1]
    assert dealt.sum() > 50
    # What mechs have lost beyond the shots is hazards alone.
    taken = np.bincount(replay["event_b"][hurts], replay["event_amount"][hurts], minlength=CONFIG.num_mechs)
    assert (lost - taken > -1e-2).all()


def test_every_shot_that_left_a_barrel_has_a_track_from_its_muzzle(replay):
    launches = np.isin(replay["event_kind"], [EVENT[k] for k in ("missile", "kinetic", "smoke")])
    assert launches.sum() == len(replay["track_start"]) > 10
    first = np.cumsum(replay["track_points"]) - replay["track_points"]
    starts = replay["track_position"][first] / TRACK_UNIT
    muzzles = replay["event_position"][launches]
    assert np.array_equal(np.sort(replay["event_time"][launches]), replay["track_start"])
    for start in starts:
        assert np.abs(muzzles - start).max(-1).min() < 0.02


def test_edits_lead_from_the_first_map_to_the_last(trace, replay):
    """The map after the game, by simulating it again without any recording."""
    from echelon_jax.replay.build import resimulate

    *_, last = resimulate(CONFIG, game_params(CONFIG, SEED), trace.actions, trace.key)
    cells = replay["material"].reshape(-1).copy()
    cells[replay["edit_voxel"]] = replay["edit_material"]
    assert np.array_equal(cells, np.asarray(last.after.sim.grid.material[0]))


@pytest.mark.extended
def test_any_arena_of_a_batch_can_be_recorded():
    """Three arenas side by side in one compiled scan; which one is recorded is chosen at the call."""
    env = Echelon(CONFIG)
    params = game_params(CONFIG, SEED)

    @jax.jit
    def play(arena):
        state, _ = env.reset_batch(jax.random.split(jax.random.key(0), 3), params, jnp.zeros(3, jnp.int32))

        def decide(state, key):
            keys = jax.random.split(key, 3)
            actions = jax.vmap(lambda k: jax.random.uniform(k, (10, action_layout(CONFIG).size), minval=-1.0))(keys)
            after, step = env.step_batch(keys, state, actions, params)
            return after, trace_of(arena, state, actions, keys, step.episode_over, step.info.reward_components)

        return jax.lax.scan(decide, state, jax.random.split(jax.random.key(1), CONFIG.max_steps))

    for arena in (0, 2):
        state, rows = play(jnp.int32(arena))
        [game] = games_of(rows)
        replay = make_replay(CONFIG, game)
        assert replay.decisions == int(state.step_count[arena])
        last = np.asarray(state.sim.mechs.position[arena])
        assert np.allclose(replay["position"][-1], last, rtol=CLOSE, atol=CLOSE)
        # The batch is another program, whose floats may round differently; few decisions may need its states put back.
        assert replay.header["corrected_decisions"] <= replay.decisions // 10
        assert replay.header["largest_deviation"] <= CLOSE
        assert REASONS[int(state.reason[arena])] == replay.header["reason"]
