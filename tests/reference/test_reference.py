"""The plain reference against recorded episodes, its draws, and its life as an environment for people."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.reference import damage, movement, observation, projectiles, rewards, status, weapons
from echelon_jax.reference.environment import ReferenceEnv
from echelon_jax.reference.golden import Episode, Report, compare_end, compare_events, compare_state, replay
from echelon_jax.reference.noise import MissingDraw, Tape
from echelon_jax.reference.state import Projectile
from echelon_jax.reference.world import VoxelWorld
from echelon_jax.rules import constants
from echelon_jax.rules.weapons import FLAMER, LASER, MISSILE

SMALL = ("time_up", "lava_1", "no_comm")
FROM_RESET = ("match_40_0", "match_40_1", "match_40_2", "match_60_partial", "reset_10v10", "time_up")
SOUND = 3e-8  # one unit in the last place of the sound entries: the logarithm differs between maths libraries


def whole_set() -> list[Path]:
    default = Path(__file__).parents[3] / "shared" / "golden"
    return sorted((Path(os.environ.get("ECHELON_GOLDEN", default)) / "episodes").glob("*.npz"))


def check(report: Report, steps: int) -> None:
    """Everything agreed, and to the last bit but for the observation's sound entries."""
    assert report.mismatches == []
    assert report.steps == steps
    assert {name: worst for name, worst in report.largest.items() if worst > (SOUND if name == "obs" else 0.0)} == {}


@pytest.mark.parametrize("teacher_forced", [True, False], ids=["teacher", "free"])
@pytest.mark.parametrize("name", SMALL)
def test_a_small_recorded_episode_is_followed_to_the_end(data, name, teacher_forced):
    episode = Episode(data / "episodes" / f"{name}.npz")
    check(replay(episode, teacher_forced), episode.steps)


@pytest.mark.golden
@pytest.mark.parametrize("teacher_forced", [True, False], ids=["teacher", "free"])
@pytest.mark.parametrize("path", whole_set() or [None], ids=lambda p: p.stem if p else "absent")
def test_every_recorded_episode_is_followed_to_the_end(golden, path, teacher_forced):
    episode = Episode(path)
    check(replay(episode, teacher_forced), episode.steps)


@pytest.mark.golden
@pytest.mark.parametrize("name", FROM_RESET)
def test_a_seed_and_actions_reproduce_the_original_episode(golden, name):
    """No tape and no recorded state: world, spawns and draws come from the seed alone."""
    episode = Episode(golden / "episodes" / f"{name}.npz")
    follow_from_seed(episode)


def test_a_seed_and_actions_reproduce_a_short_original_episode(data):
    follow_from_seed(Episode(data / "episodes" / "time_up.npz"))


def follow_from_seed(episode: Episode) -> None:
    env, report, world = ReferenceEnv(episode.config), Report(), episode.start_world()
    env.reset(episode.meta["env_config"]["seed"])
    compare_state(report, episode, 0, env.arena, world)
    for t in range(1, episode.steps + 1):
        step = env.step(episode.arrays["actions"][t - 1])
        episode.apply_edits(world, t)
        compare_state(report, episode, t, env.arena, world)
        compare_events(report, f"step {t}", step.info["events"], episode.events[t - 1])
    compare_end(report, episode, env.arena)
    assert report.mismatches == []
    assert max(report.largest.values()) == 0.0


@pytest.mark.golden
@pytest.mark.parametrize("size", [40, 60, 100])
def test_recorded_rays_and_boxes(golden, size):
    with np.load(golden / "queries" / f"rays_{size}.npz") as data:
        arrays = {name: data[name] for name in data.files}
    world = VoxelWorld(arrays["voxels"], np.zeros(arrays["voxels"].shape))
    for end_counts, suffix in ((False, "noend"), (True, "end")):
        for i, (start, end) in enumerate(zip(arrays["start"].tolist(), arrays["end"].tolist(), strict=True)):
            blocked, cell = world.ray(tuple(start), tuple(end), end_counts)
            assert blocked == arrays[f"blocked_{suffix}"][i], (i, suffix)
            assert list(cell or (-1, -1, -1)) == arrays[f"voxel_{suffix}"][i].tolist(), (i, suffix)
    low, high = arrays["aabb_center"] - arrays["aabb_half"], arrays["aabb_center"] + arrays["aabb_half"]
    hits = [world.box_hits(tuple(a), tuple(b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    assert hits == arrays["aabb_collides"].tolist()


# ---- the comparison itself ------------------------------------------------------------------------------------------

PLANTED = [
    (constants, "STEP_UP_HEIGHT", 1.0),
    (constants, "LEG_HIT_BODY_MULTIPLIER", 0.6),
    (constants, "PAINT_BONUS", 0.11),
    (constants, "STABILITY_REGEN", 9.9),
    (constants, "VELOCITY_DAMPING", 0.981),
    (weapons, "HEAT_TRANSFER", {LASER: 6.5, FLAMER: 15.0}),
    (constants, "EWAR_RADIUS", 49.0),
    (rewards, "CONTESTED_FLOOR", 0.2),
    (constants, "LAVA_DAMAGE", 5.1),
    (constants, "SMOKE_CLOUD_RADIUS", 4.1),
    (observation, "TARGETED_RANGE", 6.0),
    (observation, "RESERVED_FRIENDS", 2),
    (projectiles, "before_cell", lambda start, end, cell: end),
    (status, "wreck_roll", lambda mech, lo, hi: 0.0),
    (movement, "wrap_angle", lambda angle: angle),
    (weapons, "valid_focus", lambda battle, shooter: None),
]


@pytest.mark.parametrize(("module", "name", "wrong"), PLANTED, ids=[name for _, name, _ in PLANTED])
def test_a_planted_mistake_is_caught(data, monkeypatch, module, name, wrong):
    monkeypatch.setattr(module, name, wrong)
    episodes = (Episode(data / "episodes" / f"{episode}.npz") for episode in SMALL)
    assert any(replay(episode, teacher_forced=True).mismatches for episode in episodes)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("module", "name", "wrong"), [(damage, "_REAR_COSINE", 0.5), (constants, "REAR_ARC_MULTIPLIER", 1.4)]
)
def test_a_planted_mistake_in_the_rear_arc_is_caught(golden, monkeypatch, module, name, wrong):
    monkeypatch.setattr(module, name, wrong)
    assert replay(Episode(golden / "episodes" / "pairs_0.npz"), teacher_forced=True).mismatches


def test_a_loaded_row_compares_equal_to_itself_and_a_changed_one_does_not(data):
    episode = Episode(data / "episodes" / "no_comm.npz")
    report, arena = Report(), episode.arena(20)
    compare_state(report, episode, 20, arena, episode.world(20))
    assert report.mismatches == [] and max(report.largest.values()) == 0.0
    arena.battle.mechs[3].heat += 1e-12
    arena.battle.world.hp[0, 0, 0] += 1
    compare_state(report, episode, 20, arena, episode.world(20))
    assert [line.split()[2] for line in report.mismatches] == ["heat[3]:", "voxel"]


# ---- draws ----------------------------------------------------------------------------------------------------------


def test_a_tape_gives_what_was_recorded():
    tape = Tape([[2, 0, 1, -1], [1, 0, -1, -1]], [(1, 0, LASER, 0.25)], [(2, 7, 5, 0.75, 0, 0.1)])
    missile = Projectile(MISSILE, 0, 6, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), age=0.05 + 0.05)
    tape.start_substep(1)
    assert tape.move_order([0, 1, 2]) == [2, 0, 1]
    assert tape.hit_height(0, LASER) == 0.25
    tape.start_substep(2)
    assert tape.move_order([0, 1]) == [1, 0]
    assert tape.ams(0, missile, 5) == 0.75


@pytest.mark.parametrize(
    "ask",
    [
        lambda tape, missile: tape.hit_height(1, LASER),
        lambda tape, missile: tape.ams(0, missile, 4),
        lambda tape, missile: tape.move_order([0, 1]),
        lambda tape, missile: (tape.start_substep(3), tape.move_order([0, 1, 2])),
    ],
    ids=["shot", "interception", "order of others", "past the end"],
)
def test_a_tape_never_makes_a_draw_up(ask):
    tape = Tape([[2, 0, 1]], [(1, 0, LASER, 0.25)], [(1, 7, 5, 0.75, 0, 0.1)])
    tape.start_substep(1)
    with pytest.raises(MissingDraw):
        ask(tape, Projectile(MISSILE, 0, 6, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), age=0.1))


# ---- the environment ------------------------------------------------------------------------------------------------


def make_env(**overrides) -> ReferenceEnv:
    return ReferenceEnv(EnvConfig.original(**{"size_x": 30, "size_y": 30} | overrides))


def random_actions(env: ReferenceEnv, seed: int) -> np.ndarray:
    shape = (env.config.num_mechs, action_layout(env.config).size)
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def test_one_seed_gives_one_episode_and_another_seed_another():
    def play(seed):
        env = make_env()
        steps = [env.reset(seed)] + [env.step(random_actions(env, t)) for t in range(3)]
        return np.stack([step.observation for step in steps])

    assert (play(3) == play(3)).all()
    assert (play(3) != play(4)).any()


def test_time_up_truncates_the_living_and_terminates_the_dead():
    env = make_env(max_episode_seconds=1.0)
    env.reset(0)
    victim = env.arena.battle.mechs[0]
    victim.hp = 0.0
    status.kill_if_dead(env.arena.battle, victim, "lava")
    for _ in range(env.config.max_steps):
        step = env.step(np.zeros((10, 26)))
        assert not (step.terminated & step.truncated).any()
    assert step.episode_over and step.info["outcome"]["reason"] == "time_up"
    assert step.terminated.tolist() == [True] + [False] * 9
    assert step.truncated.tolist() == [False] + [True] * 9


def test_a_finished_arena_does_not_change():
    env = make_env(max_episode_seconds=0.5)
    env.reset(0)
    while not (last := env.step(random_actions(env, 0))).episode_over:
        pass
    tick, pos = env.arena.battle.tick, [mech.pos for mech in env.arena.battle.mechs]
    again = env.step(random_actions(env, 1))
    assert env.arena.battle.tick == tick and [mech.pos for mech in env.arena.battle.mechs] == pos
    assert (again.observation == last.observation).all() and (again.truncated == last.truncated).all()
    assert again.episode_over and not again.reward.any() and again.info["events"] == []
    assert again.info["statistics"] == last.info["statistics"]


def test_actions_are_cleaned_in_a_copy_and_bad_ones_counted():
    env = make_env()
    env.reset(0)
    actions = random_actions(env, 0).astype(np.float32) * 3
    actions[7, 2] = np.nan
    kept = actions.copy()
    step = env.step(actions)
    assert np.array_equal(actions, kept, equal_nan=True)
    assert step.info["statistics"]["bad_actions_red"] == 1 and step.info["statistics"]["bad_actions_blue"] == 0
    assert np.isfinite(step.observation).all()


def test_an_infinite_state_reads_as_zero_and_is_counted():
    env = make_env()
    env.reset(0)
    env.arena.battle.mechs[0].heat = float("nan")
    rows = env.arena.look()
    assert np.isfinite(rows).all()
    listed = sum(0 in slots for slots in env.arena.contact_slots[:5])
    assert listed > 0
    assert env.arena.statistics["bad_obs_blue"] == 1 + listed  # once for itself, once for each friend that lists it


def test_rewards_are_the_sum_of_their_components():
    env = make_env()
    env.reset(1)
    for t in range(4):
        step = env.step(random_actions(env, t))
        assert sum(step.info["reward_components"].values()) == pytest.approx(step.reward, abs=1e-12)


@pytest.mark.parametrize("shape", [(10,), (9, 26), (10, 25), (1, 10, 26)])
def test_actions_of_another_shape_are_refused(shape):
    env = make_env()
    env.reset(0)
    with pytest.raises(ValueError, match=r"actions must have shape \(10, 26\)"):
        env.step(np.zeros(shape))


@pytest.mark.parametrize("seed", [-1, 1.5, None, True])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(ValueError, match="seed must be a whole number from 0"):
        make_env().reset(seed)


def test_stepping_before_reset_is_refused():
    with pytest.raises(RuntimeError, match="reset"):
        make_env().step(np.zeros((10, 26)))


def test_a_copied_battle_lives_its_own_life(data):
    episode = Episode(data / "episodes" / "no_comm.npz")
    arena = episode.arena(10)
    twin = arena.battle.copy()
    before = [(mech.pos, mech.hp) for mech in twin.mechs], twin.world.material.copy(), len(twin.projectiles)
    tape = episode.tape()
    for t in range(10, 30):
        arena.advance(episode.arrays["actions"][t], tape)
    assert [(mech.pos, mech.hp) for mech in twin.mechs] == before[0]
    assert (twin.world.material == before[1]).all() and len(twin.projectiles) == before[2]
    assert (arena.battle.world.material != before[1]).any()


def test_the_reference_runs_without_jax():
    code = (
        "import sys, numpy as np\n"
        "sys.modules['jax'] = None\n"  # importing it now fails
        "from echelon_jax.config import EnvConfig\n"
        "from echelon_jax.reference.environment import ReferenceEnv\n"
        "import echelon_jax.reference.golden\n"
        "env = ReferenceEnv(EnvConfig.original(size_x=30, size_y=30)); env.reset(0)\n"
        "print(env.step(np.zeros((10, 26))).observation.shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(10, 589)"
