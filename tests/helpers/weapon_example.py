"""Plays the weapons of docs/extending.md: run in a process of its own with the changed copy of the package in front.

`test_weapon_example.py` starts it. Any failed check ends it with an assertion.
"""

from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import echelon_jax
from echelon_jax import compiling
from echelon_jax.agents.base import AgentParams
from echelon_jax.agents.scripted import Scripted
from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.env.modern.layout import SHOT_KINDS
from echelon_jax.evaluation.behaviour import shots
from echelon_jax.native.build import CannotBuild, compiler
from echelon_jax.parity.exchange import row_of
from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.fuzzing.cases import Case, make_case
from echelon_jax.parity.fuzzing.recording import play_reference
from echelon_jax.policies.action_mask import mask_rules, rule_holds
from echelon_jax.rules.page import weapon_table
from echelon_jax.rules.weapons import WEAPON_NAMES
from helpers.env_scenes import Scenes

CONFIG = EnvConfig.revised(size_x=60, size_y=60, num_packs=1, observation_mode="full")
PULSE, RAIL = WEAPON_NAMES.index("pulse laser"), WEAPON_NAMES.index("rail gun")
SCOUT, HEAVY, MEDIUM = "blue_4", "red_0", "red_1"
PULSE_HIT, PULSE_BEHIND, RAIL_HIT, RAIL_FALLEN, NOTHING = range(5)  # the scenes
STEPS = 64  # random states
PRIMARY_COLUMN, TERTIARY_COLUMN = 4, 7  # of the action mask: four throttles come first


def scenes() -> list[Case]:
    """A scout before a medium at 6 voxels, or before a heavy at 12; what it presses and what happens is its name."""
    made = Scenes(CONFIG, fuzz.WIDTH)
    actions = made.actions()
    for scene in range(fuzz.WIDTH):
        made.put(scene, SCOUT, 20.3, 20.4)  # off the borders of cells, where rays of float32 and float64 part
        if scene in (PULSE_HIT, PULSE_BEHIND):
            made.put(scene, MEDIUM, 26.3, 20.4, yaw=np.pi if scene == PULSE_HIT else 0.0)
            made.act(actions, scene, SCOUT, primary=1.0)
        else:
            made.put(scene, HEAVY, 32.3, 20.4, yaw=np.pi)
        if scene in (RAIL_HIT, RAIL_FALLEN):
            made.act(actions, scene, SCOUT, tertiary=1.0)
        if scene == RAIL_FALLEN:
            made.change(scene, SCOUT, fallen=60)
    noise, state = made.noise(), made.ready()
    n = CONFIG.num_mechs
    ones = jnp.ones((fuzz.WIDTH, CONFIG.substeps, n))
    noise = noise.replace(fire_order=noise.move_order, wreck=ones)
    return [Case(row_of(state, b), actions[b], row_of(noise, b)) for b in range(fuzz.WIDTH)]


def check_scenes(step: fuzz.Stepper) -> None:
    """What each scene comes to, by hand; and that the reference says the same in every field."""
    cases = scenes()
    state, made = fuzz.play(step, cases)
    fields = fuzz.fields_of(step, CONFIG, cases)
    assert fuzz.agreeing(fields, len(cases)).all(), [fuzz.differing(fields, b) for b in range(len(cases))]

    ids = Scenes(CONFIG, 1).ids
    scout, heavy, medium = (ids.index(name) for name in (SCOUT, HEAVY, MEDIUM))
    hp, tally = state.sim.mechs.hp, state.sim.tally
    assert np.isclose(hp[PULSE_HIT, medium], 150 - 6)
    assert np.isclose(hp[PULSE_BEHIND, medium], 150 - 1.5 * 6)  # from behind
    assert np.isclose(
        hp[RAIL_HIT, heavy], 200 - 32
    )  # 12 voxels in four substeps, and the target is spared by the blast
    assert tally.laser_hits[:, scout].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert tally.paints[:, scout].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]  # the painter is on the same trigger
    assert tally.kinetic_fires[:, scout].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert (hp[[RAIL_FALLEN, NOTHING], heavy] == 200).all()

    before = jax.tree.map(jnp.asarray, fuzz.stack([case.state for case in cases]).sim.mechs)
    fired = np.asarray(shots(CONFIG, before, jax.tree.map(jnp.asarray, state)))[:, scout]
    assert fired[:, PULSE].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert fired[:, RAIL].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]

    rules, seen = mask_rules(CONFIG), jnp.asarray(made.observation[:, scout])
    primary, tertiary = (np.asarray(rule_holds(rules[c], seen)) for c in (PRIMARY_COLUMN, TERTIARY_COLUMN))
    assert primary.all()  # the pulse laser is ready again within the next decision
    assert tertiary.tolist() == [True, True, False, True, True, True, True, True]


def check_scripted() -> None:
    """The scripted scout presses primary at 6 voxels and tertiary at 12."""
    agent, params = Scripted(CONFIG), fuzz.default_params(CONFIG)
    state = jax.tree.map(jnp.asarray, fuzz.stack([case.state for case in scenes()]))
    still = jnp.zeros((fuzz.WIDTH, CONFIG.num_mechs))
    memory = agent.init(params, state)

    @jax.jit
    def act(state: object) -> jax.Array:
        return agent.act_with_noise(params, AgentParams(jnp.float32(1.0)), memory, state, still, still)[1]

    pressed = np.asarray(act(state))[:, Scenes(CONFIG, 1).mech(SCOUT)] > 0
    assert pressed[[PULSE_HIT, RAIL_HIT], PRIMARY_COLUMN].tolist() == [True, False]
    assert pressed[[PULSE_HIT, RAIL_HIT], TERTIARY_COLUMN].all()


def check_random_states(step: fuzz.Stepper) -> None:
    """Random states in which both weapons strike, compared in every field."""
    result = fuzz.run(CONFIG, range(STEPS), step)
    assert result.steps == STEPS and [(f.seed, f.fields) for f in result.unexplained] == []
    struck: Counter[str] = Counter()
    for start in range(0, STEPS, fuzz.WIDTH):
        expected = play_reference(CONFIG, [make_case(CONFIG, seed) for seed in range(start, start + fuzz.WIDTH)])
        struck.update(event.get("weapon") for arena in expected.arenas for event in arena.battle.events)
    assert struck["pulse laser"] >= 3 and struck["rail gun"] >= 3, struck


def native_kernels() -> list[str]:
    """`native` where this machine can build them: the two weapons need no line of native code."""
    try:
        compiler("cpu")
    except CannotBuild:
        return []
    return ["native"]


def main() -> None:
    """Every check, cheap ones first."""
    assert Path.cwd() in Path(echelon_jax.__file__).parents, "the changed copy of the package must be imported"
    assert observation_layout(CONFIG)["shot_0/kind"].size == len(SHOT_KINDS) == 5 and RAIL in SHOT_KINDS
    assert "pulse laser" in weapon_table() and "rail gun" in weapon_table()
    check_scripted()
    compiling.as_xla_does = compiling.for_short_runs  # two steps are compiled and hardly run
    for kernels in ("xla", *native_kernels()):
        step = fuzz.stepper(CONFIG, fuzz.compile_step(CONFIG, kernels=kernels))
        check_scenes(step)
        check_random_states(step)
    print("both simulators agree")


if __name__ == "__main__":
    main()
