"""The replay file: what is written is read back, and nothing broken or hostile gets past the reader."""

import json
import struct
import zlib

import numpy as np
import pytest

from echelon_jax.replay.checks import ReplayError
from echelon_jax.replay.file import MAGIC, decode, encode, from_bytes, read_replay, to_bytes, write_replay
from echelon_jax.replay.model import ARRAYS
from echelon_jax.replay.page import page_of_bytes

HEAD = struct.Struct("<8sIII")


@pytest.fixture(scope="module")
def stored(data):
    return (data / "replays" / "small.echelon").read_bytes()


@pytest.fixture
def replay(stored):
    return from_bytes(stored)


def parts(stored):
    """Header and the bytes behind it."""
    _, _, packed, _ = HEAD.unpack_from(stored)
    header = json.loads(zlib.decompress(stored[HEAD.size : HEAD.size + packed]))
    return header, stored[HEAD.size + packed :]


def assembled(header, rest, version=1):
    plain = json.dumps(header).encode()
    packed = zlib.compress(plain)
    return HEAD.pack(MAGIC, version, len(packed), len(plain)) + packed + rest


def entry(header, name):
    return next(e for e in header["arrays"] if e["name"] == name)


def test_what_is_written_is_read_back(replay, tmp_path):
    again = read_replay(write_replay(tmp_path / "a.echelon", replay))
    assert again.header == replay.header
    assert set(again.arrays) == set(replay.arrays)
    for name in replay.arrays:
        assert again[name].tobytes() == replay[name].tobytes(), name


@pytest.mark.parametrize("kind", sorted({spec.dtype for spec in ARRAYS.values()}))
def test_every_type_of_array_survives_its_coding(kind):
    rng = np.random.default_rng(0)
    for shape in ((0, 3), (1, 4), (50, 3), (7,)):
        smooth = np.cumsum(rng.integers(-2, 3, shape), axis=0).astype(kind)
        noise = rng.integers(0, 256, (*shape, np.dtype(kind).itemsize)).astype(np.uint8).view(kind)[..., 0]
        for array in (smooth, noise):
            codec, data = encode(array)
            assert decode(data, np.dtype(kind), shape, codec, "x").tobytes() == array.tobytes()


def test_a_file_cut_anywhere_is_refused(stored):
    for length in (0, 5, 8, 19, 20, 100, len(stored) // 2, len(stored) - 1):
        with pytest.raises(ReplayError):
            from_bytes(stored[:length])


def test_bytes_behind_the_last_array_are_refused(stored):
    with pytest.raises(ReplayError, match="end with its last array"):
        from_bytes(stored + b"x")


def test_a_damaged_byte_is_refused(stored):
    for at in (30, len(stored) // 3, len(stored) - 10):
        broken = bytearray(stored)
        broken[at] ^= 0xFF
        with pytest.raises(ReplayError):
            from_bytes(bytes(broken))


def test_a_file_of_a_later_version_is_refused_by_its_number(stored):
    header, rest = parts(stored)
    with pytest.raises(ReplayError, match="version must be from 1 to 1"):
        from_bytes(assembled(header, rest, version=2))


def test_something_else_is_refused(tmp_path):
    path = tmp_path / "a.echelon"
    path.write_bytes(b"GIF89a" + bytes(100))
    with pytest.raises(ReplayError, match=r"a\.echelon: this is not an Echelon replay"):
        read_replay(path)


HOSTILE = {
    "a count beyond the file": lambda h: entry(h, "position")["shape"].__setitem__(0, 2**30),
    "a negative count": lambda h: entry(h, "position")["shape"].__setitem__(0, -1),
    "a count that is not a number": lambda h: entry(h, "position")["shape"].__setitem__(0, "9"),
    "a count that is true": lambda h: entry(h, "position")["shape"].__setitem__(0, True),
    "another number of axes": lambda h: entry(h, "position").update(shape=[10]),
    "another type": lambda h: entry(h, "position").update(type="object"),
    "an unknown codec": lambda h: entry(h, "position").update(codec="pickle"),
    "more bytes than there are": lambda h: entry(h, "digest").update(bytes=2**31 - 1),
    "an array of a name that no replay has": lambda h: entry(h, "position").update(name="../../x"),
    "an array twice": lambda h: h["arrays"].append(entry(h, "position")),
    "arrays that are no list": lambda h: h.update(arrays={"position": 1}),
    "a missing array": lambda h: h.update(arrays=h["arrays"][:-1]),
    "another format": lambda h: h.update(format="zip"),
    "no names": lambda h: h.update(names=None),
    "a name that is not text": lambda h: h.update(names=[{}, "red"]),
    "a name too long": lambda h: h.update(names=["x" * 10_000, "red"]),
    "a class that does not exist": lambda h: h["mechs"][0].update({"class": 99}),
    "a team that does not exist": lambda h: h["mechs"][0].update(team=7),
    "more mechs than rows": lambda h: h["mechs"].append(h["mechs"][0]),
    "a clock that stands still": lambda h: h.update(decision_seconds=0),
    "substeps without end": lambda h: h.update(substeps=10**9),
    "a layout with a hole": lambda h: h["action_layout"][1].__setitem__(1, 5),
    "a layout that is too short": lambda h: h.update(action_layout=h["action_layout"][:2]),
    "a winner of another kind": lambda h: h.update(winner="<script>"),
    "a number that is none": lambda h: h.update(score_to_win=True),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused_in_a_sentence(stored, name):
    header, rest = parts(stored)
    HOSTILE[name](header)
    with pytest.raises(ReplayError) as error:
        from_bytes(assembled(header, rest))
    assert "\n" not in str(error.value) and len(str(error.value)) < 250


def test_a_header_with_an_infinite_number_is_refused(stored):
    header, rest = parts(stored)
    header["score_to_win"] = float("inf")
    plain = json.dumps(header).encode()
    packed = zlib.compress(plain)
    with pytest.raises(ReplayError, match="finite"):
        from_bytes(HEAD.pack(MAGIC, 1, len(packed), len(plain)) + packed + rest)


def test_a_stream_that_unpacks_to_more_than_it_says_is_refused_without_unpacking_it():
    bomb = zlib.compress(bytes(200 << 20), 9)
    with pytest.raises(ReplayError, match="must hold 40 bytes"):
        decode(bomb, np.dtype("float32"), (10,), "plain", "yaw")


def test_a_header_that_unpacks_to_more_than_it_says_is_refused():
    packed = zlib.compress(b"{" + b" " * (64 << 20) + b"}", 9)
    for plain in (100, 4 << 20, 2**32 - 1):
        with pytest.raises(ReplayError):
            from_bytes(HEAD.pack(MAGIC, 1, len(packed), plain) + packed)


WRONG = {
    "position": lambda a: a.__setitem__((0, 0, 0), np.nan),
    "score": lambda a: a.__setitem__((0, 0), np.inf),
    "event_kind": lambda a: a.__setitem__(0, 200),
    "event_b": lambda a: a.__setitem__(0, 999),
    "event_time": lambda a: a.__setitem__(0, 10**6),
    "edit_voxel": lambda a: a.__setitem__(0, 10**8),
    "track_points": lambda a: a.__setitem__(0, a[0] + 1),
    "material": lambda a: a.__setitem__((0, 0, 0), 77),
    "focus": lambda a: a.__setitem__((0, 0), 50),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_would_lead_astray_is_refused(replay, name):
    array = replay[name].copy()
    if not array.size:
        pytest.skip(f"the stored game holds no {name}")
    WRONG[name](array)
    replay.arrays[name] = array
    with pytest.raises(ReplayError, match=name):
        to_bytes(replay)


def test_a_name_with_script_does_not_get_into_the_page_as_text(replay):
    evil = "</script><script>alert(1)</script>"
    replay.header["names"] = [evil, "<img src=x onerror=alert(1)>"]
    replay.header["title"] = evil
    page = page_of_bytes(to_bytes(replay))
    assert "alert(1)" not in page
    assert "onerror=alert" not in page


def test_the_page_asks_the_network_for_nothing(stored):
    page = page_of_bytes(stored)
    assert "default-src 'none'" in page
    for word in ('src="http', "src='http", 'href="http', "@import", "cdn."):
        assert word not in page
