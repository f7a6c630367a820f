"""The revised rules of the simulation, one switch at a time, by scripted scenes.

Every rule is shown on the plain reference with its switch alone on, and the original's rule with it off; at the end all the
scenes are played by the JAX simulator with every switch on and compared with the reference in every field.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.parity.exchange import SlotNoise, to_reference, to_row
from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.fuzzing.cases import Case, make_case
from echelon_jax.parity.recorded.maps import column_words, local_map, telemetry
from echelon_jax.rules import materials as mat
from echelon_jax.rules.mechs import HEAVY, LIGHT, MECH_CLASSES, MEDIUM, SCOUT, roster
from echelon_jax.rules.timers import moves
from echelon_jax.rules.weapons import GAUSS, MISSILE, SMOKE, WEAPONS
from echelon_jax.sim.noise import sample_noise
from echelon_jax.sim.rules import sim_rules
from echelon_jax.sim.slots import BARREL, TUBE, slots
from echelon_jax.sim.step import simulate

SWITCHES = (
    "honour_focus",
    "fair_order",
    "true_voxel_hp",
    "own_team_counts_against",
    "clamp_before_collision",
    "shots_end_at_border",
    "smoke_opens",
    "ceiling",
    "ams_one_roll",
)
ORIGINAL = EnvConfig.original()
ALL = EnvConfig.original(**dict.fromkeys(SWITCHES, True))
N, TEAM = ORIGINAL.num_mechs, ORIGINAL.team_size
B_HEAVY, B_MEDIUM, B_MEDIUM_2, B_LIGHT, B_SCOUT = range(5)
R_HEAVY, R_MEDIUM, R_MEDIUM_2, R_LIGHT, R_SCOUT = range(5, 10)
CLASS = {c: [i for i in range(N) if roster(1).mech_class[i] == c] for c in (HEAVY, MEDIUM, LIGHT, SCOUT)}
FORWARD, STRAFE, VERTICAL, PRIMARY, SECONDARY, TERTIARY, SPECIAL = 0, 1, 2, 4, 6, 7, 8
PREFERENCE = 9
FEET = None  # a height: standing on the floor


@dataclasses.dataclass(frozen=True)
class Shot:
    """A projectile in flight of a mech's tube or barrel."""

    shooter: int
    weapon: int
    position: tuple[float, float, float]
    velocity: tuple[float, float, float]
    age: int = 0
    target: int = -1


@dataclasses.dataclass(frozen=True)
class Scene:
    """Who stands where with which fields, boxes of material with hp, a shot, and the actions, held for one decision step.

    Everybody else is dead. `focus`: shooter to target. `ams`: interception rolls by substep; `wreck`: the roll of every wreck;
    `first`: the mech that fires first where the order is drawn.
    """

    mechs: dict[int, tuple[float, float, float | None]]
    fields: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)
    boxes: tuple[tuple[tuple[range, range, range], int, int], ...] = ()
    shot: Shot | None = None
    actions: dict[int, dict[int, float]] = dataclasses.field(default_factory=dict)
    focus: dict[int, int] = dataclasses.field(default_factory=dict)
    ams: tuple[float, ...] = (0.99,) * 5
    wreck: float = 0.0
    first: int = 0


def case_of(config: EnvConfig, scene: Scene) -> Case:
    """The scene as a case of one decision step."""
    case = jax.tree.map(np.array, make_case(config, 0))
    sim, state, noise = case.state.sim, case.state, case.noise
    material = np.zeros((config.size_z, config.size_y, config.size_x), np.uint8)
    material[0] = mat.DIRT
    hp = np.zeros(material.shape, np.int16)
    for (x, y, z), kind, points in scene.boxes:
        where = (slice(z.start, z.stop), slice(y.start, y.stop), slice(x.start, x.stop))
        material[where], hp[where] = kind, points
    flat = material.reshape(1, -1)
    sim.grid.material[:], sim.grid.hp[:] = flat[0], hp.reshape(-1)
    sim.grid.collides[:] = column_words(flat, mat.COLLIDES, config)[0]
    sim.grid.opaque[:] = column_words(flat, mat.OPAQUE, config)[0]
    state.arena_map.occupancy[...] = local_map(sim.grid.material, config)
    state.arena_map.telemetry[...] = telemetry(sim.grid.material, config)
    state.arena_map.zone[:] = 20.0, 20.0, 5.0
    state.score[:] = 0.0
    state.step_count[...], sim.tick[...] = 10, 10 * config.substeps

    m = sim.mechs
    classes = [MECH_CLASSES[c] for c in roster(1).mech_class]
    for name in m.__dataclass_fields__:
        if name not in ("position", "insertion_index"):
            getattr(m, name)[...] = False if getattr(m, name).dtype == bool else 0
    m.hp[:], m.leg_hp[:] = [c.hp for c in classes], [c.leg_hp for c in classes]
    m.stability[:], m.last_painter[:], m.focus[:] = 100.0, -1, -1
    m.insertion_index[:] = np.arange(N)
    for i, (x, y, z) in scene.mechs.items():
        m.position[i] = x, y, classes[i].size[2] / 2 if z is None else z
        m.alive[i] = True
    for i, values in scene.fields.items():
        for name, value in values.items():
            getattr(m, name)[i] = value
    state.was_fallen[:] = state.was_legged[:] = state.was_shutdown[:] = False

    sim.smoke.life[:] = 0
    shots, table = sim.projectiles, slots(config)
    shots.alive[:], shots.rolled[:] = False, 0
    if scene.shot is not None:
        s = scene.shot
        launcher = TUBE if s.weapon in (MISSILE, SMOKE) else BARREL
        slot = int(np.flatnonzero((table.mech == s.shooter) & (table.launcher == launcher))[0])
        shots.alive[slot], shots.weapon[slot], shots.target[slot], shots.age[slot] = True, s.weapon, s.target, s.age
        shots.position[slot], shots.velocity[slot] = s.position, s.velocity

    case.actions[:] = 0.0
    for i, values in scene.actions.items():
        for component, value in values.items():
            case.actions[i, component] = value
    for i, target in scene.focus.items():
        state.contact_slots[i, 2] = target
        case.actions[i, PREFERENCE + 2] = 1.0
    noise.ams[:] = np.array(scene.ams, np.float32)[:, None, None, None]
    noise.hit_height[:] = 0.5
    noise.move_order[:] = np.arange(N)
    if config.fair_order:
        noise.fire_order[:] = [scene.first, *(i for i in range(N) if i != scene.first)]
        noise.wreck[:] = scene.wreck
    return case


@dataclasses.dataclass
class Played:
    """The reference's arena after the decision step, and the events."""

    arena: Any
    events: list[dict[str, Any]]

    def mech(self, i):
        return self.arena.battle.mechs[i]

    def named(self, kind):
        return [e for e in self.events if e["type"] == kind]

    def target(self, kind, weapon=None):
        """Roster index of the target of the first event of a kind."""
        first = next(e for e in self.named(kind) if weapon in (None, e["weapon"]))
        return roster(1).ids.index(first["target"])

    def cell(self, x, y, z):
        world = self.arena.battle.world
        return int(world.material[z, y, x]), float(world.hp[z, y, x])


def play(switch: str | None, scene: Scene) -> Played:
    """The scene in the reference, with one switch on or none."""
    config = ORIGINAL if switch is None else EnvConfig.original(**{switch: True})
    case = case_of(config, scene)
    loaded = to_reference(config, case.state)
    step = loaded.arena.advance(case.actions, SlotNoise(config, case.noise, loaded))
    return Played(loaded.arena, step.events)


def both(scene: Scene, switch: str) -> tuple[Played, Played]:
    """The scene with the switch on, and under the original's rules."""
    return play(switch, scene), play(None, scene)


# ---- scenes ---------------------------------------------------------------------------------------------------------

SCENES = {
    # A near enemy straight ahead, and the focus farther away in every weapon's arc.
    "light with focus": Scene(
        mechs={B_LIGHT: (20, 20, FEET), R_SCOUT: (22.5, 20, FEET), R_MEDIUM: (24, 21, FEET)},
        actions={B_LIGHT: {PRIMARY: 1, SECONDARY: 1, TERTIARY: 1}},
        focus={B_LIGHT: R_MEDIUM},
    ),
    "heavy with focus": Scene(
        mechs={B_HEAVY: (15, 20, FEET), R_SCOUT: (22, 20.2, FEET), R_MEDIUM: (25, 21.5, FEET)},
        actions={B_HEAVY: {SECONDARY: 1}},
        focus={B_HEAVY: R_MEDIUM},
    ),
    "gauss with focus": Scene(
        mechs={B_HEAVY: (8, 20, FEET), R_SCOUT: (18, 20.3, FEET), R_MEDIUM: (24, 22.4, FEET)},
        actions={B_HEAVY: {TERTIARY: 1}},
        focus={B_HEAVY: R_MEDIUM},
    ),
    "focus behind": Scene(
        mechs={B_LIGHT: (20, 20, FEET), R_SCOUT: (22.5, 20, FEET), R_MEDIUM: (17, 20, FEET)},
        actions={B_LIGHT: {PRIMARY: 1, SECONDARY: 1, TERTIARY: 1}},
        focus={B_LIGHT: R_MEDIUM},
    ),
    "duel": Scene(
        mechs={B_MEDIUM: (17, 20, FEET), R_MEDIUM: (23, 20, FEET)},
        fields={B_MEDIUM: {"hp": 1.0}, R_MEDIUM: {"hp": 1.0, "yaw": np.pi}},
        actions={B_MEDIUM: {PRIMARY: 1}, R_MEDIUM: {PRIMARY: 1}},
        first=R_MEDIUM,
        wreck=0.999,
    ),
    "shell at hollow wall": Scene(
        mechs={B_SCOUT: (5, 5, FEET), R_SCOUT: (35, 35, FEET)},
        boxes=((((range(20, 22), range(19, 22), range(1, 6)), mat.SOLID, 0)),),
        shot=Shot(B_SCOUT, SMOKE, (19.5, 20.5, 3.5), (15, 0, 0), age=3),
    ),
    "missile at pools": Scene(
        mechs={B_HEAVY: (5, 5, FEET), R_SCOUT: (35, 35, FEET)},
        boxes=(
            ((range(19, 20), range(18, 23), range(1)), mat.LAVA, 0),
            ((range(21, 22), range(18, 23), range(1)), mat.WATER, 0),
        ),
        shot=Shot(B_HEAVY, MISSILE, (20.5, 20.5, 1.6), (0, 0, -12), age=9),
    ),
    # It strikes the top of a pillar, which falls, and everybody's centre is within the splash.
    "missile among friends": Scene(
        mechs={
            B_HEAVY: (20.5, 22.8, FEET),
            B_MEDIUM: (18.2, 20.5, FEET),
            R_LIGHT: (22.6, 20.5, FEET),
            R_SCOUT: (35, 35, FEET),
        },
        fields={B_HEAVY: {"hp": 1.0}, B_MEDIUM: {"hp": 1.0}, R_LIGHT: {"hp": 1.0}},
        boxes=(((range(20, 21), range(20, 21), range(2)), mat.SOLID, 10),),
        shot=Shot(B_HEAVY, MISSILE, (20.5, 20.5, 3.5), (0, 0, -12), age=9),
    ),
    "pressing outward": Scene(
        mechs={B_SCOUT: (0.6, 20.95, FEET), R_SCOUT: (35, 35, FEET)},
        boxes=(((range(1, 6), range(22, 23), range(1, 6)), mat.SOLID, 100),),
        actions={B_SCOUT: {FORWARD: -1, STRAFE: 1}},
    ),
    "over the border": Scene(
        mechs={B_HEAVY: (5, 5, FEET), R_SCOUT: (35, 35, FEET)},
        shot=Shot(B_HEAVY, MISSILE, (39.7, 20.5, 5.5), (12, 0, 0), age=9),
    ),
    "over the top": Scene(
        mechs={B_HEAVY: (5, 5, FEET), R_SCOUT: (35, 35, FEET)},
        shot=Shot(B_HEAVY, MISSILE, (20.5, 20.5, 19.7), (0, 0, 12), age=9),
    ),
    "wall at the border": Scene(
        mechs={B_HEAVY: (5, 5, FEET), R_SCOUT: (35, 35, FEET)},
        boxes=(((range(39, 40), range(20, 21), range(5, 6)), mat.SOLID, 100),),
        shot=Shot(B_HEAVY, GAUSS, (38.5, 20.5, 5.5), (40, 0, 0), age=2),
    ),
    "mech at the border": Scene(
        mechs={B_HEAVY: (5, 5, FEET), R_HEAVY: (38.2, 20.5, FEET)},
        shot=Shot(B_HEAVY, GAUSS, (36, 20.5, 2), (80, 0, 0), age=2),
    ),
    "shell at its end": Scene(
        mechs={B_SCOUT: (5, 5, FEET), R_SCOUT: (35, 35, FEET)},
        shot=Shot(
            B_SCOUT, SMOKE, (10, 20, 5), (15, 0, 0), age=moves(WEAPONS[SMOKE].range / WEAPONS[SMOKE].speed, 0.05) - 1
        ),
    ),
    "shell at a mech": Scene(
        mechs={B_SCOUT: (5, 5, FEET), B_LIGHT: (10, 5, FEET), R_HEAVY: (22, 20, FEET)},
        fields={R_HEAVY: {"painted": 50, "last_painter": B_LIGHT}},
        shot=Shot(B_SCOUT, SMOKE, (20.2, 20, 2), (15, 0, 0), age=3),
    ),
    "climber": Scene(
        mechs={B_SCOUT: (20, 20, 18.8), R_SCOUT: (35, 35, FEET)},
        fields={B_SCOUT: {"velocity": (0, 0, 6)}},
        actions={B_SCOUT: {VERTICAL: 1}},
    ),
    "step under the top": Scene(
        mechs={B_SCOUT: (20, 20, 18.9), R_SCOUT: (35, 35, FEET)},
        boxes=(
            ((range(15, 26), range(18, 23), range(17, 18)), mat.SOLID, 100),
            ((range(21, 26), range(18, 23), range(18, 19)), mat.SOLID, 100),
        ),
        actions={B_SCOUT: {FORWARD: 1}},
    ),
    "above the top": Scene(
        mechs={B_SCOUT: (20, 20, 25), R_SCOUT: (35, 35, FEET)},
        actions={B_SCOUT: {FORWARD: 1}},
    ),
    "missile past a heavy": Scene(
        mechs={B_HEAVY: (5, 5, FEET), R_HEAVY: (20, 24, FEET), R_SCOUT: (30, 20, FEET)},
        shot=Shot(B_HEAVY, MISSILE, (18, 20, 3), (12, 0, 0), age=9, target=R_SCOUT),
        ams=(0.9, 0.1, 0.1, 0.1, 0.1),
    ),
    "heavy not ready": Scene(
        mechs={B_HEAVY: (5, 5, FEET), R_HEAVY: (20, 24, FEET), R_SCOUT: (30, 20, FEET)},
        fields={R_HEAVY: {"ams_cooldown": 3}},
        shot=Shot(B_HEAVY, MISSILE, (18, 20, 3), (12, 0, 0), age=9, target=R_SCOUT),
        ams=(0.1, 0.1, 0.9, 0.9, 0.9),
    ),
}


# ---- honour_focus ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scene", "kind", "weapon"),
    [
        ("light with focus", "laser_hit", "laser"),
        ("light with focus", "laser_hit", "flamer"),
        ("light with focus", "paint", "painter"),
        ("heavy with focus", "missile_launch", "missile"),
    ],
)
def test_a_focus_that_passes_the_gates_is_the_target(scene, kind, weapon):
    revised, original = both(SCENES[scene], "honour_focus")
    assert revised.target(kind, weapon) == R_MEDIUM
    assert original.target(kind, weapon) == R_SCOUT


def test_a_kinetic_weapon_aims_at_its_focus_within_the_wide_cone():
    revised, original = both(SCENES["gauss with focus"], "honour_focus")
    bearing = {}
    for name, played in (("revised", revised), ("original", original)):
        slug = next(s for s in played.arena.battle.projectiles if s.weapon == GAUSS)
        bearing[name] = np.arctan2(slug.vel[1], slug.vel[0])
    assert bearing["revised"] == pytest.approx(np.arctan2(2.4, 16), abs=1e-4)
    assert bearing["original"] == pytest.approx(np.arctan2(0.3, 10), abs=1e-4)


def test_a_focus_outside_the_arc_gives_way_to_the_nearest():
    revised = play("honour_focus", SCENES["focus behind"])
    for kind, weapon in (("laser_hit", "laser"), ("laser_hit", "flamer"), ("paint", "painter")):
        assert revised.target(kind, weapon) == R_SCOUT


# ---- fair_order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [B_MEDIUM, R_MEDIUM])
def test_the_drawn_first_shooter_wins_a_mutual_kill(first):
    revised, original = both(dataclasses.replace(SCENES["duel"], first=first), "fair_order")
    assert revised.mech(first).alive and not revised.mech(B_MEDIUM + R_MEDIUM - first).alive
    assert original.mech(B_MEDIUM).alive and not original.mech(R_MEDIUM).alive  # blue before red


def test_a_wreck_is_drawn_and_knows_no_name():
    probability = MECH_CLASSES[MEDIUM].solid_wreck_probability
    made = {roll: [] for roll in (probability - 0.01, probability + 0.01)}
    for roll, first in ((roll, first) for roll in made for first in (B_MEDIUM, R_MEDIUM)):
        played = play("fair_order", dataclasses.replace(SCENES["duel"], wreck=roll, first=first))
        made[roll].append(played.cell(17 if first == R_MEDIUM else 23, 20, 2)[0])
    assert list(made.values()) == [[mat.SOLID_DEBRIS] * 2, [mat.DEBRIS_FIELD] * 2]


# ---- true_voxel_hp --------------------------------------------------------------------------------------------------


def test_a_wreck_has_the_hit_points_of_its_material():
    revised, original = both(SCENES["duel"], "true_voxel_hp")
    material, hp = revised.cell(23, 20, 2)
    assert material in (mat.SOLID_DEBRIS, mat.DEBRIS_FIELD) and hp == mat.TABLE_HP[material]
    assert original.cell(23, 20, 2) == (material, 0)


def test_a_hit_without_damage_changes_no_voxel():
    revised, original = both(SCENES["shell at hollow wall"], "true_voxel_hp")
    assert revised.cell(20, 20, 3)[0] == mat.SOLID
    assert original.cell(20, 20, 3)[0] == mat.AIR


def test_ground_and_pools_outlast_an_explosion():
    revised, original = both(SCENES["missile at pools"], "true_voxel_hp")
    for x, material in ((19, mat.LAVA), (20, mat.DIRT), (21, mat.WATER)):
        assert revised.cell(x, 20, 0)[0] == material
        assert original.cell(x, 20, 0)[0] == mat.AIR


# ---- own_team_counts_against ----------------------------------------------------------------------------------------


def test_own_damage_and_own_kills_earn_nothing():
    revised, original = both(SCENES["missile among friends"], "own_team_counts_against")
    splash = WEAPONS[MISSILE].damage * WEAPONS[MISSILE].splash_scale
    shooter, before = revised.mech(B_HEAVY), original.mech(B_HEAVY)
    assert (shooter.dealt_damage, shooter.kills) == (splash, 1)
    assert (before.dealt_damage, before.kills) == (3 * splash, 3)
    for mech in (shooter, before):  # the shooter itself is one of them
        assert (mech.friendly_damage, mech.friendly_kills) == (2 * splash, 2)
    for played, shots in ((revised, 1), (original, 3)):
        statistics = played.arena.statistics
        assert (statistics["damage_blue"], statistics["kills_blue"]) == (shots * splash, shots)


# ---- clamp_before_collision -----------------------------------------------------------------------------------------


def test_pressing_outward_does_not_lead_through_a_wall():
    revised, original = both(SCENES["pressing outward"], "clamp_before_collision")
    half = MECH_CLASSES[SCOUT].size[1] / 2
    assert revised.mech(B_SCOUT).pos[1] + half <= 22
    assert original.mech(B_SCOUT).pos[1] + half > 22


# ---- shots_end_at_border --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["over the border", "over the top"])
def test_a_shot_that_leaves_the_map_is_gone_without_effect(name):
    revised, original = both(SCENES[name], "shots_end_at_border")
    assert revised.arena.battle.projectiles == [] and revised.events == []
    assert len(original.arena.battle.projectiles) == 1


@pytest.mark.parametrize(
    ("name", "kind"), [("wall at the border", "explosion"), ("mech at the border", "projectile_hit")]
)
def test_what_is_on_the_way_out_is_hit_first(name, kind):
    assert play("shots_end_at_border", SCENES[name]).named(kind)


# ---- smoke_opens ----------------------------------------------------------------------------------------------------


def test_a_shell_opens_at_the_end_of_its_flight():
    revised, original = both(SCENES["shell at its end"], "smoke_opens")
    (cloud,) = revised.arena.battle.clouds
    assert cloud.pos == pytest.approx((10.75, 20, 5))  # after its last move
    assert len(revised.named("smoke_cloud")) == 1 and original.arena.battle.clouds == []


def test_a_shell_opens_at_a_mech_without_being_a_hit():
    revised, original = both(SCENES["shell at a mech"], "smoke_opens")
    for played, hit in ((revised, False), (original, True)):
        heavy = played.mech(R_HEAVY)
        assert [cloud.pos for cloud in played.arena.battle.clouds] == [heavy.pos]
        assert heavy.was_hit == hit and (heavy.last_damage_dir is not None) == hit
        assert bool(played.named("projectile_hit")) == hit and bool(played.named("assist")) == hit


# ---- ceiling --------------------------------------------------------------------------------------------------------


def test_nobody_climbs_above_the_top():
    revised, original = both(SCENES["climber"], "ceiling")
    half = MECH_CLASSES[SCOUT].size[2] / 2
    assert revised.mech(B_SCOUT).pos[2] + half <= ORIGINAL.size_z < original.mech(B_SCOUT).pos[2] + half
    assert (
        revised.mech(B_SCOUT).vel[2] < 2 < original.mech(B_SCOUT).vel[2]
    )  # it was stopped, and pushes again from rest


def test_no_step_up_that_would_not_fit():
    revised, original = both(SCENES["step under the top"], "ceiling")
    scout = revised.mech(B_SCOUT)
    assert scout.pos[0] + MECH_CLASSES[SCOUT].size[0] / 2 <= 21 and scout.vel[0] == 0
    assert original.mech(B_SCOUT).pos[0] > 21


def test_who_is_above_the_top_falls():
    revised = play("ceiling", SCENES["above the top"])
    assert revised.mech(B_SCOUT).pos[2] < 24.8 and revised.mech(B_SCOUT).pos[0] > 21


# ---- ams_one_roll ---------------------------------------------------------------------------------------------------


def test_a_heavy_rolls_once_against_a_missile():
    revised, original = both(SCENES["missile past a heavy"], "ams_one_roll")
    assert revised.named("ams_intercept") == [] and len(original.named("ams_intercept")) == 1
    (missile,) = revised.arena.battle.projectiles
    assert missile.rolled == {R_HEAVY}


def test_a_heavy_that_is_not_ready_keeps_its_roll():
    config = EnvConfig.original(ams_one_roll=True)
    scene = dataclasses.replace(SCENES["heavy not ready"], ams=(0.9, 0.9, 0.1, 0.9, 0.9))
    played = play("ams_one_roll", scene)
    assert config.ams_one_roll and len(played.named("ams_intercept")) == 1


# ---- the JAX simulator ----------------------------------------------------------------------------------------------


@cache
def compiled():
    return fuzz.stepper(ALL, fuzz.compile_step(ALL))


def agree(cases: list[Case]) -> list[str]:
    """Cases in which the two simulators differ, with the fields."""
    wrong = []
    for start in range(0, len(cases), fuzz.WIDTH):
        some = cases[start : start + fuzz.WIDTH]
        fields = fuzz.fields_of(compiled(), ALL, some)
        for b in np.flatnonzero(~fuzz.agreeing(fields, len(some))):
            if not fuzz.explanation(compiled(), ALL, some[b], fuzz.WIDTH):
                wrong.append(f"{start + b}: {fuzz.differing(fields, int(b))}")
    return wrong


def test_every_scene_agrees_with_all_switches_on():
    assert agree([case_of(ALL, scene) for scene in SCENES.values()]) == []


def test_random_steps_agree_with_all_switches_on():
    assert agree([make_case(ALL, seed) for seed in range(64)]) == []


def test_who_has_rolled_is_remembered_alike():
    cases = [case_of(ALL, SCENES["missile past a heavy"]), *(make_case(ALL, seed) for seed in range(7))]
    state, _ = fuzz.play(compiled(), cases)
    remembered = 0
    for b, case in enumerate(cases):
        loaded = to_reference(ALL, case.state)
        loaded.arena.advance(case.actions, SlotNoise(ALL, case.noise, loaded))
        theirs, ours = to_row(ALL, loaded, case.state).sim.projectiles, state.sim.projectiles
        flying = theirs.alive & ours.alive[b]
        np.testing.assert_array_equal(ours.rolled[b][flying], theirs.rolled[flying])
        remembered += int((theirs.rolled[flying] > 0).sum())
    assert remembered > 1


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_inverted_in_jax_is_noticed(switch):
    inverted = dataclasses.replace(ALL, **{switch: False})
    run = fuzz.stepper(inverted, fuzz.compile_step(inverted))

    def step(state, actions, noise):
        return run(state, actions, noise if inverted.fair_order else noise.replace(fire_order=None, wreck=None))

    cases = [case_of(ALL, scene) for scene in SCENES.values()]
    noticed = 0
    for start in range(0, len(cases), fuzz.WIDTH):
        some = cases[start : start + fuzz.WIDTH]
        noticed += int((~fuzz.agreeing(fuzz.fields_of(step, ALL, some), len(some))).sum())
    assert noticed > 0


@pytest.mark.parametrize(("rules", "drawn_for"), [(ORIGINAL, ALL), (ALL, ORIGINAL)])
def test_draws_of_other_rules_are_refused(rules, drawn_for):
    case = jax.tree.map(lambda leaf: np.asarray(leaf)[None], make_case(drawn_for, 0))
    with pytest.raises(ValueError, match="fire_order"):
        simulate(rules, sim_rules(rules), case.state.sim, None, case.noise)


def test_draws_of_a_fair_order_come_with_the_switch_and_leave_the_others_alone():
    keys = jax.random.split(jax.random.key(3), 2)
    off, on = sample_noise(ORIGINAL, keys), sample_noise(ALL, keys)
    assert off.fire_order is None and off.wreck is None
    assert (np.sort(on.fire_order, -1) == np.arange(N)).all()
    assert len(np.unique(np.asarray(on.fire_order).reshape(-1, N), axis=0)) > 1
    assert ((np.asarray(on.wreck) >= 0) & (np.asarray(on.wreck) < 1)).all()
