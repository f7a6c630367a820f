"""The skill levels: what each level knows, whom it aims at, when it fires, how it gets free, and how strengths are drawn."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax.agents.skill.agent import Noise, Skilled
from echelon_jax.agents.skill.flank import towards_back
from echelon_jax.agents.skill.levels import (
    LEVELS,
    NAMES,
    STRONGEST,
    TABLE,
    Skill,
    SkillParams,
    at_strength,
    skill_params,
)
from echelon_jax.agents.skill.scene import by_side, look
from echelon_jax.agents.skill.steering import DIRECTIONS, FREEING_SECONDS, STUCK_SECONDS, per_class, standing, steer
from echelon_jax.agents.skill.targets import DANGER, NONE, Aim, choose
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.state import EnvParams
from echelon_jax.rules.weapons import AUTOCANNON
from echelon_jax.sim.rules import sim_rules

GAME = EnvConfig(size_x=60, size_y=60, observation="original", reward="original")
PARAMS = EnvParams(rules=sim_rules(GAME), rewards=None, bank=None)
SCENES = ("open", "wall", "weak", "hot", "shared", "nobody", "turned", "scout")
LEVEL_NAMES = tuple(LEVELS)


def scenes() -> Scenes:
    """One arena per name of SCENES; blue's medium and the enemies it may choose from stand around (20, 20)."""
    s = Scenes(GAME, len(SCENES))
    for arena, name in enumerate(SCENES):
        for side in ("blue", "red"):
            for i in range(5):
                s.change(arena, f"{side}_{i}", alive=False)
        s.put(arena, "blue_1", 20.0, 20.0, yaw=0.0, alive=True)
        if name != "nobody":
            s.put(arena, "red_1", 28.0, 20.0, yaw=np.pi, alive=True)
        if name in ("weak", "shared"):
            s.put(arena, "red_2", 28.0, 24.5, yaw=np.pi, alive=True)
    s.change(SCENES.index("weak"), "red_2", hp=10.0)
    s.change(SCENES.index("hot"), "blue_1", heat=99.0)
    s.put(SCENES.index("shared"), "blue_2", 20.0, 23.0, yaw=0.0, alive=True)
    s.change(SCENES.index("turned"), "red_1", yaw=0.5 * np.pi)
    scout = SCENES.index("scout")  # a scout joins on either side, and a heavy of red that stands apart
    s.put(scout, "blue_4", 20.3, 24.3, yaw=0.0, alive=True)
    s.put(scout, "red_4", 27.2, 19.6, yaw=np.pi, alive=True)
    s.put(scout, "red_1", 28.2, 20.3, yaw=np.pi)  # a ray may miss a goal on the edge of a voxel (Q9)
    s.put(scout, "red_0", 28.3, 36.4, yaw=np.pi, alive=True)
    s.box(SCENES.index("wall"), range(24, 25), range(60), range(1, 20))
    return s


@functools.cache
def state():
    return scenes().ready()


def noise(arenas: int = len(SCENES), fire: float = 0.0, strength: float = 0.0, aim: float = 0.0) -> Noise:
    mechs = (arenas, GAME.num_mechs)
    return Noise(
        strength=jnp.full(arenas, strength),
        aim=jnp.full(mechs, aim),
        fire=jnp.full(mechs, fire),
        sign=jnp.full(mechs, 0.7),
    )


AGENT = Skilled(GAME)
act = jax.jit(AGENT.act_with_noise)
look_once = jax.jit(look, static_argnums=0)  # operation by operation it would be hundreds of small programs
choose_once = jax.jit(choose)
LAYOUT = action_layout(GAME)
BLUE_1, BLUE_4 = 1, 4


@functools.cache
def first_actions(level: str, fire: float = 0.0) -> np.ndarray:
    """Actions of a level's first decision, [scenes, mechs, actions]."""
    memory = AGENT.init(PARAMS, state())
    return np.asarray(act(PARAMS, skill_params(level), memory, state(), noise(fire=fire))[1])


def component(actions: np.ndarray, scene: str, name: str, mech: int = BLUE_1) -> float:
    return float(actions[SCENES.index(scene), mech, LAYOUT[name].offset])


def chosen(actions: np.ndarray, scene: str, mech: int = BLUE_1) -> int:
    """Number of the hostile chosen as the focus, -1 for none."""
    return int(actions[SCENES.index(scene), mech, LAYOUT["target_preference"].slice].argmax()) - 1


# -- Levels -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVEL_NAMES)
def test_a_whole_strength_is_its_row(level: str) -> None:
    numbers = at_strength(jnp.array([float(NAMES.index(level))]))
    np.testing.assert_allclose([float(v[0, 0, 0]) for v in numbers], list(LEVELS[level].values()), rtol=1e-6)


def test_a_strength_between_two_levels_lies_between_their_rows() -> None:
    numbers = at_strength(jnp.array([1.25]))
    np.testing.assert_allclose([float(v[0, 0, 0]) for v in numbers], 0.75 * TABLE[1] + 0.25 * TABLE[2], rtol=1e-6)


def test_an_unknown_level_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="one of trivial, easy, medium, hard, expert, progressive, got 'godlike'"):
        skill_params("godlike")


def test_progressive_draws_a_strength_for_each_episode_and_keeps_it() -> None:
    memory = AGENT.init(PARAMS, state())
    params = skill_params("progressive")
    memory, _ = act(PARAMS, params, memory, state(), noise(strength=0.25))
    np.testing.assert_allclose(memory.strength, 0.25 * STRONGEST)
    memory, _ = act(PARAMS, params, memory, state(), noise(strength=0.9))
    np.testing.assert_allclose(memory.strength, 0.25 * STRONGEST)
    begins = jnp.arange(len(SCENES)) == 2
    memory = AGENT.reset_where(memory, state(), begins)
    memory, _ = act(PARAMS, params, memory, state(), noise(strength=0.9))
    np.testing.assert_allclose(memory.strength, np.where(begins, 0.9, 0.25) * STRONGEST)


def test_arenas_of_one_batch_may_play_different_levels() -> None:
    arenas = len(SCENES)
    each = jnp.linspace(0.0, STRONGEST, arenas)
    mixed = SkillParams(jnp.float32(1.0), each, each)
    memory, _ = act(PARAMS, mixed, AGENT.init(PARAMS, state()), state(), noise())
    np.testing.assert_allclose(memory.strength, each)


# -- Memory -----------------------------------------------------------------------------------------------------------------


def test_a_reset_forgets_the_arenas_of_the_mask_alone() -> None:
    fresh = AGENT.init(PARAMS, state())
    memory, _ = act(PARAMS, skill_params("expert"), fresh, state(), noise(aim=1.0))
    mask = jnp.arange(len(SCENES)) == 1
    reset = AGENT.reset_where(memory, state(), mask)
    for new, old, kept in zip(*(jax.tree.leaves(tree) for tree in (reset, memory, fresh)), strict=True):
        np.testing.assert_array_equal(new[1], kept[1])
        np.testing.assert_array_equal(new[0], old[0])


def test_an_arena_does_not_depend_on_those_beside_it() -> None:
    one = scenes()
    one.count = 1
    alone = jax.tree.map(lambda x: x[:1], state())
    keys = jax.random.split(jax.random.key(3), len(SCENES))
    params = skill_params("hard")
    _, together = jax.jit(AGENT.act)(PARAMS, params, AGENT.init(PARAMS, state()), state(), keys)
    _, single = jax.jit(AGENT.act)(PARAMS, params, AGENT.init(PARAMS, alone), alone, keys[:1])
    np.testing.assert_array_equal(together[:1], single)


def test_memory_keeps_its_structure_and_dtypes() -> None:
    memory = AGENT.init(PARAMS, state())
    after, _ = act(PARAMS, skill_params("expert"), memory, state(), noise())
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), memory)


def test_every_action_is_within_bounds() -> None:
    for level in LEVEL_NAMES:
        assert np.abs(first_actions(level)).max() <= 1.0


# -- Knowledge and targets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "knows"), [("trivial", True), ("easy", True), ("medium", False), ("expert", False)])
def test_who_is_behind_a_wall_is_known_to_the_lower_levels_only(level: str, knows: bool) -> None:
    actions = first_actions(level)
    first = np.array([chosen(actions, "wall") >= 0])
    memory = AGENT.init(PARAMS, state())
    for _ in range(int(LEVELS[level]["lag"])):  # until the lag is over
        memory, again = act(PARAMS, skill_params(level), memory, state(), noise())
        first = first | (chosen(np.asarray(again), "wall") >= 0)
    memory, again = act(PARAMS, skill_params(level), memory, state(), noise())
    assert bool(first[0] or chosen(np.asarray(again), "wall") >= 0) is knows


def test_what_one_sees_its_team_knows_and_remembers_for_a_while() -> None:
    seen = jnp.zeros((len(SCENES), 2, 5))
    forgotten = jnp.full(seen.shape, 99, jnp.int32)
    two_seconds = jnp.full((len(SCENES), 1, 1), 2.0)
    shared = SCENES.index("shared")
    scene = look_once(GAME, PARAMS, state(), seen, seen, forgotten, two_seconds)
    np.testing.assert_array_equal(scene.known[shared, 0, 1], [False, True, True, False, False])
    hidden = jax.tree.map(lambda x: x[1:2], state())  # behind the wall, last seen 8 and 9 decisions ago
    for age, known in ((7, True), (8, False)):
        old = jnp.full((1, 2, 5), age, jnp.int32)
        scene = look_once(GAME, PARAMS, hidden, seen[:1], seen[:1], old, two_seconds[:1])
        assert bool(scene.known[0, 0, 1, 1]) is known


def choices(skill: dict[str, float], before: Aim | None = None) -> np.ndarray:
    rows = Skill(*(jnp.full((len(SCENES), 1, 1), value) for value in skill.values()))
    zero = jnp.zeros((len(SCENES), 2, 5))
    scene = look_once(GAME, PARAMS, state(), zero, zero, zero.astype(jnp.int32), rows.memory)
    none = jnp.full(zero.shape, NONE, jnp.int32)
    helpless = jnp.zeros(zero.shape, bool)
    max_hp = by_side(PARAMS.rules.max_hp[None])[0]
    danger = per_class(GAME, DANGER)
    return np.asarray(
        choose_once(rows, scene, before or Aim(none, jnp.zeros_like(none)), max_hp, helpless, danger).target
    )


def test_the_weak_are_preferred_by_who_minds() -> None:
    weak = SCENES.index("weak")
    assert choices(LEVELS["expert"] | {"weak": 0.0})[weak, 0, 1] == 1
    assert choices(LEVELS["expert"] | {"weak": 5.0})[weak, 0, 1] == 2


def test_fire_is_shared_by_who_minds() -> None:
    """Blue's other medium aims at red_2, which is a little further from blue_1."""
    shared = SCENES.index("shared")
    target = jnp.full((len(SCENES), 2, 5), NONE, jnp.int32).at[shared, 0, 2].set(2)
    before = Aim(target, jnp.zeros_like(target))
    assert choices(LEVELS["expert"] | {"shared": 0.0}, before)[shared, 0, 1] == 1
    assert choices(LEVELS["expert"] | {"shared": 5.0}, before)[shared, 0, 1] == 2


def test_the_dangerous_are_preferred_by_who_minds() -> None:
    """A scout stands a little nearer than a medium."""
    scout = SCENES.index("scout")
    assert choices(LEVELS["expert"] | {"danger": 0.0})[scout, 0, 1] == 4
    assert choices(LEVELS["expert"] | {"danger": 0.7})[scout, 0, 1] == 1


def test_another_target_is_taken_after_the_lag() -> None:
    slow = LEVELS["expert"] | {"lag": 2.0}
    open_ = SCENES.index("open")
    none = jnp.full((len(SCENES), 2, 5), NONE, jnp.int32)
    for wanted, taken in ((0, NONE), (1, NONE), (2, 1)):
        assert choices(slow, Aim(none, jnp.full_like(none, wanted)))[open_, 0, 1] == taken


# -- Fire -------------------------------------------------------------------------------------------------------------------


def test_a_target_in_reach_and_cone_is_fired_at() -> None:
    assert component(first_actions("expert"), "open", "tertiary") > 0


def test_nothing_is_fired_at_a_wall() -> None:
    assert component(first_actions("expert"), "wall", "tertiary") <= 0


def test_a_shot_that_would_shut_the_mech_down_is_held() -> None:
    assert float(PARAMS.rules.weapon_heat[AUTOCANNON]) > 3.0
    assert component(first_actions("expert"), "hot", "tertiary") <= 0


def test_the_higher_levels_always_vent() -> None:
    assert component(first_actions("expert"), "hot", "vent") > 0
    assert component(first_actions("trivial"), "open", "vent") <= 0


@pytest.mark.parametrize("level", ["trivial", "easy", "medium"])
def test_fire_is_withheld_as_often_as_the_level_says(level: str) -> None:
    """The draw decides: below the level's probability it fires, above it does not."""
    memory = AGENT.init(PARAMS, state())
    aimed = memory.replace(target=jnp.where(by_side(state().sim.mechs.alive), 1, NONE))
    probability = LEVELS[level]["fire"]
    for draw in (probability - 0.01, probability + 0.01):
        _, actions = act(PARAMS, skill_params(level), aimed, state(), noise(fire=draw))
        assert (component(np.asarray(actions), "open", "tertiary") > 0) is (draw <= probability)


def test_the_fire_probability_of_a_curriculum_multiplies_the_levels() -> None:
    half = skill_params("expert", fire_probability=0.5)
    for draw, fires in ((0.45, True), (0.55, False)):
        _, actions = act(PARAMS, half, AGENT.init(PARAMS, state()), state(), noise(fire=draw))
        assert (component(np.asarray(actions), "open", "tertiary") > 0) is fires


# -- Smoke ------------------------------------------------------------------------------------------------------------------


def after_lag(level: str, changed=None) -> np.ndarray:
    """Actions of a level's second decision, when everybody has a target, in the scenes or a changed state of them."""
    shown = state() if changed is None else changed
    memory = AGENT.init(PARAMS, shown)
    for _ in range(1 + int(LEVELS[level]["lag"])):
        memory, actions = act(PARAMS, skill_params(level), memory, shown, noise())
    return np.asarray(actions)


def with_mechs(**fields):
    """The scenes with other values in fields of blue's scout."""
    mechs = state().sim.mechs
    changed = {name: getattr(mechs, name).at[:, BLUE_4].set(value) for name, value in fields.items()}
    return state().replace(sim=state().sim.replace(mechs=mechs.replace(**changed)))


def test_a_scout_blinds_an_enemy_at_whom_nobody_aims() -> None:
    actions = after_lag("expert")
    assert component(actions, "scout", "special", BLUE_4) > 0
    assert chosen(actions, "scout", BLUE_4) == 0, "the heavy that stands apart"
    assert component(actions, "scout", "special", BLUE_1) <= 0
    assert component(after_lag("hard"), "scout", "special", BLUE_4) <= 0


def test_no_smoke_is_laid_around_the_teams_own_target() -> None:
    moved = state().sim.mechs.position.at[SCENES.index("scout"), 5, :2].set(jnp.array([28.3, 24.6]))
    near = state().replace(sim=state().sim.replace(mechs=state().sim.mechs.replace(position=moved)))
    assert component(after_lag("expert", near), "scout", "special", BLUE_4) <= 0


@pytest.mark.parametrize("fields", [{"tube_cooldown": 3}, {"heat": 60.0}])
def test_smoke_waits_for_the_tube_and_for_the_heat(fields: dict[str, float]) -> None:
    assert component(after_lag("expert", with_mechs(**fields)), "scout", "special", BLUE_4) <= 0


# -- Moving -----------------------------------------------------------------------------------------------------------------


def test_without_an_enemy_it_goes_to_the_zone() -> None:
    actions = first_actions("expert")
    forward, strafe = (component(actions, "nobody", name) for name in ("forward", "strafe"))
    assert forward > 0.5 and strafe > 0.5  # the zone lies at 45 degrees to its left


def test_scouts_rise_in_a_fight_and_nobody_without_jets() -> None:
    actions = after_lag("expert")
    assert component(actions, "scout", "vertical", BLUE_4) > 0.6
    assert component(actions, "scout", "vertical", BLUE_1) == 0
    assert component(after_lag("hard"), "scout", "vertical", BLUE_4) == 0


def test_nobody_rises_without_a_fight() -> None:
    far = state().sim.mechs.position.at[:, BLUE_4, 0].set(5.0)
    away = state().replace(sim=state().sim.replace(mechs=state().sim.mechs.replace(position=far)))
    assert component(after_lag("expert", away), "scout", "vertical", BLUE_4) == 0


def flanks(scene_name: str) -> np.ndarray:
    """What each direction gains for blue_1 on its way to the back of red_1; eastwards is direction 0."""
    zero = jnp.zeros((len(SCENES), 2, 5))
    scene = look_once(GAME, PARAMS, state(), zero, zero, zero.astype(jnp.int32), jnp.full((len(SCENES), 1, 1), 99.0))
    target = jnp.full(zero.shape, 1, jnp.int32)
    angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    then_x, then_y = 8.0 - 2.0 * np.cos(angles), -2.0 * np.sin(angles)
    ways = [jnp.broadcast_to(jnp.asarray(v, jnp.float32), (*zero.shape, DIRECTIONS)) for v in (then_x, then_y)]
    gains = jax.jit(towards_back)(scene, target, *ways, jnp.float32(2.0))
    return np.asarray(gains)[SCENES.index(scene_name), 0, 1]


def test_the_flank_lies_where_the_target_does_not_look() -> None:
    """red_1 looks north, away from blue_1, which stands west of it: its back is in the south."""
    gains = flanks("turned")
    assert gains[3 * DIRECTIONS // 4] == pytest.approx(0.97, abs=0.05)
    assert gains[DIRECTIONS // 4] == pytest.approx(-0.97, abs=0.05)
    assert abs(gains[0]) < 0.01


def test_a_target_that_looks_at_one_is_passed_on_either_side() -> None:
    gains = flanks("open")
    assert gains[DIRECTIONS // 4] == pytest.approx(gains[3 * DIRECTIONS // 4], abs=1e-5) and gains[DIRECTIONS // 4] > 0


def test_nobody_flanks_a_target_that_it_does_not_see() -> None:
    np.testing.assert_array_equal(flanks("wall"), 0.0)


def test_expert_goes_to_the_back_of_its_target_though_the_zone_lies_on_the_other_side() -> None:
    plain, expert = (component(after_lag(level), "turned", "strafe") for level in ("medium", "expert"))
    assert expert < -0.3 < plain


@pytest.mark.parametrize("substeps", [1, 5])
def test_a_mech_that_does_not_get_on_turns_aside_by_time_and_not_by_decisions(substeps: int) -> None:
    game = EnvConfig(size_x=60, size_y=60, observation="original", reward="original", substeps=substeps)
    skill = Skill(*(jnp.full((1, 1, 1), value) for value in LEVELS["expert"].values()))
    held = jax.tree.map(lambda x: x[SCENES.index("nobody")][None], state())
    zero = jnp.zeros((1, 2, 5))
    scene = look_once(game, PARAMS, held, zero, zero, zero.astype(jnp.int32), skill.memory)
    gait, target = standing(scene.x, scene.y), jnp.full(zero.shape, NONE, jnp.int32)
    step = jax.jit(lambda gait: steer(game, PARAMS, held, skill, scene, target, scene.alive, gait, zero + 0.7))
    freeing, first = [], 0.0
    for _ in range(int(3.0 / game.decision_seconds)):
        gait = step(gait)
        freeing.append(float(gait.freeing[0, 0, 1]) > 0)
    first = freeing.index(True) * game.decision_seconds
    assert first == pytest.approx(STUCK_SECONDS, abs=2 * game.decision_seconds)
    length = np.argmin(freeing[freeing.index(True) :]) * game.decision_seconds
    assert length == pytest.approx(FREEING_SECONDS, abs=2 * game.decision_seconds)


def test_it_aims_and_fires_while_it_gets_free() -> None:
    memory = AGENT.init(PARAMS, state())
    stuck = memory.replace(gait=memory.gait._replace(freeing=jnp.full_like(memory.gait.freeing, 0.5)))
    _, actions = act(PARAMS, skill_params("expert"), stuck, state(), noise())
    assert component(np.asarray(actions), "open", "tertiary") > 0


def test_a_wall_is_gone_round_and_not_into() -> None:
    s = Scenes(GAME, 1)
    for side in ("blue", "red"):
        for i in range(5):
            s.change(0, f"{side}_{i}", alive=False)
    s.put(0, "blue_1", 20.0, 30.0, yaw=0.0, alive=True)  # the zone lies straight ahead, behind a wall
    s.box(0, range(22, 24), range(28, 33), range(1, 20))
    blocked = s.ready()
    _, actions = act(PARAMS, skill_params("expert"), AGENT.init(PARAMS, blocked), blocked, noise(1))
    forward, strafe = (float(actions[0, BLUE_1, LAYOUT[name].offset]) for name in ("forward", "strafe"))
    assert abs(strafe) > 0.3 and forward < 0.95
