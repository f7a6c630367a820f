"""Actions: sanitising, focus, EWAR switches, observation controls, messages."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax.config import EnvConfig
from echelon_jax.env.actions import broadcast, sanitise
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.original.actions import decide

CONFIG = EnvConfig.original(size_x=60, size_y=60)
LAYOUT = action_layout(CONFIG)


def scenes(config=CONFIG, count=1):
    made = Scenes(config, count)
    return made, made.actions()


def test_nan_and_infinities_become_zero_and_the_rest_is_clipped():
    raw = np.zeros((1, 10, 26), np.float32)
    raw[0, 2, :5] = [np.nan, np.inf, -np.inf, 3.0, -2.0]
    raw[0, 7, 25] = 0.5
    given = jnp.asarray(raw)
    clean, bad = sanitise(CONFIG, action_layout(CONFIG), given)
    assert np.array_equal(clean[0, 2, :5], [0.0, 0.0, 0.0, 1.0, -1.0])
    assert clean[0, 7, 25] == 0.5
    assert np.flatnonzero(bad).tolist() == [2]
    assert np.array_equal(given, raw, equal_nan=True)  # the caller's array is left alone


def test_a_wrong_action_shape_is_refused_with_both_shapes():
    with pytest.raises(ValueError, match=r"actions must have the shape \[arenas, 10, 26\], got \(1, 10, 25\)"):
        sanitise(CONFIG, action_layout(CONFIG), jnp.zeros((1, 10, 25)))


@pytest.mark.parametrize(
    ("value", "ecm", "eccm"), [(0.0, 0, 0), (1e-9, 1, 0), (0.5, 1, 0), (0.5000001, 0, 1), (1.0, 0, 1), (-1.0, 0, 0)]
)
def test_the_scouts_secondary_selects_ewar(value, ecm, eccm):
    made, actions = scenes()
    for name in ("blue_3", "blue_4", "red_4"):
        made.act(actions, 0, name, secondary=value)
    made.change(0, "red_4", alive=False)
    mechs = decide(CONFIG, made.ready(), jnp.asarray(actions)).mechs
    assert np.flatnonzero(mechs.ecm_on[0]).tolist() == [4] * ecm  # not the light, not the dead scout
    assert np.flatnonzero(mechs.eccm_on[0]).tolist() == [4] * eccm


def test_focus_is_the_enemy_in_the_slot_of_the_largest_preference():
    made, actions = scenes(count=6)
    made.state.contact_slots[:, 0] = [1, 2, 6, 7, -1]  # blue_1, blue_2, red_1, red_2, empty
    first = LAYOUT["target_preference"].offset
    actions[0, 0, first : first + 5] = [-1, 0, 0.2, 0.1, 0]  # red_1
    actions[1, 0, first : first + 5] = [0.3, 0, 0.2, 0.3, 0]  # a friend comes first: no focus, no second choice
    actions[2, 0, first : first + 5] = [0, 0, 0.3, 0.3, 0]  # a tie goes to the first
    actions[3, 0, first : first + 5] = [-1, -1, 0, -1, -1]  # the largest must be above 0
    actions[4, 0, first : first + 5] = [0, 0, 0, 0, 1]  # an empty slot
    actions[5, 0, first : first + 5] = [0, 0, 0, 1, 0]  # red_2, dead by now
    made.change(5, "red_2", alive=False)
    focus = decide(CONFIG, made.ready(), jnp.asarray(actions)).mechs.focus
    assert focus[:, 0].tolist() == [6, -1, 6, -1, -1, -1]
    assert (focus[:, 1:] == -1).all()


def test_a_dead_mech_focuses_nobody():
    made, actions = scenes()
    made.state.contact_slots[0, 0] = [6, 7, 8, 9, 5]
    actions[0, 0, LAYOUT["target_preference"].offset] = 1
    made.change(0, "blue_0", alive=False)
    assert decide(CONFIG, made.ready(), jnp.asarray(actions)).mechs.focus[0, 0] == -1


def test_observation_controls_take_the_first_largest_and_a_strict_threshold():
    made, actions = scenes()
    first, only = LAYOUT["sort_mode"].offset, LAYOUT["hostile_only"].offset
    actions[0, 0, first : first + 3] = [-1, -1, -1]
    actions[0, 1, first : first + 3] = [0, 0.1, 0.1]
    actions[0, 2, first : first + 3] = [0, 0.1, 0.2]
    actions[0, 2, only], actions[0, 3, only] = 1e-6, 0.0
    made.change(0, "blue_2", alive=False)  # the dead decide too
    decision = decide(CONFIG, made.ready(), jnp.asarray(actions))
    assert decision.sort_mode[0, :4].tolist() == [0, 1, 2, 0]
    assert decision.hostile_only[0, :4].tolist() == [False, False, True, False]


def test_triggers_are_strictly_positive_and_throttle_is_in_order():
    made, actions = scenes()
    made.act(
        actions,
        0,
        "red_1",
        forward=0.1,
        strafe=0.2,
        vertical=0.3,
        yaw_rate=0.4,
        primary=1e-6,
        vent=0,
        special=-1,
        tertiary=1,
    )
    commands = decide(CONFIG, made.ready(), jnp.asarray(actions)).commands
    assert np.allclose(commands.throttle[0, 6], [0.1, 0.2, 0.3, 0.4])
    pulled = [bool(getattr(commands, name)[0, 6]) for name in ("primary", "vent", "secondary", "tertiary", "special")]
    assert pulled == [True, False, False, True, False]


def test_switched_off_toggles_ignore_their_components():
    config = EnvConfig.original(
        size_x=60, size_y=60, target_selection=False, ewar=False, observation_control=False, communication=False
    )
    made, actions = scenes(config)
    made.state.contact_slots[0] = 6
    decision = decide(config, made.ready(), jnp.asarray(actions + 1))
    assert (decision.mechs.focus == -1).all()
    assert not decision.mechs.ecm_on.any() and not decision.mechs.eccm_on.any()
    assert (decision.sort_mode == 0).all() and not decision.hostile_only.any()
    assert (broadcast(config, action_layout(config), decision.mechs.alive, jnp.asarray(actions + 1)) == 0).all()


def test_the_living_speak_and_the_dead_are_silent():
    made, actions = scenes()
    actions[0, :, LAYOUT["message"].slice] = np.arange(10)[:, None] / 10
    made.change(0, "blue_2", alive=False)
    heard = broadcast(CONFIG, action_layout(CONFIG), jnp.asarray(made.state.sim.mechs.alive), jnp.asarray(actions))
    expected = np.where(np.arange(10) == 2, 0, np.arange(10) / 10)
    assert np.allclose(heard[0], expected[:, None])
