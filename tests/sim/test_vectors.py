"""Worked numbers of the original on the JAX simulator: one scene per arena of one batch.

Source: docs/spec/rules.md Appendix B.

Every scene starts from the full roster with everybody else dead, and runs substep by substep.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.parity.exchange import row_of, stack
from echelon_jax.parity.recorded.maps import column_words
from echelon_jax.rules import materials as mat
from echelon_jax.rules.mechs import PACK_SIZE
from echelon_jax.rules.weapons import MISSILE
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.rays import smoke_clear
from echelon_jax.sim.rules import sim_rules
from echelon_jax.sim.slots import TUBE, slots
from echelon_jax.sim.state import Commands, Grid, SimState
from echelon_jax.sim.step import initial_state, simulate
from echelon_jax.sim.wrecks import wreck_roll

CONFIG = EnvConfig.original(substeps=1)
HEAVY, MEDIUM, LIGHT, SCOUT = 0, 1, 3, 4  # of blue; of red after PACK_SIZE
SUBSTEPS = 85
HELD = 1_000  # more substeps than any scene has


@dataclasses.dataclass
class Scene:
    """Who stands where, what the actor does and for how many substeps.

    `mechs`: index to fields; `action` is given to the first of them for `held` substeps. Pinned mechs are put back on their
    places after every substep. `shot`: position and velocity of a missile without a target in flight.
    """

    mechs: dict[int, dict[str, Any]]
    action: dict[str, float] = dataclasses.field(default_factory=dict)
    held: int = HELD
    ground: int = mat.DIRT
    pinned: bool = False
    shot: tuple[Any, Any] | None = None


def one(mech, position, action=None, **fields):
    return Scene({mech: {"position": position, **fields}}, action or {})


def pair(shooter, at, target, there, trigger, **more):
    return Scene({shooter: {"position": at, **more}, target: {"position": there}}, {trigger: 1}, held=1, pinned=True)


def loose(position, velocity):
    return Scene({HEAVY: {"position": (5, 5, 2)}}, shot=(position, velocity))


SCENES = {
    "forward": one(SCOUT, (20, 20, 0.9), {"forward": 1}),
    "turn": one(SCOUT, (20, 20, 0.9), {"forward": 1, "strafe": 1, "yaw": 0.5}),
    "jets": one(SCOUT, (20, 20, 0.9), {"forward": 1, "vertical": 1}),
    "fall": one(LIGHT, (20, 20, 5)),
    "limp": one(MEDIUM, (20, 20, 1.5), {"forward": 1}, leg_hp=0.0),
    "vent": one(HEAVY, (20, 20, 2), {"forward": 1, "vent": 1}, yaw=1.0, heat=100.0),
    "shutdown": one(HEAVY, (20, 20, 2), {"forward": 1, "yaw": 1}, heat=200.0, velocity=(2, 1, 0)),
    "water": dataclasses.replace(one(MEDIUM, (20, 20, 1.5), {"forward": 1}, heat=50.0), ground=mat.WATER),
    "knockdown": one(HEAVY, (20, 20, 2), {"forward": 1}, stability=0.0),
    "gauss": pair(HEAVY, (10, 10, 2), PACK_SIZE + MEDIUM, (20, 10.5, 3), "tertiary"),
    "missile": pair(HEAVY, (10, 10, 2), PACK_SIZE + MEDIUM, (20, 10.5, 3), "secondary"),
    # The same trigger would paint; its cooldown keeps the numbers those of the gun alone.
    "autocannon": pair(MEDIUM, (10, 10, 1.5), PACK_SIZE + HEAVY, (18, 10.5, 2), "tertiary", painter_cooldown=20),
    "out slow": loose((35, 20.5, 5.5), (12, 0, 0)),
    "out askew": loose((35, 20.3, 5.5), (11, 4, 0.5)),
    "out fast": loose((35, 20.5, 5.5), (40, 0, 0)),
    "down": loose((35.2, 20.5, 3), (0, 0, -12)),
}
NAMES = tuple(SCENES)


def start_of(scene: Scene) -> SimState:
    c = CONFIG
    material = np.zeros((c.size_z, c.size_y, c.size_x), np.uint8)
    material[0] = scene.ground
    flat = jnp.asarray(material.reshape(1, -1))
    grid = Grid(
        material=flat,
        hp=jnp.zeros(flat.shape, jnp.int16),
        collides=jnp.asarray(column_words(np.asarray(flat), mat.COLLIDES, c)),
        opaque=jnp.asarray(column_words(np.asarray(flat), mat.OPAQUE, c)),
    )
    n = c.num_mechs
    state = row_of(initial_state(c, sim_rules(c), grid, jnp.zeros((1, n, 3)), jnp.zeros((1, n))), 0)
    state.mechs.alive[:] = False
    for i, fields in scene.mechs.items():
        for name, value in {"alive": True, **fields}.items():
            getattr(state.mechs, name)[i] = value
    if scene.shot is not None:
        table, shots = slots(c), state.projectiles
        slot = int(np.flatnonzero((table.mech == HEAVY) & (table.launcher == TUBE))[0])
        shots.alive[slot], shots.weapon[slot] = True, MISSILE
        shots.position[slot], shots.velocity[slot] = scene.shot
    return state


def commands_at(substep: int) -> Commands:
    n = CONFIG.num_mechs
    made = Commands(np.zeros((len(NAMES), n, 4), np.float32), *(np.zeros((len(NAMES), n), bool) for _ in range(5)))
    throttle = ("forward", "strafe", "vertical", "yaw")
    for b, name in enumerate(NAMES):
        scene = SCENES[name]
        actor = next(iter(scene.mechs))
        for component, value in scene.action.items() if substep < scene.held else ():
            if component in throttle:
                made.throttle[b, actor, throttle.index(component)] = value
            else:
                getattr(made, component)[b, actor] = value > 0
    return made


@pytest.fixture(scope="session")
def scenes():
    """Name of a scene to its states after 0, 1, ... substeps (without the grid)."""
    rules, n = sim_rules(CONFIG), CONFIG.num_mechs
    table = slots(CONFIG)
    noise = Noise(  # nobody intercepts, every hit is on the body, mechs move in roster order
        ams=jnp.full((len(NAMES), 1, len(table.heavy), table.max_ring, 1), 0.99),
        hit_height=jnp.full((len(NAMES), 1, n, 2), 0.5),
        move_order=jnp.broadcast_to(jnp.arange(n), (len(NAMES), 1, n)),
    )
    step = jax.jit(lambda state, commands: simulate(CONFIG, rules, state, commands, noise))
    state = jax.tree.map(jnp.asarray, stack([start_of(SCENES[name]) for name in NAMES]))
    pinned = jnp.asarray([SCENES[name].pinned for name in NAMES])[:, None, None]
    home = state.mechs
    history = [jax.device_get(state.replace(grid=None))]
    for substep in range(SUBSTEPS):
        state = step(state, jax.tree.map(jnp.asarray, commands_at(substep)))
        mechs = state.mechs.replace(
            position=jnp.where(pinned, home.position, state.mechs.position),
            velocity=jnp.where(pinned, home.velocity, state.mechs.velocity),
        )
        state = state.replace(mechs=mechs)
        history.append(jax.device_get(state.replace(grid=None)))
    return {name: [row_of(past, b) for past in history] for b, name in enumerate(NAMES)}


def mech(scenes, name, substeps, who=0):
    """The fields of the who-th mech of a scene after so many substeps."""
    index = list(SCENES[name].mechs)[who]
    return jax.tree.map(lambda leaf: leaf[index], scenes[name][substeps].mechs)


def shot(scenes, name, substeps):
    """Position and velocity of the only shot in flight."""
    shots = scenes[name][substeps].projectiles
    (slot,) = np.flatnonzero(shots.alive)
    return shots.position[slot], shots.velocity[slot]


def close(expected, tolerance=2e-6):
    return pytest.approx(np.array(expected), abs=tolerance)


# ---- movement -------------------------------------------------------------------------------------------------------


def test_scout_one_substep_forward(scenes):
    m = mech(scenes, "forward", 1)
    assert m.position == close((20.3430004, 20, 0.9)) and m.velocity == close((6.86, 0, 0))


def test_scout_forward_strafe_and_turn(scenes):
    m = mech(scenes, "turn", 10)
    assert m.position == close((21.7426548, 22.9210930, 0.9), 1e-5) and m.yaw == close(0.45)
    assert m.velocity == close((2.2579360, 6.4777565, 0), 1e-5)


def test_scout_jets_up(scenes):
    m = mech(scenes, "jets", 20)
    assert m.position == close((26.8600082, 20, 4.6249509), 1e-5) and m.velocity == close((6.86, 0, 6.6696138), 1e-5)
    assert m.loudness == close(9.5678291, 1e-5)


def test_light_falls_and_hovers_just_above_the_floor(scenes):
    m = mech(scenes, "fall", 40)
    assert m.position == close((20, 20, 1.0135516), 1e-5) and not m.velocity.any()


def test_legged_medium_limps_and_loses_stability_above_half(scenes):
    m = mech(scenes, "limp", 10)
    assert m.position == close((21.0779953, 20, 1.5), 1e-5) and m.velocity == close((2.156, 0, 0)) and m.stability == 50


def test_venting_heavy_cools_threefold(scenes):
    m = mech(scenes, "vent", 10)
    assert m.position == close((20.6618690, 21.0308075, 2), 1e-5) and m.heat == close(85, 1e-4)


def test_shutdown_coasts_without_turning(scenes):
    m = mech(scenes, "shutdown", 5)
    assert m.position == close((20.4707890, 20.2353935, 2), 1e-5) and m.yaw == 0 and m.heat == close(197.5, 1e-4)


def test_water_slows_and_cools(scenes):
    m = mech(scenes, "water", 10)
    assert m.position == close((21.6169930, 20, 1.5), 1e-5) and m.heat == close(29.5, 1e-4)


def test_knockdown_lasts_61_substeps_of_movement(scenes):
    assert mech(scenes, "knockdown", 1).fallen == 61
    down = mech(scenes, "knockdown", 61)
    assert down.fallen == 1 and down.position[0] == 20
    up = mech(scenes, "knockdown", 62)
    assert up.fallen == 0 and up.stability == 50 and up.position[0] == close(20.1225)
    assert mech(scenes, "knockdown", 63).stability == 50.25


# ---- shots ----------------------------------------------------------------------------------------------------------


def test_gauss_aims_above_the_drop(scenes):
    position, velocity = shot(scenes, "gauss", 1)
    assert position == close((10, 10, 3.6)) and velocity == close((39.9331589, 1.9966580, -1.1643206), 2e-5)


def test_missile_is_launched_upwards(scenes):
    position, velocity = shot(scenes, "missile", 1)
    assert position == close((10, 10, 4.5)) and velocity == close((10.2663593, 0.5133179, 6.1917987), 1e-5)


def test_missile_turns_to_its_target(scenes):
    position, velocity = shot(scenes, "missile", 2)
    assert position == close((10.5497351, 10.0274868, 4.7388215), 1e-5)
    assert velocity == close((10.9947004, 0.5497350, 4.7764339), 1e-5)


def test_missile_hits_from_behind_in_update_16(scenes):
    before, after = mech(scenes, "missile", 16, 1), mech(scenes, "missile", 17, 1)
    assert before.hp == 150 and scenes["missile"][16].projectiles.alive.any()
    assert after.hp == 150 - 60 and after.stability == 100 - 22.5
    assert not scenes["missile"][17].projectiles.alive.any()


def test_autocannon_leaves_level_with_its_barrel(scenes):
    position, velocity = shot(scenes, "autocannon", 1)
    assert position == close((10, 10, 2.7)) and velocity == close((24.8567104, 1.5535444, -2.1749623), 1e-5)


def test_autocannon_hits_in_update_5_and_suppresses(scenes):
    before, after = mech(scenes, "autocannon", 5, 1), mech(scenes, "autocannon", 6, 1)
    assert before.hp == 200 and before.suppressed == 0
    assert after.hp == 200 - 12 and after.stability == 100 - 7.5 and after.suppressed == 24


# ---- shots that leave the map ---------------------------------------------------------------------------------------


def test_a_slow_shot_flies_on_outside_and_expires_without_a_trace(scenes):
    position, _ = shot(scenes, "out slow", 83)
    assert position == close((84.8, 20.5, 5.5), 1e-3)
    assert not scenes["out slow"][84].projectiles.alive.any()
    assert not any(state.tally.explosions.any() for state in scenes["out slow"])


@pytest.mark.parametrize(
    ("name", "update", "impact"),
    [("out askew", 19, (45.45, 24.10, 5.975)), ("out fast", 3, (41, 20.5, 5.5)), ("down", 5, (35.2, 20.5, 0))],
)
def test_a_shot_explodes_where_its_step_is_blocked(scenes, name, update, impact):
    position, velocity = shot(scenes, name, update - 1)
    assert position + velocity * CONFIG.dt == close(impact, 1e-3)
    exploded = [int(state.tally.explosions.sum()) for state in scenes[name]]
    assert exploded[update] == 1 and sum(exploded) == 1


# ---- smoke and wrecks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "clear"),
    [
        ((0, 14, 2), (20, 14, 2), False),
        ((0, 14.01, 2), (20, 14.01, 2), True),
        ((10, 10, 2), (10, 10, 2), True),
        ((10, 10, 2), (10.5, 10, 2), False),
        ((0, 10, 2), (6, 10, 2), False),
        ((0, 10, 2), (5.99, 10, 2), True),
    ],
)
def test_smoke_hides_what_its_sphere_touches(start, end, clear):
    cloud, life = jnp.array([[[10.0, 10.0, 2.0]]]), jnp.array([[1]])
    ends = (jnp.array([point], jnp.float32) for point in (start, end))
    assert bool(smoke_clear(cloud, life, *ends)[0]) is clear


@pytest.mark.parametrize(
    ("name", "crc"),
    [
        ("0:2:2:0:6:6:4", 1777444726),  # blue_0:heavy
        ("8:10:12:0:12:14:2", 3139243155),  # red_3:light
        ("4:16:2:0:18:4:2", 2882472130),  # blue_4:scout
        ("6:7:3:0:10:6:3", 2499349274),  # red_1:medium
    ],
)
def test_wreck_roll_is_the_crc_of_name_class_and_cells(name, crc):
    index, *bounds = (int(part) for part in name.split(":"))
    assert int(wreck_roll(CONFIG, jnp.array([index]), jnp.array([bounds]))[0]) == crc
