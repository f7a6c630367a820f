"""The reward "modern": the worked examples of docs/rewards.md, its bounds, and the reference against the JAX environment."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.episode import BLUE_WINS, DRAW, ELIMINATION, RED_WINS, Outcome, Zone
from echelon_jax.env.modern.rewards import (
    check_gamma,
    check_result,
    farming_limit,
    modern_rewards,
    perpetuity,
    potential,
    rewards,
)
from echelon_jax.env.original.actions import decide
from echelon_jax.env.original.rewards import original_rewards
from echelon_jax.env.rewards import Transition
from echelon_jax.env.state import REWARD_COMPONENTS, EnvParams
from echelon_jax.parity.exchange import SlotNoise, row_of, stack, to_reference
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.reference.environment import ReferenceEnv
from echelon_jax.reference.noise import LiveNoise
from echelon_jax.rules.materials import LAVA
from echelon_jax.rules.rewards import modern_weights
from echelon_jax.rules.weapons import GAUSS, MISSILE
from echelon_jax.sim.slots import BARREL, TUBE
from echelon_jax.sim.step import empty_tally, simulate

CONFIG = EnvConfig.original(size_x=60, size_y=60, reward="modern")
NAMES = [f"M{i}" for i in range(1, 16)]
M1, M2, M3, M4, M5, M6, M7, M8, M9, M10, M11, M12, M13, M14, M15 = range(15)
PAINT = 90
OFF = -0.75  # what a shutdown pays here; by default it pays nothing
WIDTH = 24
APPROACH, ZONE, DAMAGE, KILL, ASSIST, DEATH, TERMINAL, SHUTDOWN = range(len(REWARD_COMPONENTS))
PAGE = Path(__file__).parents[2] / "docs" / "rewards.md"
ROW = re.compile(r"^\| (M\d+) \| [^|]* \| (\w+) \| (\w+) \| (-?[\d.]+) \|$", re.MULTILINE)
EXAMPLES = [(case, mech, part, float(value)) for case, mech, part, value in ROW.findall(PAGE.read_text())]


def flying(made, arena, shooter, position, velocity, weapon=GAUSS, launcher=BARREL, age=0):
    """A shot on its way, by default a gauss slug, in the first slot of the shooter's launcher."""
    shots, table = made.state.sim.projectiles, made.slots
    slot = int(np.flatnonzero((table.mech == made.mech(shooter)) & (table.launcher == launcher))[0])
    shots.alive[arena, slot], shots.weapon[arena, slot], shots.age[arena, slot] = True, weapon, age
    shots.position[arena, slot], shots.velocity[arena, slot] = position, velocity
    cooldown = "kinetic_cooldown" if launcher == BARREL else "tube_cooldown"  # it has just fired
    getattr(made.state.sim.mechs, cooldown)[arena, made.mech(shooter)] = int(made.rules.cooldown[weapon]) - 1


def scenes():
    """The scenes of docs/rewards.md, one decision step each, filled up with idle arenas."""
    from echelon_jax.sim.slots import slots

    made = Scenes(CONFIG, WIDTH)
    made.slots = slots(CONFIG)
    acts = made.actions()
    made.put(M1, "blue_4", 10, 30)
    made.act(acts, M1, "blue_4", forward=1)
    made.put(M1, "red_4", 30, 10)
    made.put(M2, "blue_1", 30, 30)
    for name, x, y in (("blue_1", 28, 30), ("blue_2", 32, 30), ("blue_4", 30, 33)):
        made.put(M3, name, x, y)
    for name, x, y in (("blue_0", 28, 30), ("blue_4", 30, 33), ("red_1", 32.5, 29)):
        made.put(M4, name, x, y)
    painted = {"painted": PAINT, "last_painter": 4, "yaw": np.pi}
    for arena, hp in ((M5, 80), (M6, 1)):
        made.put(arena, "blue_1", 10.3, 30.2)
        made.put(arena, "red_3", 14.3, 30.2, yaw=np.pi, hp=hp)
        made.act(acts, arena, "blue_1", primary=1)
    for arena, hp in ((M7, 5), (M8, 200)):
        made.put(arena, "blue_1", 10.3, 10.2)
        made.put(arena, "red_0", 15.3, 10.2, **painted, hp=hp)
        made.act(acts, arena, "blue_1", primary=1)
    made.put(M15, "blue_1", 10.3, 10.2)
    made.put(M15, "red_0", 15.3, 10.2, **{**painted, "last_painter": 1}, hp=5)
    made.act(acts, M15, "blue_1", primary=1)
    made.put(M9, "blue_0", 10, 30)
    made.put(M9, "red_4", 19, 30, yaw=np.pi)
    made.put(M9, "blue_4", 19, 31.3, hp=10)
    flying(made, M9, "blue_0", (16, 30.0, 1.0), (40, 0, 0))
    for name in ("blue_2", "red_0", "red_1", "red_2", "red_4"):
        made.change(M10, name, alive=False)
    made.put(M10, "blue_1", 10.3, 30.2)
    made.put(M10, "red_3", 14.3, 30.2, yaw=np.pi, hp=5)
    made.act(acts, M10, "blue_1", primary=1)
    made.state.step_count[M11] = CONFIG.max_steps - 1
    made.change(M11, "blue_2", alive=False)
    made.change(M11, "red_2", alive=False)
    made.put(M12, "blue_1", 30, 30)
    made.change(M12, "blue_3", alive=False)
    made.state.score[M12, 0] = CONFIG.score_to_win - 0.125
    made.box(M13, range(8, 13), range(8, 13), range(1), LAVA)
    made.put(M13, "blue_1", 10.5, 10.5, hp=0.5)
    made.put(M14, "blue_0", 10, 50, alive=False)
    made.put(M14, "red_4", 19, 30, yaw=np.pi)
    flying(made, M14, "blue_0", (16, 30.0, 1.0), (40, 0, 0))
    return made, acts


def by_reference(state, actions, noise, config=CONFIG):
    """One decision step in the reference: the arena after it, and the components [mechs, components]."""
    loaded = to_reference(config, state)
    loaded.arena.weights = loaded.arena.weights._replace(shutdown=OFF)
    step = loaded.arena.advance(actions, SlotNoise(config, noise, loaded))
    return loaded.arena, step.components


@pytest.fixture(scope="module")
def step():
    """The compiled step of `WIDTH` arenas."""
    env = Echelon(CONFIG)
    params = EnvParams(
        rules=Scenes(CONFIG, 1).rules, rewards=env.default_rewards().replace(shutdown=jnp.float32(OFF)), bank=None
    )
    run = jax.jit(env.step_batch_with_noise)
    return lambda state, actions, noise: jax.device_get(run(noise, state, jnp.asarray(actions), params))


@pytest.fixture(scope="module")
def played():
    """All scenes in the reference."""
    made, acts = scenes()
    state, noise = made.ready(), made.noise()
    rows = [by_reference(row_of(state, b), acts[b], row_of(noise, b)) for b in range(len(NAMES))]
    return made, rows


def test_every_scene_has_an_example():
    assert {case for case, *_ in EXAMPLES} == set(NAMES)


@pytest.mark.parametrize(("case", "mech", "part", "value"), EXAMPLES)
def test_worked_examples(played, case, mech, part, value):
    made, rows = played
    found = rows[NAMES.index(case)][1][made.mech(mech), REWARD_COMPONENTS.index(part)]
    assert found == pytest.approx(value, abs=5e-6)


def test_jax_pays_the_worked_examples_like_the_reference(played, step):
    made, acts = scenes()
    _, result = step(made.ready(), acts, made.noise())
    for b, (_, components) in enumerate(played[1]):
        np.testing.assert_allclose(result.info.reward_components[b], components, atol=1e-5, err_msg=NAMES[b])
    np.testing.assert_allclose(result.reward, result.info.reward_components.sum(-1), atol=1e-5)


def test_jax_pays_random_steps_like_the_reference(step):
    agreeing, seen = 0, np.zeros(len(REWARD_COMPONENTS))
    counts = np.zeros(3)
    for start in range(0, 4 * WIDTH, WIDTH):
        cases = [make_case(CONFIG, seed) for seed in range(start, start + WIDTH)]
        batch = stack(cases)
        state, result = step(batch.state, batch.actions, batch.noise)
        for b, case in enumerate(cases):
            arena, components = by_reference(case.state, case.actions, case.noise)
            mechs, tally = arena.battle.mechs, row_of(state.sim.tally, b)
            if not np.allclose(state.sim.mechs.hp[b], [m.hp for m in mechs], atol=1e-2):
                continue  # a hit fell on the other side of an edge: the physics' own tests episode_outcome that
            agreeing += 1
            np.testing.assert_allclose(result.info.reward_components[b], components, atol=1e-4, err_msg=str(start + b))
            for i, name in enumerate(("effective_damage", "friendly_effective_damage", "kill_assists")):
                theirs = [getattr(m, name) for m in mechs]
                np.testing.assert_allclose(getattr(tally, name), theirs, atol=1e-3, err_msg=name)
                counts[i] += sum(theirs)
            seen += np.abs(components).sum(0)
    assert agreeing >= 3.8 * WIDTH
    assert (seen > 0).all() and (counts > 0).all(), "every component and every count must have occurred"


def test_a_finished_arena_pays_nothing_more(step):
    made, acts = scenes()
    made.state.episode_over[:], made.state.reason[:] = True, ELIMINATION
    _, result = step(made.ready(), acts, made.noise())
    assert not result.reward.any() and not result.info.reward_components.any()


# ---- single rules, on made-up facts -----------------------------------------------------------------------------------


def pay(
    config=CONFIG,
    weights=None,
    tally=None,
    inside=(),
    tick=(0.0, 0.0),
    reason=0,
    winner=DRAW,
    dead=(),
    off=(),
    **distance,
):
    """Components [mechs, 7] of one arena of `config` with these facts."""
    n = config.num_mechs
    spread = {"distance_before": np.full(n, 20.0), "distance_after": np.full(n, 20.0)} | distance
    alive = np.ones(n, bool)
    alive[list(dead)] = False
    held = np.zeros(n, bool)
    held[list(inside)] = True
    zone = Zone(jnp.asarray(held)[None], jnp.zeros((1, 2)), jnp.asarray([tick], jnp.float32), jnp.zeros(1, bool))
    made = Transition(
        tally=empty_tally(config, 1) if tally is None else tally,
        zone=zone,
        outcome=Outcome(jnp.asarray([reason]), jnp.asarray([winner])),
        was_alive=jnp.asarray(alive)[None],
        alive=jnp.asarray(alive)[None],
        radius=jnp.full(1, 5.0),
        shut_down=jnp.zeros((1, n), bool).at[0, jnp.asarray(off, jnp.int32)].set(True),
        **{k: jnp.asarray(v, jnp.float32)[None] for k, v in spread.items()},
    )
    got = rewards(config, modern_rewards(config) if weights is None else weights, made)
    np.testing.assert_allclose(got.total, got.components.sum(-1), rtol=1e-5, atol=1e-6)
    return np.asarray(got.components[0], np.float64)


def test_a_shutdown_pays_its_weight_to_the_mech_that_shut_down():
    weights = modern_rewards(CONFIG).replace(shutdown=jnp.float32(OFF))
    paid = pay(weights=weights, off=[1, 3])[:, SHUTDOWN]
    assert paid.tolist() == [0, OFF, 0, OFF, 0, 0, 0, 0, 0, 0]
    assert not pay(off=[1, 3])[:, SHUTDOWN].any(), "it pays nothing unless somebody sets the weight"


def test_stacking_does_not_multiply_the_zones_pay():
    alone = pay(inside=[1], tick=(1.0, 0.0))[:, ZONE]
    crowd = pay(inside=[0, 1, 2, 4], tick=(1.0, 0.0))[:, ZONE]
    assert alone.sum() == pytest.approx(crowd.sum()) == pytest.approx(0.025)
    assert crowd[3] == 0 and crowd[0] == crowd[4] == pytest.approx(alone[1] / 4)


@pytest.mark.parametrize(("dt", "substeps"), [(0.05, 5), (0.1, 3), (0.05, 20)])
def test_the_zone_pays_by_the_second(dt, substeps):
    config = EnvConfig.original(size_x=60, size_y=60, reward="modern", dt=dt, substeps=substeps)
    paid = pay(config, inside=[1], tick=(1.0, 0.0))[1, ZONE]
    assert paid == pytest.approx(0.1 * dt * substeps)


@pytest.mark.parametrize("counts_against", [False, True])
def test_kills_and_damage_of_the_own_side_are_charged_once_under_either_switch(counts_against):
    config = EnvConfig.original(size_x=60, size_y=60, reward="modern", own_team_counts_against=counts_against)
    n = config.num_mechs
    kills = np.zeros((1, n), np.int32)
    friendly = kills.copy()
    kills[0, 0], friendly[0, 0] = (
        (2 if counts_against else 3),
        1,
    )  # `kills` holds the own side's too where the switch is off
    worth, own = np.zeros((1, n), np.float32), np.zeros((1, n), np.float32)
    worth[0, 0], own[0, 0] = 30.0, 40.0
    tally = empty_tally(config, 1).replace(
        kills=jnp.asarray(kills),
        friendly_kills=jnp.asarray(friendly),
        effective_damage=jnp.asarray(worth),
        friendly_effective_damage=jnp.asarray(own),
    )
    got = pay(config, tally=tally)[0]
    assert got[KILL] == pytest.approx(0.5 * (2 - 1)) and got[DAMAGE] == pytest.approx(0.0025 * (30 - 40))


@pytest.mark.parametrize(("winner", "blue", "red"), [(BLUE_WINS, 10, -10), (RED_WINS, -10, 10), (DRAW, 0, 0)])
def test_everybody_gets_the_result_once_the_dead_included(winner, blue, red):
    over = pay(reason=ELIMINATION, winner=winner, dead=[2, 7])[:, TERMINAL]
    assert over.tolist() == [blue] * 5 + [red] * 5
    assert not pay(winner=winner)[:, TERMINAL].any()  # while it runs, a winner means nothing


def test_the_shaping_of_a_game_is_what_its_first_state_decides():
    """Discounted, every walk adds up to -Phi(start): wherever it goes, whether the mech dies or the game ends."""
    rng = np.random.default_rng(0)
    weights = modern_rewards(CONFIG)
    way = rng.uniform(0, 60, (21, CONFIG.num_mechs)).astype(np.float32)
    way[0] = np.linspace(0, 50, CONFIG.num_mechs)
    deaths = rng.integers(3, 40, CONFIG.num_mechs)  # some live on to the end
    total, gamma = np.zeros(CONFIG.num_mechs), float(weights.gamma)
    radius, alive = jnp.full(1, 5.0), jnp.ones((1, CONFIG.num_mechs), bool)
    outcomes = [Outcome(jnp.asarray([reason]), jnp.asarray([DRAW])) for reason in (0, ELIMINATION)]
    zone = Zone(~alive, jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.zeros(1, bool))
    tally = empty_tally(CONFIG, 1)
    for t in range(20):
        was, now = jnp.asarray(deaths > t)[None], jnp.asarray(deaths > t + 1)[None]
        ends = jnp.asarray(way[t])[None], jnp.asarray(way[t + 1])[None]
        got = rewards(CONFIG, weights, Transition(tally, zone, outcomes[t == 19], was, now, *ends, radius, ~alive))
        total += gamma**t * np.asarray(got.components[0, :, APPROACH], np.float64)
    first = potential(CONFIG, weights, jnp.asarray(way[0])[None], radius, alive)[0]
    np.testing.assert_allclose(total, -np.asarray(first), atol=1e-5)


def test_the_potential_is_highest_anywhere_in_the_zone_and_falls_with_the_way_to_its_rim():
    weights = modern_rewards(CONFIG)
    way = jnp.asarray([[0.0, 4.9, 5.0, 6.0, 30.0, 59.0]])
    value = np.asarray(potential(CONFIG, weights, way, jnp.full(1, 5.0), jnp.ones((1, 6), bool)))[0]
    assert (value[:3] == 1).all() and (np.diff(value[2:]) < 0).all() and (value >= 0).all()
    assert np.diff(value[2:4])[0] == pytest.approx(-1 / np.hypot(60, 60), rel=1e-5)


# ---- size of the result -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packs", [1, 2, 4])
def test_a_win_pays_more_than_a_game_farmed_dry(packs):
    config = EnvConfig.original(size_x=100, size_y=100, num_packs=packs, reward="modern")
    weights = modern_rewards(config)
    # One pack: 60 + 80 + 2 x 150 + 200 hit points; five lives and their assists; the zone until the score ends the game.
    farmed = 0.0025 * 640 + 5 * (0.5 + 0.25) + 0.1 * (30 + 0.25)
    assert farming_limit(config, weights) == pytest.approx(farmed, rel=1e-5)
    check_result(config, weights)
    assert float(weights.win) + float(weights.death) - float(weights.draw) > farmed


def test_no_random_game_that_is_not_won_pays_as_much_as_an_instant_win():
    rng = np.random.default_rng(1)
    w, steps = modern_weights(), CONFIG.max_steps
    instant = w.win + w.death
    for _ in range(500):
        zone = rng.random(steps) < rng.random()  # alone in the zone, in these steps
        zone &= zone.cumsum() * CONFIG.decision_seconds <= CONFIG.score_to_win
        income = w.zone * CONFIG.decision_seconds * zone
        hits, kills = rng.integers(0, steps, 64), rng.integers(0, steps, 5)
        np.add.at(income, hits, w.damage * 640 / 64)
        np.add.at(income, kills, w.kill + w.assist)
        assert (income * w.gamma ** np.arange(steps)).sum() + max(w.draw, w.loss) < instant


def test_putting_off_a_win_to_stay_in_the_zone_never_pays():
    w, step = modern_weights(), CONFIG.decision_seconds
    for k in range(1, 240):
        stayed = w.zone * step * (w.gamma ** np.arange(k)).sum() + w.gamma**k * w.win
        assert stayed < w.win
    assert perpetuity(CONFIG, modern_rewards(CONFIG)) == pytest.approx(2.5, rel=1e-4)
    # The bound is sharp: with a win of less than that, staying pays.
    small = 0.9 * w.zone * step / (1 - w.gamma)
    assert w.zone * step + w.gamma * small > small


@pytest.mark.parametrize(("change", "named"), [({"win": 8.0}, "win \\+ death"), ({"gamma": 0.999}, "win must")])
def test_a_win_that_is_too_small_is_refused(change, named):
    weights = modern_rewards(CONFIG).replace(**{k: jnp.float32(v) for k, v in change.items()})
    with pytest.raises(ValueError, match=named):
        check_result(CONFIG, weights)


def test_a_win_that_is_just_large_enough_is_not_refused_for_its_rounding():
    """0.3 a second for ever is worth 15 at a gamma of 0.995, and more than that by float32's 1 - gamma."""
    change = {"win": 15.0, "zone": 0.3, "gamma": 0.995}
    weights = modern_rewards(CONFIG).replace(**{k: jnp.float32(v) for k, v in change.items()})
    assert perpetuity(CONFIG, weights) > 15.0
    check_result(CONFIG, weights)


def test_a_shaping_with_another_discount_than_the_learners_is_refused():
    check_gamma(modern_rewards(CONFIG), 0.99)
    check_gamma(modern_rewards(CONFIG, gamma=0.997), 0.997)
    with pytest.raises(ValueError, match=r"PPO, 0\.995, got 0\.99$"):
        check_gamma(modern_rewards(CONFIG), 0.995)


def test_weights_of_the_other_reward_are_refused():
    with pytest.raises(ValueError, match="ModernRewardWeights for reward 'modern', got RewardWeights"):
        Echelon(CONFIG).params(None, rewards=original_rewards())
    with pytest.raises(ValueError, match="RewardWeights for reward 'original', got ModernRewardWeights"):
        Echelon(EnvConfig.original()).params(None, rewards=modern_rewards())


def test_the_original_reward_carries_no_counts_of_the_modern_one():
    assert empty_tally(EnvConfig.original(), 1).effective_damage is None


# ---- assists where a team has several packs ---------------------------------------------------------------------------------

TWO_PACKS = EnvConfig.original(size_x=60, size_y=60, num_packs=2, reward="modern")
SHOTS = ("laser", "slug", "splash")
OWN, OTHER = "blue_4", "blue_9"  # the scouts of the killer's pack and of the other one


def two_pack_scenes():
    """Each way of killing, of a mech painted by the killer's pack (even arenas) and by the other pack (odd ones)."""
    from echelon_jax.sim.slots import slots

    made = Scenes(TWO_PACKS, 2 * len(SHOTS))
    made.slots = slots(TWO_PACKS)
    acts = made.actions()
    for arena in range(made.count):
        painted = {"painted": PAINT, "last_painter": made.mech((OWN, OTHER)[arena % 2]), "hp": 1}
        shot = SHOTS[arena // 2]
        if shot == "laser":
            made.put(arena, "blue_1", 10.3, 30.2)
            made.put(arena, "red_1", 14.3, 30.2, yaw=np.pi, **painted)
            made.act(acts, arena, "blue_1", primary=1)
        elif shot == "slug":
            made.put(arena, "blue_0", 10, 30)
            made.put(arena, "red_1", 19, 30, yaw=np.pi, **painted)
            flying(made, arena, "blue_0", (16, 30.0, 1.0), (40, 0, 0))
        else:  # a missile strikes a stone beside the target
            made.put(arena, "blue_0", 10, 30)
            made.put(arena, "red_1", 22.6, 30.5, **painted)
            made.box(arena, range(20, 21), range(30, 31), range(1))
            flying(made, arena, "blue_0", (20.5, 30.5, 3.5), (0, 0, -12), MISSILE, TUBE, 9)
    return made, acts


def test_a_kill_pays_the_painter_of_the_killers_pack_and_no_other():
    made, acts = two_pack_scenes()
    state, noise = made.ready(), made.noise()
    commands = decide(TWO_PACKS, state, jnp.asarray(acts)).commands
    tally = jax.jit(simulate, static_argnums=0)(TWO_PACKS, made.rules, state.sim, commands, noise).tally
    victim, painters = made.mech("red_1"), [made.mech(OWN), made.mech(OTHER)]
    for arena in range(made.count):
        where = f"{SHOTS[arena // 2]}, painted by {(OWN, OTHER)[arena % 2]}"
        mechs = by_reference(row_of(state, arena), acts[arena], row_of(noise, arena), TWO_PACKS)[0].battle.mechs
        expected = np.zeros(TWO_PACKS.num_mechs, int)
        expected[painters[0]] = arena % 2 == 0
        assert tally.died[arena, victim] and mechs[victim].died, where
        assert tally.kill_assists[arena].tolist() == [m.kill_assists for m in mechs] == expected.tolist(), where


# ---- what teams earn ------------------------------------------------------------------------------------------------------


def game(blue, reward="modern", seconds=6.0):
    """Per-component sums of blue over a game in the reference against a red team that does nothing.

    `blue` is "sit" (one mech holds the zone), "crowd" (all five do), "win" (one mech shoots all the reds, who have five hit
    points each) or "farm" (the same, but the last red is spared and holds the zone).
    """
    config = EnvConfig.original(size_x=60, size_y=60, reward=reward, max_episode_seconds=seconds)
    made = Scenes(config, 1)
    spots = [(26.3, 30), (30, 26.6), (30, 33.4), (33.3, 31.2), (33.3, 28.8)]
    acts = made.actions()
    if blue in ("sit", "crowd"):
        for i in range(1 if blue == "sit" else 5):
            made.put(0, f"blue_{i}", *spots[i])
    else:
        made.put(0, "blue_1", 4, 20.1)
        for i, angle in enumerate(np.radians([-50, -25, 0, 25, 50])):
            made.put(0, f"red_{i}", 4 + 7 * np.cos(angle), 20.1 + 7 * np.sin(angle), hp=5)
        if blue == "farm":
            made.put(0, "red_4", 30, 30, hp=60)
        made.act(acts, 0, "blue_1", primary=1)
    row, noise = row_of(made.ready(), 0), LiveNoise.from_seed(0)
    env = ReferenceEnv(config)
    env.start(to_reference(config, row).arena, noise)
    total = np.zeros(len(REWARD_COMPONENTS))
    while True:
        result = env.step(acts[0])
        total += [result.info["reward_components"][name][:5].sum() for name in REWARD_COMPONENTS]
        if result.episode_over:
            return total, result.info["outcome"]


def test_sitting_winning_and_farming_teams_earn_what_the_page_says():
    sit, crowd = game("sit"), game("crowd")
    assert sit[1]["winner"] == crowd[1]["winner"] == "blue"
    assert sit[0][ZONE] == pytest.approx(crowd[0][ZONE]) == pytest.approx(3.0)  # stacking earns nothing more
    win, farm = game("win"), game("farm")
    assert (win[1]["reason"], win[1]["winner"]) == ("elimination", "blue")
    assert farm[1]["winner"] == "red" and farm[0][KILL] > 0
    assert sit[0][TERMINAL] == win[0][TERMINAL] == 50 and farm[0][TERMINAL] == -50
    assert win[0].sum() > farm[0].sum() + 50
    # The original's reward tells a crowd to stay and pays nothing for the win.
    original = {who: game(who, "original")[0].sum() for who in ("sit", "crowd", "win")}
    assert original["crowd"] > 4 * original["sit"] and original["crowd"] > original["win"]
