"""The original's JSON replay becomes a replay of ours, and a broken one is refused."""

import copy
import json

import numpy as np
import pytest

from echelon_jax.replay.checks import ReplayError
from echelon_jax.replay.file import from_bytes, read_replay, to_bytes
from echelon_jax.replay.model import ALIVE, ECM, EVENTS, FALLEN, HAZARD, REAR, SHUTDOWN
from echelon_jax.replay.original import from_original_json


def mech(team, kind, x, **changes):
    return {
        "team": team,
        "class": kind,
        "pos": [x, 5.0, 1.5],
        "vel": [0.5, 0.0, 0.0],
        "yaw": 4.0,
        "hp": 100.0,
        "hp_max": 150,
        "heat": 20.0,
        "heat_cap": 100.0,
        "stability": 90.0,
        "stability_max": 100.0,
        "alive": True,
        "fallen": False,
        "legged": False,
        "suppressed_time": 0.0,
        "ams_cooldown": 0.0,
        "ecm_on": False,
        "eccm_on": False,
    } | changes


def frame(number, events=(), clouds=(), **changes):
    return {
        "t": 0.25 * number - 1e-17,
        "tick": 5 * number,
        "objective": {
            "zone_center": [12.0, 10.0],
            "zone_radius": 6.0,
            "zone_score": {"blue": 0.25 * number, "red": 0.0},
            "zone_score_to_win": 30.0,
        },
        "mechs": {"blue_0": mech("blue", "heavy", 3.0 + number), "red_0": mech("red", "scout", 15.0, **changes)},
        "smoke_clouds": list(clouds),
        "events": list(events),
    }


def game():
    hit = {
        "type": "laser_hit",
        "weapon": "laser",
        "shooter": "blue_0",
        "target": "red_0",
        "pos": [15.0, 5.0, 1.5],
        "damage": 21.0,
        "is_crit": True,
        "is_leg_hit": False,
        "is_painted": False,
    }
    burnt = {"type": "kill", "shooter": "lava", "target": "red_0"}
    cloud = {"pos": [8.0, 8.0, 1.0], "radius": 4.0}
    world = {
        "size": [20, 16, 8],
        "voxel_size_m": 1,
        "seed": 3,
        "spawn_clear": 5,
        "meta": {},
        "walls": [[1, 2, 3, 1], [4, 5, 0, 2]],
    }
    frames = [
        frame(1, ecm_on=True),
        frame(2, [hit], [cloud], fallen=True, heat=101.0),
        frame(3, [burnt], [cloud], alive=False, hp=-2.0),
        frame(4, alive=False, hp=-2.0),
    ]
    return {"world": world, "frames": frames}


def read(value):
    return from_original_json(json.dumps(value).encode())


def test_it_has_the_frames_map_and_events_of_the_file():
    replay = read(game())
    assert replay.decisions == 4
    assert replay["material"].shape == (8, 16, 20)
    assert replay["material"][3, 2, 1] == 1 and replay["material"][0, 5, 4] == 2
    assert replay["material"].sum() == 3
    # Nothing is known before the first decision: the first frame stands for it.
    assert replay["position"][:, 0, 0].tolist() == [4.0, 4.0, 5.0, 6.0, 7.0]
    assert replay["score"][4].tolist() == [1.0, 0.0]
    assert replay["flags"][:, 1].tolist() == [ALIVE | ECM, ALIVE | ECM, ALIVE | FALLEN | SHUTDOWN, 0, 0]
    kinds = [EVENTS[k] for k in replay["event_kind"]]
    assert kinds == ["beam", "kill"]
    assert replay["event_flags"].tolist() == [REAR, 0]
    assert replay["event_a"].tolist() == [0, HAZARD]
    assert replay["event_time"].tolist() == [10, 15]
    assert (replay["cloud_start"].tolist(), replay["cloud_end"].tolist()) == ([10], [15])
    assert replay.header["winner"] == "blue"


def test_it_can_be_written_as_a_file_of_ours():
    again = from_bytes(to_bytes(read(game())))
    assert np.array_equal(again["position"], read(game())["position"])


def test_the_reader_of_files_takes_it(tmp_path):
    path = tmp_path / "original.json"
    path.write_text(json.dumps(game()))
    assert read_replay(path).decisions == 4


BROKEN = {
    "no frames": lambda g: g.update(frames=[]),
    "frames of another kind": lambda g: g.update(frames=7),
    "no world": lambda g: g.pop("world"),
    "a map too large": lambda g: g["world"].update(size=[10**6, 10**6, 10**6]),
    "a size that is no number": lambda g: g["world"].update(size=["a", 2, 3]),
    "a wall outside": lambda g: g["world"].update(walls=[[500, 0, 0, 1]]),
    "a wall of an unknown material": lambda g: g["world"].update(walls=[[0, 0, 0, 200]]),
    "a wall with three numbers": lambda g: g["world"].update(walls=[[0, 0, 0]]),
    "a mech that comes later": lambda g: g["frames"][1]["mechs"].pop("red_0"),
    "an unknown class": lambda g: g["frames"][0]["mechs"]["red_0"].update({"class": "titan"}),
    "an endless position": lambda g: g["frames"][0]["mechs"]["red_0"].update(pos=[1e400, 0, 0]),
    "ticks that jump": lambda g: g["frames"][1].update(tick=11),
    "a tick of another kind": lambda g: g["frames"][0].update(tick="5"),
    "an event without a type": lambda g: g["frames"][0].update(events=[{}]),
    "an event that is no object": lambda g: g["frames"][0].update(events=[3]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_refused_in_a_sentence(name):
    value = copy.deepcopy(game())
    BROKEN[name](value)
    with pytest.raises(ReplayError) as error:
        read(value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 250


def test_text_that_is_not_json_is_refused():
    for text in (b"{", b"{}[", b"[" * 100_000, b'{"world": \xff}'):
        with pytest.raises(ReplayError):
            from_original_json(text)
