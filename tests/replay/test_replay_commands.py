"""`echelon replay` and `echelon watch`: what they write and print, and wrong input as one sentence."""

import shutil

import pytest

from echelon_jax.cli.common import GameFlags
from echelon_jax.cli.main import main
from echelon_jax.cli.watch import WatchCommand


@pytest.fixture
def stored(data, tmp_path):
    return shutil.copy(data / "replays" / "small.echelon", tmp_path / "one.echelon")


def refused(capsys, *arguments):
    """The one sentence with which a command ends, and its exit status."""
    status = main(list(arguments))
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.strip().splitlines()
    return status, line


def test_a_file_becomes_a_page_beside_it(stored, capsys):
    assert main(["replay", str(stored), "--no-open"]) == 0
    page = stored.with_suffix(".html")
    assert capsys.readouterr().out.strip() == str(page)
    assert page.read_text().startswith("<!doctype html>")


def test_a_folder_opens_its_newest(stored, tmp_path, capsys):
    assert main(["replay", str(tmp_path), "--no-open", "--html", str(tmp_path / "out" / "p.html")]) == 0
    assert capsys.readouterr().out.splitlines() == [str(stored), str(tmp_path / "out" / "p.html")]
    assert (tmp_path / "out" / "p.html").exists()


def test_a_film_is_written_where_it_is_asked_for(stored, tmp_path, capsys):
    pytest.importorskip("PIL")
    film = tmp_path / "game.gif"
    assert main(["replay", str(stored), "--gif", str(film), "--speed", "50", "--width", "160"]) == 0
    assert capsys.readouterr().out.strip() == str(film)
    assert film.read_bytes().startswith(b"GIF89a")


def test_a_film_goes_to_the_tensorboard_of_a_run(stored, tmp_path, capsys):
    status, line = refused(capsys, "replay", str(stored), "--tensorboard", str(tmp_path / "none"))
    assert status == 2 and line.startswith("echelon: tensorboard must be a run")
    run = tmp_path / "run"
    run.mkdir()
    assert main(["replay", str(stored), "--tensorboard", str(run), "--speed", "50", "--width", "160"]) == 0
    assert capsys.readouterr().out.strip() == str(run / "tensorboard" / "games")
    assert any((run / "tensorboard" / "games").iterdir())


def test_what_is_not_there_is_told_in_a_sentence(tmp_path, capsys):
    status, line = refused(capsys, "replay", str(tmp_path / "none.echelon"))
    assert status == 2 and "there is no replay at" in line
    status, line = refused(capsys, "replay", str(tmp_path))
    assert status == 2 and "there is no replay (*.echelon)" in line


def test_a_broken_file_is_told_in_a_sentence(stored, capsys):
    stored.write_bytes(stored.read_bytes()[:500])
    status, line = refused(capsys, "replay", str(stored), "--no-open")
    assert status == 2 and "one.echelon" in line


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--speed", "0"), "speed"),
        (("--width", "9"), "width"),
    ],
)
def test_a_flag_out_of_range_is_named(stored, capsys, arguments, field):
    status, line = refused(capsys, "replay", str(stored), *arguments)
    assert status == 2 and line.startswith(f"echelon: {field} must be")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--blue", "nobody"), "nobody"),
        (("--seed", "-1"), "seed"),
        (("--out", "game.txt"), "out"),
        (("--size", "5"), "size_x"),
        (("--red", "scripted:7"), "fire rate"),
    ],
)
def test_watch_refuses_what_it_cannot_play_before_it_plays(capsys, arguments, word):
    status, line = refused(capsys, "watch", "--no-open", *arguments)
    assert status == 2 and word in line


@pytest.mark.parametrize(
    ("flags", "players"),
    [
        ({}, ("zoo:champion", "scripted")),
        ({"red": "scripted:hard"}, ("zoo:champion", "scripted:hard")),
        ({"red": "runs/mine"}, ("scripted", "runs/mine")),
        ({"game": GameFlags(rules="original")}, ("scripted", "scripted")),
        ({"blue": "random"}, ("random", "scripted")),
    ],
)
def test_the_champion_plays_blue_in_its_own_game_unless_told_otherwise(flags, players):
    assert WatchCommand(**flags).players() == players


def test_without_arguments_the_game_is_that_of_the_champion():
    import echelon_jax

    assert WatchCommand()._config() == echelon_jax.load_policy("zoo:champion").env_config
