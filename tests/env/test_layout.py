"""The layout tables name every number once."""

import dataclasses

import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.layout import KINDS


@pytest.mark.parametrize("comm_dim", [0, 3, 8])
@pytest.mark.parametrize("packs", [1, 2])
def test_entries_follow_each_other_and_fill_the_vector(comm_dim, packs):
    config = EnvConfig.original(comm_dim=comm_dim, num_packs=packs, size_x=60, size_y=60)
    for layout, size in ((observation_layout(config), 549 + 5 * comm_dim), (action_layout(config), 18 + comm_dim)):
        offsets = [entry.offset for entry in layout]
        assert offsets == np.cumsum([0] + [entry.size for entry in layout])[:-1].tolist()
        assert layout.size == size
        assert len({entry.name for entry in layout}) == len(offsets)
        assert all(entry.kind in KINDS and entry.low < entry.high for entry in layout)


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("contact_0/offset", 0),
        ("contact_1/offset", 25),
        ("contact_3/ballistic_pitch", 97),
        ("contact_4/crossing", 124),
        ("message/0", 125),
        ("message/4", 157),
        ("local_map", 165),
        ("telemetry", 286),
        ("sound/front_left", 542),
        ("sound/rear_right", 545),
        ("hull", 546),
        ("own/targeted", 550),
        ("own/damage_forward", 559),
        ("own/sensor_quality", 563),
        ("own/velocity", 569),
        ("own/tube_cooldown", 573),
        ("own/zone_offset", 577),
        ("own/control", 581),
        ("own/time", 584),
        ("own/hostile_only", 588),
    ],
)
def test_offsets_are_those_of_the_specification(name, offset):
    assert observation_layout(EnvConfig.original())[name].offset == offset


def test_a_block_spans_its_parts():
    layout = observation_layout(EnvConfig.original())
    assert layout.block("contact_2") == slice(50, 75)
    assert layout.block("message") == slice(125, 165)
    assert layout.block("own") == slice(550, 589)
    with pytest.raises(ValueError, match="block must be"):
        layout.block("contact")


def test_an_unknown_entry_is_named_in_the_error():
    with pytest.raises(ValueError, match="'armour'"):
        observation_layout(EnvConfig.original())["armour"]


def test_a_normaliser_leaves_flags_one_hots_and_maps_alone():
    layout = observation_layout(EnvConfig.original())
    mask = layout.continuous
    assert mask.shape == (589,)
    for name in (
        "local_map",
        "telemetry",
        "hull",
        "own/in_zone",
        "own/sort_mode",
        "contact_0/used",
        "contact_4/relation",
    ):
        assert not mask[layout[name].slice].any(), name
    for name in ("contact_0/offset", "contact_4/hp", "message/2", "sound/rear_left", "own/velocity", "own/time"):
        assert mask[layout[name].slice].all(), name


def test_bounds_are_infinite_only_where_the_game_does_not_clip():
    env = Echelon(EnvConfig.original())
    low, high = env.observation_bounds()
    layout = env.observation_layout()
    open_ended = {e.name.split("/")[-1] for e in layout if not np.isfinite([low[e.offset], high[e.offset]]).all()}
    assert open_ended == {"velocity", "front_left", "front_right", "rear_left", "rear_right", "altitude"}
    assert low.shape == high.shape == (589,) and (low < high).all()


def test_an_environment_is_a_static_value():
    assert hash(Echelon(EnvConfig.original())) == hash(Echelon(EnvConfig.original()))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Echelon(EnvConfig.original()).config = EnvConfig.original(num_packs=2)
