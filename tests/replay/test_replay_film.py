"""Films of a replay from above: as many pictures as the game's clock asks for, showing who is where."""

import io

import numpy as np
import pytest

from echelon_jax.replay.file import from_bytes
from echelon_jax.replay.film import (
    FRAMES_PER_SECOND,
    TEAMS,
    Painter,
    film_in_tensorboard,
    moments,
    terrain_picture,
    write_gif,
    write_mp4,
)
from echelon_jax.replay.model import Replay

image = pytest.importorskip("PIL.Image", reason="films need pillow: pip install 'echelon-jax[viz]'")


@pytest.fixture(scope="module")
def replay(data):
    return from_bytes((data / "replays" / "small.echelon").read_bytes())


def test_a_film_lasts_as_long_as_the_game_over_its_speed(replay):
    for speed in (1.0, 4.0):
        times = moments(replay, speed)
        assert times[0] == 0 and times[-1] == replay.decisions * replay.header["substeps"]
        assert len(times) == pytest.approx(replay.seconds / speed * FRAMES_PER_SECOND, abs=2)


def test_a_gif_holds_every_moment(replay, tmp_path):
    path = write_gif(tmp_path / "game.gif", replay, width=160, speed=20.0)
    with image.open(path) as film:
        assert film.n_frames == len(moments(replay, 20.0))
        assert film.width == 160
        first = np.asarray(film.convert("RGB"))
        film.seek(film.n_frames // 2)
        assert (np.asarray(film.convert("RGB")) != first).any(-1).mean() > 0.005


@pytest.mark.parametrize(("source", "update"), [("validation at update 40", 40), ("echelon watch", 0)])
def test_tensorboard_gets_the_film_at_the_update_that_played_it(replay, tmp_path, source, update):
    from tensorboardX.proto.event_pb2 import Event

    game = Replay({**replay.header, "source": source}, replay.arrays)
    [file] = film_in_tensorboard(tmp_path, game, width=160, speed=50.0).iterdir()
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):  # records: length, its checksum, the event, its checksum
        size = int.from_bytes(data[at : at + 8], "little")
        event = Event.FromString(data[at + 12 : at + 12 + size])
        found += [(event.step, value) for value in event.summary.value]
        at += 16 + size
    [(step, value)] = found
    assert (step, value.tag) == (update, "game")
    with image.open(io.BytesIO(value.image.encoded_image_string)) as film:
        assert film.n_frames == len(moments(replay, 50.0))
        assert film.size == (value.image.width, value.image.height)


def test_an_mp4_holds_every_moment(replay, tmp_path):
    av = pytest.importorskip("av", reason="MP4 needs PyAV: pip install 'echelon-jax[video]'")
    path = write_mp4(tmp_path / "game.mp4", replay, width=160, speed=20.0)
    with av.open(str(path)) as film:
        assert sum(1 for _ in film.decode(video=0)) == len(moments(replay, 20.0))


def test_a_mech_is_drawn_where_it_stands_in_its_teams_colour(replay):
    painter = Painter(replay, 320)
    picture = np.asarray(painter.draw(0.0)).astype(int)
    scale = picture.shape[1] / painter.size_x
    for mech, entry in enumerate(replay.header["mechs"]):
        x, y, yaw = painter.pose(0.0, mech)
        # Half a voxel ahead of the middle is inside both shapes, and free of its bars.
        column = int((x + 0.3 * np.cos(yaw)) * scale)
        row = int(picture.shape[0] - (y + 0.3 * np.sin(yaw)) * scale)
        assert np.abs(picture[row, column] - TEAMS[entry["team"]]).max() < 60, mech


def test_poses_between_substeps_lie_on_the_way(replay):
    painter = Painter(replay, 160)
    for mech in (0, 7):
        a, b = (np.array(painter.pose(t, mech)[:2]) for t in (40, 41))
        assert np.array(painter.pose(40.5, mech)[:2]) == pytest.approx((a + b) / 2, abs=0.02)
        at_frame = replay["position"][8, mech, :2]
        assert np.array(painter.pose(40, mech)[:2]) == pytest.approx(at_frame, abs=0.02)


def test_going_back_in_time_brings_destroyed_voxels_back(replay):
    painter = Painter(replay, 160)
    first = np.asarray(painter.draw(0.0))
    painter.draw(float(painter.end))
    assert np.array_equal(np.asarray(painter.draw(0.0)), first)


def test_higher_ground_is_brighter():
    material = np.zeros((8, 4, 4), np.uint8)
    material[0, :, :2] = 1
    material[:7, :, 2:] = 1
    picture = terrain_picture(material).astype(int)
    assert picture[2, 3].sum() > picture[2, 0].sum()
